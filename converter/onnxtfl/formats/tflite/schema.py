"""The tables, enums and unions of the TFLite format, with their slots and numbers.

They are in ``schemas/tflite_format.txt`` and ``tflite_metadata.txt`` (TFLite Metadata). The package `tflite` has them
too, but its import takes 0.1 s for 188 modules, and it lacks the newer types, ops and fields. A test compares both.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.schemas.sections import texts

Kind = Literal["scalar", "string", "strings", "vector", "table", "tables", "union"]
_FORMAT, _METADATA, _CONTAINER = "tflite_format.txt", "tflite_metadata.txt", "litertlm_format.txt"
_SCALARS = {
    **{"bool": "?", "byte": "b", "ubyte": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I"},
    **{"long": "q", "ulong": "Q", "float": "f", "double": "d", "graph": "i"},
}
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table.

    `code`: struct code of a scalar or of a vector's elements. `enum`: the names of an enum's values. `target`: the
    table or union that it refers to. `is_graph`: whether it is the index of a subgraph.
    """

    name: str
    slot: int
    kind: Kind
    code: str = ""
    default: Any = None
    enum: tuple[str, ...] = ()
    target: str = ""
    align: int = 4
    is_graph: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value`, a number or name, is valid for a scalar or vector element of this field."""
        try:
            struct.pack(f"<{self.code}", self.number(value))
        except (struct.error, OverflowError):
            return False
        return True

    def number(self, value: Any) -> Any:
        """`value` as a number. Raises ValueError for a str that is no name of the enum."""
        if self.enum and isinstance(value, str):
            return self.enum.index(value)
        return value


@dataclass(frozen=True)
class Table:
    """A table: its name and its fields without deprecated ones."""

    name: str
    fields: tuple[Field, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by name."""
        return {field.name: field for field in self.fields}


@functools.cache
def enums() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Enum -> (struct code, names in the order of their numbers)."""
    found = {"BuiltinOperator": ("i", builtin_ops())}
    for head, *names in _lines("enums"):
        name, _, base = head.partition(":")
        found[name] = (_SCALARS[base], tuple(names))
    return found


@functools.cache
def unions() -> dict[str, tuple[str, ...]]:
    """Union -> its member tables; the first has number 1."""
    return {name: tuple(members) for name, *members in _lines("unions")}


def tables() -> tuple[str, ...]:
    """The names of all tables of the TFLite format itself."""
    return tuple(name for name, *_ in _lines("tables", (_FORMAT,)))


@functools.cache
def table(name: str) -> Table:
    """The table `name`. Raises KeyError for an unknown one."""
    return Table(name, tuple(_fields(_table_texts()[name])))


@functools.cache
def structs() -> frozenset[str]:
    """The tables that are structs of one field, which have no vtable."""
    return frozenset(name for line in _lines("structs") for name in line)


@functools.cache
def builtin_ops() -> tuple[str, ...]:
    """The names of the builtin ops, indexed by code."""
    return tuple(_options())


@functools.cache
def builtin_code(op: str) -> int:
    """The code of a builtin op. Raises ValueError for an unknown name."""
    return builtin_ops().index(op)


@functools.cache
def options_table(op: str) -> Table | None:
    """Return the options table of a builtin op, or None."""
    name = _options().get(op)
    return table(name) if name else None


OPTION_UNIONS = ("builtin_options", "builtin_options_2")
"""The fields of an Operator that hold its options."""
OPERATOR_FIELDS = ("custom_options", "mutating_variable_inputs", "intermediates")
"""The fields of an Operator that nodes have as attributes besides its options."""


@functools.cache
def options_union(name: str) -> tuple[str, int]:
    """Return the field of an Operator for the options table `name`, and the table's number in that union."""
    field = OPTION_UNIONS[name not in unions()["BuiltinOptions"]]
    members = unions()[table("Operator").by_name[field].target]
    return field, members.index(name) + 1


@functools.cache
def state_operands(op: str, count: int) -> tuple[int, ...]:
    """The operands that the kernel of a builtin op with `count` operands updates in place."""
    found = _states()
    return found.get(f"{op}:{count}") or found.get(op, ())


@functools.cache
def _states() -> dict[str, tuple[int, ...]]:
    return {op: tuple(map(int, indices)) for op, *indices in _lines("states")}


@functools.cache
def defaults(of: Table) -> dict[str, Any]:
    """The values of an empty table, enums by name."""
    return {f.name: f.enum[f.default] if f.enum and f.kind == "scalar" else f.default for f in of.fields}


@functools.cache
def _options() -> dict[str, str]:
    pairs = (word.partition(":") for line in _lines("ops") for word in line)
    return {op: options for op, _, options in pairs}


@functools.cache
def _table_texts() -> dict[str, list[str]]:
    return {name: fields for name, *fields in _lines("tables")}


def _lines(section: str, files: tuple[str, ...] = (_FORMAT, _METADATA, _CONTAINER)) -> list[list[str]]:
    """The words of each line of a section."""
    found = (texts(file).get(section, "") for file in files)
    return [line.split() for text in found for line in text.replace("\n    ", " ").splitlines() if line]


def _fields(words: list[str]) -> list[Field]:
    """The fields of a table; a union has two slots, the first for the number of its member."""
    fields, slot = [], 0
    for word in words:
        name, _, rest = word.partition(":")
        type_, _, default = rest.partition("=")
        if type_ in unions():
            fields.append(Field(f"{name}_type", slot, "scalar", "B", 0))
            slot += 1
        if name != "-":
            fields.append(_field(name, slot, type_, default))
        slot += 1
    return fields


def _field(name: str, slot: int, type_: str, default: str) -> Field:
    element, _, align = type_.partition("@")
    is_vector, element = element.startswith("["), element.strip("[]")
    if element == "string":
        return Field(name, slot, "strings" if is_vector else "string")
    if element in unions():
        return Field(name, slot, "union", target=element)
    if element in _table_texts():
        return Field(name, slot, "tables" if is_vector else "table", target=element)
    code, names = enums().get(element) or (_SCALARS[element], ())
    is_graph = element == "graph"
    if is_vector:
        alignment = max(int(align or 0), SIZES[code], 4)
        return Field(name, slot, "vector", code, enum=names, align=alignment, is_graph=is_graph)
    return Field(
        name, slot, "scalar", code, _default(default, code, names), names, align=SIZES[code], is_graph=is_graph
    )


def _default(text: str, code: str, names: tuple[str, ...]) -> Any:
    if code == "?":
        return text == "true"
    if text in names:
        return names.index(text)
    return float(text or 0) if code in "fd" else int(text or 0)
