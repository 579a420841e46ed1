"""Symbols for integers known only at run time, by number.

Numbers are counted from 0 in each conversion: so the same input is converted to the same bytes, in any thread, also if
one conversion runs inside another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.scopes import scope


class _Scope:
    """The count of numbers issued; `implicit`: made on demand outside of :func:`symbol_scope`."""

    __slots__ = ("count", "implicit")

    def __init__(self, implicit: bool) -> None:
        self.count, self.implicit = 0, implicit


_CURRENT: ContextVar[_Scope] = ContextVar("onnxtfl_symbols")


def _current() -> _Scope:
    found = _CURRENT.get(None)
    if found is None:
        found = _Scope(implicit=True)
        _CURRENT.set(found)
    return found


def next_number() -> int:
    """Return a number that was not issued in this scope before."""
    current = _current()
    current.count += 1
    return current.count - 1


def reserve(number: int) -> None:
    """Exclude `number`, which occurs in a parsed text, from this scope."""
    current = _current()
    current.count = max(current.count, number + 1)


@contextmanager
def symbol_scope() -> Iterator[None]:
    """Count from 0 inside; scopes nest, and each thread has its own.

    A graph may outlive its scope: outside of all scopes, numbers issued inside one are not issued again.
    """
    outer, inner = _current(), _Scope(implicit=False)
    try:
        with scope(_CURRENT, inner):
            yield
    finally:
        if outer.implicit:
            outer.count = max(outer.count, inner.count)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The atom for an integer known only at run time: a size, or a computed integer, which may be negative."""

    number: int
    is_size: bool = True

    def __str__(self) -> str:
        return f"{'u' if self.is_size else 'v'}?{self.number}"
