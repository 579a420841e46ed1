"""The inputs and outputs of a model as a check uses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtfl.ir.dims import SymDim, Unknown, symbols
from onnxtfl.ir.graph import Node
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.types import TensorType, Type

Dim = int | str | None


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: name, dtype (NumPy's name for it, or "string", "bfloat16", "sequence", ...) and shape.

    A dimension is a size, the name of a symbol, or None; ``shape`` is None where even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    quantization: Quantization | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A model file: its format, and its inputs and outputs in its own order.

    ``hybrid``: whether kernels of TFLite quantize activations at run time, each kernel set in its own way.
    """

    path: Path
    format: FormatName
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    hybrid: bool = False


def describe(path: Path, model: Model) -> ModelInfo:
    """Return the inputs and outputs of the main graph of ``model``, read from ``path``, as the file declares them."""
    graph, format_ = model.main, model.format or "onnx"
    inputs = tuple(_tensor(value.name or "", value.type, format_) for value in graph.inputs)
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    infos = tuple(_tensor(name, value.type, format_) for name, value in outputs)
    return ModelInfo(path, format_, inputs, infos, any(map(_is_hybrid, graph.walk())))


def _is_hybrid(node: Node) -> bool:
    """Whether an op of TFLite computes on float activations and constant integer weights."""
    constants = any(v is not None and v.is_constant and v.is_quantized for v in node.operands)
    changing = [v for v in (*node.operands, *node.results) if v is not None and not v.is_constant]
    return node.op.dialect == "tfl" and constants and all(is_real(v.type) for v in changing) and len(changing) > 1


def _tensor(name: str, type_: Type | None, format_: FormatName) -> TensorInfo:
    if not isinstance(type_, TensorType):
        return TensorInfo(name, type(type_).__name__.removesuffix("Type").lower() if type_ else "undefined", None)
    shape = None if type_.shape is None else tuple(_dim(dim, format_) for dim in type_.shape)
    return TensorInfo(name, type_.storage.value, shape, type_.quantization)


def _dim(dim: int | SymDim, format_: FormatName) -> Dim:
    """Return a dimension; a size of 0 is how some ONNX exporters say "unknown"."""
    if isinstance(dim, int):
        return dim if dim > 0 or format_ == "tflite" else None
    named = format_ == "onnx" and not any(isinstance(symbol, Unknown) for symbol in symbols(dim))
    return str(dim) if named else None
