"""What TFLite's kernels compute on tensors without a scale, with several, with unequal or extreme scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType, tensor
from tests.fuzz.tflite_drawing import Op, Scale
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import (
    assert_converts_alike,
    changed_file,
    int8_type,
    int_weights,
    quantized,
    tflite_file,
    uint8_type,
    unsigned_weights,
)
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert
from tests.unit.tiny_models import onnx_model

INTEGERS = np.arange(-128, 128, 5)


def _given(g: TfliteGraph, elements: Any, dtype: str, scale: Sequence[float] = (), zero: int = 0, axis: int = 0) -> str:
    """An input of these integers, with this scale (those along `axis`)."""
    name = g.given(elements, dtype)
    if scale:
        g.quantized[name] = Scale(tuple(float(np.float32(s)) for s in scale), (zero,) * len(scale), axis)
    return name


def _refused(op: str, operands: Sequence[tuple[Any, str, Sequence[float]]], **options: Any) -> str:
    """The message for one op on inputs (elements, dtype, scales); it is not run."""
    g = TfliteGraph(0)
    g.rankless = False
    names = [_given(g, elements, dtype, scale) for elements, dtype, scale in operands]
    dtype = options.pop("result", operands[0][1])
    g.ops.append(Op(op, names, ["v0_0"], options))
    g.arrays["v0_0"] = np.zeros(np.broadcast_shapes(*(np.shape(o[0]) for o in operands)), dtype)
    if operands[0][2] and dtype != "bool":
        g.quantized["v0_0"] = Scale((0.1,))
    with pytest.raises(UnsupportedError) as caught:
        onnxtfl.tflite_to_onnx(g.model(), check=False, load=False)
    return str(caught.value)


@pytest.mark.parametrize("direction", ["EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL"])
@pytest.mark.parametrize("scales", [(0.05, 0.07), (0.001, 0.001), (0.002, 0.001), (0.6, 0.01), (1e-10, 1e-9)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_comparisons_are_in_units_of_1_256(dtype: str, scales: tuple[float, float], direction: str) -> None:
    low = 0 if dtype != "uint8" else 128
    lhs, rhs = (INTEGERS + low)[:, None], (INTEGERS + low + (INTEGERS % 3))[None]

    def build(g: TfliteGraph) -> Any:
        zero = 0 if dtype == "int16" else 3
        operands = [_given(g, v.clip(0 if low else -128, 255 if low else 127), dtype, (s,), zero) for v, s in
                    zip((lhs, rhs), scales, strict=True)]  # fmt: skip
        return g.op(direction, operands, "bool")

    assert_same_as_litert(build)


def test_comparisons_that_end_the_process_are_refused() -> None:
    for dtype, scale in (("int8", ()), ("uint8", ()), ("int8", (1.0,)), ("int16", (2.0,))):
        operands = [([1, 2], dtype, scale), ([1, 3], dtype, scale)]
        assert "one scale between 0 and 1" in _refused("EQUAL", operands, result="bool")
    assert "one scale" in _refused("NOT_EQUAL", [([1], "int16", ()), ([2], "int16", ())], result="bool")


@pytest.mark.parametrize("op", ["RELU", "RELU6", "LEAKY_RELU", "DEQUANTIZE"])
def test_a_kernel_that_reads_a_scale_refuses_integers_without(op: str) -> None:
    result = {"result": "float32"} if op == "DEQUANTIZE" else {}
    assert "this tensor has no scale" in _refused(op, [([1, 2], "uint8", ())], **result)


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV", "PRELU"])
def test_a_kernel_of_one_scale_refuses_several(op: str) -> None:
    operands = [([[1, 2]], "int8", (0.1,)), ([[3, 4]], "int8", (0.1, 0.2))]
    found = _refused(op, [operands[0], (np.asarray([[3], [4]]), "int8", (0.1, 0.2))])
    assert "reads one scale, and this tensor has 2" in found


def test_a_product_of_scales_that_overflows_is_refused() -> None:
    for scales in ((1e20, 1e20), (1e-30, 1e-30), (1e19, 1e19)):
        found = _refused("MUL", [([1], "int8", (s,)) for s in scales])
        assert "product of the scales" in found


def test_a_product_of_which_all_integers_are_nothing() -> None:
    """A scale of 1e-35 that a quantizer made of a part that is always 0: the kernel may write any integer."""
    g = TfliteGraph(0)
    x = _given(g, [1, 255], "uint8", (0.02,))
    g.ops.append(Op("MUL", [x, x], ["v0_0"], {"fused_activation_function": "NONE"}))
    g.arrays["v0_0"] = np.zeros(2, "uint8")
    g.quantized["v0_0"] = Scale((1e-35,))
    assert onnxtfl.tflite_to_onnx(g.model(), check=False, load=False).data


def test_int16_slopes_are_refused_and_int8_slopes_are_read() -> None:
    assert "as int8" in _refused("PRELU", [([1, -2], "int16", (0.1,)), ([1, 2], "int16", (0.1,))])

    def build(g: TfliteGraph) -> Any:
        g.quantized["v0_0"] = Scale((0.25,))
        return g.op("PRELU", [_given(g, [[-80, 40]], "int16", (0.5,)), _given(g, [[4, 3]], "int8", (0.5,))], "int16")

    assert_same_as_litert(build)


@pytest.mark.parametrize("op", ["MAXIMUM", "MINIMUM"])
def test_the_larger_stored_integer_of_other_scales(op: str) -> None:
    def build(g: TfliteGraph) -> Any:
        g.quantized["v0_0"] = Scale((0.3,), (4,))
        operands = [_given(g, v, "int8", (s,), 3) for v, s in ((INTEGERS, 0.1), (INTEGERS[::-1], 0.2))]
        return g.op(op, operands, "int8")

    assert_same_as_litert(build)


@pytest.mark.parametrize("ways", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("dtype", "scale"), [("int16", (0.1,)), ("int16", ()), ("int8", ()), ("uint8", ())])
def test_bilinear_means_of_integers(dtype: str, scale: tuple[float, ...], ways: tuple[bool, bool]) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max + 1, (1, 3, 4, 2))

    def build(g: TfliteGraph) -> Any:
        if scale:
            g.quantized["v0_0"] = Scale((float(np.float32(0.1)),))
        operands = [_given(g, x, dtype, scale), g.constant([5, 7], "int32")]
        return g.op("RESIZE_BILINEAR", operands, dtype, align_corners=ways[0], half_pixel_centers=ways[1])

    assert_same_as_litert(build)


@pytest.mark.parametrize("size", [1, 2])
def test_softmax_over_one_element(size: int) -> None:
    def build(g: TfliteGraph) -> Any:
        g.quantized["v0_0"] = Scale((1 / 256,))
        return g.op("SOFTMAX", [_given(g, np.arange(2 * size).reshape(2, size), "uint8", (0.1,))], "uint8", beta=1.0)

    assert_same_as_litert(build)


def test_diagonals_of_which_one_byte_is_moved_are_refused() -> None:
    assert "does not move whole elements" in _refused("MATRIX_DIAG", [([1, 2], "float16", ())])


def test_a_spectrum_of_columns_of_one_element_is_refused() -> None:
    g = TfliteGraph(0)
    g.rankless = False
    inputs = [g.given(np.ones((4, 3))), g.constant([4, 1], "int32")]
    g.ops.append(Op("RFFT2D", inputs, ["v0_0"], {}))
    g.arrays["v0_0"] = np.zeros((4, 1), np.complex64)
    with pytest.raises(UnsupportedError, match="columns of one element"):
        onnxtfl.tflite_to_onnx(g.model(), check=False, load=False)


_COPIED: dict[str, tuple[int, dict[str, Any], int]] = {
    "MINIMUM": (2, {}, 1),
    "MATRIX_DIAG": (1, {}, 1),
    "REDUCE_MAX": (1, {"keep_dims": True}, 1),
    "SPLIT": (1, {"num_splits": 2}, 2),
}


@pytest.mark.parametrize("op", _COPIED)
def test_kernels_that_copy_integers_ignore_the_scales(op: str) -> None:
    """The check compares with LiteRT."""
    count, options, results = _COPIED[op]
    x = tensor("float32", 2, 4)
    given: list[Any] = [x.stored_as(Quantization("int8", (0.5,), (7 * i,))) for i in range(count)]
    shapes = {"MATRIX_DIAG": (2, 4, 4), "REDUCE_MAX": (2, 1), "SPLIT": (2, 2)}
    types = [
        x.with_shape(shapes.get(op, (2, 4))).stored_as(Quantization("int8", (0.25 * (i + 1),), (3 + i,)))
        for i in range(results)
    ]
    if op == "REDUCE_MAX":
        given.append(np.asarray([1], np.int32))
    if op == "SPLIT":
        given.insert(0, np.asarray(1, np.int32))
    assert onnxtfl.tflite_to_onnx(tflite_file(op, given, *types, **options)).data


_WINDOW = {
    "padding": "SAME",
    "stride_w": 1,
    "stride_h": 1,
    "dilation_w_factor": 1,
    "dilation_h_factor": 1,
    "fused_activation_function": "NONE",
}


_RELU = {"fused_activation_function": "RELU"}


_ROWS = np.asarray([[1], [1]], np.int32)


_KERNELS: dict[str, tuple[str, list[Any], list[TensorType], dict[str, Any]]] = {
    "NEG of the integers": ("NEG", [int8_type((2, 4))], [int8_type((2, 4), 0.2, -5)], {}),
    "CAST of the integers": ("CAST", [int8_type((2, 4))], [tensor("float32", 2, 4)], {}),
    "SCATTER_ND adds integers": (
        "SCATTER_ND",
        [_ROWS, int8_type((2, 4)), np.asarray([3, 4], np.int32)],
        [int8_type((3, 4), 0.2, -5)],
        {},
    ),
    "TOPK_V2 copies": (
        "TOPK_V2",
        [int8_type((2, 4)), np.asarray(3, np.int32)],
        [int8_type((2, 3), 0.2, -5), tensor("int32", 2, 3)],
        {},
    ),
    "CONV_2D with a bias of another scale": (
        "CONV_2D",
        [int8_type((1, 4, 4, 3)), int_weights((4, 3, 3, 3), "int8", [0.05]), int_weights((4,), "int32", [0.5])],
        [int8_type((1, 4, 4, 4), 0.5)],
        _WINDOW,
    ),
    "CONV_2D with a bias without a scale": (
        "CONV_2D",
        [int8_type((1, 4, 4, 3)), int_weights((4, 3, 3, 3), "int8", [0.05]), np.arange(4, dtype=np.int32) * 1000],
        [int8_type((1, 4, 4, 4), 0.5)],
        _WINDOW,
    ),
    "DEPTHWISE_CONV_2D with zero points of its weights": (
        "DEPTHWISE_CONV_2D",
        [
            int8_type((1, 4, 4, 2)),
            int_weights((1, 3, 3, 2), "int8", [0.05, 0.02], 40, 3),
            int_weights((2,), "int32", [0.005]),
        ],
        [int8_type((1, 4, 4, 2), 0.5)],
        {**_WINDOW, "depth_multiplier": 1},
    ),
    "CONV_2D of uint8 with a zero point of its weights": (
        "CONV_2D",
        [uint8_type((1, 4, 4, 3)), unsigned_weights((4, 3, 3, 3), 0.05, 130), int_weights((4,), "int32", [0.005])],
        [uint8_type((1, 4, 4, 4))],
        _WINDOW,
    ),
    **{
        f"{op} with RELU and another scale of the result": (
            op,
            [int8_type((1, 4, 4, 2))],
            [int8_type((1, 4, 4, 2), 0.2, -5)],
            {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_height": 2, "filter_width": 2, **_RELU},
        )
        for op in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
    },
}


@pytest.mark.parametrize("name", _KERNELS)
def test_kernels_that_read_integers_otherwise_than_declared(name: str) -> None:
    """The check compares with LiteRT."""
    op, operands, results, options = _KERNELS[name]
    assert onnxtfl.tflite_to_onnx(tflite_file(op, operands, *results, **options)).data


@pytest.mark.parametrize("storage", ["int32", "int64"])
def test_sums_of_wide_integers_ignore_their_scales(storage: str) -> None:
    given = f"tensor<4xfloat32, quant<{storage} 0.05:0>>"
    text = f"""
    graph main(%x: {given}, %y: {given}) -> (%z) {{
      %z = tfl.ADD@1(%x, %y) : tensor<4xfloat32, quant<{storage} 0.1:0>>
    }}"""
    x = np.asarray([1, 2, -3, 100], storage)
    assert_converts_alike(tflite(text), x, x[::-1])


def test_positions_sizes_and_axes_ignore_their_scales() -> None:
    begin, end, strides = quantized([1]), np.asarray([3], np.int32), np.asarray([1], np.int32)
    x = np.arange(4, dtype=np.float32)
    assert_converts_alike(
        tflite_file("STRIDED_SLICE", [tensor("float32", 4), begin, end, strides], tensor("float32", 2)), x
    )
    image = np.arange(40, dtype=np.float32).reshape(1, 4, 5, 2)
    sizes = [tensor("float32", 1, 4, 5, 2), quantized([8, 10])]
    data = tflite_file("RESIZE_BILINEAR", sizes, tensor("float32", 1, 8, 10, 2), half_pixel_centers=True)
    assert_converts_alike(data, image, tolerance=1e-6)
    text = """
    graph main(%x: tensor<2x3xint32>) -> (%y) {
      %a = constant tensor<1xfloat32, quant<int32 0.5:0>> [1]
      %y = tfl.REDUCE_MAX@2(%x, %a) : tensor<2xint32>
    }"""
    assert_converts_alike(tflite(text), np.asarray([[1, 5, 2], [7, 0, 3]], np.int32))


def test_moved_outputs_of_steps_of_int32() -> None:
    """ONNX's QuantizeLinear has no int32; the node of the output moves the values."""
    text = """
    graph main(%x: tensor<2x3xfloat32, quant<int8 0.5:0>>) -> (%z) {
      %p = constant tensor<2xint32> [1, 0]
      %y = tfl.QUANTIZE@2(%x) : tensor<2x3xfloat32, quant<int32 0.25:7>>
      %z = tfl.TRANSPOSE@1(%y, %p) : tensor<3x2xfloat32, quant<int32 0.25:7>>
    }"""
    x = np.asarray([[1, -2, 3], [4, 5, -6]], np.int8)
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(tflite(text), check=False).data, {"x": x}).values()
    np.testing.assert_array_equal(found, x.T.astype(np.int32) * 2 + 7)


def test_a_bitcast_of_quantized_integers_is_of_what_is_stored() -> None:
    text = """
    graph main(%x: tensor<2x2xfloat32, quant<int16 0.5:3>>) -> (%y) {
      %y = tfl.BITCAST@1(%x) : tensor<2x2xfloat32, quant<int16 0.25:0>>
    }"""
    assert_converts_alike(tflite(text), np.asarray([[1, 2], [-3, 400]], np.int16))


@pytest.mark.parametrize("op", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY"])
def test_stablehlo_kernels_compute_on_what_is_stored(op: str) -> None:
    given = "tensor<4xfloat32, quant<int16 0.1:0>>"
    text = f"graph main(%x: {given}, %y: {given}) -> (%z) {{\n%z = tfl.{op}@1(%x, %y) : {given}\n}}"
    x = np.asarray([30, -20, 100, 150], np.int16)
    assert_converts_alike(tflite(text), x, x[::-1])


_ROWS_TYPE = "tensor<2x{}xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>"


_MOVES = {
    "GATHER": f"%y = tfl.GATHER@2(%x, %i) {{axis = 1}} : {_ROWS_TYPE.format(2)}",
    "columns": f"%y = tfl.SLICE@2(%x, %b, %s) : {_ROWS_TYPE.format(2)}",
    "the second row": "%y = tfl.SLICE@2(%x, %i, %t) : tensor<1x2xfloat32, quant<int8 0.2:0>>",
    "CONCATENATION": f"%y = tfl.CONCATENATION@2(%x, %x) {{axis = 1}} : {_ROWS_TYPE.format(6)}",
    "TRANSPOSE": "%y = tfl.TRANSPOSE@2(%x, %i) : tensor<3x2xfloat32, quant<int8 axis=1 0.1:0 0.2:0>>",
}


@pytest.mark.parametrize("name", _MOVES)
def test_moved_rows_keep_their_scales(name: str) -> None:
    shape = _MOVES[name].partition("<")[2].partition("xfloat")[0]
    text = f"""
    graph main(%x: {_ROWS_TYPE.format(3)}) -> (%z) {{
      %i = constant tensor<2xint32> [1, 0]
      %b = constant tensor<2xint32> [0, 1]
      %s = constant tensor<2xint32> [2, 2]
      %t = constant tensor<2xint32> [1, 2]
      {_MOVES[name]}
      %z = tfl.DEQUANTIZE@5(%y) : tensor<{shape}xfloat32>
    }}"""
    assert_converts_alike(tflite(text), np.asarray([[10, -20, 3], [100, 127, -5]], np.int8), tolerance=1e-6)


def test_a_concatenation_of_int16_copies_and_one_of_uint8_rescales() -> None:
    given = "tensor<4xfloat32, quant<{} {}:0>>"
    for storage in ("int16", "uint8"):
        text = f"""
        graph main(%x: {given.format(storage, 0.1)}, %y: {given.format(storage, 0.3)}) -> (%z) {{
          %z = tfl.CONCATENATION@1(%x, %y) {{axis = 0}} : tensor<8xfloat32, quant<{storage} 0.2:0>>
        }}"""
        x = np.asarray([10, 20, 40, 100], storage)
        assert_converts_alike(tflite(text), x, x)


def test_a_sum_between_quantized_ones_that_is_declared_as_real() -> None:
    """As in add_quantized.bin, a test model of LiteRT and MediaPipe: it has a scale all the same."""
    text = """graph main(%x: tensor<4xfloat32, quant<uint8 0.5:0>>) -> (%y) {
      %s = tfl.ADD@1(%x, %x) {fused_activation_function = "NONE", pot_scale_int16 = true} :
        tensor<4xfloat32, quant<uint8 0.5:0>>
      %y = tfl.ADD@1(%s, %x) {fused_activation_function = "NONE", pot_scale_int16 = true} :
        tensor<4xfloat32, quant<uint8 0.5:0>>
    }"""

    def declare(model: Any) -> None:
        (graph,) = model.subgraphs
        graph.tensors[graph.operators[0].outputs[0]].type = 0  # float32

    data, x = changed_file(tflite(text), declare), np.asarray([0, 20, 80, 84], np.uint8)
    ((_, wanted),) = run_tflite(data, [x])
    converted = onnxtfl.tflite_to_onnx(data, check=False).data or b""
    np.testing.assert_array_equal(run_onnx(converted, {"x": x})["y"], wanted)


@pytest.mark.parametrize("ratio", [2.0**14, 2.0**17, 2.0**24, 2.0**33])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "PRelu"])
def test_small_steps_of_results_saturate(op: str, dtype: str, ratio: float) -> None:
    """Kernels multiply by the ratio of the scales in 32 bits, which wraps around."""
    limits = np.iinfo(dtype)
    constants = {"s": np.float32(1), "z": np.zeros((), dtype), "t": np.float32(1 / ratio), "a": np.float32([0.01])}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node(op, ["real", "a"][: 2 if op == "PRelu" else 1], ["found"]),
        helper.make_node("QuantizeLinear", ["found", "t", "z"], ["y"]),
    ]
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    data = onnx_model(nodes, [("x", type_, [64])], [("y", type_, [64])], constants, opset=21).SerializeToString()
    x = np.linspace(limits.min, limits.max, 64).astype(dtype)
    real = np.where(x < 0, 0.0 if op == "Relu" else x * 0.01, x) * ratio
    result = onnxtfl.onnx_to_tflite(data, check=False).data or b""
    np.testing.assert_array_equal(run_tflite(result, [x])[0][1], np.clip(np.rint(real), limits.min, limits.max))
