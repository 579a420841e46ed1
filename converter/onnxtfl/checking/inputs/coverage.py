"""What inputs reach inside a model: branches, limits of clamps, selections that are not empty.

A difference that no input reaches does not show in the outputs, so the report of a check says what was never reached::

    never reached: the else branch of If 'x'; the upper limit of 3 Clamps; NonMaxSuppression 'n' selected nothing
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from onnxtfl.checking.models.side import Side
from onnxtfl.inputs.goals import Goal
from onnxtfl.runtimes import RunOptions
from onnxtfl.tracing.parts import temporary_directory

MOST_NAMED = 3
"""How many nodes of a kind are named."""


def unreached(
    side: Side,
    goals: Sequence[Goal],
    sets: Iterable[Sequence[Any]],
    options: RunOptions,
    stack: ExitStack,
    seconds: float = math.inf,
) -> list[Goal]:
    """The goals that none of several sets of inputs reaches; those of tensors that cannot be computed are left out.

    Each set is run in turn, until all goals are reached. Nothing is known after ``seconds``, and no goal is returned.
    Raises `OnnxtflError` where the model does not run.
    """
    until = time.perf_counter() + seconds
    pending, seen = list(goals), set[str]()
    for values in sets:
        if time.perf_counter() > until:
            return []
        model = side.traced(values, replace(options, kernels="builtin"), temporary_directory(stack))
        numbers = {v.name: i for i, v in enumerate(model.values) if v.name}
        wanted = {goal.tensor: numbers[goal.tensor] for goal in pending if goal.tensor in numbers}
        found = model.fetch(set(wanted.values()))
        arrays = {name: found[number] for name, number in wanted.items() if number in found}
        seen |= set(arrays)
        left = (goal.after(arrays[goal.tensor]) if goal.tensor in arrays else goal for goal in pending)
        pending = [goal for goal in left if goal is not None]
        if not any(goal.tensor in arrays for goal in pending):
            break
    return [goal for goal in pending if goal.tensor in seen]


def in_words(goals: Sequence[Goal]) -> str:
    """What was never reached, grouped by kind, with the names of a few nodes of each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for goal in goals:
        what = f"{len(goal.rows)} {goal.what}" if goal.rows else goal.what
        groups.setdefault((what, goal.op), []).append(goal.node)
    return "never reached: " + "; ".join(_group(*kind, nodes) for kind, nodes in groups.items())


def _group(what: str, op: str, nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        selects = what.startswith("a selected")
        return f"{op} {nodes[0]} selected nothing" if selects else f"{what} {op} {nodes[0]}"
    if what.startswith("a selected"):
        return f"{len(nodes)} {op}s ({_listed(nodes)}) selected nothing"
    return f"{what} {len(nodes)} {op}s ({_listed(nodes)})"


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:MOST_NAMED]) + (", ..." if len(nodes) > MOST_NAMED else "")
