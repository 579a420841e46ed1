"""Writes Models of `onnx` ops as ONNX files; weights are streamed, past 2 GB to a second file (external data)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from onnx import IR_VERSION, GraphProto, ModelProto, defs, helper

from onnxtfl.errors import OutputError, UnsupportedError
from onnxtfl.formats.onnx.encode import tensor_message
from onnxtfl.formats.onnx.graph_messages import GraphWriter
from onnxtfl.formats.onnx.message import Message
from onnxtfl.formats.onnx.metadata import fill
from onnxtfl.formats.source import copy_data
from onnxtfl.formats.write_ahead import writing_ahead
from onnxtfl.ir.data import PathLike, TensorData
from onnxtfl.ir.graph import Value
from onnxtfl.ir.metadata import Late, Property
from onnxtfl.ir.model import Model

LIMIT = (1 << 31) - 1
"""Bytes of the largest message that protobuf reads."""
_PAGE = 4096
_INLINE = 16 << 10
_MIN_IR = 4


def write(
    model: Model,
    out: BinaryIO,
    *,
    opset: int | Mapping[str, int] | None = None,
    external: PathLike | None = None,
    limit: int = LIMIT,
    late: Late | None = None,
) -> dict[Value, str]:
    """Write `model`, whose nodes are all `onnx` ops, to a binary file; returns the name of each value.

    `opset`: version of ONNX's default domain, or versions by domain; None: those of the model that was read.
    `external`: path for weights of 16 KB and more, written only where the model would have more than `limit` bytes;
    it must be in the directory of the model, which refers to it by file name. `late`: properties that depend on names.

    Names of values are kept; missing and duplicate ones are replaced by unique ones. Equal weights (by
    `TensorData.key`) are stored once, equal models have equal bytes. Subgraphs refer to captured values by their outer
    names. A model that was read from ONNX keeps its value_info; calls of its functions must be inlined before. Raises
    UnsupportedError for what ONNX cannot express, OutputError where the model is larger than `limit` and `external` is
    None.
    """
    graph = model.main
    if graph.states:
        raise UnsupportedError(
            "ONNX has no state that is kept between runs", node=graph.states[0].input.name, code="E-OP-007"
        )
    writer = GraphWriter(model)
    body = writer.main(graph)
    head = _head(model, _versions(model, opset, writer.domains), late(writer.names) if late is not None else {})
    message = _model(head, body, [tensor_message(name, data) for name, data in writer.weights.items()])
    if message.size > limit:
        if external is None:
            text = f"the model has {message.size} bytes, an ONNX file can have {limit}"
            raise OutputError(
                text, hint="pass a path, so that the weights can be written to a second file", code="E-OUT-002"
            )
        initializers, placed = _external(writer.weights, Path(external).name)
        message = _model(head, body, initializers)
        if message.size > limit:
            raise UnsupportedError(
                f"the model has {message.size} bytes without its weights, at most {limit} are possible", code="E-OP-008"
            )
        _write_external(Path(external), placed)
    message.write(out)
    return writer.names


def _versions(model: Model, opset: int | Mapping[str, int] | None, used: Mapping[str, int]) -> dict[str, int]:
    """The opsets to import: those of the domains in use, and always the default domain."""
    read = model.opsets
    given = {"": opset} if isinstance(opset, int) else dict(read if opset is None else opset)
    if "" not in given:
        given[""] = used.get("", 1)
    return {domain: given.get(domain, read.get(domain, used.get(domain, 1))) for domain in sorted({"", *used})}


def _ir_version(versions: Mapping[str, int]) -> int:
    """The lowest IR version with all these opsets, and with initializers that are not inputs."""
    known: Mapping[tuple[str, int], int] = helper.OP_SET_ID_VERSION_MAP
    unknown = IR_VERSION if versions[""] > defs.onnx_opset_version() else _MIN_IR
    return max(_MIN_IR, *(known.get((domain or "ai.onnx", v), unknown) for domain, v in versions.items()))


def _head(model: Model, versions: Mapping[str, int], late: Mapping[str, Property]) -> ModelProto:
    """The ModelProto without its graph."""
    proto = ModelProto(ir_version=_ir_version(versions))
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)
    fill(proto, model.metadata, late)
    return proto


def _model(head: ModelProto, body: Message, initializers: Iterable[Message]) -> Message:
    """Write the model: small fields first, then the graph, its weights last."""
    whole = Message()
    whole.extend(body)
    for initializer in initializers:
        whole.field(GraphProto.INITIALIZER_FIELD_NUMBER, initializer)
    return Message(head.SerializeToString()).field(ModelProto.GRAPH_FIELD_NUMBER, whole)


def _external(weights: Mapping[str, TensorData], location: str) -> tuple[list[Message], list[tuple[int, TensorData]]]:
    """The initializers, those of 16 KB and more in the external file `location`, and (offset, data) of the external
    ones.
    """
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
    """Write the weights to `path`; an existing file is replaced at the end, when all weights are written."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            end = 0
            with writing_ahead(file) as ahead:
                for offset, data in placed:
                    ahead.write(b"\0" * (offset - end))
                    copy_data(data, ahead)
                    end = offset + data.nbytes
        os.replace(part, path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
