"""FlexBuffers: a map of scalars, texts, bytes and lists as bytes, and back; TFLite stores the options of custom ops so.

The builder of `flatbuffers` writes; reading is bounded, as the bytes may be damaged, and raises one kind of error.
Source: FlexBuffers Internals (flatbuffers.dev).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST = 32
MOST_VALUES = 1 << 16
_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _IND_INT, _IND_UINT, _IND_FLOAT, _MAP, _VECTOR = range(11)
_VECTOR_INT, _VECTOR_UINT, _VECTOR_FLOAT, _VECTOR_KEY, _VECTOR_STRING = 11, 12, 13, 14, 15
_BLOB, _BOOL, _VECTOR_BOOL = 25, 26, 36
_FIXED = range(16, 25)
_CODES = {
    _INT: {1: "<b", 2: "<h", 4: "<i", 8: "<q"},
    _UINT: {1: "<B", 2: "<H", 4: "<I", 8: "<Q"},
    _FLOAT: {2: "<e", 4: "<f", 8: "<d"},
}
_TYPED = {_VECTOR_INT: _INT, _VECTOR_UINT: _UINT, _VECTOR_FLOAT: _FLOAT, _VECTOR_KEY: _KEY, _VECTOR_STRING: _STRING}


class FlexBufferError(ValueError):
    """Raised for bytes that are not a FlexBuffer, or for a value that it cannot represent."""


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(values: Mapping[str, Any]) -> bytes:
    """The FlexBuffer of a map: ints (64 bits), floats, texts, bytes, lists and maps of these.

    The keys are written in order, so that equal maps have equal bytes. FlexBufferError for other values.
    """
    from flatbuffers.flexbuffers import Builder

    builder = Builder()
    try:
        builder.Add(_plain(values))
    except (ValueError, OverflowError, RuntimeError) as error:  # RuntimeError: the builder's, while it handles another
        raise FlexBufferError(f"FlexBuffers cannot represent this value: {error.__context__ or error}") from error
    return bytes(builder.Finish())


def _plain(value: Any) -> Any:
    """`value` in types of the builder: lists of ints, or of floats, are typed vectors."""
    match value:
        case bool() | int() | float() | str() | bytes():
            return value
        case Mapping():
            return {name.encode(): _plain(value[name]) for name in sorted(value, key=str.encode)}
        case Sequence():
            code = {frozenset({int}): "q", frozenset({float}): "d"}.get(frozenset(map(type, value)))
            return [_plain(one) for one in value] if code is None else array(code, value)
    raise FlexBufferError(f"a value of type {type(value).__name__}")


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(content: bytes) -> Any:
    """Decode a FlexBuffer. FlexBufferError for invalid bytes."""
    if len(content) < 3:
        raise FlexBufferError("too few bytes")
    width, kind = content[-1], content[-2]
    reader = _Reader(content)
    return reader.element(len(content) - 2 - width, width, kind, 0)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.left = content, MOST_VALUES

    def number(self, kind: int, position: int, width: int) -> Any:
        """The scalar of `width` bytes at `position`."""
        code = _CODES[kind].get(width)
        if code is None or position < 0 or position + width > len(self.content):
            raise FlexBufferError("a number outside of the bytes")
        return struct.unpack_from(code, self.content, position)[0]

    def target(self, position: int, width: int) -> int:
        """Return the position that the offset at `position` refers to."""
        found = position - int(self.number(_UINT, position, width))
        if found < 0:
            raise FlexBufferError("an offset outside of the bytes")
        return found

    def element(self, position: int, parent: int, packed: int, depth: int) -> Any:
        """The value of an element of `parent` bytes."""
        self.left -= 1
        if self.left < 0 or depth > DEEPEST:
            raise FlexBufferError("too many values")
        kind, width = packed >> 2, 1 << (packed & 3)
        if kind == _NULL:
            return None
        if kind in _CODES:
            return self.number(kind, position, parent)
        if kind == _BOOL:
            return bool(self.number(_UINT, position, parent))
        place = self.target(position, parent)
        if kind in (_IND_INT, _IND_UINT, _IND_FLOAT):
            return self.number(kind - _IND_INT + _INT, place, width)
        if kind == _KEY:
            return self.key(place)
        if kind in (_STRING, _BLOB):
            return self.raw(kind, place, width)
        return self.vector(kind, place, width, depth)

    def key(self, place: int) -> str:
        end = self.content.find(b"\0", place)
        if end < 0:
            raise FlexBufferError("a name without end")
        return self.text(self.content[place:end])

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise FlexBufferError("a text that is not UTF-8") from error

    def raw(self, kind: int, place: int, width: int) -> str | bytes:
        count = int(self.number(_UINT, place - width, width))
        if place + count > len(self.content):
            raise FlexBufferError("a text outside of the bytes")
        raw = self.content[place : place + count]
        return raw if kind == _BLOB else self.text(raw)

    def vector(self, kind: int, place: int, width: int, depth: int) -> Any:
        """A map as a dictionary, other vectors as lists."""
        if kind in _FIXED:
            count, one = (kind - 16) // 3 + 2, (kind - 16) % 3 + _INT
        else:
            count, one = int(self.number(_UINT, place - width, width)), _TYPED.get(kind, _NULL)
        if kind == _VECTOR_BOOL:
            one = _BOOL
        elif kind not in _FIXED and kind not in _TYPED and kind not in (_MAP, _VECTOR):
            raise FlexBufferError(f"an unknown kind {kind}")
        if count > self.left or place + count * width > len(self.content):
            raise FlexBufferError("a vector outside of the bytes")
        mixed = kind in (_MAP, _VECTOR)
        kinds = self.content[place + count * width :][:count] if mixed else bytes([one << 2]) * count
        if len(kinds) < count:
            raise FlexBufferError("a vector outside of the bytes")
        values = [self.element(place + i * width, width, kinds[i], depth + 1) for i in range(count)]
        return values if kind != _MAP else dict(zip(self.keys(place, width, count), values, strict=True))

    def keys(self, place: int, width: int, count: int) -> list[str]:
        """The names of the elements of a map."""
        keys, step = self.target(place - 3 * width, width), int(self.number(_UINT, place - 2 * width, width))
        names = [self.key(self.target(keys + i * step, step)) for i in range(count)]
        if len(set(names)) < count:
            raise FlexBufferError("two values of one name")
        return names
