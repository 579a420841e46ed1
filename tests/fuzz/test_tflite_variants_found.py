"""The smallest TFLite files of what single changes of files of one op showed: each computes what LiteRT does, or is
refused in one line that names the node.
"""

from __future__ import annotations

import io
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import tensor
from tests.fuzz.test_mutants_found import quantized, tflite_file
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import tflite

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


def agree(data: bytes, *inputs: Array, tolerance: float = 0.0) -> None:
    """Compare LiteRT without XNNPACK and, converted, ONNX Runtime."""
    wanted = run_tflite(data, inputs, kernels="builtin")
    model = onnxtfl.tflite_to_onnx(data, check=False).data
    names = [value.name for value in onnx.load_from_string(model).graph.input]
    found = run_onnx(model, dict(zip(names, inputs, strict=True))).values()
    for (_, expected), array in zip(wanted, found, strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


def changed(data: bytes, change: Any) -> bytes:
    """The file after `change` of its decoded tables."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


# --- integers with scales that no kernel reads -----------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["int32", "int64"])
def test_sums_of_wide_integers_ignore_their_scales(storage: str) -> None:
    given = f"tensor<4xfloat32, quant<{storage} 0.05:0>>"
    text = f"""
    graph main(%x: {given}, %y: {given}) -> (%z) {{
      %z = tfl.ADD@1(%x, %y) : tensor<4xfloat32, quant<{storage} 0.1:0>>
    }}"""
    x = np.asarray([1, 2, -3, 100], storage)
    agree(tflite(text), x, x[::-1])


def test_positions_sizes_and_axes_ignore_their_scales() -> None:
    begin, end, strides = quantized([1]), np.asarray([3], np.int32), np.asarray([1], np.int32)
    x = np.arange(4, dtype=np.float32)
    agree(tflite_file("STRIDED_SLICE", [tensor("float32", 4), begin, end, strides], tensor("float32", 2)), x)
    image = np.arange(40, dtype=np.float32).reshape(1, 4, 5, 2)
    sizes = [tensor("float32", 1, 4, 5, 2), quantized([8, 10])]
    data = tflite_file("RESIZE_BILINEAR", sizes, tensor("float32", 1, 8, 10, 2), half_pixel_centers=True)
    agree(data, image, tolerance=1e-6)
    text = """
    graph main(%x: tensor<2x3xint32>) -> (%y) {
      %a = constant tensor<1xfloat32, quant<int32 0.5:0>> [1]
      %y = tfl.REDUCE_MAX@2(%x, %a) : tensor<2xint32>
    }"""
    agree(tflite(text), np.asarray([[1, 5, 2], [7, 0, 3]], np.int32))


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


# --- stored integers -------------------------------------------------------------------------------------------------


def test_a_bitcast_of_quantized_integers_is_of_what_is_stored() -> None:
    text = """
    graph main(%x: tensor<2x2xfloat32, quant<int16 0.5:3>>) -> (%y) {
      %y = tfl.BITCAST@1(%x) : tensor<2x2xfloat32, quant<int16 0.25:0>>
    }"""
    agree(tflite(text), np.asarray([[1, 2], [-3, 400]], np.int16))


@pytest.mark.parametrize("op", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY"])
def test_stablehlo_kernels_compute_on_what_is_stored(op: str) -> None:
    given = "tensor<4xfloat32, quant<int16 0.1:0>>"
    text = f"graph main(%x: {given}, %y: {given}) -> (%z) {{\n%z = tfl.{op}@1(%x, %y) : {given}\n}}"
    x = np.asarray([30, -20, 100, 150], np.int16)
    agree(tflite(text), x, x[::-1])


_ROWS = "tensor<2x{}xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>"
_MOVES = {
    "GATHER": f"%y = tfl.GATHER@2(%x, %i) {{axis = 1}} : {_ROWS.format(2)}",
    "columns": f"%y = tfl.SLICE@2(%x, %b, %s) : {_ROWS.format(2)}",
    "the second row": "%y = tfl.SLICE@2(%x, %i, %t) : tensor<1x2xfloat32, quant<int8 0.2:0>>",
    "CONCATENATION": f"%y = tfl.CONCATENATION@2(%x, %x) {{axis = 1}} : {_ROWS.format(6)}",
    "TRANSPOSE": "%y = tfl.TRANSPOSE@2(%x, %i) : tensor<3x2xfloat32, quant<int8 axis=1 0.1:0 0.2:0>>",
}


@pytest.mark.parametrize("name", _MOVES)
def test_moved_rows_keep_their_scales(name: str) -> None:
    shape = _MOVES[name].partition("<")[2].partition("xfloat")[0]
    text = f"""
    graph main(%x: {_ROWS.format(3)}) -> (%z) {{
      %i = constant tensor<2xint32> [1, 0]
      %b = constant tensor<2xint32> [0, 1]
      %s = constant tensor<2xint32> [2, 2]
      %t = constant tensor<2xint32> [1, 2]
      {_MOVES[name]}
      %z = tfl.DEQUANTIZE@5(%y) : tensor<{shape}xfloat32>
    }}"""
    agree(tflite(text), np.asarray([[10, -20, 3], [100, 127, -5]], np.int8), tolerance=1e-6)


def test_a_concatenation_of_int16_copies_and_one_of_uint8_rescales() -> None:
    given = "tensor<4xfloat32, quant<{} {}:0>>"
    for storage in ("int16", "uint8"):
        text = f"""
        graph main(%x: {given.format(storage, 0.1)}, %y: {given.format(storage, 0.3)}) -> (%z) {{
          %z = tfl.CONCATENATION@1(%x, %y) {{axis = 0}} : tensor<8xfloat32, quant<{storage} 0.2:0>>
        }}"""
        x = np.asarray([10, 20, 40, 100], storage)
        agree(tflite(text), x, x)


# --- weights of hybrid kernels ---------------------------------------------------------------------------------------

_IMAGE = np.asarray([[[[1], [2]], [[3], [4]]]], np.float32)
_WINDOW = 'padding = "VALID", stride_w = 1, stride_h = 1'
_DILATION = "dilation_w_factor = 1, dilation_h_factor = 1"
_SCALES = {"one scale": "0.05:3", "a scale each": "axis={} 0.05:3 0.1:2"}


@pytest.mark.parametrize("scales", _SCALES)
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"])
def test_hybrid_kernels_ignore_the_zero_points_of_weights(op: str, scales: str) -> None:
    axis = {"DEPTHWISE_CONV_2D": 3, "BATCH_MATMUL": 1}.get(op, 0)
    weights = f"quant<int8 {_SCALES[scales].format(axis)}>"
    if op == "DEPTHWISE_CONV_2D" and scales == "one scale":
        pytest.skip("LiteRT reads a scale for each channel, whatever the file has")
    matrix = f"%w = constant tensor<2x2xfloat32, {weights}> [1, 120, 3, 4]"
    filters = f"%w = constant tensor<2x1x1x1xfloat32, {weights}> [1, 120]"
    bias, image = "%b = constant tensor<2xfloat32> [0.5, 0.0]", "tensor<1x2x2x2xfloat32>"
    body = {
        "CONV_2D": f"{filters}\n{bias}\n%y = tfl.CONV_2D@5(%x, %w, %b) {{{_WINDOW}, {_DILATION}}} : {image}",
        "DEPTHWISE_CONV_2D": f"{filters.replace('2x1x1x1', '1x1x1x2')}\n{bias}\n"
        f"%y = tfl.DEPTHWISE_CONV_2D@6(%x, %w, %b) {{{_WINDOW}, {_DILATION}, depth_multiplier = 2}} : {image}",
        "TRANSPOSE_CONV": f"%s = constant tensor<4xint32> [1, 2, 2, 2]\n{filters}\n"
        f"%y = tfl.TRANSPOSE_CONV@3(%s, %w, %x) {{{_WINDOW}}} : {image}",
        "FULLY_CONNECTED": f"{matrix}\n%y = tfl.FULLY_CONNECTED@3(%x, %w) : tensor<1x2xfloat32>",
        "BATCH_MATMUL": f"{matrix}\n%y = tfl.BATCH_MATMUL@3(%x, %w) : tensor<1x2xfloat32>",
    }[op]
    x = _IMAGE if "CONV" in op else np.asarray([[1, 0.5]], np.float32)
    shape = "x".join(map(str, x.shape))
    agree(tflite(f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n{body}\n}}"), x, tolerance=1e-5)


@pytest.mark.parametrize("op", ["CONV_2D@5", "FULLY_CONNECTED@3"])
def test_hybrid_kernels_read_weights_of_uint8_as_int8(op: str) -> None:
    """Files of the first hybrid models have them."""
    weights = "%w = constant tensor<2x2x1x1xfloat32, quant<uint8 0.05:3>> [1, 200, 130, 4]"
    options = f" {{{_WINDOW}, {_DILATION}}}"
    x, results = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1), "tensor<1x1x2x2xfloat32>"
    if "FULLY" in op:
        weights, options, x, results = weights.replace("2x2x1x1", "2x2"), "", x.reshape(2, 2), "tensor<2x2xfloat32>"
    shape = "x".join(map(str, x.shape))
    text = f"""
    graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{
      {weights}
      %b = constant tensor<2xfloat32> [0.0, 0.0]
      %y = tfl.{op}(%x, %w, %b){options} : {results}
    }}"""
    agree(tflite(text), x, tolerance=1e-5)
    several = text.replace("uint8 0.05:3", "uint8 axis=0 0.05:3 0.1:3")
    with pytest.raises(onnxtfl.UnsupportedError, match="constants with one scale"):
        onnxtfl.tflite_to_onnx(tflite(several), check=False)


def test_a_bias_of_two_axes() -> None:
    text = f"""
    graph main(%x: tensor<1x2x2x1xfloat32>) -> (%y, %z) {{
      %w = constant tensor<2x1x1x1xfloat32> [1.0, 2.0]
      %b = constant tensor<2x1xfloat32> [0.5, 0.25]
      %s = constant tensor<4xint32> [1, 2, 2, 2]
      %y = tfl.CONV_2D@1(%x, %w, %b) {{{_WINDOW}, {_DILATION}}} : tensor<1x2x2x2xfloat32>
      %z = tfl.TRANSPOSE_CONV@3(%s, %w, %x, %b) {{{_WINDOW}}} : tensor<1x2x2x2xfloat32>
    }}"""
    agree(tflite(text), _IMAGE, tolerance=1e-6)


def test_nan_is_above_all_boundaries() -> None:
    text = """
    graph main(%x: tensor<4xfloat32>) -> (%y) {
      %y = tfl.BUCKETIZE@1(%x) {boundaries = [0.0, 1.0]} : tensor<4xint32>
    }"""
    agree(tflite(text), np.asarray([np.nan, -1, 0, 2], np.float32))


# --- refused ---------------------------------------------------------------------------------------------------------

_INT8, _REAL = "tensor<4xfloat32, quant<int8 0.1:0>>", "tensor<4xfloat32>"
_EACH = "tensor<2x2xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>"
_ONE = "tensor<2x2xfloat32, quant<int8 0.1:0>>"
_REFUSED = {
    "a sum of real values as int8": (f"%y = tfl.ADD@1(%x, %x) : {_INT8}", _REAL, "stored as float32"),
    "a rounded value of int8 as int16": (
        "%y = tfl.ABS@1(%x) : tensor<4xfloat32, quant<int16 0.1:0>>", _INT8, "declared as int16, and stored as int8"
    ),
    "a diagonal of real values for a matrix of int8": (
        "%d = constant tensor<2xfloat32> [1.0, 2.0]\n"
        "%y = tfl.MATRIX_SET_DIAG@1(%x, %d) : tensor<2x2xfloat32, quant<int8 0.1:0>>",
        _ONE,
        "the operand diagonal is stored as float32, not as int8",
    ),
    "a slice from int32 of int64 sizes": (
        "%b = constant tensor<1xint32> [1]\n%s = constant tensor<1xint64> [2]\n"
        "%y = tfl.SLICE@1(%x, %b, %s) : tensor<2xfloat32>",
        _REAL,
        "the operand size is stored as int64, not as int32",
    ),
    "a value of int8 dequantized to float16": (
        "%y = tfl.DEQUANTIZE@1(%x) : tensor<4xfloat16>", _INT8, "stored as float32"
    ),
    "a permutation of int64": (
        "%p = constant tensor<3xint64> [2, 0, 1]\n%y = tfl.TRANSPOSE@1(%x, %p) : tensor<3x1x2xfloat32>",
        "tensor<1x2x3xfloat32>",
        "reads the permutation as int32",
    ),
    "a row that is repeated and has a scale for each repetition": (
        f"%s = constant tensor<2xint32> [2, 2]\n%y = tfl.BROADCAST_TO@2(%x, %s) : {_EACH}",
        "tensor<1x2xfloat32, quant<int8 0.1:0>>",
        "reads one scale",
    ),
    "channels of several scales in one": (
        "%y = tfl.DEPTH_TO_SPACE@2(%x) {block_size = 2} : tensor<1x2x2x1xfloat32, quant<int8 0.1:0>>",
        "tensor<1x1x1x4xfloat32, quant<int8 axis=3 0.1:0 0.2:0 0.1:0 0.2:0>>",
        "reads one scale",
    ),
    "a dequantized value as int8": (f"%y = tfl.DEQUANTIZE@1(%x) : {_INT8}", _INT8, "stored as float32"),
    "rows of a real table as int8": (
        "%i = constant tensor<1xint32> [1]\n"
        "%y = tfl.EMBEDDING_LOOKUP@1(%i, %x) : tensor<1x2xfloat32, quant<int8 0.1:0>>",
        "tensor<2x2xfloat32>",
        "stored as float32",
    ),
    "an exponential with a scale for each row": (f"%y = tfl.EXP@2(%x) : {_ONE}", _EACH, "reads one scale"),
    "a maximum of what has a scale for each row": (f"%y = tfl.MAXIMUM@2(%x, %x) : {_ONE}", _EACH, "reads one scale"),
    "rows with other scales than the reversed ones": (
        f"%a = constant tensor<1xint32> [0]\n%y = tfl.REVERSE_V2@3(%x, %a) : {_ONE}", _EACH, "reads one scale"
    ),
    "a convolution of what has a scale for each image": (
        "%w = constant tensor<1x1x1x1xfloat32, quant<int8 0.1:0>> [3]\n"
        "%b = constant tensor<1xfloat32, quant<int32 0.01:0>> [0]\n"
        f"%y = tfl.CONV_2D@3(%x, %w, %b) {{{_WINDOW}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int8 0.1:0>>",
        "tensor<2x1x1x1xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>",
        "reads one scale",
    ),
    "scales of weights that are not those of output features": (
        "%w = constant tensor<1x1x2x1xfloat32, quant<int8 axis=2 0.1:0 0.2:0>> [3, 4]\n"
        "%b = constant tensor<1xfloat32, quant<int32 0.01:0>> [0]\n"
        f"%y = tfl.CONV_2D@3(%x, %w, %b) {{{_WINDOW}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int8 0.1:0>>",
        "tensor<2x1x2x1xfloat32, quant<int8 0.1:0>>",
        "a scale for each of 1 output features",
    ),
    "weights of uint8 for int16": (
        "%w = constant tensor<1x1x1x1xfloat32, quant<uint8 0.1:0>> [200]\n"
        "%b = constant tensor<1xfloat32, quant<int64 0.01:0>> [0]\n"
        f"%y = tfl.CONV_2D@4(%x, %w, %b) {{{_WINDOW}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int16 0.1:0>>",
        "tensor<2x1x1x1xfloat32, quant<int16 0.1:0>>",
        "takes weights of int8 or int4",
    ),
    "a FAKE_QUANT of stored integers": (
        f"%y = tfl.FAKE_QUANT@2(%x) {{min = -1.0, max = 1.0, num_bits = 8}} : {_INT8}", _INT8, "takes float32"
    ),
    "a CONV_2D of one operand": (f"%y = tfl.CONV_2D@1(%x) : {_REAL}", _REAL, "operand 1 is absent"),
    "rows with a scale each that are requantized": (f"%y = tfl.QUANTIZE@2(%x) : {_ONE}", _EACH, "reads one scale"),
    "diagonals of uint16": (
        "%y = tfl.MATRIX_DIAG@1(%x) : tensor<4x4xuint16>", "tensor<4xuint16>", "whole elements of uint16"
    ),
    "the largest of each segment of bools": (
        "%i = constant tensor<4xint32> [0, 1, 1, 0]\n%n = constant tensor<int32> [2]\n"
        "%y = tfl.UNSORTED_SEGMENT_MAX@1(%x, %i, %n) : tensor<2xbool>",
        "tensor<4xbool>",
        "input cannot be bool",
    ),
    "a projection of another width": (
        "%m = constant tensor<2x2xfloat32> [1.0, 2.0, 3.0, 4.0]\n%v = constant tensor<2xfloat32> [0.0, 0.0]\n"
        "%p = constant tensor<3x2xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]\n"
        "%s = constant tensor<1x2xfloat32> [0.0, 0.0]\n"
        f"%y = tfl.UNIDIRECTIONAL_SEQUENCE_LSTM@1(%x, {', '.join(['%m'] * 8)}, _, _, _, {', '.join(['%v'] * 4)}, "
        '%p, _, %s, %s) {fused_activation_function = "TANH", time_major = true} : tensor<3x1x2xfloat32>',
        "tensor<3x1x2xfloat32>",
        "numbers of projection",
    ),
    "uint8 parts of which one has a scale for each row": (
        "%y = tfl.CONCATENATION@1(%x, %x) {axis = 0} : tensor<4x2xfloat32, quant<uint8 0.1:0>>",
        _EACH.replace("int8", "uint8"),
        "reads one scale",
    ),
    "blocks of size 0": (
        "%y = tfl.SPACE_TO_DEPTH@1(%x) {block_size = 0} : tensor<1x2x2x1xfloat32>",
        "tensor<1x2x2x1xfloat32>",
        "a size, stride or factor is 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    body, given, message = _REFUSED[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError), match=message) as error:
        onnxtfl.tflite_to_onnx(tflite(f"graph main(%x: {given}) -> (%y) {{\n{body}\n}}"), check=False)
    assert "'y'" in str(error.value) and "index out of range" not in str(error.value)


def _sum() -> bytes:
    return tflite(f"graph main(%x: {_REAL}, %y: {_REAL}) -> (%z) {{\n%z = tfl.ADD@1(%x, %y) : {_REAL}\n}}")


def test_options_that_the_format_does_not_define_are_refused() -> None:
    def activate(model: Any) -> None:
        model.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = 77

    with pytest.raises(onnxtfl.UnsupportedError, match="fused_activation_function is 77"):
        onnxtfl.tflite_to_onnx(changed(_sum(), activate), check=False)


def test_blocks_whose_scales_are_the_tensor_itself_are_refused() -> None:
    def block(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        table = model.subgraphs[0].tensors[0]
        table.type = schema.TensorType.INT8
        table.quantization = schema.QuantizationParametersT()
        table.quantization.details = schema.BlockwiseQuantizationT()
        table.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
        table.quantization.details.blockSize = 2

    with pytest.raises(onnxtfl.OnnxtflError, match="scales that are no constant"):
        onnxtfl.tflite_to_onnx(changed(_sum(), block), check=False)


def test_a_table_whose_size_only_a_run_knows_is_refused() -> None:
    shape = "tensor<[n]xfloat32>"
    inputs = ", ".join(f"%{name}: {shape}" for name in "abcd")
    text = f"graph main({inputs}) -> (%y) {{\n%y = tfl.HASHTABLE_FIND@1(%a, %b, %c, %d) : {shape}\n}}"
    with pytest.raises(onnxtfl.UnsupportedError, match="a table of unknown size"):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)


def test_numbers_of_one_element_and_several_axes() -> None:
    data = tflite_file(
        "NON_MAX_SUPPRESSION_V5",
        [tensor("float32", 3, 4), tensor("float32", 3), *(np.full((1, 1), v, np.float32) for v in (2, 0.5, 0.0, 0.0))],
        *(tensor("int32", 2), tensor("float32", 2), tensor("int32")),
    )
    with pytest.raises(onnxtfl.InvalidModelError, match="operand limit cannot be float32"):
        onnxtfl.tflite_to_onnx(data, check=False)
    limit, *thresholds = [np.full((1, 1), 2, np.int32), *(np.full((1, 1), v, np.float32) for v in (0.5, 0.0, 0.5))]
    boxes = [tensor("float32", 3, 4), tensor("float32", 3)]
    for op, count, types in (
        ("NON_MAX_SUPPRESSION_V4", 2, [tensor("int32", 2), tensor("int32")]),
        ("NON_MAX_SUPPRESSION_V5", 3, [tensor("int32", 2), tensor("float32", 2), tensor("int32")]),
    ):
        data = tflite_file(op, [*boxes, limit, *thresholds[:count]], *types)
        assert onnxtfl.tflite_to_onnx(data, check=False).data
    on, off = (np.full((1, 1, 1), v, np.float32) for v in (2, -1))
    data = tflite_file(
        "ONE_HOT", [tensor("int32", 3), np.asarray(4, np.int32), on, off], tensor("float32", 3, 4), axis=-1
    )
    agree(data, np.asarray([0, 3, 1], np.int32))


def test_a_nearest_resize_of_integers_of_open_sizes() -> None:
    text = """
    graph main(%x: tensor<1x[h]x[w]x1xint64>) -> (%y) {
      %s = tfl.SHAPE@1(%x) {out_type = "INT32"} : tensor<4xint32>
      %b = constant tensor<1xint32> [1]
      %e = constant tensor<1xint32> [3]
      %i = constant tensor<1xint32> [1]
      %two = constant tensor<int32> [2]
      %hw = tfl.STRIDED_SLICE@1(%s, %b, %e, %i) : tensor<2xint32>
      %n = tfl.MUL@1(%hw, %two) : tensor<2xint32>
      %y = tfl.RESIZE_NEAREST_NEIGHBOR@1(%x, %n) : tensor<1x[a]x[b]x1xint64>
    }"""
    x = np.arange(6, dtype=np.int64).reshape(1, 2, 3, 1)
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(tflite(text), check=False).data, {"x": x}).values()
    np.testing.assert_array_equal(found, x.repeat(2, 1).repeat(2, 2))


def test_a_product_with_open_weights_keeps_its_axes() -> None:
    text = """
    graph main(%x: tensor<1x1x2xfloat32>, %w: tensor<[n]x[k]xfloat32>) -> (%y) {
      %y = tfl.FULLY_CONNECTED@6(%x, %w) {keep_num_dims = true} : tensor<1x1x[n]xfloat32>
    }"""
    x, weights = np.asarray([[[1, 2]]], np.float32), np.asarray([[1, 0], [0, 1], [3, 4]], np.float32)
    agree(tflite(text), x, weights, tolerance=1e-6)


def test_resources_are_no_numbers_of_segments() -> None:
    def is_resource(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        model.subgraphs[0].tensors[2].type = schema.TensorType.RESOURCE

    types = [tensor("float32", 4), tensor("int32", 4), tensor("int32")]
    data = tflite_file("UNSORTED_SEGMENT_SUM", types, tensor("float32", 2))
    with pytest.raises(onnxtfl.InvalidModelError, match=r"operand count is a resource"):
        onnxtfl.tflite_to_onnx(changed(data, is_resource), check=False)


def test_results_of_ops_without_results_are_refused() -> None:
    text = """
    graph main(%x: tensor<2xfloat32>) -> (%y) {
      %v = tfl.VAR_HANDLE@1() {shared_name = "v"} : resource<variable>
      %y = tfl.ASSIGN_VARIABLE@1(%v, %x) : tensor<2xfloat32>
    }"""
    with pytest.raises(onnxtfl.InvalidModelError, match="this op has no results"):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)


def test_an_absent_operand_of_a_composite_is_refused() -> None:
    body, main = Graph("body"), Graph("main")
    pair = [body.add_input(tensor("float32", 2), name) for name in "ab"]
    body.outputs = Builder(body).foreign("tfl", "ADD", pair, [tensor("float32", 2)])
    x = main.add_input(tensor("float32", 2), "x")
    options = {"decomposition_subgraph_index": body}
    main.outputs = Builder(main).foreign("tfl", "STABLEHLO_COMPOSITE", [x, None], [tensor("float32", 2)], 1, **options)
    file = io.BytesIO()
    writer.write(Model(main), file)
    with pytest.raises(onnxtfl.InvalidModelError, match="absent"):
        onnxtfl.tflite_to_onnx(file.getvalue(), check=False)


def test_a_loop_of_real_values_with_a_quantized_result_is_refused() -> None:
    """The kernel returns what its body does, whatever the file declares."""
    real = tensor("float32", 2)
    condition, body = Graph("condition"), Graph("body")
    x = condition.add_input(real, "x")
    b = Builder(condition)
    (axis, limit) = (np.asarray([0], np.int32), np.asarray(9, np.float32))
    (total,) = b.foreign("tfl", "SUM", [x, axis], [tensor("float32")])
    condition.outputs = b.foreign("tfl", "LESS", [total, limit], [tensor("bool")])
    x = body.add_input(real, "x")
    body.outputs = Builder(body).foreign("tfl", "ADD", [x, x], [real])
    options = {"cond_subgraph_index": condition, "body_subgraph_index": body}
    data = tflite_file("WHILE", [real], real, **options)
    agree(data, np.asarray([1, 2], np.float32))
    quantized = real.stored_as(Quantization("int8", (0.1,), (0,)))
    with pytest.raises(onnxtfl.InvalidModelError, match="declared as int8, and stored as float32"):
        onnxtfl.tflite_to_onnx(tflite_file("WHILE", [real], quantized, **options), check=False)


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

    data, x = changed(tflite(text), declare), np.asarray([0, 20, 80, 84], np.uint8)
    ((_, wanted),) = run_tflite(data, [x])
    converted = onnxtfl.tflite_to_onnx(data, check=False).data or b""
    np.testing.assert_array_equal(run_onnx(converted, {"x": x})["y"], wanted)
