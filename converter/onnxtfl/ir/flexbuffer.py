"""FlexBuffers: a map of scalars, texts, bytes and lists as bytes, and back; TFLite stores the options of custom ops so.

Written is one form of each value; read is every form. Source: FlexBuffers Internals (flatbuffers.dev).
"""

from __future__ import annotations

import struct
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
    """Bytes that are no FlexBuffer, or a value that none can hold."""


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(values: Mapping[str, Any]) -> bytes:
    """The FlexBuffer of a map: ints (64 bits), floats (32 bits), texts, bytes, lists and maps of these.

    FlexBufferError for other values. All vectors have elements of 8 bytes, so that equal maps have equal bytes.
    """
    out = bytearray()
    position = _map(out, values)
    _pad(out)
    out += struct.pack("<Q", len(out) - position)
    return bytes(out) + bytes([_packed(_MAP), 8])


def _packed(kind: int) -> int:
    """A type byte: the kind, and elements of 8 bytes."""
    return kind << 2 | 3


def _pad(out: bytearray) -> None:
    out += bytes(-len(out) % 8)


def _write(out: bytearray, value: Any) -> tuple[int, Any]:
    """Write what does not fit into an element; returns the kind, and the position or (bytes) the element itself."""
    match value:
        case bool():
            return _BOOL, struct.pack("<Q", int(value))
        case int():
            return _INT, _checked("<q", value)
        case float():
            return _FLOAT, struct.pack("<d", value)
        case str():
            return _STRING, _sized(out, value.encode(), b"\0")
        case bytes():
            return _BLOB, _sized(out, value, b"")
        case Mapping():
            return _MAP, _map(out, value)
        case Sequence():
            return _list(out, value)
    raise FlexBufferError(f"a value of type {type(value).__name__}")


def _checked(code: str, value: int) -> bytes:
    try:
        return struct.pack(code, value)
    except struct.error as error:
        raise FlexBufferError(f"{value} does not fit into 64 bits") from error


def _sized(out: bytearray, content: bytes, end: bytes) -> int:
    """Write the size, then the content, which starts at the position returned."""
    _pad(out)
    out += struct.pack("<Q", len(content))
    position = len(out)
    out += content + end
    return position


def _list(out: bytearray, values: Sequence[Any]) -> tuple[int, int]:
    """Ints and floats are vectors of these, other lists have the kind of each element."""
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return _VECTOR_INT, _elements(out, [_checked("<q", v) for v in values])
    if all(isinstance(v, float) for v in values):
        return _VECTOR_FLOAT, _elements(out, [struct.pack("<d", v) for v in values])
    written = [_write(out, value) for value in values]
    return _VECTOR, _elements(out, [one for _, one in written], [kind for kind, _ in written])


def _map(out: bytearray, values: Mapping[str, Any]) -> int:
    """The elements in the order of their keys, before them the vector of these."""
    names = sorted(values, key=str.encode)
    places = []
    for name in names:
        raw = name.encode()
        if b"\0" in raw:
            raise FlexBufferError(f"the name {name!r}")
        places.append(len(out))
        out += raw + b"\0"
    written = [_write(out, values[name]) for name in names]
    keys = _elements(out, places)
    _pad(out)
    out += struct.pack("<QQ", len(out) - keys, 8)
    return _elements(out, [one for _, one in written], [kind for kind, _ in written])


def _elements(out: bytearray, items: Sequence[bytes | int], kinds: Sequence[int] = ()) -> int:
    """Write the count, the elements (as they are, or the offset to a position), then their kinds; returns where."""
    _pad(out)
    out += struct.pack("<Q", len(items))
    position = len(out)
    for item in items:
        out += item if isinstance(item, bytes) else struct.pack("<Q", len(out) - item)
    out += bytes(_packed(kind) for kind in kinds)
    return position


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(content: bytes) -> Any:
    """The value of a FlexBuffer. FlexBufferError where the bytes are none."""
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
        """Where the offset at `position` points to."""
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
