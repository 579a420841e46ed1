"""The kinds of attributes that ops declare: which values one can have, and its default.

::

    attributes = {"axis": Axis(-1), "kind": Choice("sum", "max"), "keepdims": Flag(False)}

Without a default an attribute has to be given. One whose default is None may be None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from onnxtfl.ir.types import DType


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Attribute:
    """The declaration of an attribute; subclasses check one value (`item`), `Several` checks each entry."""

    meaning = "a value"
    choices: Collection[Any] = ()

    def __init__(self, default: Any = REQUIRED) -> None:
        self.default = default

    def checked(self, name: str, value: Any) -> Any:
        """``value`` in its Python type (NumPy's numbers become Python's, lists tuples); TypeError or ValueError."""
        if value is None and self.default is None:
            return None
        return self.item(name, value)

    def item(self, name: str, value: Any) -> Any:
        return value

    def fail(self, name: str, value: Any) -> TypeError:
        return TypeError(f"{name} is {value!r}, not {self.meaning}")


class Flag(Attribute):
    """True or False."""

    meaning = "True or False"

    def item(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise self.fail(name, value)
        return bool(value)


class Integer(Attribute):
    """An integer."""

    meaning = "an integer"

    def item(self, name: str, value: Any) -> int:
        if value.__class__ is int:
            return value  # nearly all; unions of types are slow
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise self.fail(name, value)
        return int(value)


class Axis(Integer):
    """An axis; negative ones count from the end."""

    meaning = "an axis"


class Float(Attribute):
    """A float, perhaps infinite or NaN; in the template of a formula, a Term."""

    meaning = "a number"

    def item(self, name: str, value: Any) -> Any:
        if getattr(value, "stands_for_number", False):
            return value
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            raise self.fail(name, value)
        return float(value)


class Text(Attribute):
    """A string."""

    meaning = "a string"

    def item(self, name: str, value: Any) -> str | bytes:
        if not isinstance(value, str | bytes):
            raise self.fail(name, value)
        return value


class Choice(Attribute):
    """One of a few values."""

    def __init__(self, *choices: Any, default: Any = REQUIRED) -> None:
        super().__init__(default)
        self.choices = choices

    def item(self, name: str, value: Any) -> Any:
        if value not in self.choices:
            raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(str, self.choices))}")
        return value


class Body(Attribute):
    """A graph."""

    meaning = "a graph"

    def item(self, name: str, value: Any) -> Any:
        if not hasattr(value, "nodes"):
            raise self.fail(name, value)
        return value


class ElementType(Attribute):
    """An element type."""

    meaning = "an element type"

    def item(self, name: str, value: Any) -> DType:
        if not isinstance(value, DType):
            raise self.fail(name, value)
        return value


class Several(Attribute):
    """Any number of values of a kind, as a tuple."""

    def __init__(self, kind: Attribute, default: Any = REQUIRED) -> None:
        super().__init__(default)
        self.kind = kind
        self.meaning = f"several values, each {kind.meaning}"

    def item(self, name: str, value: Any) -> tuple[Any, ...]:
        if value.__class__ is not tuple and (isinstance(value, str | bytes) or not isinstance(value, Iterable)):
            raise self.fail(name, value)
        return tuple([self.kind.checked(name, one) for one in value])


def Integers(default: Any = REQUIRED) -> Several:
    """Several integers."""
    return Several(Integer(), default)


def Axes(default: Any = REQUIRED) -> Several:
    """Several axes."""
    return Several(Axis(), default)


SAME = "SAME"
"""The padding of a window that has ceil(size / stride) positions."""


class Padding(Several):
    """The padding of a window: integers, or SAME."""

    def __init__(self, default: Any = REQUIRED) -> None:
        super().__init__(Integer(), default)

    def checked(self, name: str, value: Any) -> Any:
        return value if isinstance(value, str) and value == SAME else super().checked(name, value)


_BY_ANNOTATION: dict[str, Callable[[Any], Attribute]] = {
    "bool": Flag,
    "int": Integer,
    "float": Float,
    "Number | Term": Float,
    "str": Text,
    "DType": ElementType,
    "Sequence[int]": Integers,
}


def of_annotation(annotation: str, default: Any) -> Attribute:
    """The attribute for a parameter of a function that defines an op. Raises KeyError for a type that no attribute
    has.
    """
    return _BY_ANNOTATION[annotation](default)
