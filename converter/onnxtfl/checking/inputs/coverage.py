"""What inputs reach inside a model: branches, limits of clamps, selections that are not empty.

A difference that no input reaches does not show in the outputs, so the report of a check says what was never reached::

    never reached: the else branch of If 'x'; the upper limit of 3 Clamps; NonMaxSuppression 'n' selected nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from onnxtfl.checking.models.goals import Goal
from onnxtfl.checking.models.side import Side
from onnxtfl.runtimes import RunOptions
from onnxtfl.tracing.parts import temporary_directory


def unreached(
    side: Side, goals: Sequence[Goal], sets: Iterable[Sequence[Any]], options: RunOptions, stack: ExitStack
) -> list[Goal]:
    """The goals that none of several sets of inputs reaches; those of tensors that cannot be computed are left out.

    Each set is run in turn, until all goals are reached. Raises `OnnxtflError` where the model does not run.
    """
    pending, seen = list(goals), set[str]()
    for values in sets:
        model = side.traced(values, replace(options, kernels="builtin"), temporary_directory(stack))
        numbers = {v.name: i for i, v in enumerate(model.values) if v.name}
        wanted = {goal.tensor: numbers[goal.tensor] for goal in pending if goal.tensor in numbers}
        found = model.fetch(set(wanted.values()))
        arrays = {name: found[number] for name, number in wanted.items() if number in found}
        seen |= set(arrays)
        pending = [goal for goal in pending if goal.tensor not in arrays or not goal.is_reached(arrays[goal.tensor])]
        if not any(goal.tensor in arrays for goal in pending):
            break
    return [goal for goal in pending if goal.tensor in seen]


def in_words(goals: Sequence[Goal]) -> str:
    """What was never reached: a single node by its name, several of a kind by their number."""
    counts = Counter((goal.what, goal.op) for goal in goals)
    nodes = {(goal.what, goal.op): goal.node for goal in goals}
    parts = [f"{what} {op} {nodes[what, op]}" if n == 1 else f"{what} {n} {op}s" for (what, op), n in counts.items()]
    return "never reached: " + "; ".join(parts)
