"""Writes FlatBuffers front to back: a table, then its children.

Format: https://flatbuffers.dev/internals. References point forward only: a table is packed in one call, and its
references are filled in when the children are written; three times as fast as the general builder, which writes back to
front a field at a time. Vectors of scalars, and tables of scalars only, come last, equal ones once: a deep network has
few different shapes and options (92 % of the size for 10,000 nodes).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import SIZES, Field, Table

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """A vector of tables: `make(item)` for each item, created lazily."""

    items: Sequence[Any]
    make: Callable[[Any], Values]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Values]:
        return map(self.make, self.items)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A vector of bytes that the caller writes after the tables; `Encoder.deferred` lists it with its reference."""

    content: Any


class _Leaf(NamedTuple):
    """An object without references: a vector with its count, or a table (its first word, the vtable's, is unset)."""

    align: int
    content: bytes
    vtable: bytes = b""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The memory layout of a table for a set of present fields; references are packed as zero."""

    packer: struct.Struct
    vtable: bytes
    align: int
    scalars: tuple[str, ...]
    references: tuple[tuple[Field, int], ...]
    """(field, offset in the table), in the order of the slots."""

    def packed(self, vtable: int, present: Values) -> bytes:
        """The bytes of the table with its vtable `vtable` bytes before it."""
        return self.packer.pack(vtable, *[present[name] for name in self.scalars])


class Encoder:
    """Collects one FlatBuffer in `out`.

    The values of a table are a mapping: numbers (or names of an enum) for scalars, str for strings, sequences of
    numbers or bytes for vectors, a mapping for a table, a list of mappings or `Tables` for a vector of tables, and
    (member table, mapping) for a union. Fields that are absent, None or equal to their default are left out.
    """

    def __init__(self) -> None:
        self.out = bytearray()
        self.deferred: list[tuple[int, Any]] = []
        """(position of the reference to set, content)."""
        self._shared: dict[_Leaf, int] = {}
        """Objects that are written last -> position of the last reference to them, see `_share`."""
        self._vtables: dict[bytes, int] = {}
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    def root(self, table: Table, values: Values, identifier: bytes) -> None:
        """Write the buffer."""
        self.out += struct.pack("<I4s", 0, identifier)
        struct.pack_into("<I", self.out, 0, self.table(table, values))
        for leaf, last in self._shared.items():
            target, reference = self._leaf(leaf), last
            while reference:
                (before,) = struct.unpack_from("<I", self.out, reference)
                self.refer(reference, target)
                reference = before

    def refer(self, position: int, target: int) -> None:
        """Set the reference at `position` to `target`."""
        struct.pack_into("<I", self.out, position, target - position)

    def _pad(self, align: int) -> None:
        gap = -len(self.out) % align
        if gap:
            self.out += bytes(gap)

    def table(self, table: Table, values: Values) -> int:
        """Write a table and all that it refers to; returns its position."""
        present = _present(table, values)
        layout = self._layout(table, present)
        position = self._open(layout.vtable, layout.align)
        self.out += layout.packed(position - self._vtables[layout.vtable], present)
        for field, offset in layout.references:
            self._child(field, present[field.name], position + offset)
        return position

    def _open(self, vtable: bytes, align: int) -> int:
        """Write the vtable unless an equal one is written; returns the position of the table to write next."""
        if vtable not in self._vtables:
            self._pad(2)
            self._vtables[vtable] = len(self.out)
            self.out += vtable
        self._pad(align)
        return len(self.out)

    def _layout(self, table: Table, present: Values) -> _Layout:
        key = (table.name, *present)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = _lay_out([table.by_name[name] for name in present])
        return layout

    def _child(self, field: Field, value: Any, reference: int) -> None:
        if isinstance(value, Deferred):
            self.deferred.append((reference, value.content))
        elif field.kind == "vector":
            self._share(_vector(field, value), reference)
        elif field.kind == "tables":
            table = schema.table(field.target)
            self.refer(reference, self._vector_of(len(value), (self.table(table, one) for one in value)))
        elif field.kind == "string":
            self.refer(reference, self._string(value))
        elif field.kind == "strings":
            self.refer(reference, self._vector_of(len(value), map(self._string, value)))
        else:
            member, values = value if field.kind == "union" else (schema.table(field.target), value)
            present = _present(member, values)
            layout = self._layout(member, present)
            if layout.references:
                self.refer(reference, self.table(member, values))
            else:
                self._share(_Leaf(layout.align, layout.packed(0, present), layout.vtable), reference)

    def _share(self, leaf: _Leaf, reference: int) -> None:
        """Record a reference to `leaf`. Until it is set, its word is the position of the previous reference to `leaf`,
        or 0.
        """
        struct.pack_into("<I", self.out, reference, self._shared.get(leaf, 0))
        self._shared[leaf] = reference

    def _leaf(self, leaf: _Leaf) -> int:
        """Write a leaf; returns its position."""
        if leaf.vtable:
            position = self._open(leaf.vtable, leaf.align)
            self.out += struct.pack("<i", position - self._vtables[leaf.vtable]) + leaf.content[4:]
            return position
        self.out += bytes(-(len(self.out) + 4) % leaf.align)
        self.out += leaf.content
        return len(self.out) - len(leaf.content)

    def _vector_of(self, count: int, written: Iterator[int]) -> int:
        """Write a vector of `count` references, then the objects that `written` writes; returns its position."""
        self._pad(4)
        position = len(self.out)
        self.out += struct.pack("<I", count) + bytes(4 * count)
        for i, target in enumerate(written):
            self.refer(position + 4 + 4 * i, target)
        return position

    def _string(self, text: str) -> int:
        raw = text.encode()
        self._pad(4)
        self.out += struct.pack("<I", len(raw)) + raw + b"\0"
        return len(self.out) - len(raw) - 5


def _vector(field: Field, value: Any) -> _Leaf:
    """A vector of scalars or bytes: its count, then its elements."""
    if isinstance(value, (bytes, bytearray)):
        return _Leaf(field.align, struct.pack("<I", len(value)) + value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    numbers = [field.number(item) for item in value] if field.enum else value
    return _Leaf(field.align, struct.pack(f"<I{len(numbers)}{field.code}", len(numbers), *numbers))


def _present(table: Table, values: Values) -> dict[str, Any]:
    """Return the values to write, enums as numbers: all that are not None or the default."""
    present = {}
    fields = table.by_name
    for name, value in values.items():
        if value is None:
            continue
        field = fields[name]
        if field.kind == "scalar":
            if field.enum:
                value = field.number(value)  # noqa: PLW2901 - the same value as it is stored
            if value == field.default:
                continue
        present[name] = value
    return present


def _lay_out(fields: Sequence[Field]) -> _Layout:
    """The layout with the largest fields first (after the word for the vtable), which needs the least padding."""
    sized = [(SIZES[f.code] if f.kind == "scalar" else 4, f) for f in fields]
    order = [pair for size in (8, 4, 2, 1) for pair in sized if pair[0] == size]
    end, pattern, offsets = 4, "<i", {}
    for size, field in order:
        gap = -end % size
        pattern += "x" * gap + (field.code if field.kind == "scalar" else "4x")
        offsets[field.slot] = end + gap
        end += gap + size
    slots = [offsets.get(slot, 0) for slot in range(1 + max(offsets, default=-1))]
    vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), end, *slots)
    scalars = tuple(f.name for _, f in order if f.kind == "scalar")
    references = sorted((f.slot, f) for f in fields if f.kind != "scalar")
    align = max([4, *(size for size, _ in order)])
    return _Layout(struct.Struct(pattern), vtable, align, scalars, tuple((f, offsets[slot]) for slot, f in references))
