"""Models of `onnx` ops as ONNX files. Weights are streamed; past 2 GB they go into a file beside the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from onnx import IR_VERSION, GraphProto, ModelProto, defs, helper

from onnxtfl.errors import OutputError, UnsupportedError
from onnxtfl.formats.onnx.encode import tensor_message
from onnxtfl.formats.onnx.graph_messages import GraphWriter
from onnxtfl.formats.onnx.message import Message, stream
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model

LIMIT = (1 << 31) - 1
"""Protobuf reads no message of more bytes than this."""
_PAGE = 4096
_INLINE = 16 << 10
_MIN_IR = 4


def write(
    model: Model,
    out: BinaryIO,
    *,
    opset: int | Mapping[str, int] | None = None,
    external: str | os.PathLike[str] | None = None,
    limit: int = LIMIT,
) -> dict[Value, str]:
    """Write `model`, whose nodes are all `onnx` ops, to `out`, a binary file; the same model gives the same bytes.

    `opset`: of ONNX's own domain, or by domain; None: as the model was read.
    `external`: the file for weights of 16 KB and more, used (and made) only where the model would have more than
    `limit` bytes; it has to lie beside the model, which names it without directory. Returns the names of the values.

    Names of inputs, outputs and values are kept; values without one, or with one that is taken, get new ones. Equal
    weights (by `TensorData.key`) are stored once. The inputs of subgraphs that stand for captures are left out, and
    their values have the outer names. Raises UnsupportedError for what ONNX cannot say, OutputError where the model
    is larger than `limit` and `external` is not given.
    """
    graph = model.main
    if graph.states:
        raise UnsupportedError("ONNX has no state that lives from run to run", node=graph.states[0].input.name)
    writer = GraphWriter(model.dim_names)
    body = writer.main(graph)
    versions = _versions(model, opset, writer.domains)
    message = _model(model, versions, body, [tensor_message(name, data) for name, data in writer.weights.items()])
    if message.size > limit:
        if external is None:
            raise OutputError(f"the model has {message.size} bytes, more than an ONNX file can", hint="write to a path")
        initializers, placed = _external(writer.weights, Path(external).name)
        message = _model(model, versions, body, initializers)
        if message.size > limit:
            raise UnsupportedError(f"the attributes alone make the model {message.size} bytes large")
        _write_external(Path(external), placed)
    message.write(out)
    return writer.names


def _versions(model: Model, opset: int | Mapping[str, int] | None, used: Mapping[str, int]) -> dict[str, int]:
    """The opsets to import: those of the domains in use, ONNX's own always."""
    read = model.opsets
    given = {"": opset} if isinstance(opset, int) else dict(read if opset is None else opset)
    if "" not in given:
        given[""] = used.get("", 1)
    return {domain: given.get(domain, read.get(domain, used.get(domain, 1))) for domain in sorted({"", *used})}


def _ir_version(versions: Mapping[str, int]) -> int:
    """The lowest that has all these opsets, and initializers that are no inputs."""
    known: Mapping[tuple[str, int], int] = helper.OP_SET_ID_VERSION_MAP
    unknown = IR_VERSION if versions[""] > defs.onnx_opset_version() else _MIN_IR
    return max(_MIN_IR, *(known.get((domain or "ai.onnx", v), unknown) for domain, v in versions.items()))


def _model(model: Model, versions: Mapping[str, int], body: Message, initializers: Iterable[Message]) -> Message:
    """The whole model: small fields, then the graph with its weights last."""
    proto = ModelProto(ir_version=_ir_version(versions), producer_name="onnxtfl")
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)
    if model.format == "onnx":
        proto.doc_string = model.description
    for key, value in model.properties.items():
        if isinstance(value, str):
            proto.metadata_props.add(key=key, value=value)
    whole = Message()
    whole.extend(body)
    for initializer in initializers:
        whole.field(GraphProto.INITIALIZER_FIELD_NUMBER, initializer)
    return Message(proto.SerializeToString()).field(ModelProto.GRAPH_FIELD_NUMBER, whole)


def _external(weights: Mapping[str, TensorData], location: str) -> tuple[list[Message], list[tuple[int, TensorData]]]:
    """Initializers whose large numbers stand in the file `location`, and where there each of those begins."""
    messages, placed, end = [], list[tuple[int, TensorData]](), 0
    for name, data in weights.items():
        if data.nbytes < _INLINE:
            messages.append(tensor_message(name, data))
            continue
        offset = -(-end // _PAGE) * _PAGE
        end = offset + data.nbytes
        entries = {"location": location, "offset": str(offset), "length": str(data.nbytes)}
        messages.append(tensor_message(name, data, entries))
        placed.append((offset, data))
    return messages, placed


def _write_external(path: Path, placed: Iterable[tuple[int, TensorData]]) -> None:
    """Write the weights to `path`, which is not touched before all of them are written."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            for offset, data in placed:
                file.write(b"\0" * (offset - file.tell()))
                stream(data, file)
        os.replace(part, path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
