"""Sections of the report, which passes return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self, TypeVar


class Section:
    """A part of the user's report that a pass returns."""

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The section with the new names of inputs and outputs."""
        return self


S = TypeVar("S", bound=Section)


def sections_of(kind: type[S], sections: Iterable[Section]) -> list[S]:
    """Return the sections of one kind, in order."""
    return [section for section in sections if isinstance(section, kind)]


def new_names(found: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Return `found` with the new names of inputs and outputs."""
    return [names.get(name, name) for name in found]
