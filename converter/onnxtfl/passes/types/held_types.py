"""The section of inputs and outputs whose element type differs from the source's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.metadata import IO_TYPES
from onnxtfl.rewriting.sections import Section, sections_of

HeldType = tuple[str, str, str, bool]
"""Name of an input or output, its type in the source and in the result, whether the result's contains bits."""


@dataclass(frozen=True)
class HeldTypes(Section):
    """`types`: by the name of an input or output, its type in the source and now, and whether it contains bits."""

    types: Mapping[str, tuple[DType, DType, bool]]

    def renamed(self, names: Mapping[str, str]) -> HeldTypes:
        return HeldTypes({names.get(name, name): held for name, held in self.types.items()})


def held_types(sections: Iterable[Section]) -> list[HeldType]:
    """Return the inputs and outputs whose type changed, in order; of several changes the last one."""
    held = {name: change for section in sections_of(HeldTypes, sections) for name, change in section.types.items()}
    return [(name, source.value, dtype.value, bits) for name, (source, dtype, bits) in held.items()]


def as_property(found: Iterable[HeldType]) -> dict[str, str]:
    """Return the metadata property of the result that records this as JSON; none if nothing changed."""
    held = {name: rest for name, *rest in found}
    return {IO_TYPES: json.dumps(held)} if held else {}
