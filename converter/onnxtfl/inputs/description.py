"""The inputs and outputs of a model as a check uses them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from onnxtfl.formats.onnx.definitions import ROUNDED
from onnxtfl.formats.tflite.hybrid import keeps_activations
from onnxtfl.ir.dims import SymDim, size_or, symbols
from onnxtfl.ir.graph import Node
from onnxtfl.ir.metadata import IO_TYPES, as_text
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.symbols import Unknown
from onnxtfl.ir.types import OptionalType, SequenceType, TensorType, Type

Dim = int | str | None


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: name, dtype (NumPy's name for it, or "string", "bfloat16", "undefined", ...) and shape.

    A dimension is a size, the name of a symbol, or None; ``shape`` is None if the rank is unknown. ``kind``: "tensor",
    or the container of tensors of this dtype and shape; "optional sequence" is an optional of a sequence.
    ``is_complex``: the values are complex numbers, which the check represents as floats with a trailing axis of 2.
    ``declared``: the wider integer type that the file declares for the values of this int32 tensor; "" if there is
    none.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    quantization: Quantization | None = None
    kind: Literal["tensor", "sequence", "optional", "optional sequence"] = "tensor"
    is_complex: bool = False
    declared: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """A model file: its format, and its inputs and outputs in its own order.

    ``hybrid``: whether kernels quantize activations at run time, in which kernel sets differ.
    """

    path: Path
    format: FormatName
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    hybrid: bool = False


def describe(path: Path, model: Model) -> ModelInfo:
    """Return the inputs and outputs of the main graph of ``model``, read from ``path``, as the file declares them."""
    graph, format_ = model.main, model.format or "onnx"
    inputs = tuple(described(value.name or "", value.type, format_) for value in graph.inputs)
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    infos = tuple(described(name, value.type, format_) for name, value in outputs)
    wider = _declared(model)
    inputs, infos = (tuple(replace(i, declared=wider.get(i.name, "")) for i in side) for side in (inputs, infos))
    is_hybrid = any(_is_hybrid(node) for one in model.graphs() for node in one.walk())
    return ModelInfo(path, format_, inputs, infos, is_hybrid)


def _declared(model: Model) -> dict[str, str]:
    """Return the source's types of inputs and outputs that a conversion changed to int32, by name."""
    try:
        found = json.loads(as_text(model.metadata.properties.get(IO_TYPES, "{}")))
        return {name: source for name, (source, dtype, _) in found.items() if (source, dtype) == ("int64", "int32")}
    except (ValueError, TypeError, AttributeError):
        return {}


def with_fixed_sizes(info: ModelInfo) -> ModelInfo:
    """The model with size 1 for all dynamic ones, as TFLite Micro runs it."""

    def fixed(spec: TensorInfo) -> TensorInfo:
        shape = spec.shape
        return replace(spec, shape=shape and tuple(size_or(dim, 1) for dim in shape))

    return replace(info, inputs=tuple(map(fixed, info.inputs)), outputs=tuple(map(fixed, info.outputs)))


def _is_hybrid(node: Node) -> bool:
    """Whether an op of either format has float activations, which its kernel rounds, and constant integer weights."""
    if (node.op.domain, node.op.name) in ROUNDED:
        return True
    constants = any(v is not None and v.is_constant and v.is_quantized for v in node.operands)
    changing = [v for v in (*node.operands, *node.results) if v is not None and not v.is_constant]
    if node.op.dialect != "tfl" or not constants or not all(is_real(v.type) for v in changing):
        return False
    return len(changing) > 1 and not keeps_activations(node)


def described(name: str, type_: Type | None, format_: FormatName) -> TensorInfo:
    """The description of a tensor of this type in a file of this format."""
    if isinstance(type_, SequenceType) and isinstance(type_.element, TensorType):
        return replace(described(name, type_.element, format_), kind="sequence")
    if isinstance(type_, OptionalType) and isinstance(type_.element, TensorType | SequenceType):
        element = described(name, type_.element, format_)
        return replace(element, kind="optional" if element.kind == "tensor" else "optional sequence")
    if not isinstance(type_, TensorType):
        return TensorInfo(name, type(type_).__name__.removesuffix("Type").lower() if type_ else "undefined", None)
    shape = None if type_.shape is None else tuple(_dim(dim, format_) for dim in type_.shape)
    if type_.dtype in REAL_OF:
        pairs = None if shape is None else (*shape, 2)
        return TensorInfo(name, REAL_OF[type_.dtype].value, pairs, is_complex=True)
    return TensorInfo(name, type_.storage.value, shape, type_.quantization)


def _dim(dim: int | SymDim, format_: FormatName) -> Dim:
    """Return a dimension; some ONNX exporters write 0 for a dynamic size."""
    if isinstance(dim, int):
        return dim if dim > 0 or format_ != "onnx" else None
    named = format_ != "tflite" and not any(isinstance(symbol, Unknown) for symbol in symbols(dim))
    return str(dim) if named else None


class MismatchError(Exception):
    """Raised if the inputs or outputs of the two models do not correspond; the message describes the difference."""
