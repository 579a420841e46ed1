"""The decorator of the package's own classes of fields: `dataclasses.dataclass`, at a third of its cost.

The standard library compiles up to six functions for each class, which took a fifth of the start of the commands. Here
only ``__init__`` is compiled, for the first instance of a class; the other methods are closures over the names of the
fields. ``frozen`` is checked by the type checker only: a frozen class of the standard library takes three times as long
to make an instance. Classes that users get are the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

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
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        if "__init__" not in own:
            _initialize(made)
        if "__repr__" not in own:
            made.__repr__ = _shown
        if eq and "__eq__" not in own:
            _compare_fields(made, frozen)
        return made


def _initialize(cls: Any) -> None:
    """Give `cls` an ``__init__`` that replaces itself by the compiled one when it is called."""

    def initialize(self: object, *given: Any, **named: Any) -> None:
        cls.__init__ = _compiled(cls)
        cls.__init__(self, *given, **named)

    cls.__init__ = initialize


def _compiled(cls: Any) -> Callable[..., None]:
    """The function that sets the fields of an instance of `cls` to its arguments or their defaults."""
    arguments, body = ["self"], list[str]()
    known: dict[str, Any] = {"missing": dataclasses.MISSING}
    for one in dataclasses.fields(cls):
        value, default = one.name, ""
        if one.default_factory is not dataclasses.MISSING:
            known[f"make_{one.name}"], default = one.default_factory, "=missing"
            value = f"make_{one.name}() if {one.name} is missing else {one.name}" if one.init else f"make_{one.name}()"
        elif one.default is not dataclasses.MISSING:
            known[f"default_{one.name}"], default = one.default, f"=default_{one.name}"
            value = one.name if one.init else f"default_{one.name}"
        elif not one.init:
            continue
        arguments += [one.name + default] if one.init else []
        body.append(f"self.{one.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n " + "\n ".join(body or ["pass"]), known)
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return cast(Callable[..., None], made)


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
