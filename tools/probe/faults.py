"""The cases and rows of [OP.faults]: forms that a target takes, although it computes them wrong or ends the process.

Forms on narrow integers are tried for these rows only: results for the target compute on other types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tools.probe.case import Case, batches_of
from tools.probe.measure import Finding
from tools.probe.properties import NOT_IN_BATCHES
from tools.probe.registry import BOUNDS, cases_of
from tools.probe.summary import Form, domains, list_text, merged, set_texts

from onnxtfl.targets.properties import constants

NARROW = frozenset({"int8", "uint8", "int16"})
_BESIDES = NARROW | {"bool", "int32", "float32"}
_VERDICTS = ("abort", "wrong")
_RANKS = range(1, 5)
_PLAIN = ("equal", "scalar", "broadcast")


def narrow_cases(op: str) -> Iterator[Case]:
    """One case of each combination of types with narrow integers, and each rank, from high to low; int16 between CASTs.

    A lower rank may end the process although a higher one does not.
    """
    seen, cases = set[Any](), list[Case]()
    with batches_of(1, 1 << 22), contextlib.suppress(*NOT_IN_BATCHES):
        cases.extend(cases_of(op))  # those before the first one that cannot have a batch of 1
    with batches_of(1, 1 << 22):
        for case in sorted(cases, key=lambda case: -case.rank):
            types = frozenset(case.types.values())
            key = types, case.rank, case.constants
            if (
                types & NARROW
                and types <= _BESIDES
                and case.rank in _RANKS
                and case.mode == "equal"
                and not case.dynamic
                and key not in seen
            ):
                seen.add(key)
                yield replace(case, mode="narrow", extra={"constants": constants(case.instance())}, wide=True)


def faults(findings: Sequence[Finding]) -> str:
    """The rows of the forms of `findings` that were wrong or ended the process; "" if there are none."""
    if not any(finding.mode in ("scalar", "broadcast") for finding in findings):
        findings = [replace(f, mode="" if f.mode == "equal" else f.mode) for f in findings]
    rows = [row for verdict in _VERDICTS for row in _rows(findings, verdict)]
    return list_text("rows", rows) if rows else ""


def _rows(findings: Sequence[Finding], verdict: str) -> Iterator[str]:
    tried = domains([replace(f, extra=_constraints(f)) for f in findings])
    found = {_key(f): f for f in findings if verdict in f.verdicts.values()}
    for form in merged(list(map(_form, found.values()))):
        for low, high in _runs(form.sets["rank"]):
            sets = {key: values for key, values in form.sets.items() if key != "rank"}
            texts = [f'verdict = "{verdict}"', *set_texts(Form(sets, *form.limits), tried), f'rank = "{low}-{high}"']
            yield "{ " + ", ".join(texts) + " }"


def _key(finding: Finding) -> Any:
    return finding.rank, tuple(finding.types.items()), tuple(_constraints(finding).items())


def _constraints(finding: Finding) -> dict[str, Any]:
    """The constraints of a finding; the mode is the property of the operands' shapes, or the fused activation."""
    if finding.mode in BOUNDS:
        return {**finding.extra, "fused_activation_function": finding.mode}
    return {**finding.extra, **({"operand_shapes": finding.mode} if finding.mode in _PLAIN else {})}


def _form(finding: Finding) -> Form:
    every = {**finding.types, **_constraints(finding), "rank": finding.rank}
    return Form({key: frozenset({value}) for key, value in every.items()}, 0, 0, None, None)


def _runs(ranks: frozenset[Any]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive ranks: the first and the last of each."""
    for low in sorted(ranks):
        if low - 1 not in ranks:
            yield low, next(rank for rank in range(low, 99) if rank + 1 not in ranks)
