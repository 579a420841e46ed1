"""Reads FlatBuffers by the schema, trusting nothing: the counterpart of `encode`.

Every reference, vtable and vector is held against the size of the file, and since the schema's tables do not nest in
themselves, neither can those of a file; what remains is that a file refers to the same bytes many times over, which a
budget ends.
"""

from __future__ import annotations

import struct
from typing import Any

from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import SIZES, Field, Table
from onnxtfl.formats.tflite.source import Source, Span

Decoded = dict[str, Any]
_BUDGET_FACTOR = 16
_BUDGET_START = 1 << 20
_LEFT_IN_PLACE = 16
"""Byte vectors with this alignment are constants, which are not read here."""


class Decoder:
    """Decodes tables into dictionaries with an entry for each field of the schema.

    Enums come as names (unknown numbers as they are), vectors of bytes as bytes or `Span`, others as tuples, unions as
    (member table, dictionary); an absent scalar is its default, any other absent field None.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._budget = _BUDGET_FACTOR * source.size + _BUDGET_START
        self._layouts: dict[tuple[str, bytes], list[tuple[Field, int]]] = {}

    def root(self, table: Table) -> Decoded:
        """The table that the file begins with."""
        return self.table(table, self._reference(0))

    def table(self, table: Table, position: int) -> Decoded:
        """The table at `position` and all below it."""
        (back,) = struct.unpack("<i", self.source.read(position, 4))
        vtable_size, size = struct.unpack("<HH", self.source.read(position - back, 4))
        if vtable_size < 4 or vtable_size % 2 or size < 4:
            self.source.fail(f"garbled: no {table.name} at {position}")
        vtable = self.source.read(position - back, vtable_size)
        raw = self.source.read(position, size)
        self._charge(size)
        decoded = {}
        for field, place in self._layout(table, vtable, size):
            if field.kind == "scalar":
                decoded[field.name] = _scalar(field, raw, place)
            elif field.kind == "union":
                decoded[field.name] = (
                    self._union(field, decoded[f"{field.name}_type"], position + place) if place else None
                )
            else:
                decoded[field.name] = self._child(field, self._reference(position + place)) if place else None
        return decoded

    def _layout(self, table: Table, vtable: bytes, size: int) -> list[tuple[Field, int]]:
        """Place of each field in the table, 0 where it is absent."""
        key = (table.name, vtable)
        layout = self._layouts.get(key)
        if layout is None:
            slots = struct.unpack(f"<{len(vtable) // 2 - 2}H", vtable[4:])
            layout = [(f, slots[f.slot] if f.slot < len(slots) else 0) for f in table.fields]
            for field, place in layout:
                if place and not 4 <= place <= size - (SIZES[field.code] if field.kind == "scalar" else 4):
                    self.source.fail(f"garbled: {table.name}.{field.name} lies outside of its table")
            self._layouts[key] = layout
        return layout

    def _reference(self, place: int) -> int:
        """The position that the reference at `place` points to."""
        (offset,) = struct.unpack("<I", self.source.read(place, 4))
        return place + int(offset)

    def _child(self, field: Field, position: int) -> Any:
        if field.kind == "table":
            return self.table(schema.table(field.target), position)
        count = self._count(position, 1 if field.kind == "string" else SIZES[field.code] if field.code else 4)
        if field.kind == "tables":
            places = range(position + 4, position + 4 + 4 * count, 4)
            return [self.table(schema.table(field.target), self._reference(place)) for place in places]
        if field.code == "B" and field.align == _LEFT_IN_PLACE:
            return Span(position + 4, count)
        return self._vector(field, position + 4, count)

    def _vector(self, field: Field, position: int, count: int) -> Any:
        size = count * (1 if field.kind == "string" else SIZES[field.code])
        self._charge(size)
        raw = self.source.read(position, size)
        if field.kind == "string":
            return raw.decode(errors="backslashreplace")
        if field.code == "B":
            return raw
        numbers = struct.unpack(f"<{count}{field.code}", raw)
        return tuple(_name(field, number) for number in numbers) if field.enum else numbers

    def _union(self, field: Field, number: int, place: int) -> tuple[Table, Decoded] | None:
        """The member; None for one that the schema does not know (a newer file's)."""
        members = schema.unions()[field.target]
        if not 1 <= number <= len(members):
            return None
        member = schema.table(members[number - 1])
        return member, self.table(member, self._reference(place))

    def _count(self, position: int, size: int) -> int:
        """The number of elements of the vector at `position`, which lies in the file as a whole."""
        (count,) = struct.unpack("<I", self.source.read(position, 4))
        if position + 4 + count * size > self.source.size:
            self.source.fail(f"cut off or garbled: a vector of {count} elements at {position} ends outside of the file")
        return int(count)

    def _charge(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            self.source.fail("garbled: its tables refer to the same bytes over and over")


def _scalar(field: Field, raw: bytes, place: int) -> Any:
    if not place:
        return _name(field, field.default)
    (value,) = struct.unpack_from(f"<{field.code}", raw, place)
    return _name(field, value)


def _name(field: Field, number: Any) -> Any:
    return field.enum[number] if field.enum and 0 <= number < len(field.enum) else number
