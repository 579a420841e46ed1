"""Models of one or two nodes for tests, made without the converter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Spec = tuple[str, int, Sequence[Any]]  # name, TensorProto type, shape


def onnx_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of ``nodes``."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*spec) for spec in inputs],
        [helper.make_tensor_value_info(*spec) for spec in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def onnx_scale(factor: float = 2.0, shape: Sequence[Any] = (2, 3), type_: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """``y = x * factor``."""
    dtype = helper.tensor_dtype_to_np_dtype(type_)
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    return onnx_model([node], [("x", type_, shape)], [("y", type_, shape)], {"factor": np.array(factor, dtype)})


def onnx_unknown_op() -> onnx.ModelProto:
    """A model that no runtime runs: its op is of a domain that none knows."""
    model = onnx_scale()
    model.graph.node[0].domain = "unknown.domain"
    model.opset_import.append(helper.make_opsetid("unknown.domain", 1))
    return model


def saved(model: onnx.ModelProto | bytes, path: Path) -> Path:
    """Write a model; returns the path."""
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def tflite_scale(
    factor: float = 2.0,
    shape: Sequence[int] = (2, 3),
    names: tuple[str, str] = ("x", "y"),
    *,
    signature: bool = True,
    open_shape: Sequence[int] | None = None,
) -> bytes:
    """``y = x * factor`` in float32; ``open_shape`` has -1 for open dimensions."""
    constant = np.full((1,), factor, np.float32)
    return tflite_model(
        "MUL", [("x", shape, None), ("factor", (1,), constant)], ("y", shape), names, signature, open_shape
    )


def tflite_model(
    kind: str,
    operands: Sequence[tuple[str, Sequence[int], Array | None]],
    result: tuple[str, Sequence[int]],
    names: tuple[str, str] = ("x", "y"),
    signature: bool = True,
    open_shape: Sequence[int] | None = None,
    type_: str = "FLOAT32",
) -> bytes:
    """A model of one node with one result; the first operand is the input. ``names`` stand in the signature.

    ``type_``: of what is no constant.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT()
    model.version, model.description = 3, "tiny"
    model.buffers = [schema.BufferT()]
    graph = schema.SubGraphT()
    graph.name, graph.tensors = "main", []
    for name, shape, value in (*operands, (*result, None)):
        graph.tensors.append(_tensor(schema, model, name, shape, value, type_))
    if open_shape is not None:
        graph.tensors[0].shapeSignature = graph.tensors[-1].shapeSignature = list(open_shape)
    last = len(graph.tensors) - 1
    graph.inputs, graph.outputs = [0], [last]
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, list(range(last)), [last]
    graph.operators = [operator]
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    model.operatorCodes, model.subgraphs = [code], [graph]
    model.signatureDefs = [_signature(schema, names, last)] if signature else []
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(schema: Any, model: Any, name: str, shape: Sequence[int], value: Array | None, type_: str) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = name, list(shape), getattr(schema.TensorType, type_)
    tensor.buffer = 0
    if value is not None:
        tensor.type = {"float32": schema.TensorType.FLOAT32, "int32": schema.TensorType.INT32}[value.dtype.name]
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)
    return tensor


def _signature(schema: Any, names: tuple[str, str], last: int) -> Any:
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    maps = []
    for name, index in zip(names, (0, last), strict=True):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        maps.append([entry])
    signature.inputs, signature.outputs = maps
    return signature
