"""Reads an ONNX file as a Model of `onnx` ops exactly as they are in the file; weights are left in it."""

from __future__ import annotations

import os
from pathlib import Path

from onnx import ModelProto

from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.graphs import GraphReader, opset_versions
from onnxtfl.formats.onnx.since import OpsetImports
from onnxtfl.formats.onnx.strings import text_of
from onnxtfl.formats.onnx.tensors import Tensors
from onnxtfl.formats.onnx.wire import DetachedPayloads, reduced_model
from onnxtfl.ir.data import SourceBytes, SourceFile
from onnxtfl.ir.model import Model, Producer

_OTHER_FORMATS = (
    (4, b"TFL3", "a TFLite model"),
    (4, b"ORTM", "a model in ONNX Runtime's own format"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"version https://git-lfs", "a Git LFS pointer, in place of the file that it points to"),
)


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto) -> Model:
    """The model in `source` (a path, the bytes of a file, or a message), its graphs made of `onnx` ops.

    Nodes are `foreign("onnx", op_type, since_version, domain)` with the since-version for the model's opset; the opset
    itself where ONNX does not define the op, 1 in domains that are not imported. Attributes are int, float, str
    (bytes where not UTF-8), TensorData, Type, Graph, and tuples of these. A subgraph uses no value of the outer graph:
    its captured values are operands of the node, after the node's own, and inputs of each subgraph of the node, after
    its own; the attribute `captures` counts them. Captured constants are constants of the subgraph instead.
    Initializers are constants, also those that are listed as inputs with a default. Calls of the model's own functions
    are nodes of their domain, an overload after a colon (`onnxtfl.passes.inline` inlines them). Values have
    the types that the file declares: inputs and outputs always, others may have none.

    Weights of more than a kilobyte stay in the file (or in the bytes) and are read on access: the file must not change
    until the model is written.

    Raises InvalidModelError for invalid models, UnsupportedError for element types and kinds of values that the IR
    lacks. Source: onnx.proto and IR.md of the ONNX specification.
    """
    name = str(source) if isinstance(source, (str, os.PathLike)) else "model"
    try:
        return _read(source)
    except RecursionError as error:
        raise InvalidModelError(f"{name}: graphs are nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{name}: malformed: a name is not UTF-8") from error
    except MemoryError as error:
        raise InvalidModelError(f"{name}: does not fit into memory") from error
    except OnnxtflError as error:
        if name not in error.message:
            error.message = f"{name}: {error.message}"
        raise


def _read(source: str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto) -> Model:
    detached: DetachedPayloads | None = None
    path: Path | None = None
    if isinstance(source, ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model, detached = _parsed(SourceBytes(source, "model"))
    else:
        path = Path(source)
        if path.exists() and not path.is_file():
            raise InvalidModelError(f"{path}: not a regular file")
        model, detached = _parsed(SourceFile(path))
    return _model(model, Tensors(detached, ExternalFiles(path)))


def _parsed(source: SourceFile) -> tuple[ModelProto, DetachedPayloads]:
    head = source.read(0, min(32, source.size))
    if not head:
        raise InvalidModelError(f"{source.path}: the file is empty")
    for offset, magic, what in _OTHER_FORMATS:
        if head[offset:].startswith(magic):
            raise InvalidModelError(f"{source.path}: {what}, not an ONNX model")
    return reduced_model(source)


def _model(model: ModelProto, tensors: Tensors) -> Model:
    if not model.HasField("graph") or not model.graph.output:
        raise InvalidModelError("not an ONNX model: it has no graph with outputs")
    versions = opset_versions(model.opset_import)
    if not versions and model.ir_version < 3:
        versions = {"": 1}  # files older than opset_import
    reader = GraphReader(model, tensors)
    graph = reader.graph(model.graph, OpsetImports(versions))
    for value in graph.inputs:
        if value.type is None:
            raise InvalidModelError(f"the input {value.name!r} has no type")
    return Model(
        graph,
        "onnx",
        functions=reader.functions,
        description=text_of(model.doc_string or model.graph.doc_string),
        properties={text_of(entry.key): text_of(entry.value) for entry in model.metadata_props},
        opsets=versions,
        producer=_producer(model),
        dim_names={symbol: name for name, symbol in reader.types.names.items()},
    )


def _producer(model: ModelProto) -> Producer:
    name, version, domain = map(text_of, (model.producer_name, model.producer_version, model.domain))
    return Producer(name, version, domain, int(model.model_version), int(model.ir_version))
