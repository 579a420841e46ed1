"""Corners of ONNX as ONNX Runtime reads them, each in the smallest model: both runtimes compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from onnxtfl import onnx_to_tflite
from onnxtfl.errors import InvalidModelError, UnsupportedError
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tiny_models import Array, onnx_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_LAST = np.iinfo(np.int64).max


def _counting(*shape: int) -> Array:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


def model_of(
    op: str,
    inputs: Sequence[tuple[Sequence[Any], int]],
    constants: Sequence[Array | None] = (),
    result: int = FLOAT,
    opset: int = 18,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; `inputs`: shape and element type of each, before the constants."""
    names = [f"x{i}" for i in range(len(inputs))]
    found = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    operands = [*names, *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    specs = [(n, type_, shape) for n, (shape, type_) in zip(names, inputs, strict=True)]
    return onnx_model([helper.make_node(op, operands, ["y"], **attributes)], specs, [("y", result, None)], found, opset)


def check(model: onnx.ModelProto, *arrays: Array) -> None:
    """ONNX Runtime and LiteRT, with and without XNNPACK, agree on the result for `arrays`."""
    feeds: Mapping[str, Array] = {f"x{i}": a for i, a in enumerate(arrays)}
    (wanted,) = run_onnx(model.SerializeToString(), feeds).values()
    data = onnx_to_tflite(model, check=False).data
    assert data is not None
    for kernels in ("default", "builtin"):
        ((_, found),) = run_tflite(data, feeds, kernels=kernels)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("size", [6, "n"])
@pytest.mark.parametrize("end", [_LAST, (1 << 31) - 1, 1 << 31, -_LAST, 100, -100])
def test_slice_backward(size: Any, end: int) -> None:
    """The greatest int64 and int32 mean "through the end", with a negative step too; other large ends mean nothing."""
    vectors = [np.asarray([n]) for n in (4, end, 0, -1)]
    check(model_of("Slice", [([size], FLOAT)], vectors), _counting(6))


def test_slice_backward_with_an_end_computed_at_run_time() -> None:
    model = model_of("Slice", [([6], FLOAT), ([1], INT64), ([1], INT64)], [np.asarray([0]), np.asarray([-1])])
    for end in (_LAST, 1, -_LAST):
        check(model, _counting(6), np.asarray([4]), np.asarray([end]))


@pytest.mark.parametrize("beta", [1.0, 2.0, 0.0])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm_of_nothing_is_the_bias_times_beta(beta: float, constant: bool) -> None:
    """As ONNX defines it, whatever ONNX Runtime is installed: up to 1.31 it adds C without beta there."""
    weights, bias = np.zeros((0, 3), np.float32), _counting(3)
    feeds = {"x0": np.zeros((2, 0), np.float32)} | ({} if constant else {"x1": weights})
    shapes: list[Any] = [["n", 0]] if constant else [[2, 0], [0, 3]]
    model = model_of("Gemm", [(s, FLOAT) for s in shapes], [weights, bias] if constant else [bias], beta=beta)
    data = onnx_to_tflite(model, check=False).data
    assert data is not None
    for kernels in ("default", "builtin"):
        ((_, found),) = run_tflite(data, feeds, kernels=kernels)
        np.testing.assert_allclose(found, beta * np.stack([bias, bias]), rtol=1e-5)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_matmul_of_nothing_is_zero(batch: tuple[int, ...]) -> None:
    shapes = (*batch, 2, 0), (*batch, 0, 3)
    check(model_of("MatMul", [(s, FLOAT) for s in shapes]), *(np.zeros(s, np.float32) for s in shapes))


def test_the_mean_of_nothing_is_zero() -> None:
    check(model_of("ReduceMean", [([2, 0], FLOAT)], [np.asarray([1])]), np.zeros((2, 0), np.float32))


def test_einsum_over_nothing_is_zero() -> None:
    model = model_of("Einsum", [([2, 0], FLOAT), ([0, 3], FLOAT)], equation="ij,jk->ki")
    check(model, np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("value", [0, 1, 2, 5, -1, 1 << 32])
def test_flags(value: int) -> None:
    """Some flags are set by 1 only, others by all but 0."""
    check(model_of("ReduceMax", [([2, 3], FLOAT)], keepdims=value), _counting(2, 3))
    check(model_of("ArgMax", [([2, 3], FLOAT)], result=INT64, axis=1, keepdims=value), _counting(2, 3))
    ties = np.ones((2, 3), np.float32)
    check(model_of("ArgMax", [([2, 3], FLOAT)], result=INT64, axis=1, select_last_index=value), ties)
    turned = model_of("RotaryEmbedding", [([1, 1, 2, 4], FLOAT)], [_counting(1, 2, 2)] * 2, opset=23, interleaved=value)
    check(turned, _counting(1, 1, 2, 4))
    check(model_of("Attention", [([1, 1, 2, 4], FLOAT)] * 3, opset=23, is_causal=value), *[_counting(1, 1, 2, 4)] * 3)
    pool = {"kernel_shape": [2], "strides": [2]}
    check(model_of("MaxPool", [([1, 1, 5], FLOAT)], ceil_mode=value, **pool), _counting(1, 1, 5))
    pool["pads"] = [1, 1]
    check(model_of("AveragePool", [([1, 1, 5], FLOAT)], count_include_pad=value, **pool), _counting(1, 1, 5))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of("MaxPool", [([1, 1, 4], FLOAT)], kernel_shape=[2], auto_pad="same"), "'auto_pad' is 'same', not one"),
        (
            model_of("ScatterND", [([4], FLOAT), ([1, 1], INT64), ([1], FLOAT)], reduction="ADD"),
            "'reduction' is 'ADD', not one of none, add, mul, max, min",
        ),
        (model_of("Pad", [([3], FLOAT)], [np.asarray([1, 1])], mode="Reflect"), "'mode' is 'Reflect', not one of"),
        (model_of("Mod", [([3], INT64), ([3], INT64)], result=INT64, fmod=2), "'fmod' is 2, not 0 or 1"),
        (
            model_of("RNN", [([2, 1, 3], FLOAT)], [_counting(1, 2, 3), _counting(1, 2, 2)], direction="Reverse"),
            "'direction' is 'Reverse', not one of forward, reverse, bidirectional",
        ),
        (
            model_of("ConvTranspose", [([1, 2, 3], FLOAT)], [_counting(2, 3, 2), _counting(4)]),
            "a bias of 4 elements for 3 output features",
        ),
        (model_of("Conv", [([1, 2, 3], FLOAT)], [_counting(3, 2, 2), _counting(1)]), "a bias of 1 elements for 3"),
        (model_of("Conv", [([1, 2, 3], FLOAT)], [_counting(3, 2, 2), _counting()]), "a bias of 1 elements for 3"),
        (model_of("Conv", [([1, 2, 5], FLOAT)], [_counting(3, 2, 2)], kernel_shape=[3]), r"kernel_shape is \[3\], the"),
        (
            model_of("ConvTranspose", [([1, 3, 5, 5], FLOAT)], [_counting(3, 2, 2, 2)], kernel_shape=[2]),
            r"kernel_shape is \[2\], the",
        ),
        (
            model_of("Conv", [([1, 2, 3], FLOAT)], [_counting(3, 2, 2)], pads=[-1, 0]),
            r"'pads' is \(-1, 0\), the least value is 0",
        ),
        (model_of("ConvTranspose", [([1, 2, 3], FLOAT)], [_counting(2, 3, 2)], group=0), "'group' is 0, the least"),
        (model_of("LpNormalization", [([2, 3], FLOAT)], p=3), "'p' is 3, the largest value is 2"),
        (model_of("Split", [([4], FLOAT)], num_outputs=0), "'num_outputs' is 0, the least value is 1"),
        (model_of("Split", [([4], FLOAT)], [np.asarray([4])], num_outputs=1), "both the sizes and num_outputs"),
        (model_of("Split", [([4], FLOAT)], [np.asarray([2, 2])]), "2 sizes for 1 results"),
        (model_of("Flatten", [([2, 3], FLOAT)], axis=3), "axis 3 is outside of rank 2"),
        (model_of("Flatten", [([2, 3], FLOAT)], axis=-3), "axis -3 is outside of rank 2"),
        (
            model_of("OneHot", [([2], INT64)], [np.asarray(3), _counting(3)]),
            "values has the shape .*, not two elements",
        ),
        (model_of("Resize", [([4], FLOAT)], [_counting(0), np.zeros(1, np.float32)]), r"scales of \[0.0\], all have"),
        (
            model_of("Resize", [([4], FLOAT)], [_counting(0), _counting(1), np.asarray([8])]),
            "both scales and sizes are given",
        ),
        (model_of("Resize", [([4], FLOAT)], [_counting(0), _counting(0), np.asarray([0])]), r"sizes of \[0\] for"),
        (
            model_of("GRU", [([2, 1, 3], FLOAT)], [_counting(1, 6, 3), _counting(1, 6, 2)], hidden_size=2, clip=0.0),
            "clip is 0, not positive",
        ),
        (
            model_of("BatchNormalization", [([1, 2, 3], FLOAT)], [_counting(2)] * 4, training_mode=2),
            "'training_mode' is 2, not 0 or 1",
        ),
    ],
)
def test_what_onnx_runtime_refuses_or_ignores_is_refused(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        onnx_to_tflite(model, check=False)


def test_squeeze_with_an_empty_list_of_axes() -> None:
    check(model_of("Squeeze", [([1, 2, 1], FLOAT)], [np.zeros(0, np.int64)]), _counting(1, 2, 1))


@pytest.mark.parametrize("size", ["n", None])
@pytest.mark.parametrize("declared", [None, 1, 2, 7])
def test_squeeze_without_axes_where_a_symbol_may_be_1(size: str | None, declared: int | None) -> None:
    """What it removes depends on the size, named or not: the run decides, unless the file declares the rank."""
    model = model_of("Squeeze", [([size, 3, 1], FLOAT)])
    if declared is not None:
        shape = [None] * declared
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, shape))
    for number in (1, 2, 0):
        if declared not in (1, 2) or (number == 1) == (declared == 1):
            check(model, _counting(number, 3, 1))


def test_ops_after_a_squeeze_without_axes() -> None:
    """Those that ask no rank, or say it, convert; the others are refused, since no kernel has two ranks."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, m, 1] x0) => (float[] y) { s = Squeeze (x0) '
    for body in ("y = Relu (s)", "y = ReduceMax <keepdims = 0> (s)", "y = Mul (s, s)", "y = Softmax <axis = -1> (s)"):
        sizes = ((2, 3, 1), (1, 3, 1), (2, 1, 1)) + ((1, 1, 1),) * ("Softmax" not in body)
        for size in sizes:
            check(onnx.parser.parse_model(head + body + " }"), _counting(*size))
    check(onnx.parser.parse_model(head + "y = Transpose <perm = [1, 0]> (s) }"), _counting(2, 3, 1))
    for body in ("y = Transpose (s)", "y = ReduceMax <keepdims = 1> (s)"):
        with pytest.raises(UnsupportedError, match=r"the rank of .* is (unknown|known only at run time)"):
            onnx_to_tflite(onnx.parser.parse_model(head + body + " }"), check=False)


@pytest.mark.parametrize("rank", [2, 5, 6])
@pytest.mark.parametrize("op", ["Less", "Add", "Expand", "Where"])
def test_a_symbol_that_is_1_broadcasts(op: str, rank: int) -> None:
    """Against a constant of a larger size; also of so many axes that some have to be merged for TFLite's kernels."""
    open_, full, one = (("n", 3), (4, 3), (1, 3))
    shapes = [[*shape, *[2] * (rank - 2)] for shape in (open_, full, one)]
    like = _counting(*shapes[1])
    if op == "Expand":
        model = model_of(op, [(shapes[0], FLOAT)], [np.asarray(shapes[1])])
    elif op == "Where":
        model = model_of(op, [(shapes[0], BOOL)], [like, -like])
    else:
        model = model_of(op, [(shapes[0], FLOAT)], [like], BOOL if op == "Less" else FLOAT)
    for shape in shapes[1:]:
        check(model, _counting(*shape) > 3 if op == "Where" else _counting(*shape))


@pytest.mark.parametrize("value", [0, 3])
def test_nonzero_of_a_scalar(value: float) -> None:
    check(model_of("NonZero", [([], FLOAT)], result=INT64), np.asarray(value, np.float32))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("size", "stride"), [(7, 1), (8, 2), ("n", 1)])
def test_same_padding_of_a_dilated_pool(op: str, auto_pad: str, size: Any, stride: int) -> None:
    attributes = {"kernel_shape": [3], "dilations": [2], "strides": [stride], "auto_pad": auto_pad}
    model = model_of(op, [([1, 1, size], FLOAT)], opset=22, **attributes)
    check(model, _counting(1, 1, 7 if size == "n" else size))


def test_bools_stored_as_other_bytes_than_0_and_1() -> None:
    model = model_of("Equal", [([3], BOOL)], [np.zeros(3, bool)], BOOL)
    model.graph.initializer[0].raw_data = bytes([0, 2, 255])
    check(model, np.ones(3, bool))


def test_floats_as_strings() -> None:
    """Eight digits, as ONNX Runtime writes them."""
    for dtype in (np.float32, np.float16):
        numbers = np.asarray([0.1, 1, -2.5, 1e-7, np.inf, np.nan, 1 / 3, -0.0, 1234.5678901], dtype)
        type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        source = model_of("Cast", [([9], type_)], result=TensorProto.STRING, to=TensorProto.STRING)
        (wanted,) = run_onnx(source.SerializeToString(), {"x0": numbers}).values()
        folded = onnx_model(
            [helper.make_node("Cast", ["c"], ["y"], to=TensorProto.STRING), helper.make_node("Neg", ["x"], ["z"])],
            [("x", FLOAT, [1])],
            [("y", TensorProto.STRING, [9]), ("z", FLOAT, [1])],
            {"c": numbers},
        )
        data = onnx_to_tflite(folded, check=False).data
        assert data is not None
        found = dict(run_tflite(data, {"x": np.ones(1, np.float32)}))["y"]
        assert [text.decode() for text in found.tolist()] == wanted.tolist()


@pytest.mark.parametrize("op", ["Add", "Less", "PRelu", "MatMul"])
def test_two_symbols_of_which_either_may_be_1(op: str) -> None:
    """A tensor expanded to the shape of their broadcast: it is not that of the first operand."""
    kind = BOOL if op == "Less" else FLOAT
    nodes = [
        helper.make_node(op, ["a", "b"], ["c"]),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Expand", ["a", "s"], ["y"]),
    ]
    inputs = [("a", FLOAT, ["n", 2, 2]), ("b", FLOAT, ["m", 2, 2])]
    data = onnx_to_tflite(onnx_model(nodes, inputs, [("c", kind, None), ("y", FLOAT, None)]), check=False).data
    model = onnx_model(nodes, inputs, [("c", kind, None), ("y", FLOAT, None)]).SerializeToString()
    for n, m in ((1, 3), (3, 1), (3, 3), (1, 1)):
        feeds = {"a": _counting(n, 2, 2) - 4, "b": _counting(m, 2, 2)}
        for kernels in ("default", "builtin"):
            for wanted, (_, found) in zip(
                run_onnx(model, feeds).values(), run_tflite(data, feeds, kernels=kernels), strict=True
            ):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "shown"), [("s", "s"), ("", "y")])
def test_squeeze_without_axes_where_a_size_that_is_computed_may_be_1(name: str, shown: str) -> None:
    """The result has as many axes as if it were not, and the report says so; a node without a name is its result."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Squeeze", ["places"], ["y"], name),
    ]
    x, y = (helper.make_tensor_value_info(n, t, None if n == "y" else [4]) for n, t in (("x", FLOAT), ("y", INT64)))
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    converted = onnx_to_tflite(model)
    assert len(converted.report.outputs[0].shape) == 1
    (assumed,) = converted.report.assumptions
    assert assumed.endswith(f"is 1 at Squeeze '{shown}'")
    assert assumed in " ".join(converted.report.table(verbose=True).split())
    assert "assumed" not in str(converted.report)  # the size is computed inside


def test_the_bits_of_float64_are_kept() -> None:
    """float64 is computed in float32, but for what is only read from bits or as bits."""
    nodes = [
        helper.make_node("BitCast", ["x"], ["bits"], to=INT64),
        helper.make_node("Add", ["bits", "one"], ["next"]),
        helper.make_node("BitCast", ["next"], ["y"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["y", "half"], ["z"]),
    ]
    constants = {"one": np.asarray(1), "half": np.asarray(0.5)}
    outputs = [("y", TensorProto.DOUBLE, [3]), ("z", TensorProto.DOUBLE, [3])]
    model = onnx_model(nodes, [("x", TensorProto.DOUBLE, [3])], outputs, constants, 26)
    x = np.asarray([1.0, -2.5, 1e300])
    data = onnx_to_tflite(model, check=False).data
    assert data is not None
    (_, y), (_, z) = run_tflite(data, {"x": x}, kernels="default")
    np.testing.assert_array_equal(y, np.nextafter(x, np.copysign(np.inf, x)))
    np.testing.assert_allclose(z[:2], y[:2] + 0.5, rtol=1e-6)


@pytest.mark.parametrize(("lambd", "bias"), [(1.5, 1.5), (0.0, -0.7), (0.5, 0.9)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_integers_shrink_by_a_fraction(dtype: Any, lambd: float, bias: float) -> None:
    x = np.arange(0 if dtype is np.uint8 else -6, 7).astype(dtype)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    check(model_of("Shrink", [(x.shape, element)], result=element, opset=9, lambd=lambd, bias=bias), x)


def _boxes(count: Any, centered: int = 0) -> onnx.ModelProto:
    """NonMaxSuppression with open thresholds."""
    inputs = [([1, count, 4], FLOAT), ([1, 1, count], FLOAT), ([1], INT64), ([1], FLOAT)]
    return model_of("NonMaxSuppression", inputs, (), INT64, center_point_box=centered)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("count", [5, "n"])
@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("limit", [0.0, 0.5, 1.0])
def test_boxes_that_drop_no_box_are_chosen_once(frozen: bool, count: Any, centered: int, limit: float) -> None:
    """Those without an area, and all with a threshold of 1, also equal ones."""
    boxes = np.asarray([[[0, 0, 1, 1], [0, 0, 1, 1], [3, 3, 0, 0], [2, 2, 2, 5], [2, 2, 2, 2]]], np.float32)
    scores = np.asarray([[[0.5, 0.3, 0.9, 0.8, 0.7]]], np.float32)
    limits = np.asarray([4]), np.asarray([limit], np.float32)
    if frozen:
        inputs = [([1, count, 4], FLOAT), ([1, 1, count], FLOAT)]
        check(model_of("NonMaxSuppression", inputs, limits, INT64, center_point_box=centered), boxes, scores)
    else:
        check(_boxes(count, centered), boxes, scores, *limits)


@pytest.mark.parametrize("types", [(FLOAT, TensorProto.FLOAT16), (TensorProto.FLOAT16, FLOAT)])
def test_attention_to_values_of_another_type(types: tuple[int, int]) -> None:
    """As the op allows, though neither its definition by a function nor ONNX Runtime takes it: onnx.reference does."""
    shapes = [([1, 2, 3, 4], types[0])] * 2 + [([1, 2, 3, 4], types[1])]
    made = onnx_to_tflite(model_of("Attention", shapes, result=types[0], opset=23), check="require")
    assert made.check is not None and made.check.ok


@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_rows_of_attention_that_see_no_key_are_zero(kernels: str) -> None:
    """Builtin kernels make -infinity the lowest number where they add it, so sums are not compared with it."""
    shapes = [([1, 1, 3, 4], FLOAT)] * 3 + [([3, 3], FLOAT), ([0], FLOAT), ([0], FLOAT), ([1], INT64)]
    model = model_of("Attention", shapes, opset=24, is_causal=1)
    del model.graph.input[4:6]
    model.graph.node[0].input[4:6] = ["", ""]
    data = onnx_to_tflite(model, check=False).data
    assert data is not None
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) + 1
    feeds = {"x0": x, "x1": x, "x2": x, "x3": np.zeros((3, 3), np.float32), "x6": np.asarray([1])}
    ((_, found),) = run_tflite(data, feeds, kernels=kernels)
    np.testing.assert_array_equal(found[0, 0], [[0] * 4, [0] * 4, [1, 2, 3, 4]])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceL2", "ReduceMean"])
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("axes", [[], [1], [-1, 0]])
def test_axes_of_which_only_a_run_knows_how_many(op: str, keeps: int, axes: list[int]) -> None:
    """None are all, unless noop_with_empty_axes says that they are none."""
    model = model_of(op, [([2, 3], FLOAT), (["n"], INT64)], noop_with_empty_axes=keeps)
    check(model, _counting(2, 3), np.asarray(axes, np.int64))


def test_axes_in_a_matrix_are_refused() -> None:
    model = model_of("ReduceSum", [([2, 3], FLOAT)], [np.zeros((1, 0), np.int64)])
    with pytest.raises(InvalidModelError, match=r"axes of shape \[1, 0\], not a vector"):
        onnx_to_tflite(model, check=False)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [4, 5, 6])
def test_a_pool_without_windows_that_rounds_up(op: str, size: int) -> None:
    found = model_of(op, [([1, 1, size, 1], FLOAT)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    check(found, np.zeros((1, 1, size, 1), np.float32))


def test_a_resize_of_an_empty_list_of_axes_is_of_all() -> None:
    operands = [None, None, np.asarray([1, 1, 3, 1])]
    model = model_of("Resize", [([1, 1, 4, 4], FLOAT)], operands, mode="linear")
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="axes", type=onnx.AttributeProto.INTS))
    check(model, _counting(1, 1, 4, 4))


def test_a_resize_ignores_the_nearest_mode_of_other_modes() -> None:
    operands = [None, None, np.asarray([1, 1, 3, 8])]
    check(model_of("Resize", [([1, 1, 4, 4], FLOAT)], operands, mode="linear", nearest_mode=""), _counting(1, 1, 4, 4))


def test_no_new_axes() -> None:
    check(model_of("Unsqueeze", [([2, 3], FLOAT), ([0], INT64)]), _counting(2, 3), np.zeros(0, np.int64))


@pytest.mark.parametrize("shape", [[0, 2, 5], [1, 0, 5]])
def test_boxes_of_no_batches_or_classes(shape: list[int]) -> None:
    inputs = [([shape[0], 5, 4], FLOAT), (shape, FLOAT)]
    data = onnx_to_tflite(model_of("NonMaxSuppression", inputs, [np.asarray([4])], INT64), check=False).data
    assert data is not None
    ((_, found),) = run_tflite(data, {"x0": np.zeros((shape[0], 5, 4), np.float32), "x1": np.zeros(shape, np.float32)})
    assert found.shape == (0, 3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            model_of("ReverseSequence", [([4, 2], FLOAT)], [np.asarray([3, -1])], time_axis=0, batch_axis=1),
            "lengths outside of an axis of 4",
        ),
        (
            model_of("Resize", [([1, 1, 4, 4], FLOAT)], [None, np.ones((1, 4), np.float32)]),
            "sizes or scales of type tensor<1x4xfloat32> for 4 axes",
        ),
        (
            model_of("Resize", [([1, 1, 4, 4], FLOAT)], [None, None, np.ones(4, np.int64)], axes=[2, 3]),
            "sizes or scales of type tensor<4xint64> for 2 axes",
        ),
        (
            model_of(
                "DeformConv", [([1, 2, 3, 3], FLOAT), ([1, "depth", 2, 2], FLOAT), ([1, 8, 2, 2], FLOAT)], opset=22
            ),
            "two spatial axes of known size",
        ),
    ],
)
def test_refused_in_words_about_the_model(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises((InvalidModelError, UnsupportedError), match=message):
        onnx_to_tflite(model, check=False)


@pytest.mark.parametrize("size", [4, "n"])
@pytest.mark.parametrize("pads", [(2, -5), (-5, 2), (2, -4), (-4, 1), (2, -6), (-7, 3)])
def test_padding_that_is_cut_off_again(size: Any, pads: tuple[int, int]) -> None:
    if size == 4 or min(pads) >= -4:
        check(model_of("Pad", [([size], FLOAT)], [np.asarray(pads)]), _counting(4))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_nothing_left_to_repeat(mode: str) -> None:
    with pytest.raises(InvalidModelError, match=f"cuts off all 4 elements of an axis, of which {mode} would repeat"):
        onnx_to_tflite(model_of("Pad", [([4], FLOAT)], [np.asarray([2, -5])], opset=19, mode=mode), check=False)


def test_negative_padding_of_axes_that_only_a_run_knows() -> None:
    found = model_of("Pad", [([2, 3], FLOAT)], [np.asarray([0, 0, 0, -1]), None])
    found.graph.node[0].input.append("axes")
    found.graph.input.append(helper.make_tensor_value_info("axes", INT64, [2]))
    with pytest.raises(UnsupportedError, match="negative padding along dynamic axes"):
        onnx_to_tflite(found, check=False)


@pytest.mark.parametrize("zeros", [[50, 0, 0], [-128, 3, 3], [4, 4, 4]])
def test_weights_with_a_zero_point_for_each_column(zeros: list[int]) -> None:
    """Weights that are not int8 without it: no kernel loads them with a zero point for each column."""
    weights = np.asarray([[-120, 90, 5], [110, -30, 7]], np.int8)
    scales = np.asarray([0.01, 0.02, 0.03], np.float32)
    operands = [
        np.float32(0.1),
        np.uint8(120),
        weights,
        scales,
        np.asarray(zeros, np.int8),
        np.float32(0.5),
        np.uint8(9),
    ]
    model = model_of("QLinearMatMul", [([4, 2], TensorProto.UINT8)], operands, TensorProto.UINT8)
    x = np.arange(8, dtype=np.uint8).reshape(4, 2) * 30
    (wanted,) = run_onnx(model.SerializeToString(), {"x0": x}).values()
    data = onnx_to_tflite(model, check=False).data
    assert data is not None
    ((_, found),) = run_tflite(data, {"x0": x})
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_an_error_of_an_op_with_many_operands_says_what_to_do() -> None:
    """It names the types of the first operands only; a line has 2000 characters."""
    model = model_of("Concat", [([2], FLOAT)], [_counting(2)] * 500 + [_counting(2, 2)], axis=0)
    with pytest.raises(InvalidModelError, match=r"and \d+ more\]; export the model again"):
        onnx_to_tflite(model, check=False)
