"""Constants of quantized types: how they are cast, and what is written for their conversion to real values."""

from __future__ import annotations

import io

import numpy as np
import pytest

from onnxtfl.formats.onnx import writer as onnx_writer
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.ir.data import ArrayData, CastData
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets import Target
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.harness.litert import run_onnx, run_tflite
from tests.passes.helpers import op_counts
from tests.unit.tiny_models import Array

QUANTIZATIONS = {
    "int8": ("quant<int8 0.5:3>", {"onnx.DequantizeLinear"}, {"tfl.DEQUANTIZE"}),
    "int8 by axis": ("quant<int8 axis=1 0.5:0 0.2:0 0.3:0 0.4:0>", {"onnx.DequantizeLinear"}, {"tfl.DEQUANTIZE"}),
    "int4 with zero points": ("quant<int4 axis=0 0.5:0 0.25:1>", {"onnx.DequantizeLinear"}, {"tfl.DEQUANTIZE"}),
    "int4 in blocks": (
        "quant<int4 axis=1 block=3 0.5:0 0.25:0 2.0:3 1.0:1>",
        {"onnx.DequantizeLinear"},
        {"tfl.CAST", "tfl.SUB", "tfl.MUL"},
    ),
    "int8 in blocks": (
        "quant<int8 axis=0 block=2 0.5:0 0.25:0 2.0:3 1.0:1>",
        {"onnx.DequantizeLinear"},
        {"tfl.CAST", "tfl.SUB", "tfl.MUL"},
    ),
    "int16 with a zero point": (
        "quant<int16 0.5:3>",
        {"onnx.DequantizeLinear"},
        {"tfl.CAST", "tfl.SUB", "tfl.MUL"},
    ),
    "int32": ("quant<int32 0.5:0>", {"onnx.DequantizeLinear"}, set()),
    "int64": ("quant<int64 0.5:0>", set(), set()),
}


def dequantized(quantization: str) -> Graph:
    """A graph that adds a quantized constant to its input."""
    return parse_graph(f"""graph main(%x: tensor<2x4xfloat32>) -> (%y) {{
      %c = constant tensor<2x4xfloat32, {quantization}> [1, -2, 3, 4, 5, -6, 7, 0]
      %d = Convert(%c) {{dtype = !float32}} : tensor<2x4xfloat32>
      %y = Add(%d, %x)
    }}""")


def written(graph: Graph, target: Target) -> bytes:
    """The file of the lowered graph."""
    for late in (False, True):
        legalize(graph, target, late=late)
    lower(graph, target)
    out = io.BytesIO()
    if isinstance(target, OnnxTarget):
        onnx_writer.write(Model(graph), out, opset=target.opset)
    else:
        tflite_writer.write(Model(graph), out)
    return out.getvalue()


@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_runtimes_dequantize_what_is_written(name: str) -> None:
    quantization, onnx_ops, tfl_ops = QUANTIZATIONS[name]
    x = np.zeros((2, 4), np.float32)
    (wanted,) = run(dequantized(quantization), [x])
    graph = dequantized(quantization)
    (found,) = run_onnx(written(graph, OnnxTarget(21)), {"x": x}).values()
    np.testing.assert_array_equal(found, wanted)
    assert onnx_ops <= op_counts(graph).keys()
    graph = dequantized(quantization)
    ((_, result),) = run_tflite(written(graph, TfliteTarget()), [x])
    np.testing.assert_array_equal(result, wanted)
    assert tfl_ops <= op_counts(graph).keys()


def test_blocks_before_opset_21_are_dequantized_by_arithmetic() -> None:
    blocks = "quant<int8 axis=0 block=2 0.5:0 0.25:0 2.0:3 1.0:1>"
    x = {"x": np.zeros((2, 4), np.float32)}
    older, newer = (run_onnx(written(dequantized(blocks), OnnxTarget(opset)), x) for opset in (17, 21))
    np.testing.assert_array_equal(older["y"], newer["y"])


# --- casts with an offset ---------------------------------------------------------------------------------------------

BYTES = np.arange(256, dtype=np.uint8).reshape(2, 8, 16)


def test_shifted_bytes_wrap_nowhere() -> None:
    data = ArrayData(BYTES).cast(DType.INT8, -128)
    np.testing.assert_array_equal(data.numpy(), BYTES.astype(np.int16) - 128)
    assert data.numpy().dtype == np.int8 and data.nbytes == 256
    back = data.cast(DType.UINT8, 128)
    np.testing.assert_array_equal(back.numpy(), BYTES)


def _all(data: CastData) -> Array:
    return np.concatenate(list(data.chunks()))


def test_shifted_bytes_are_read_in_parts_and_permuted() -> None:
    data = ArrayData(BYTES).cast(DType.INT8, -128)
    assert isinstance(data, CastData)
    wanted = (BYTES.astype(np.int16) - 128).astype(np.int8)
    np.testing.assert_array_equal(data.slab(1, 2, 5), wanted[:, 2:5])
    np.testing.assert_array_equal(data.transpose((2, 0, 1)).numpy(), wanted.transpose(2, 0, 1))
    np.testing.assert_array_equal(data.reshape((16, 16)).numpy(), wanted.reshape(16, 16))
    np.testing.assert_array_equal(_all(data).view(np.int8), wanted.reshape(-1))


def test_equal_keys_are_equal_bytes() -> None:
    data = ArrayData(BYTES)
    assert data.cast(DType.INT8, -128).key == ArrayData(BYTES.copy()).cast(DType.INT8, -128).key
    assert data.cast(DType.INT8, -128).key != data.cast(DType.INT8).key
    assert data.cast(DType.UINT8) is data
