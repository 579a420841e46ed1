"""The budget of a conversion: how much of the machine one model may use.

A small file can describe a huge computation on constants and sizes. What is too large for the budget is not an error
where a conversion is possible without it: a value stays unknown, a node is computed at run time. Only the number of
rewriting steps and the seconds end a conversion, with an error that names the node.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Literal, NamedTuple

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.scopes import scope

MOST_ELEMENTS = 2 << 30
"""Multiply-adds, or elements that are read or written, of all nodes that are computed before run time."""
MOST_ELEMENTS_OF_NODE = 1 << 29
MOST_NODES_OF_RULE = 10_000
"""The most nodes that one rule creates, more for nodes with many operands or results."""
LARGEST_CONSTANT = 8 << 20
"""Elements of a constant that a rule computes; more if `max_memory` has `BYTES_OF_ELEMENT` for each."""
BYTES_OF_ELEMENT = 96
"""Memory for an element of such a constant: several arrays in float64."""
MOST_LISTED = 1 << 20
"""Items of a Python list whose length depends on a number in the file: the parts of a Split, the taps of a window."""
MOST_TERMS = 20_000_000
"""Products of terms in all symbolic sizes."""
MOST_STEPS = 50_000_000
"""The most nodes created and rewrites tried."""
LARGEST_EXPRESSION = 400
"""Terms and factors of one symbolic size."""
_LOOK = 64
"""Steps between two looks at the clock."""


Loops = Literal["fast", "small", "small quantized", "none"]
"""How loops are written: unrolled where that is faster; as small loops, with weights of real values or with ones that
are quantized later; or never, for targets without loops: all iterations are written out.
"""


MACHINES = ("avx512", "avx2")
"""The kinds of machine for which costs are known: x86 with AVX-512, and without."""


class Gain(NamedTuple):
    """The expected gain of one rewrite: nanoseconds before and after it, on each of `MACHINES`; () if unknown."""

    rule: str
    before: tuple[float, ...]
    after: tuple[float, ...]


class Budget:
    """The limits of a conversion, and what it has used so far: `max_memory` bytes of constants computed before run
    time, and `seconds`. `loops`: how loops are written, see `Loops`.
    `folds_all`: nodes of constants are computed whatever their size. `growth`: the bytes that constants computed before
    run time may add to a large model.

    `elements`: read, written or multiplied by nodes that were computed before run time. `held`: bytes of the constants
    made from them. `terms`: products of terms in symbolic sizes. `unknown`: sizes that became unknown since their
    expressions were too large. `steps`: nodes made and rewrites tried. `gains`: the expected gains of rewrites that
    only save time, in order.
    """

    __slots__ = (
        "deadline",
        "elements",
        "folds_all",
        "gains",
        "growth",
        "held",
        "limited",
        "loops",
        "max_memory",
        "seconds",
        "steps",
        "terms",
        "unknown",
    )

    def __init__(
        self, max_memory: float = math.inf, seconds: float = math.inf, *, limited: bool = True, loops: Loops = "fast"
    ) -> None:
        self.max_memory, self.seconds, self.limited, self.loops = max_memory, seconds, limited, loops
        self.folds_all = False
        self.gains: list[Gain] = []
        self.deadline = time.monotonic() + seconds
        self.growth = self.elements = self.held = self.terms = self.unknown = self.steps = 0

    @property
    def has_small_loops(self) -> bool:
        """Whether loops stay loops, since each tensor of an unrolled loop takes memory."""
        return self.loops in ("small", "small quantized")

    @property
    def largest_constant(self) -> int:
        """The most elements of a constant that a rule computes."""
        is_bounded = self.limited and math.isfinite(self.max_memory)
        return max(LARGEST_CONSTANT, int(self.max_memory) // BYTES_OF_ELEMENT) if is_bounded else LARGEST_CONSTANT

    def may_compute(self, elements: int) -> bool:
        """Whether a node with so much work is computed before run time; then it is counted."""
        if elements > MOST_ELEMENTS_OF_NODE or (self.limited and self.elements + elements > MOST_ELEMENTS):
            return False
        self.elements += elements
        return True

    def may_hold(self, size: int) -> bool:
        """Whether a constant of `size` bytes is within the budget; it then counts until it is released."""
        if self.limited and self.held + size > self.max_memory:
            return False
        self.held += size
        return True

    def release(self, size: int) -> None:
        """Count the bytes of a constant no longer, which :meth:`may_hold` had counted."""
        self.held -= size

    def may_expand(self, terms: int) -> bool:
        """Whether a product of symbolic sizes with this number of terms is within the budget; it then counts."""
        if terms > LARGEST_EXPRESSION**2 or (self.limited and self.terms + terms > MOST_TERMS):
            return False
        self.terms += terms
        return True

    def step(self, node: str | None = None, op: str | None = None) -> None:
        """Count a step, for the node named; UnsupportedError past the limit of steps or seconds."""
        self.steps += 1
        if self.limited and (self.steps % _LOOK == 0 or self.steps > MOST_STEPS):
            self.look(node, op)

    def look(self, node: str | None = None, op: str | None = None) -> None:
        """Raise UnsupportedError if the steps or seconds are used up."""
        if self.limited and self.steps > MOST_STEPS:
            raise UnsupportedError(f"more than {MOST_STEPS} rewriting steps", node=node, op=op, code="E-RUN-007")
        if self.limited and time.monotonic() > self.deadline:
            message = f"the conversion takes more than {self.seconds:g} s"
            raise UnsupportedError(message, node=node, op=op, code="E-RUN-007")


def check_elements(count: int, what: str) -> None:
    """Raise UnsupportedError if a constant for `what` would have more elements than the budget allows."""
    if count > current_budget().largest_constant:
        raise UnsupportedError(f"{what} would be a constant of {count} elements", code="E-OP-008")


def check_count(count: int, what: str, most: int = MOST_LISTED) -> None:
    """Raise UnsupportedError if `count` items (`what`) exceed `most`."""
    if count > most:
        raise UnsupportedError(f"{what} would be {count}, at most {most} are supported", code="E-OP-008")


_CURRENT: ContextVar[Budget] = ContextVar("onnxtfl_budget")


def current_budget() -> Budget:
    """The budget of this thread's conversion; outside of a conversion, an unlimited one."""
    budget = _CURRENT.get(None)
    if budget is None:
        budget = Budget(limited=False)
        _CURRENT.set(budget)
    return budget


def budget_scope(budget: Budget) -> AbstractContextManager[Budget]:
    """Use `budget` inside."""
    return scope(_CURRENT, budget)
