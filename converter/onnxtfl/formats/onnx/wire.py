"""Walks a serialized model and leaves big tensor payloads where they lie.

The protobuf classes copy every byte of a message into memory. So the walker reads the wire format itself
(https://protobuf.dev/programming-guides/encoding), follows the fields that lead to a TensorProto (field numbers:
onnx.proto), cuts payloads of more than a kilobyte out, and gives the small rest to the official classes. A cut tensor
carries in `segment`, a field that nobody writes, the index of its cuts and a random number that no file can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from onnx import ModelProto, TensorProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.payload import BYTES, VARINT, WIDTHS, WIRES, Piece, run_end
from onnxtfl.formats.onnx.varint import LONGEST, encode_varint
from onnxtfl.ir.data import SourceFile

SMALL = 1024
"""Messages up to this many bytes are copied as they are."""
_WINDOW = 1 << 16
_MAX_DEPTH = 100
_MAX_PIECES = 1 << 16


class Field(NamedTuple):
    """A field of a message: number, wire type, where its tag, its value, and what follows it begin."""

    number: int
    wire: int
    tag: int
    start: int
    stop: int


@dataclass(frozen=True)
class Kind:
    """A message on the way to tensors: which of its fields are such messages, and which are of no use here."""

    name: str
    children: dict[int, Kind] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()


TENSOR = Kind("TensorProto")
_SPARSE = Kind("SparseTensorProto", {1: TENSOR, 2: TENSOR})
_GRAPH = Kind("GraphProto", {5: TENSOR, 15: _SPARSE})
_ATTRIBUTE = Kind("AttributeProto", {5: TENSOR, 6: _GRAPH, 10: TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE})
_NODE = Kind("NodeProto", {5: _ATTRIBUTE})
_FUNCTION = Kind("FunctionProto", {7: _NODE, 11: _ATTRIBUTE})
_GRAPH.children[1] = _NODE
MODEL = Kind("ModelProto", {7: _GRAPH, 25: _FUNCTION}, frozenset({20}))  # 20: training_info


class Cuts:
    """The payloads that were cut out of a model, by the mark that their tensor carries."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.mark = secrets.randbits(62)
        self.pieces: list[tuple[Piece, ...]] = []

    def add(self, pieces: tuple[Piece, ...]) -> bytes:
        """Remember `pieces`; the `segment` field, serialized, that says so."""
        segment = TensorProto.Segment(begin=len(self.pieces), end=self.mark)
        self.pieces.append(pieces)
        return TensorProto(segment=segment).SerializeToString()  # type: ignore[no-any-return]

    def of(self, tensor: TensorProto) -> tuple[Piece, ...] | None:
        """What was cut out of `tensor`; None where it is whole."""
        marked = tensor.HasField("segment") and tensor.segment.end == self.mark
        return self.pieces[int(tensor.segment.begin)] if marked else None


def reduced_model(source: SourceFile) -> tuple[ModelProto, Cuts]:
    """The model in `source` without its big payloads, and where those lie; InvalidModelError for anything else."""
    from google.protobuf.message import DecodeError

    cuts = Cuts(source)
    content = Walker(source, cuts).reduced(MODEL, 0, source.size)
    try:
        return ModelProto.FromString(bytes(content)), cuts
    except DecodeError as error:
        raise InvalidModelError(f"{source.path}: not an ONNX model, or cut or garbled: {error}") from error


def tensor_pieces(source: SourceFile) -> list[Piece]:
    """Where the payload of the TensorProto lies that is the whole of `source`."""
    return Walker(source, Cuts(source)).split_tensor(0, source.size)[1]


class Walker:
    """Reads the wire format of `source` by position, through a small window."""

    def __init__(self, source: SourceFile, cuts: Cuts) -> None:
        self.source = source
        self.cuts = cuts
        self._window = b""
        self._base = 0

    def reduced(self, kind: Kind, start: int, stop: int, depth: int = 0) -> bytearray:
        """The message of `kind` at [start, stop) with big payloads cut out."""
        if depth > _MAX_DEPTH:
            raise InvalidModelError(f"{self.source.path}: messages are nested too deep (at byte {start})")
        if kind is TENSOR:
            return self._reduced_tensor(start, stop)
        result, copied = bytearray(), start
        for item in self.fields(start, stop, kind):
            child = kind.children.get(item.number) if item.wire == BYTES else None
            dropped = item.number in kind.dropped
            if not dropped and (child is None or item.stop - item.start <= SMALL):
                continue
            self._copy(result, copied, item.tag)
            copied = item.stop
            if child is not None and not dropped:
                body = self.reduced(child, item.start, item.stop, depth + 1)
                result += encode_varint(item.number << 3 | BYTES) + encode_varint(len(body)) + body
        self._copy(result, copied, stop)
        return result

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
        if wire == BYTES:
            length, start = self._varint(start, stop)
            end = start + length
        elif wire == VARINT:
            end = self._varint(start, stop)[1]
        elif wire in WIDTHS:
            end = start + WIDTHS[wire]
        else:
            raise self._garbled(kind, position, "is of no known wire type")
        if end > stop:
            raise self._garbled(kind, position, "goes on behind its end")
        return Field(tag >> 3, wire, position, start, end)

    def _garbled(self, kind: Kind, position: int, what: str) -> InvalidModelError:
        return InvalidModelError(
            f"{self.source.path}: not an ONNX model, or cut or garbled: "
            f"a field of {kind.name} at byte {position} {what}"
        )

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        offset = position - self._base
        if offset < 0 or offset + LONGEST > len(self._window):
            offset = self._move(position)
        value = shift = 0
        for byte in self._window[offset : offset + min(LONGEST, stop - position)]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position + shift // 7
        raise InvalidModelError(f"{self.source.path}: not an ONNX model, or cut or garbled (at byte {position})")

    def _move(self, position: int) -> int:
        self._base = position
        self._window = self.source.read(position, max(0, min(_WINDOW, self.source.size - position)))
        return 0

    def _copy(self, target: bytearray, start: int, stop: int) -> None:
        offset = start - self._base
        if offset >= 0 and stop - self._base <= len(self._window):
            target += self._window[offset : stop - self._base]
        elif stop > start:
            target += self.source.read(start, stop - start)

    def _reduced_tensor(self, start: int, stop: int) -> bytearray:
        """A tensor without its payload; the whole of it where that is small."""
        kept, pieces = self.split_tensor(start, stop)
        if sum(p.stop - p.start for p in pieces) > SMALL:
            return kept + self.cuts.add(tuple(pieces))
        whole = bytearray()
        self._copy(whole, start, stop)
        return whole

    def split_tensor(self, start: int, stop: int) -> tuple[bytearray, list[Piece]]:
        """The TensorProto at [start, stop): its other fields, and where its payload lies."""
        kept, pieces, position = bytearray(), list[Piece](), start
        while position < stop:
            item = self._field(position, stop, TENSOR)
            piece = self._piece(item, stop)
            if piece is None:
                self._copy(kept, item.tag, item.stop)
            else:
                pieces.append(piece)
            position = item.stop if piece is None else piece.stop
            if len(pieces) > _MAX_PIECES:
                raise InvalidModelError(f"{self.source.path}: the tensor at byte {start} lies in too many pieces")
        return kept, pieces

    def _piece(self, item: Field, stop: int) -> Piece | None:
        """The stretch of payload that begins with `item`; None where it is another field."""
        wire = WIRES.get(item.number)
        if wire is None or item.wire not in (BYTES, wire):
            return None
        if item.wire == BYTES:
            return Piece(item.number, item.start, item.stop)
        if item.start - item.tag != 1:
            raise InvalidModelError(f"{self.source.path}: garbled: a long tag at byte {item.tag}")
        end = run_end(self.source, item.tag, stop, item.number << 3 | wire, wire)
        return Piece(item.number, item.tag, max(end, item.stop), tagged=True)
