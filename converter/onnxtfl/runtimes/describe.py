"""What goes into a model and what comes out: read from the file itself, without a runtime and without its weights."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtfl.errors import InvalidModelError

Dim = int | str | None
PathLike = str | os.PathLike[str]

TFLITE_MAGIC = b"TFL3"
# By number: tflite.TensorType; the last four are in ai-edge-litert's schema only.
TFLITE_DTYPES = (
    *("float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64"),
    *("complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16"),
    *("int2", "uint4", "float8e4m3fn", "float8e5m2"),
)
# By number: onnx.TensorProto.DataType.
ONNX_DTYPES = (
    *("undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16"),
    *("float64", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz"),
    *("float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"),
)


@dataclass(frozen=True)
class Quantization:
    """``real = scale * (stored - zero_point)``, per tensor (one element each) or along ``axis``."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: name, dtype (NumPy's name for it, or "string", "bfloat16", "sequence", ...) and shape.

    A dimension is a size, the name of a symbol, or None; ``shape`` is None where even the rank is unknown.
    ``tensor``: the tensor's own name where ``name`` comes from a signature.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    quantization: Quantization | None = None
    tensor: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """A model file: its format ("onnx" or "tflite"), and its inputs and outputs in its own order."""

    path: Path
    format: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def sniff(path: PathLike) -> str:
    """Return the format of a model file, "tflite" or "onnx", by its content, then by its name.

    Raises `InvalidModelError` where the file cannot be read, is empty, or is neither by content nor by name.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InvalidModelError(f"cannot read {name}: {error.strerror or error}") from error
    if not head:
        raise InvalidModelError(f"{name} is empty")
    if head[4:8] == TFLITE_MAGIC:
        return "tflite"
    if name.lower().endswith(".tflite"):
        raise InvalidModelError(f"{name} is not a TFLite file: the mark 'TFL3' is missing")
    return "onnx"


def describe(path: PathLike) -> ModelInfo:
    """Return what a .onnx or .tflite file takes and gives. Raises `InvalidModelError`."""
    return describe_tflite(path) if sniff(path) == "tflite" else describe_onnx(path, load_onnx(path))


def load_onnx(path: PathLike) -> Any:
    """Return the ``onnx.ModelProto`` of a file, without external data. Raises `InvalidModelError`."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(os.fspath(path), format="protobuf", load_external_data=False)
    except OSError as error:
        raise InvalidModelError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    except (DecodeError, ValueError, RecursionError) as error:
        raise InvalidModelError(f"{os.fspath(path)} is not an ONNX file: {error}") from error
    if not model.HasField("graph") or not model.graph.output:
        raise InvalidModelError(f"{os.fspath(path)} is not an ONNX file: it holds no graph with outputs")
    return model


def describe_onnx(path: PathLike, model: Any) -> ModelInfo:
    """Return what an ``onnx.ModelProto`` takes and gives; inputs that have an initializer are no inputs."""
    held = {tensor.name for tensor in model.graph.initializer}
    held |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    inputs = tuple(_onnx_tensor(value) for value in model.graph.input if value.name not in held)
    return ModelInfo(Path(path), "onnx", inputs, tuple(_onnx_tensor(value) for value in model.graph.output))


def _onnx_tensor(value: Any) -> TensorInfo:
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return TensorInfo(value.name, kind.removesuffix("_type"), None)
    type_ = value.type.tensor_type
    known = 0 <= type_.elem_type < len(ONNX_DTYPES)
    shape = tuple(_onnx_dim(dim) for dim in type_.shape.dim) if type_.HasField("shape") else None
    return TensorInfo(value.name, ONNX_DTYPES[type_.elem_type] if known else "undefined", shape)


def _onnx_dim(dim: Any) -> Dim:
    """Return a dimension; sizes of 0 and -1 are how some exporters say "unknown"."""
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value > 0 else None
    return str(dim.dim_param) or None if kind == "dim_param" else None


def describe_tflite(path: PathLike) -> ModelInfo:
    """Return what the main subgraph of a .tflite file takes and gives, under its signature's names if it has one."""
    with open_tflite(path) as model:
        graph = model.Subgraphs(0)
        names = signature_names(model)
        inputs = tuple(tflite_tensor(graph, index, names[0]) for index in vector(graph, "Inputs"))
        outputs = tuple(tflite_tensor(graph, index, names[1]) for index in vector(graph, "Outputs"))
    return ModelInfo(Path(path), "tflite", _unique(inputs), _unique(outputs))


@contextmanager
def open_tflite(path: PathLike) -> Iterator[Any]:
    """Give the ``tflite.Model`` of a file while it is mapped; what a garbled file does is an `InvalidModelError`."""
    import tflite

    name = os.fspath(path)
    if sniff(path) != "tflite":
        raise InvalidModelError(f"{name} is not a TFLite file")
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model = tflite.Model.GetRootAs(data, 0)
            if not model.SubgraphsLength():
                raise InvalidModelError(f"{name} holds no subgraph")
            yield model
    except OSError as error:
        raise InvalidModelError(f"cannot read {name}: {error.strerror or error}") from error
    except (struct.error, IndexError, UnicodeDecodeError, TypeError, ValueError, OverflowError, BufferError) as error:
        raise InvalidModelError(f"{name} is a garbled TFLite file: {error}") from error


def vector(table: Any, field: str) -> tuple[int, ...]:
    """Return a vector of numbers of a flatbuffer table, () where it is absent."""
    if not getattr(table, field + "Length")():
        return ()
    return tuple(value.item() for value in getattr(table, field + "AsNumpy")())


def signature_names(model: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names that the signature of the main subgraph gives its inputs and its outputs, by tensor index.

    Of several signatures "serving_default" counts, else the first.
    """
    signatures = [model.SignatureDefs(k) for k in range(bounded(model.SignatureDefsLength()))]
    mine = [signature for signature in signatures if signature.SubgraphIndex() == 0]
    mine.sort(key=lambda signature: signature.SignatureKey() != b"serving_default")
    if not mine:
        return {}, {}
    first = mine[0]
    inputs = [first.Inputs(k) for k in range(bounded(first.InputsLength()))]
    outputs = [first.Outputs(k) for k in range(bounded(first.OutputsLength()))]
    return {m.TensorIndex(): _text(m.Name()) for m in inputs}, {m.TensorIndex(): _text(m.Name()) for m in outputs}


def bounded(length: int) -> int:
    """Return a vector's length, refusing one that no file of ours has (a garbled word would loop for hours)."""
    if not 0 <= length < 50_000_000:
        raise ValueError(f"a vector of {length} elements")
    return length


def tflite_tensor(graph: Any, index: int, names: dict[int, str]) -> TensorInfo:
    """Return tensor ``index`` of a subgraph; ``names`` are its signature's."""
    if not 0 <= index < graph.TensorsLength():
        raise ValueError(f"there is no tensor {index}")
    tensor = graph.Tensors(index)
    own = _text(tensor.Name())
    type_ = tensor.Type()
    dtype = TFLITE_DTYPES[type_] if 0 <= type_ < len(TFLITE_DTYPES) else "undefined"
    shape = tuple(size if size >= 0 else None for size in vector(tensor, "Shape"))
    signature = vector(tensor, "ShapeSignature")
    if len(signature) == len(shape):
        shape = tuple(size if sign >= 0 else None for size, sign in zip(shape, signature, strict=True))
    return TensorInfo(names.get(index, own), dtype, shape, _tflite_quantization(tensor), own)


def _tflite_quantization(tensor: Any) -> Quantization | None:
    quantization = tensor.Quantization()
    if quantization is None or not quantization.ScaleLength():
        return None
    scale = vector(quantization, "Scale")
    zero_point = tuple(int(z) for z in vector(quantization, "ZeroPoint")) or (0,) * len(scale)
    return Quantization(scale, zero_point, quantization.QuantizedDimension())


def _unique(tensors: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
    """Give tensors that share a name (an output listed twice, nameless ones) names of their own."""
    seen: set[str] = set()
    result = []
    for k, info in enumerate(tensors):
        name = info.name if info.name and info.name not in seen else f"{info.name or 'tensor'}_{k}"
        seen.add(name)
        result.append(TensorInfo(name, info.dtype, info.shape, info.quantization, info.tensor))
    return tuple(result)


def _text(name: bytes | None) -> str:
    return (name or b"").decode("utf-8", "replace")
