"""Writes FlatBuffers front to back: a table, then what it refers to.

Format: https://flatbuffers.dev/internals. References point forward only, so a table is packed at once and its
references are filled in as the children are written; three times as fast as the general builder, which writes back to
front a field at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import SIZES, Field, Table

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Later:
    """A vector of bytes that the caller puts behind the tables: `content` is handed back with the field's place."""

    content: Any


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a table lies in memory when a certain set of its fields is present."""

    packer: struct.Struct
    vtable: bytes
    align: int
    order: tuple[Field, ...]
    places: tuple[int, ...]


class Encoder:
    """Collects one FlatBuffer in `out`.

    Values of a table are a mapping: numbers (or the names of an enum) for scalars, str for strings, sequences of
    numbers or bytes for vectors, a mapping for a table, a list of these for a vector of tables, and (member's table,
    mapping) for a union. What is absent or None, or a scalar equal to its default, is left out.
    """

    def __init__(self) -> None:
        self.out = bytearray()
        self.later: list[tuple[int, Any]] = []
        """Place of the reference to fill in, and the content that it shall refer to."""
        self._vtables: dict[bytes, int] = {}
        self._layouts: dict[tuple[str, tuple[int, ...]], _Layout] = {}

    def root(self, table: Table, values: Values, identifier: bytes) -> None:
        """Write the whole buffer."""
        self.out += struct.pack("<I4s", 0, identifier)
        struct.pack_into("<I", self.out, 0, self.table(table, values))

    def refer(self, place: int, target: int) -> None:
        """Let the reference at `place` point to `target`."""
        struct.pack_into("<I", self.out, place, target - place)

    def pad(self, align: int, ahead: int = 0) -> None:
        """Fill up so that the byte `ahead` of the end is aligned."""
        self.out += b"\0" * (-(len(self.out) + ahead) % align)

    def table(self, table: Table, values: Values) -> int:
        """Write a table and all below it; its place."""
        present: list[tuple[Field, Any]] = []
        for field in table.fields:
            value = values.get(field.name)
            if value is None:
                continue
            if field.kind == "scalar":
                value = field.number(value)
                if value == field.default:
                    continue
            present.append((field, value))
        layout = self._layout(table, present)
        position = self._open(layout)
        contents = {field.slot: value if field.kind == "scalar" else 0 for field, value in present}
        self.out += layout.packer.pack(
            position - self._vtables[layout.vtable], *(contents[f.slot] for f in layout.order)
        )
        places = dict(zip((f.slot for f in layout.order), layout.places, strict=True))
        for field, value in present:
            if field.kind != "scalar":
                self._child(field, value, position + places[field.slot])
        return position

    def _open(self, layout: _Layout) -> int:
        """Write the vtable unless an equal one is there; the place where the table begins."""
        if layout.vtable not in self._vtables:
            self.pad(2)
            self._vtables[layout.vtable] = len(self.out)
            self.out += layout.vtable
        self.pad(layout.align)
        return len(self.out)

    def _layout(self, table: Table, present: Sequence[tuple[Field, Any]]) -> _Layout:
        key = (table.name, tuple(field.slot for field, _ in present))
        if key not in self._layouts:
            self._layouts[key] = _lay_out([field for field, _ in present])
        return self._layouts[key]

    def _child(self, field: Field, value: Any, place: int) -> None:
        if isinstance(value, Later):
            self.later.append((place, value.content))
            return
        if field.kind == "table":
            target = self.table(schema.table(field.target), value)
        elif field.kind == "union":
            target = self.table(*value)
        elif field.kind == "tables":
            target = self._tables(schema.table(field.target), value)
        elif field.kind == "string":
            target = self._bytes(value.encode(), 4, b"\0")
        else:
            target = self._vector(field, value)
        self.refer(place, target)

    def _tables(self, table: Table, items: Sequence[Values]) -> int:
        self.pad(4)
        position = len(self.out)
        self.out += struct.pack("<I", len(items)) + bytes(4 * len(items))
        for i, values in enumerate(items):
            place = position + 4 + 4 * i
            self.refer(place, self.table(table, values))
        return position

    def _vector(self, field: Field, value: Any) -> int:
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value, field.align)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        numbers = [field.number(item) for item in value]
        return self._bytes(struct.pack(f"<{len(numbers)}{field.code}", *numbers), field.align, count=len(numbers))

    def _bytes(self, raw: bytes | bytearray, align: int, end: bytes = b"", count: int | None = None) -> int:
        self.pad(max(align, 4), ahead=4)
        position = len(self.out)
        self.out += struct.pack("<I", len(raw) if count is None else count) + raw + end
        return position


def _lay_out(fields: Sequence[Field]) -> _Layout:
    """Large fields first behind the word that points to the vtable, so that little is lost to alignment."""
    sized = [(SIZES[f.code] if f.kind == "scalar" else 4, f) for f in fields]
    order = [pair for size in (8, 4, 2, 1) for pair in sized if pair[0] == size]
    place, pattern, places = 4, "<i", []
    for size, field in order:
        gap = -place % size
        pattern += "x" * gap + (field.code if field.kind == "scalar" else "I")
        places.append(place + gap)
        place += gap + size
    slots = [0] * (1 + max((f.slot for f in fields), default=-1))
    for (_, field), at in zip(order, places, strict=True):
        slots[field.slot] = at
    vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), place, *slots)
    align = max([4, *(size for size, _ in order)])
    return _Layout(struct.Struct(pattern), vtable, align, tuple(f for _, f in order), tuple(places))
