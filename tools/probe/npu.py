"""The cases of which an NPU's compiler is asked: integers, within the limits in the table of the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from onnxtfl.schemas.target_tables import target_tables
from tools.probe.case import Case

from onnxtfl.targets.table import narrowed
from onnxtfl.targets.terms import within


def npu_cases(target: str, cases: Iterable[Case]) -> Iterator[Case]:
    """The cases without floats that are within the limits; of others, the first image of the batch if that is."""
    for case in cases:
        if not any(name.startswith(("float", "complex", "string")) for name in case.types.values()):
            found = (one for one in (case, first_image(case)) if one is not None and _is_within(target, one))
            yield from [one for one in (next(found, None),) if one is not None]


def first_image(case: Case) -> Case | None:
    """The case with the first of several images only; None for another case."""
    x, y = next((a for a in case.operands if a is not None and a.ndim), None), case.expected[0]
    if x is None or y.ndim != x.ndim or len(x) != len(y) or len(case.expected) > 1:
        return None
    operands = [x[:1] if a is x else a for a in case.operands]
    real = [a[:1] for a in case.real]
    return replace(case, operands=operands, expected=[y[:1]], real=real)


def _is_within(target: str, case: Case) -> bool:
    tables = (narrowed(table.name, case.op) for table in target_tables()[target].chain[:-1])
    conditions = [condition for table in tables for condition in (*table.limits, *table.safe)]
    instance = case.instance() if conditions else None
    return instance is None or all(within(condition, instance) for condition in conditions)
