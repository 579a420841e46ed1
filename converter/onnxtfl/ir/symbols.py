"""The numbers of what is known only at run time: each conversion counts its own, from 0 on.

So the same input gives the same bytes, in any thread, and also where one conversion runs inside another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class _Scope:
    """A count of the numbers given; `implicit` where it was made because no one had entered a scope."""

    __slots__ = ("count", "implicit")

    def __init__(self, implicit: bool) -> None:
        self.count, self.implicit = 0, implicit


_CURRENT: ContextVar[_Scope] = ContextVar("onnxtfl_symbols")


def _current() -> _Scope:
    scope = _CURRENT.get(None)
    if scope is None:
        scope = _Scope(implicit=True)
        _CURRENT.set(scope)
    return scope


def next_number() -> int:
    """A number that was not given in this scope before."""
    scope = _current()
    scope.count += 1
    return scope.count - 1


def reserve(number: int) -> None:
    """Do not give `number`, which a text names, in this scope."""
    scope = _current()
    scope.count = max(scope.count, number + 1)


@contextmanager
def symbol_scope() -> Iterator[None]:
    """Count from 0 inside; scopes nest, and each thread has its own.

    A graph may outlive its scope: outside of all scopes, numbers that were given inside are not given again.
    """
    outer, inner = _current(), _Scope(implicit=False)
    token = _CURRENT.set(inner)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        if outer.implicit:
            outer.count = max(outer.count, inner.count)
