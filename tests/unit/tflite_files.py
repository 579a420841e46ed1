"""TFLite files of one op with given operands, changes of their tables, and the comparison of their conversion."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import onnx

import onnxtfl
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor
from tests.harness.litert import run_onnx, run_tflite


def tflite_file(op: str, operands: Sequence[Any], *results: TensorType, **options: Any) -> bytes:
    """A model of one op: operands that are types are inputs, others constants."""
    graph = Graph()
    given = [
        graph.add_input(x, f"x{i}")
        if isinstance(x, TensorType)
        else x
        if x is None or isinstance(x, Value)
        else constant(x)
        for i, x in enumerate(operands)
    ]
    graph.outputs = Builder(graph).foreign("tfl", op, given, [*results], **options)
    out = io.BytesIO()
    write(Model(graph), out)
    return out.getvalue()


def quantized(values: Any) -> Value:
    """Integers that a file declares to be real values."""
    found = constant(np.asarray(values, np.int32))
    found.type = TensorType(DType.FLOAT32, found.shape, Quantization("int32", (0.1,), (0,)))
    return found


def int8_type(shape: Sequence[int], scale: float = 0.1, zero: int = 3) -> TensorType:
    """A quantized type with one scale."""
    return tensor("float32", *shape).stored_as(Quantization("int8", (scale,), (zero,)))


def int_weights(
    shape: Sequence[int], storage: str, scales: Sequence[float], zero: int = 0, axis: int | None = None
) -> Value:
    """Quantized constants."""
    found = constant(np.random.default_rng(1).integers(-99, 99, shape).astype(storage))
    parameters = Quantization(storage, tuple(scales), (zero,) * len(scales), axis)
    found.type = tensor("float32", *shape).stored_as(parameters)
    return found


def uint8_type(shape: Sequence[int]) -> TensorType:
    """A quantized type of uint8."""
    return tensor("float32", *shape).stored_as(Quantization("uint8", (0.1,), (120,)))


def unsigned_weights(shape: Sequence[int], scale: float, zero: int) -> Value:
    """Quantized constants of uint8 around their zero point."""
    found = constant(np.random.default_rng(1).integers(zero - 99, zero + 99, shape).astype("uint8"))
    found.type = tensor("float32", *shape).stored_as(Quantization("uint8", (scale,), (zero,)))
    return found


def assert_converts_alike(data: bytes, *inputs: Array, tolerance: float = 0.0) -> None:
    """Compare LiteRT without XNNPACK and, converted, ONNX Runtime."""
    wanted = run_tflite(data, inputs, kernels="builtin")
    model = onnxtfl.tflite_to_onnx(data, check=False).data
    names = [value.name for value in onnx.load_from_string(model).graph.input]
    found = run_onnx(model, dict(zip(names, inputs, strict=True))).values()
    for (_, expected), array in zip(wanted, found, strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


def changed_file(data: bytes, change: Any) -> bytes:
    """The file after `change` of its decoded tables."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
