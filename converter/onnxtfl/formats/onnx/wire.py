"""Parses a serialized model and leaves large tensor payloads in the file.

The protobuf classes copy every byte of a message into memory. Therefore the walker reads the wire format itself
(https://protobuf.dev/programming-guides/encoding), visits the fields that contain a TensorProto (field numbers:
onnx.proto), leaves out packed payloads of more than a kilobyte, and passes the small rest to the protobuf classes, as
well as payloads in several fields, which no current exporter writes. The field `segment` (else unused) of a tensor
without its payload has the index of the payload and a random number as a mark, which a file cannot predict.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple, NoReturn

from onnx import ModelProto, TensorProto

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.payload import BYTES, LONGEST, VARINT, WIDTHS, WIRES, Payload, encode_varint
from onnxtfl.formats.source import Source
from onnxtfl.ir.data import SourceFile

SMALL = 1024
"""Messages of up to this many bytes are copied unchanged."""
LARGEST = 1 << 29
"""The most bytes of a model without its large payloads; the protobuf classes make several copies of them."""
_MAX_DEPTH = 100
_MALFORMED = "not an ONNX model, or truncated or corrupt"


class Field(NamedTuple):
    """A field of a message: number, wire type, start of its tag, [start, stop) of its value."""

    number: int
    wire: int
    tag: int
    start: int
    stop: int


@dataclass(frozen=True)
class Kind:
    """A message type that may contain tensors: its fields of such types, and the fields to drop."""

    name: str
    children: dict[int, Kind] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()


TENSOR = Kind("TensorProto")
_SPARSE = Kind("SparseTensorProto", {1: TENSOR, 2: TENSOR})
_GRAPH = Kind("GraphProto", {5: TENSOR, 15: _SPARSE})
_ATTRIBUTE = Kind("AttributeProto", {5: TENSOR, 6: _GRAPH, 10: TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE})
_LISTS = tuple(bytes((0xA0, 0x01, number)) for number in (6, 7, 8))
"""The last field (type) of attributes that are lists of numbers or strings, which contain no tensors."""
_NODE = Kind("NodeProto", {5: _ATTRIBUTE})
_FUNCTION = Kind("FunctionProto", {7: _NODE, 11: _ATTRIBUTE})
_GRAPH.children[1] = _NODE
MODEL = Kind("ModelProto", {7: _GRAPH, 25: _FUNCTION}, frozenset({20}))  # 20: training_info


class DetachedPayloads:
    """The payloads that were omitted from a model, by the mark of their tensor."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.mark = int.from_bytes(os.urandom(8), "little") >> 2
        self.payloads: list[Payload] = []

    def add(self, payload: Payload) -> bytes:
        """Add `payload`; returns the serialized `segment` field that marks its tensor."""
        segment = TensorProto.Segment(begin=len(self.payloads), end=self.mark)
        self.payloads.append(payload)
        return TensorProto(segment=segment).SerializeToString()  # type: ignore[no-any-return]

    def of(self, tensor: TensorProto) -> Payload | None:
        """Return the omitted payload of `tensor`; None if it is in the message."""
        marked = tensor.HasField("segment") and tensor.segment.end == self.mark
        return self.payloads[int(tensor.segment.begin)] if marked else None


def reduced_model(source: SourceFile) -> tuple[ModelProto, DetachedPayloads]:
    """The model in `source` without its large payloads, and the payloads. Raises InvalidModelError if it cannot be
    parsed.
    """
    from google.protobuf.message import DecodeError

    detached = DetachedPayloads(source)
    content = Walker(source, detached).reduced(MODEL, 0, source.size)
    try:
        return ModelProto.FromString(bytes(content)), detached
    except DecodeError as error:
        raise InvalidModelError(f"{source.path}: {_MALFORMED}: {error}", code="E-FILE-005") from error


def payload_of(source: SourceFile, number: int) -> Payload:
    """The field `number` of the TensorProto in `source`, which has nothing else."""
    fields = Walker(source, DetachedPayloads(source)).fields(0, source.size, TENSOR)
    return next((Payload(number, f.start, f.stop) for f in fields if f.number == number), Payload(number, 0, 0))


class Walker:
    """Reads the wire format of `file` by position."""

    def __init__(self, file: SourceFile, detached: DetachedPayloads) -> None:
        self.source = Source(file)
        self.detached = detached
        self._copied = 0

    def reduced(self, kind: Kind, start: int, stop: int, depth: int = 0) -> bytearray:
        """The message of `kind` at [start, stop) without its large payloads."""
        if depth > _MAX_DEPTH:
            self.source.fail(f"messages are nested too deeply (at byte {start})")
        if kind is TENSOR:
            return self._reduced_tensor(start, stop)
        if kind is _ATTRIBUTE and self.source.read(stop - 3, 3) in _LISTS:  # may have a million elements
            return bytearray(self._kept(start, stop))
        result, copied = bytearray(), start
        for item in self.fields(start, stop, kind):
            child = kind.children.get(item.number) if item.wire == BYTES else None
            dropped = item.number in kind.dropped
            if not dropped and (child is None or item.stop - item.start <= SMALL):
                continue
            result += self._kept(copied, item.tag)
            copied = item.stop
            if child is not None and not dropped:
                body = self.reduced(child, item.start, item.stop, depth + 1)
                result += encode_varint(item.number << 3 | BYTES) + encode_varint(len(body)) + body
        result += self._kept(copied, stop)
        return result

    def _kept(self, start: int, stop: int) -> bytes:
        """The bytes of a copied part. Raises InvalidModelError if the copied parts together are too large for a
        message.
        """
        self._copied += stop - start
        if self._copied > LARGEST:
            self.source.fail(f"more than {LARGEST >> 20} MB without the tensors (at byte {start})")
        return self.source.read(start, stop - start)

    def fields(self, start: int, stop: int, kind: Kind) -> Iterator[Field]:
        """The fields of the message at [start, stop)."""
        position = start
        while position < stop:
            item = self._field(position, stop, kind)
            yield item
            position = item.stop

    def _field(self, position: int, stop: int, kind: Kind) -> Field:
        tag, start = self._varint(position, stop)
        wire, end = tag & 7, position
        if not tag >> 3:
            self._fail(kind, position, "has the number 0")
        if wire == BYTES:
            length, start = self._varint(start, stop)
            end = start + length
        elif wire == VARINT:
            end = self._varint(start, stop)[1]
        elif wire in WIDTHS:
            end = start + WIDTHS[wire]
        else:
            self._fail(kind, position, "has an unknown wire type")
        if end > stop:
            self._fail(kind, position, "extends past the end of the message")
        return Field(tag >> 3, wire, position, start, end)

    def _fail(self, kind: Kind, position: int, what: str) -> NoReturn:
        self.source.fail(f"{_MALFORMED}: a field of {kind.name} at byte {position} {what}")

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        length = min(LONGEST, stop - position)
        page, offset = self.source.view(position, length)
        if length and page[offset] < 0x80:  # most are of one byte
            return page[offset], position + 1
        value = shift = 0
        for byte in page[offset : offset + length]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position + shift // 7
        self.source.fail(f"{_MALFORMED}: no varint at byte {position}")

    def _reduced_tensor(self, start: int, stop: int) -> bytearray:
        """Return a tensor without its payload; unchanged if the payload is small or not packed in one field."""
        kept, payload = bytearray(), None
        for item in self.fields(start, stop, TENSOR):
            if item.number not in WIRES:
                kept += self._kept(item.tag, item.stop)
            elif item.wire == BYTES and payload is None:
                payload = Payload(item.number, item.start, item.stop)
            else:
                payload = None
                break
        if payload is not None and payload.stop - payload.start > SMALL:
            return kept + self.detached.add(payload)
        return bytearray(self._kept(start, stop))
