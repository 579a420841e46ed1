"""Operands and options that no valid TFLite model has: one clear error, never an internal one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import changed_file, tflite_file

F = np.float32


_INT16_IMAGE = tensor("float32", 1, 4, 5, 2).stored_as(Quantization("int16", (0.01,), (0,)))


_REFUSED_TFLITE = {
    "crops of one axis for two blocks": (
        "BATCH_TO_SPACE_ND",
        [tensor("float32", 4, 2, 2, 1), np.asarray([2, 2], np.int32), np.asarray([[0, 0]], np.int32)],
        tensor("float32", 1, 4, 4, 1),
        {},
    ),
    "a one-hot axis of 2^31 - 1": (
        "ONE_HOT",
        [tensor("int32", 3), np.asarray(2**31 - 1, np.int32), F(1), F(0)],
        tensor("float32", 3, 2**31 - 1),
        {"axis": -1},
    ),
    "batch dims of 1 and 3": (
        "GATHER",
        [tensor("float32", 1, 4), tensor("int32", 3, 2)],
        tensor("float32", 1, 2),
        {"axis": 1, "batch_dims": 1},
    ),
    "a part of a concatenation that is absent": (
        "CONCATENATION",
        [tensor("float32", 2), None],
        tensor("float32", 2),
        {"axis": 0},
    ),
    "UNPACK into 2^31 - 1 tensors of one result": (
        "UNPACK",
        [tensor("float32", 2**31 - 1)],
        tensor("float32"),
        {"num": 2**31 - 1},
    ),
    "sizes of 2^31 - 1 axes": (
        "FILL",
        [tensor("int32", 2**31 - 1), F(1)],
        tensor("float32", 1),
        {},
    ),
    "a bias for other features": (
        "FULLY_CONNECTED",
        [tensor("float32", 2, 3), np.ones((4, 3), F), np.ones(1, F)],
        tensor("float32", 2, 4),
        {},
    ),
    "ids of more rows": (
        "UNSORTED_SEGMENT_SUM",
        [np.ones((3, 2), F), tensor("int32", 6), np.asarray(2, np.int32)],
        tensor("float32", 2, 2),
        {},
    ),
    "crops of -2^31, of an open batch": (
        "BATCH_TO_SPACE_ND",
        [tensor("float32", "n", 4, 4, 2), np.asarray([2, 1], np.int32), np.asarray([[0, 0], [-(2**31), 0]], np.int32)],
        tensor("float32", "m", 8, 4, 2),
        {},
    ),
    "other indices than the kernel writes": (
        "ARG_MIN",
        [tensor("float32", 2, 6), np.asarray(1, np.int32)],
        tensor("float32", 2).stored_as(Quantization("int8", (0.5,), (0,))),
        {"output_type": "INT32"},
    ),
    "the weights of an image of 2^24 rows in fixed point": (
        "RESIZE_BILINEAR",
        [_INT16_IMAGE, np.asarray([1 << 24, 10], np.int32)],
        _INT16_IMAGE,
        {"half_pixel_centers": True},
    ),
    "an update of another type": (
        "DYNAMIC_UPDATE_SLICE",
        [_INT16_IMAGE, tensor("int16", 1, 4, 5, 2), np.zeros(4, np.int32)],
        _INT16_IMAGE,
        {},
    ),
    "four depths of a one-hot axis": (
        "ONE_HOT",
        [np.asarray(1, np.int32), np.arange(4), F(1), F(0)],
        tensor("float32", 4),
        {"axis": -1},
    ),
    "boxes of 8 numbers": (
        "NON_MAX_SUPPRESSION_V4",
        [np.ones((6, 8), F), tensor("float32", 6), np.asarray(3, np.int32), F(0.5), F(0)],
        tensor("int32", 3),
        {},
    ),
    "65,536 sizes for 2 parts": (
        "SPLIT_V",
        [tensor("float32", "n", 5), tensor("int32", 65536), np.asarray(-1, np.int32)],
        tensor("float32", "n", 2),
        {"num_splits": 2},
    ),
    "300 axes": ("NEG", [tensor("float32", *[1] * 300)], tensor("float32", *[1] * 300), {}),
}


@pytest.mark.parametrize("name", _REFUSED_TFLITE)
def test_refused_tflite(name: str) -> None:
    op, operands, result, options = _REFUSED_TFLITE[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError)) as error:
        onnxtfl.tflite_to_onnx(tflite_file(op, operands, result, **options), check=False)
    assert "\n" not in str(error.value) and error.value.code != "E-RUN-005"


def test_a_pool_of_real_values_with_a_quantized_result() -> None:
    scale = Quantization("int8", (0.5,), (0,))
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, (1, 4, 4, 1), scale), "x")
    (real,) = b.foreign("tfl", "DEQUANTIZE", [x], [tensor("float32", 1, 4, 4, 1)])
    window = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    result = TensorType(DType.FLOAT32, (1, 2, 2, 1), scale)
    graph.outputs = b.foreign("tfl", "MAX_POOL_2D", [real], [result], **window)
    out = io.BytesIO()
    write(Model(graph), out)
    with pytest.raises(onnxtfl.InvalidModelError, match="declared as int8, and stored as float32"):
        onnxtfl.tflite_to_onnx(out.getvalue(), check=False)


def test_a_threshold_of_no_elements() -> None:
    given = [tensor("float32", 5, 4), tensor("float32", 5), np.asarray(3, np.int32), F(0.5), np.zeros(0, F)]
    data = tflite_file("NON_MAX_SUPPRESSION_V4", given, tensor("int32", 3), tensor("int32"))
    with pytest.raises(onnxtfl.InvalidModelError, match="not of one element"):
        onnxtfl.tflite_to_onnx(data, check=False)


_WINDOW_TEXT = 'padding = "VALID", stride_w = 1, stride_h = 1'


_DILATION = "dilation_w_factor = 1, dilation_h_factor = 1"


_INT8 = "tensor<4xfloat32, quant<int8 0.1:0>>"


_REAL = "tensor<4xfloat32>"


_EACH = "tensor<2x2xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>"


_ONE = "tensor<2x2xfloat32, quant<int8 0.1:0>>"


_REFUSED_GRAPHS = {
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
        f"%y = tfl.CONV_2D@3(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int8 0.1:0>>",
        "tensor<2x1x1x1xfloat32, quant<int8 axis=0 0.1:0 0.2:0>>",
        "reads one scale",
    ),
    "scales of weights that are not those of output features": (
        "%w = constant tensor<1x1x2x1xfloat32, quant<int8 axis=2 0.1:0 0.2:0>> [3, 4]\n"
        "%b = constant tensor<1xfloat32, quant<int32 0.01:0>> [0]\n"
        f"%y = tfl.CONV_2D@3(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int8 0.1:0>>",
        "tensor<2x1x2x1xfloat32, quant<int8 0.1:0>>",
        "a scale for each of 1 output features",
    ),
    "weights of uint8 for int16": (
        "%w = constant tensor<1x1x1x1xfloat32, quant<uint8 0.1:0>> [200]\n"
        "%b = constant tensor<1xfloat32, quant<int64 0.01:0>> [0]\n"
        f"%y = tfl.CONV_2D@4(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}}} : tensor<2x1x1x1xfloat32, quant<int16 0.1:0>>",
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


@pytest.mark.parametrize("name", _REFUSED_GRAPHS)
def test_refused_graphs(name: str) -> None:
    body, given, message = _REFUSED_GRAPHS[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError), match=message) as error:
        onnxtfl.tflite_to_onnx(tflite(f"graph main(%x: {given}) -> (%y) {{\n{body}\n}}"), check=False)
    assert "'y'" in str(error.value) and "index out of range" not in str(error.value)


def _sum() -> bytes:
    return tflite(f"graph main(%x: {_REAL}, %y: {_REAL}) -> (%z) {{\n%z = tfl.ADD@1(%x, %y) : {_REAL}\n}}")


def test_options_that_the_format_does_not_define_are_refused() -> None:
    def activate(model: Any) -> None:
        model.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = 77

    with pytest.raises(onnxtfl.UnsupportedError, match="fused_activation_function is 77"):
        onnxtfl.tflite_to_onnx(changed_file(_sum(), activate), check=False)


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
        onnxtfl.tflite_to_onnx(changed_file(_sum(), block), check=False)


def test_resources_are_no_numbers_of_segments() -> None:
    def is_resource(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        model.subgraphs[0].tensors[2].type = schema.TensorType.RESOURCE

    types = [tensor("float32", 4), tensor("int32", 4), tensor("int32")]
    data = tflite_file("UNSORTED_SEGMENT_SUM", types, tensor("float32", 2))
    with pytest.raises(onnxtfl.InvalidModelError, match=r"operand count is a resource"):
        onnxtfl.tflite_to_onnx(changed_file(data, is_resource), check=False)


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
