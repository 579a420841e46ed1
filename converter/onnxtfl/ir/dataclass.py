"""The decorator of the converter's own classes of fields: `dataclasses.dataclass`, at a third of its cost.

The standard library compiles up to six functions for each class, which took a fifth of the start of the commands. Here
only ``__init__`` is compiled; the other methods are closures over the names of the fields. ``frozen`` is checked by the
type checker only: a frozen class of the standard library takes three times as long to make an instance. Classes of the
public interface are the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
    ) -> type | Callable[[type], type]:
        """The class with the methods of a dataclass, except for those that it defines itself."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, slots=slots, eq=eq)
        own = set(cls.__dict__)
        made = dataclasses.dataclass(cls, repr=False, eq=False, slots=slots)
        if "__repr__" not in own:
            made.__repr__ = _shown
        if eq and "__eq__" not in own:
            _compare_fields(made, frozen)
        return made


def _compare_fields(cls: Any, frozen: bool) -> None:
    """Compare instances, and hash those of frozen classes, by the fields that count; others have no hash."""
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    read = attrgetter(*names or ("__class__",))

    def equal(self: object, other: object) -> Any:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    cls.__eq__ = equal
    if "__hash__" not in cls.__dict__:
        cls.__hash__ = (lambda self: hash(read(self))) if frozen else None


def _shown(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
