"""The ops of the family pooling: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnx.shape_inference
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import onnx_to_tflite
from onnxtfl.build.windows import tfl_padding
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import tensor
from onnxtfl.rewriting.legalize import legalize
from tests.fuzz.both_ways import assert_converts_both_ways
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import TFLITE, check_legalized, floats, lifted_onnx, onnx_target
from tests.unit.onnx_nodes import agrees_on
from tests.unit.permuting import check_permuted
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
from tests.unit.tiny_models import onnx_model


def pool(rank: int, **changed: Any) -> dict[str, Any]:
    ones = (1,) * rank
    window = {"kernel_shape": (3,) * rank, "strides": ones, "padding": (0,) * (2 * rank), "dilations": ones}
    return {"dims": tuple(range(2, rank + 2)), **window, **changed}


_POOLS = [
    ((2, 3, 9), pool(1, strides=(2,), padding=(1, 0))),
    ((2, 3, 9, 8), pool(2)),
    ((2, 3, 9, 8), pool(2, strides=(2, 2), padding=(1, 1, 1, 1))),
    ((2, 3, 9, 8), pool(2, strides=(2, 3), padding=(0, 1, 2, 0))),
    ((2, 3, 9, 8), pool(2, strides=(2, 2), padding="SAME")),
    ((2, 3, 9, 8), pool(2, strides=(2, 3), padding=(1, 0, 2, 1))),
    ((2, 3, 9, 8), pool(2, dilations=(2, 2))),
    ((2, 3, 9, 8), pool(2, dilations=(3, 2), padding=(3, 1, 3, 4))),
    ((2, 3, 9, 8), pool(2, strides=(1, 2), padding=(1, 1, 1, 1), dilations=(2, 1))),
    ((2, 3, 5, 6, 7), pool(3, kernel_shape=(2, 3, 2), strides=(2, 1, 2))),
    ((2, 3, 5, 6, 7), pool(3, kernel_shape=(2, 3, 2), padding=(1, 1, 1, 0, 1, 1))),
]


@pytest.mark.parametrize(("shape", "attributes"), _POOLS)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(19)], ids=["tfl", "onnx"])
def test_pools_in_every_form(shape: Any, attributes: Any, target: Any) -> None:
    check_legalized(ops.MaxPool, [floats(*shape)], target=target, attributes=attributes)
    for include in (False, True):
        changed = {**attributes, "count_include_pad": include}
        check_legalized(ops.AveragePool, [floats(*shape)], target=target, attributes=changed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [ops.MaxPool, ops.AveragePool], ids=lambda op: op.name)
def test_pools_permuted(op: type[Op]) -> None:
    attributes = pool(2, kernel_shape=(2, 3), strides=(2, 1), padding=(1, 0, 0, 1))
    for index in (0, -1):
        for permutation in ((0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)):
            assert check_permuted(op, [floats(2, 3, 5, 6)], attributes, index, permutation)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pools_of_integers(dtype: str) -> None:
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 6, 7)).astype(dtype)
    check_legalized(ops.MaxPool, [x], attributes=pool(2, padding=(1, 1, 1, 1)))


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("target", [TFLITE, onnx_target(19)], ids=["tfl", "onnx"])
def test_max_pools_of_integers_that_onnx_has_not(dtype: str, target: Any) -> None:
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 6, 7)).astype(dtype)
    check_legalized(ops.MaxPool, [x], target=target, attributes=pool(2, padding=(1, 1, 1, 1)))


@pytest.mark.parametrize(
    ("size", "window", "wanted"),
    [
        (224, Window((3,), (2,), (1,), (1, 1)), None),
        (225, Window((3,), (2,), (1,), (1, 1)), "SAME"),
        (224, Window((3,), (2,), (1,), (0, 1)), "SAME"),
        (224, Window((3,), (2,), (1,), (0, 0)), "VALID"),
        (112, Window((3,), (2,), (1,), (0, 1)), "SAME"),
        (112, Window((3,), (2,), (1,), "SAME"), "SAME"),
        (8, Window((3,), (1,), (2,), (2, 2)), "SAME"),
        (8, Window((3,), (1,), (1,), (1, 0)), None),
    ],
)
def test_padding_that_tflite_has_a_name_for(size: int, window: Window, wanted: str | None) -> None:
    assert tfl_padding(window, (size,)) == wanted


def test_padding_that_no_position_reads_is_left_out() -> None:
    window = Window((3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
    assert window.trimmed((224, 225)).padding == (1, 1, 0, 1)
    assert window.trimmed((symbol("h"), 224)).padding == (1, 1, 1, 0)


def test_same_padding_that_all_sizes_have() -> None:
    open_ = (symbol("h"), symbol("w"))
    assert Window((3, 2), (1, 3), (2, 1), "SAME").explicit(open_).padding == (2, 0, 2, 1)
    assert Window((3, 3), (1, 2), (1, 1), "SAME").explicit(open_).is_same


@pytest.mark.parametrize(("opset", "p"), [(1, 3.0), (2, 3), (22, 1)])
def test_global_lp_pool(opset: int, p: float) -> None:
    x = floats(2, 3, 4, 5)
    found = lifted_onnx("GlobalLpPool", opset, [x], p=p)
    np.testing.assert_allclose(found, (np.abs(x) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p), rtol=1e-4)


@pytest.mark.parametrize(("opset", "p"), [(1, 2.0), (2, 2), (11, 3), (18, 1), (22, 2)])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_lp_pool(opset: int, p: float, auto_pad: str) -> None:
    x = floats(1, 1, 5)
    found = lifted_onnx("LpPool", opset, [x], p=p, kernel_shape=[2], strides=[2], auto_pad=auto_pad)
    padding = {"SAME_UPPER": (0, 1), "SAME_LOWER": (1, 0)}.get(auto_pad, (0, 0))
    terms = np.pad(np.abs(x[0, 0]), padding) ** p
    wanted = [(terms[i] + terms[i + 1]) ** (1 / p) for i in range(0, len(terms) - 1, 2)]
    np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 8, 10, 11, 12, 22])
def test_max_pool(opset: int) -> None:
    x = floats(2, 3, 6)
    found = lifted_onnx("MaxPool", opset, [x], kernel_shape=[3], strides=[3])
    np.testing.assert_array_equal(found, x.reshape(2, 3, 2, 3).max(axis=3))


def _int16_pool(shape: tuple[int, ...], size: int, stride: int) -> onnx.ModelProto:
    q, k = "scale", f"kernel_shape = [{size}, {size}], strides = [{stride}, {stride}]"
    dims = ",".join(map(str, shape))
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
      pool (float[{dims}] x) => (y) <float {q} = {{0.001}}, int16 zero = {{0}}> {{
        a = QuantizeLinear (x, {q}, zero)
        b = DequantizeLinear (a, {q}, zero)
        c = MaxPool <{k}> (b)
        d = QuantizeLinear (c, {q}, zero)
        y = DequantizeLinear (d, {q}, zero)
      }}""")


@pytest.mark.parametrize(
    ("shape", "size", "stride", "op"),
    [((2, 3, 4, 6), 2, 2, "REDUCE_MAX"), ((1, 3, 5, 6), 2, 2, "MAX_POOL_2D"), ((1, 3, 6, 6), 3, 2, "MAX_POOL_2D")],
)
def test_adjacent_windows_of_int16_are_blocks(shape: tuple[int, ...], size: int, stride: int, op: str) -> None:
    """MAX_POOL_2D's int16 kernel is ten times slower than REDUCE_MAX's."""
    model = onnx.shape_inference.infer_shapes(_int16_pool(shape, size, stride))
    found = onnx_to_tflite(model.SerializeToString(), check=True)
    assert found.report.ops_after[op] == 1


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_without_a_position(op: str) -> None:
    """ONNX Runtime computes an empty result; it refuses a window that is larger by more than the stride."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
      pool (float[1,2,SIZE] x) => (float[1,2,?] y) {{ y = {op} <kernel_shape = [7], strides = [3]> (x) }}"""
    found = onnx_to_tflite(onnx.parser.parse_model(text.replace("SIZE", "4")), check=True)
    assert str(found.report.outputs[0]) == "y  float32 [1,2,0]"
    with pytest.raises(InvalidModelError, match="a window of 7 does not fit into 1"):
        onnx_to_tflite(onnx.parser.parse_model(text.replace("SIZE", "1")), check=False)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("shape", [(0, 3, 0, 8), (0, 3, 0, 0)], ids=str)
@pytest.mark.parametrize(
    "how", [{"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER", "strides": [1, 3]}], ids=str
)
def test_no_images_of_no_rows(op: str, shape: tuple[int, ...], how: dict[str, Any]) -> None:
    """ONNX Runtime refuses images without rows, but for those of an empty batch."""
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], **how)
    source = onnx_model([node], [("x", 1, shape)], [("y", 1, [None] * 4)])
    x = np.zeros(shape, np.float32)
    made = onnx_to_tflite(source, check=False)
    assert made.data is not None
    assert run_tflite(made.data, [x])[0][1].shape == run_onnx(source.SerializeToString(), {"x": x})["y"].shape


FLOAT = TensorProto.FLOAT


INT8 = TensorProto.INT8


@pytest.mark.parametrize(("size", "window", "stride"), [(6, 1, 3), (8, 2, 5), (12, 1, 4), (9, 2, 4)])
@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "dilation"), [("LpPool", 1), ("MaxPool", 2)])
def test_same_padding_of_pools_may_be_negative(
    op: str, dilation: int, padding: str, size: int, window: int, stride: int
) -> None:
    attributes = {"kernel_shape": [window], "strides": [stride], "dilations": [dilation], "auto_pad": padding}
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    model = onnx_model([node], [("x", FLOAT, [1, 1, size])], [("y", FLOAT, None)])
    model.opset_import[0].version = 18
    x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_a_mean_in_finer_steps_than_the_operand_has_is_rounded_once() -> None:
    node = helper.make_node(
        "QLinearAveragePool", ["x", "a", "p", "b", "q"], ["y"], domain="com.microsoft", kernel_shape=[2, 1]
    )
    scales = {"a": np.float32(0.0625), "p": np.int8(0), "b": np.float32(0.03), "q": np.int8(3)}
    constants = {name: np.asarray(value) for name, value in scales.items()}
    shape = [1, 2, 40, 30]
    model = onnx_model([node], [("x", INT8, shape)], [("y", INT8, [1, 2, 39, 30])], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = np.random.default_rng(0).integers(-60, 60, shape).astype(np.int8)
    from tests.harness.litert import run_onnx, run_tflite

    result = onnxtfl.onnx_to_tflite(model, check=False).data
    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    for kernels in ("default", "builtin"):
        found = dict(run_tflite(result, {"x": x}, kernels=kernels))["y"]
        assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("shape", [[1, 2, "N", 4], [1, 2, 3, 4]])
def test_a_pool_of_integers_that_strides_over_elements_is_cropped_at_both_ends(shape: list[int | str]) -> None:
    """SAME is negative padding then, which ONNX Runtime takes for integers only."""
    from tests.harness.litert import run_onnx, run_tflite

    node = helper.make_node(
        "QLinearAveragePool", [*"xazbz"], ["y"], None, None, "com.microsoft", kernel_shape=[1, 2], strides=[3, 1]
    )
    node.attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    constants = {"a": np.asarray(0.1, np.float32), "b": np.asarray(0.1, np.float32), "z": np.asarray(0, np.int8)}
    model = onnx_model([node], [("x", INT8, shape)], [("y", INT8, None)], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = np.arange(-12, 12, dtype=np.int8).reshape(1, 2, 3, 4) * 5
    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, {"x": x}))["y"]
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_a_pool_with_gaps_over_open_sizes() -> None:
    def build(g: TfliteGraph) -> Any:
        x = g.given(np.resize(SAMPLE, (1, 7, 6, 2)), open_axes=(1, 2))
        options = {"filter_height": 2, "filter_width": 2, "stride_h": 3, "stride_w": 1, "padding": "SAME"}
        return g.op("MAX_POOL_2D", [x], **options)

    assert_same_as_litert(build, *([(1, n, 4, 2)] for n in range(1, 7)))


@pytest.mark.parametrize("op", ["L2_POOL_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_same_windows_of_one_element_skip_others_over_open_sizes(op: str) -> None:
    def build(g: TfliteGraph) -> Any:
        x = g.given(np.resize(SAMPLE, (1, 7, 6, 2)), open_axes=(1, 2))
        return g.op(op, [x], filter_height=3, filter_width=1, stride_h=3, stride_w=3, padding="SAME")

    assert_same_as_litert(build, *([(1, n, n + 1, 2)] for n in range(1, 5)))


@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_elements_that_no_window_of_an_open_size_reads(op: str) -> None:
    """With a stride over the window's size, SAME may leave out elements at the end."""
    option = {"padding": "SAME", "filter_height": 2, "filter_width": 3, "stride_h": 3, "stride_w": 3}
    x = np.arange(63, dtype=np.float32).reshape(1, 9, 7, 1) / 8
    shapes = [[(1, n, n, 1)] for n in (1, 2, 4, 5)]
    assert_same_as_litert(
        lambda g: g.op(op, [g.given(x, open_axes=[1, 2])], **option, fused_activation_function="NONE"), *shapes
    )


@pytest.mark.parametrize(("window", "stride"), [(1, 2), (1, 3), (2, 3), (2, 4), (3, 5)])
@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_pools_of_open_sizes_whose_strides_skip_elements(op: str, window: int, stride: int) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (1, 8, 6, 2)).astype(np.float32)
    options = {"filter_height": 3, "filter_width": window, "stride_h": 3, "stride_w": stride, "padding": "SAME"}
    shapes = [[(1, n, 5, 2)] for n in (1, 3, 4, 9)]
    assert_same_as_litert(lambda g: g.op(op, [g.given(x, open_axes=[1])], **options, fused_activation_function="RELU"))
    assert_same_as_litert(
        lambda g: g.op(op, [g.given(x, open_axes=[1, 2])], **options, fused_activation_function="RELU"), *shapes
    )


def test_an_average_pool_over_open_sizes_that_does_not_count_padding() -> None:
    assert_converts_both_ways(
        "g (float[1, 2, h, w] x) => (float y) { y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 0, 1]> (x) }",
        sizes=[{"h": 5, "w": 6}, {"h": 3, "w": 8}],
    )


def test_ceil_mode_over_open_sizes() -> None:
    assert_converts_both_ways(
        """g (float[1, 2, h, w] x) => (float y, float z) {
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
            z = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
        }""",
        sizes=[{"h": 5, "w": 6}, {"h": 6, "w": 9}],
    )


QUANTIZED = Quantization("uint8", (0.5,), (4,))


@pytest.mark.parametrize("kind", ["positive", "uint8", "quantized"])
def test_indices_are_those_of_elements_not_of_padding(kind: str) -> None:
    """Also where all elements of a window are the least of their type, as the padding may be."""
    graph, shape = Graph(), (1, 2, 5, 5)
    types = {"uint8": tensor("uint8", *shape), "quantized": tensor("float32", *shape).stored_as(QUANTIZED)}
    b = Builder(graph)
    x = graph.add_input(types.get(kind, tensor("float32", *shape)), "x")
    read = b(ops.Relu, x) if kind == "positive" else x
    graph.outputs = b.many(ops.MaxPool, read, **pool(2, strides=(2, 2), padding=(1, 1, 1, 1)), return_indices=True)
    given = np.asarray(np.random.default_rng(3).integers(-9, 2, shape).clip(0 if kind != "positive" else None))
    array = given.astype(np.float32 if kind == "positive" else np.uint8)
    expected = run(graph, [array])
    legalize(graph, TFLITE)
    for found, wanted in zip(run(graph, [array]), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


VOLUMES = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 4, 6, 6] x) => (float[1, 4, a, b, c] y) {
  n = Conv <kernel_shape = [1, 1, 1]> (x, w)
  f = Relu (n)
  p = MaxPool <kernel_shape = [3, 3, 3], strides = [2, 2, 2], pads = [1, 1, 1, 1, 1, 1]> (f)
  q = MaxPool <kernel_shape = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1]> (p)
  y = Conv <kernel_shape = [1, 1, 1]> (q, w2)
}"""


def test_pools_of_volumes_move_no_elements_between_convolutions() -> None:
    """Features are last throughout; zeros are padded, which XNNPACK does, since nothing is negative."""
    model = onnx.parser.parse_model(VOLUMES)
    shapes = {"w": (16, 2, 1, 1, 1), "w2": (4, 16, 1, 1, 1)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(floats(*s), name) for name, s in shapes.items())
    ops_after = onnx_to_tflite(model).report.ops_after
    assert ops_after["TRANSPOSE"] <= 2 and "PADV2" not in ops_after and ops_after["MAX_POOL_2D"] == 4
