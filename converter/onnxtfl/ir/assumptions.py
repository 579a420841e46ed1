"""What a conversion assumes of sizes that only a run knows, where nothing else can be written; the report prints it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CURRENT: ContextVar[list[str] | None] = ContextVar("onnxtfl_assumptions", default=None)


def assume(text: str) -> None:
    """Record an assumption of the conversion that runs in this thread; outside of one, nothing is recorded."""
    found = _CURRENT.get()
    if found is not None and text not in found:
        found.append(text)


@contextmanager
def assumption_scope(found: list[str]) -> Iterator[None]:
    """Collect in `found` what is assumed inside; scopes nest, and each thread has its own."""
    token = _CURRENT.set(found)
    try:
        yield
    finally:
        _CURRENT.reset(token)
