"""Coverage: what inputs reach inside a model, such as branches, limits of clamps, non-empty selections.

A difference that no input reaches is invisible in the outputs, so the report lists unreached goals::

    never reached: the else branch of If 'x'; the upper limit of 3 Clamps; NonMaxSuppression 'n' selected nothing
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtfl.checking.models.side import Side
from onnxtfl.inputs.goals import Goal
from onnxtfl.ir.data import Array
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.runtimes import RunOptions
from onnxtfl.tracing.semantics import as_real
from onnxtfl.tracing.trace import InnerModel

BATCH = 5
"""The number of sets of inputs between two readings of the clock."""
MOST_NAMED = 3
"""The most nodes of a kind that are named."""


def unreached(
    side: Side, goals: Sequence[Goal], sets: Sequence[Sequence[Any]], options: RunOptions, folder: Path, seconds: float
) -> list[Goal]:
    """Return the goals that none of several input sets reaches; goals of tensors that cannot be evaluated are omitted.

    None if that would take more than ``seconds``. Raises `OnnxtflError` if the model does not run.
    """
    started = time.perf_counter()
    model = side.traced(sets[0], replace(options, kernels="builtin"), folder)
    found = model.fetch({model.by_name[goal.tensor] for goal in goals if goal.tensor in model.by_name})
    pending = _left([goal for goal in goals if model.by_name.get(goal.tensor) in found], model, found)
    others = [side.given(values) for values in sets[1:]]
    for at in range(0, len(others), BATCH):
        if not pending or time.perf_counter() - started > seconds:
            return []
        wanted = {model.by_name[goal.tensor] for goal in pending}
        for found in model.fetch_over(sorted(wanted), others[at : at + BATCH]):
            pending = _left(pending, model, found)
    return pending


def _left(goals: Sequence[Goal], model: InnerModel, found: Mapping[int, Array]) -> list[Goal]:
    """The goals that these values of the tensors, as they are stored, do not reach."""
    real = {i: as_real(array, quantization_of(model.values[i])) for i, array in found.items()}
    left = (goal.after(real[model.by_name[goal.tensor]]) for goal in goals)
    return [goal for goal in left if goal is not None]


def in_words(goals: Sequence[Goal]) -> str:
    """The unreached goals as text, by kind, with the names of a few nodes of each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for goal in goals:
        what = f"{len(goal.rows)} {goal.what}" if goal.rows else goal.what
        groups.setdefault((what, goal.op), []).append(goal.node)
    return "never reached: " + "; ".join(_group(*kind, nodes) for kind, nodes in groups.items())


def _group(what: str, op: str, nodes: Sequence[str]) -> str:
    listed = ", ".join(nodes[:MOST_NAMED]) + (", ..." if len(nodes) > MOST_NAMED else "")
    named = f"{op} {nodes[0]}" if len(nodes) == 1 else f"{len(nodes)} {op}s ({listed})"
    return f"{named} selected nothing" if what.startswith("a selected") else f"{what} {named}"
