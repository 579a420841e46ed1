"""Reads FlatBuffers by the schema, trusting nothing: the counterpart of `encode`.

Every reference, vtable and vector is held against the size of the file, and since the schema's tables do not nest in
themselves, neither can those of a file; what remains is that a file refers to the same bytes many times over, which a
budget ends.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import SIZES, Field, Table
from onnxtfl.formats.tflite.source import Source, Span

Decoded = dict[str, Any]
_BUDGET_FACTOR = 16
_BUDGET_START = 1 << 20
_TABLE_COST = 64
"""What a table costs in memory whatever is in it."""
_LEFT_IN_PLACE = 16
"""Byte vectors with this alignment are constants, which are not read here."""


_PACKERS = {code: struct.Struct(f"<{code}") for code in SIZES}
_INT, _UINT = _PACKERS["i"], _PACKERS["I"]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields of a table lie in it, by its vtable: (name, packer, place, enum) of scalars; references."""

    size: int
    absent: Decoded
    scalars: list[tuple[str, struct.Struct, int, tuple[str, ...]]]
    references: list[tuple[Field, int]]


class Decoder:
    """Decodes tables into dictionaries with an entry for each field of the schema.

    Enums come as names (unknown numbers as they are), vectors of bytes as bytes or `Span`, others as tuples, unions as
    (member table, dictionary); an absent scalar is its default, any other absent field None.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._budget = _BUDGET_FACTOR * source.size + _BUDGET_START
        self._layouts: dict[tuple[str, int], _Layout] = {}

    def root(self, table: Table) -> Decoded:
        """The table that the file begins with."""
        return self.table(table, self._reference(0))

    def table(self, table: Table, position: int) -> Decoded:
        """The table at `position` and all below it."""
        page, at = self.source.view(position, 4)
        vtable = position - int(_INT.unpack_from(page, at)[0])
        layout = self._layouts.get((table.name, vtable))
        if layout is None:
            layout = self._layouts[table.name, vtable] = self._layout(table, position, vtable)
        self._charge(layout.size + _TABLE_COST)
        page, at = self.source.view(position, layout.size)
        decoded = dict(layout.absent)
        for name, packer, place, enum in layout.scalars:
            number = packer.unpack_from(page, at + place)[0]
            decoded[name] = enum[number] if enum and 0 <= number < len(enum) else number
        for field, place in layout.references:
            if field.kind == "union":
                decoded[field.name] = self._union(field, decoded[f"{field.name}_type"], position + place)
            else:
                decoded[field.name] = self._child(field, self._reference(position + place))
        return decoded

    def _layout(self, table: Table, position: int, vtable: int) -> _Layout:
        """What the vtable says."""
        vtable_size, size = struct.unpack("<HH", self.source.read(vtable, 4))
        if vtable_size < 4 or vtable_size % 2 or size < 4:
            self.source.fail(f"garbled: no {table.name} at {position}")
        slots = struct.unpack(f"<{vtable_size // 2 - 2}H", self.source.read(vtable + 4, vtable_size - 4))
        places = {f: slots[f.slot] for f in table.fields if f.slot < len(slots) and slots[f.slot]}
        for field, place in places.items():
            if not 4 <= place <= size - (SIZES[field.code] if field.kind == "scalar" else 4):
                self.source.fail(f"garbled: {table.name}.{field.name} lies outside of its table")
        defaults = schema.defaults(table)
        return _Layout(
            size,
            {f.name: defaults[f.name] for f in table.fields if f not in places},
            [(f.name, _PACKERS[f.code], place, f.enum) for f, place in places.items() if f.kind == "scalar"],
            [(f, place) for f, place in places.items() if f.kind != "scalar"],
        )

    def _reference(self, place: int) -> int:
        """The position that the reference at `place` points to."""
        page, at = self.source.view(place, 4)
        return place + int(_UINT.unpack_from(page, at)[0])

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
        page, at = self.source.view(position, 4)
        count = int(_UINT.unpack_from(page, at)[0])
        if position + 4 + count * size > self.source.size:
            self.source.fail(f"cut off or garbled: a vector of {count} elements at {position} ends outside of the file")
        return count

    def _charge(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            self.source.fail("garbled: its tables refer to the same bytes over and over")


def _name(field: Field, number: Any) -> Any:
    return field.enum[number] if field.enum and 0 <= number < len(field.enum) else number
