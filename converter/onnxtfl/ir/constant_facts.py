"""Facts about the elements of constants, which are read once in a conversion, also of several entries."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

from onnxtfl.ir.scopes import scope

Fact = TypeVar("Fact")

_KNOWN: ContextVar[dict[Hashable, Any] | None] = ContextVar("onnxtfl_constant_facts", default=None)


def known_fact(key: Hashable, find: Callable[[], Fact]) -> Fact:
    """What `find` returns, which is not called again in this conversion for an equal key.

    `key`: the kind of fact, with the keys and shapes of all data that it is about.
    """
    known = _KNOWN.get()
    if known is None:
        return find()
    if key not in known:
        known[key] = find()
    found: Fact = known[key]
    return found


def constant_facts_scope() -> AbstractContextManager[object]:
    """Remember facts inside; an inner scope shares those of the outer one."""
    known = _KNOWN.get()
    return scope(_KNOWN, {} if known is None else known)
