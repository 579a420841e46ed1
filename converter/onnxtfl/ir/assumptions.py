"""The assumptions of a conversion about dynamic sizes, if it cannot avoid them; the report prints them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.scopes import scope


@dataclass(frozen=True)
class Assumption:
    """One assumption; `is_minor`: whether it is about a size that is rarely fed, or that is computed inside."""

    text: str
    is_minor: bool = False


_CURRENT: ContextVar[list[Assumption] | None] = ContextVar("onnxtfl_assumptions", default=None)


def assume(text: str, is_minor: bool = False) -> None:
    """Record an assumption of this thread's conversion; a no-op outside of a conversion."""
    found, assumption = _CURRENT.get(), Assumption(text, is_minor)
    if found is not None and assumption not in found:
        found.append(assumption)


def assumption_scope(found: list[Assumption]) -> AbstractContextManager[object]:
    """Collect the assumptions recorded inside in `found`."""
    return scope(_CURRENT, found)
