"""Reads untrusted FlatBuffers by the schema; the inverse of `encode`.

Every reference, vtable and vector is checked against the size of the file. No table of the schema can contain itself,
so the depth is bounded; a budget bounds the work for files that refer to the same bytes many times.
"""

from __future__ import annotations

import struct
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.formats.source import Source
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import SIZES, Field, Table

Decoded = dict[str, Any]
_BUDGET_FACTOR = 16
_BUDGET_START = 1 << 20
_TABLE_COST = 64
"""Bytes of memory for an empty decoded table."""
_CONSTANT_ALIGN = 16
"""Byte vectors with this alignment are constants, which stay in the file."""


_PACKERS = {code: struct.Struct(f"<{code}") for code in SIZES}
_INT, _UINT = _PACKERS["i"], _PACKERS["I"]


@dataclass(frozen=True, slots=True)
class Span:
    """A byte range of the source."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """The offsets of a table's fields by its vtable: (name, packer, offset, enum) of scalars, (field, offset) else.

    `absent`: the defaults of the fields that are not in the table.
    """

    size: int
    absent: Decoded
    scalars: list[tuple[str, struct.Struct, int, tuple[str, ...]]]
    references: list[tuple[Field, int]]


class Decoder:
    """Decodes tables into dictionaries with an entry for each field of the schema.

    Enums are names (numbers where unknown), vectors of bytes are bytes or (with `constants`) `Span`, others tuples,
    unions (member table, dictionary); an absent scalar is its default, any other absent field None.
    """

    def __init__(self, source: Source, constants: bool = True) -> None:
        self.source = source
        self._constants = constants
        self._budget = _BUDGET_FACTOR * source.size + _BUDGET_START
        self._layouts: dict[tuple[str, int], _Layout] = {}

    def root(self, table: Table) -> Decoded:
        """The root table of the file."""
        return self.table(table, self._reference(0))

    def table(self, table: Table, position: int) -> Decoded:
        """The table at `position` with all tables that it refers to."""
        page, at = self.source.view(position, 4)
        vtable = position - int(_INT.unpack_from(page, at)[0])
        layout = self._layouts.get((table.name, vtable))
        if layout is None:
            layout = self._layouts[table.name, vtable] = self._layout(table, position, vtable)
        self._charge(layout.size + _TABLE_COST)
        page, at = self.source.view(position, layout.size)
        decoded = dict(layout.absent)
        for name, packer, offset, enum in layout.scalars:
            number = packer.unpack_from(page, at + offset)[0]
            decoded[name] = enum[number] if enum and 0 <= number < len(enum) else number
        for field, offset in layout.references:
            if field.kind == "union":
                decoded[field.name] = self._union(field, decoded[f"{field.name}_type"], position + offset)
            else:
                decoded[field.name] = self._child(field, self._reference(position + offset))
        return decoded

    def _layout(self, table: Table, position: int, vtable: int) -> _Layout:
        """The layout that the vtable describes."""
        vtable_size, size = struct.unpack("<HH", self.source.read(vtable, 4))
        if vtable_size < 4 or vtable_size % 2 or size < 4:
            self.source.fail(f"malformed: no {table.name} at byte {position}")
        slots = struct.unpack(f"<{vtable_size // 2 - 2}H", self.source.read(vtable + 4, vtable_size - 4))
        offsets = {f: slots[f.slot] for f in table.fields if f.slot < len(slots) and slots[f.slot]}
        for field, offset in offsets.items():
            if not 4 <= offset <= size - (SIZES[field.code] if field.kind == "scalar" else 4):
                self.source.fail(f"malformed: the offset of {table.name}.{field.name} is outside of its table")
        defaults = schema.defaults(table)
        return _Layout(
            size,
            {f.name: defaults[f.name] for f in table.fields if f not in offsets},
            [(f.name, _PACKERS[f.code], offset, f.enum) for f, offset in offsets.items() if f.kind == "scalar"],
            [(f, offset) for f, offset in offsets.items() if f.kind != "scalar"],
        )

    def _reference(self, position: int) -> int:
        """The position that the reference (uoffset) at `position` points to."""
        page, at = self.source.view(position, 4)
        return position + int(_UINT.unpack_from(page, at)[0])

    def _child(self, field: Field, position: int) -> Any:
        if field.kind == "table":
            return self.table(schema.table(field.target), position)
        count = self._count(position, 1 if field.kind == "string" else SIZES[field.code] if field.code else 4)
        if field.kind == "tables":
            references = range(position + 4, position + 4 + 4 * count, 4)
            return [self.table(schema.table(field.target), self._reference(r)) for r in references]
        if field.kind == "strings":
            return [self._text(self._reference(position + 4 + 4 * k)) for k in range(count)]
        if self._constants and field.code == "B" and field.align == _CONSTANT_ALIGN:
            return Span(position + 4, count)
        return self._vector(field, position + 4, count)

    def _text(self, position: int) -> str:
        """One string of a vector of strings."""
        return str(self._child(Field("", 0, "string"), position))

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

    def _union(self, field: Field, number: int, position: int) -> tuple[Table, Decoded] | None:
        """The member of a union; None for one that is not in the schema (of a newer version)."""
        members = schema.unions()[field.target]
        if not 1 <= number <= len(members):
            return None
        member, at = schema.table(members[number - 1]), self._reference(position)
        return member, self._struct(member, at) if member.name in schema.structs() else self.table(member, at)

    def _struct(self, struct_: Table, position: int) -> Decoded:
        """The struct of one field at `position`."""
        (field,) = struct_.fields
        page, at = self.source.view(position, SIZES[field.code])
        return {field.name: _PACKERS[field.code].unpack_from(page, at)[0]}

    def _count(self, position: int, size: int) -> int:
        """The number of elements of the vector at `position`. Raises InvalidModelError if it exceeds the file."""
        page, at = self.source.view(position, 4)
        count = int(_UINT.unpack_from(page, at)[0])
        if position + 4 + count * size > self.source.size:
            self.source.fail(f"truncated or corrupt: a vector of {count} elements at byte {position} exceeds the file")
        return count

    def _charge(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            self.source.fail("malformed: its tables refer to the same bytes too often")


def _name(field: Field, number: Any) -> Any:
    return field.enum[number] if field.enum and 0 <= number < len(field.enum) else number


def code_number(code: Decoded) -> int:
    """The number of a decoded OperatorCode table: the larger one of its two fields (schema_utils.cc)."""
    builtin, old = code["builtin_code"], code["deprecated_builtin_code"]
    return max(int(old), schema.builtin_code(builtin) if isinstance(builtin, str) else int(builtin))
