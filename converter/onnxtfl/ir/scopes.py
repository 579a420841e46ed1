"""Context variables that have a value inside of a ``with`` block: scopes nest, and each thread has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def scope(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Set `variable` to `value` inside, then to its former value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
