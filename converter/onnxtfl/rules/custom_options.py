"""The options of TFLite's custom ops: FlexBuffers maps, or the bytes of a C struct of integers.

Only what such options have is read: maps of keys to numbers, bools, strings and vectors of these. Source: the format of
FlexBuffers (google/flatbuffers, docs/source/flexbuffers.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.graph import Node

_DEEPEST = 16
_FORMATS = {"int": " bh i   q", "uint": " BH I   Q", "float": "  e f   d"}
_INLINE = {1: "int", 2: "uint", 3: "float", 26: "uint"}
_INDIRECT = {6: "int", 7: "uint", 8: "float"}
_NULL, _KEY, _STRING, _MAP, _VECTOR, _BOOL = 0, 4, 5, 9, 10, 26
_TYPED = {11: 1, 12: 2, 13: 3, 14: _KEY, 15: _STRING, 36: _BOOL}


def custom_options(node: Node) -> dict[str, Any]:
    """The options of a custom op, a map; empty where there are none. ValueError where they are malformed."""
    data = bytes(node.attributes.get("custom_options") or b"")
    if not data:
        return {}
    try:
        found = _Reader(data).root()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("malformed custom options") from error
    if not isinstance(found, dict):
        raise ValueError("custom options that are no map")
    return found


def custom_integers(node: Node, count: int) -> Sequence[int]:
    """The first `count` 32-bit integers of the options of a custom op, a C struct; ValueError if there are fewer."""
    data = bytes(node.attributes.get("custom_options") or b"")
    if len(data) < 4 * count:
        raise ValueError(f"custom options of {len(data)} bytes, {4 * count} expected")
    return struct.unpack(f"<{count}i", data[: 4 * count])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def root(self) -> Any:
        """The value at the end of the buffer: the value, its type, its width."""
        width = self.data[-1]
        return self.value(len(self.data) - 2 - width, width, self.data[-2], 0)

    def scalar(self, kind: str, at: int, width: int) -> Any:
        if at < 0 or width not in (1, 2, 4, 8):
            raise IndexError("outside of the buffer")
        return struct.unpack_from("<" + _FORMATS[kind][width], self.data, at)[0]

    def target(self, at: int, width: int) -> int:
        """What the offset at `at` leads to, before it."""
        return int(at - self.scalar("uint", at, width))

    def value(self, at: int, parent: int, packed: int, depth: int) -> Any:
        """The value at `at`, stored in `parent` bytes there, of a packed type and width."""
        type_, width = packed >> 2, 1 << (packed & 3)
        if depth > _DEEPEST:
            raise IndexError("nested too deeply")
        if type_ == _NULL:
            return None
        if type_ in _INLINE:
            number = self.scalar(_INLINE[type_], at, parent)
            return bool(number) if type_ == _BOOL else number
        to = self.target(at, parent)
        if type_ in _INDIRECT:
            return self.scalar(_INDIRECT[type_], to, width)
        if type_ == _KEY:
            return self.data[to : self.data.index(0, to)].decode()
        if type_ == _STRING:
            return self.data[to : to + self.scalar("uint", to - width, width)].decode()
        return self.container(to, type_, width, depth)

    def container(self, at: int, type_: int, width: int, depth: int) -> Any:
        """A map or a vector whose elements begin at `at`."""
        count = self.scalar("uint", at - width, width)
        if not 0 <= count <= len(self.data) // width:
            raise IndexError("more elements than bytes")
        if type_ in _TYPED:
            types = [_TYPED[type_] << 2] * count
        elif 16 <= type_ <= 24:
            count = (type_ - 16) // 3 + 2
            types = [((type_ - 16) % 3 + 1) << 2] * count
        elif type_ in (_VECTOR, _MAP):
            types = list(self.data[at + count * width : at + count * (width + 1)])
        else:
            raise IndexError(f"type {type_}")
        values = [self.value(at + i * width, width, packed, depth + 1) for i, packed in enumerate(types)]
        if type_ != _MAP:
            return values
        keys_width = self.scalar("uint", at - 2 * width, width)
        keys = self.container(self.target(at - 3 * width, width), 14, keys_width, depth + 1)
        return dict(zip(keys, values, strict=True))
