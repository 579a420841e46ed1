"""Summarizes which quantized forms are not exact, as the rows of [OP.inexact]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tools.probe.measure import Finding
from tools.probe.summary import KERNEL_SETS, RUNTIMES, Form, is_correct, list_text, merged, set_texts

_Key = tuple[tuple[str, str], ...]
"""The quantized element types, and the kernel set."""


def inexact(findings: Sequence[Finding], kernel_sets: Sequence[str] = KERNEL_SETS) -> str:
    """The rows of the quantized element types with errors in `kernel_sets`, "" if all are exact.

    A row is about kernel sets and types whose errors are in [2^k, 2^(k+1)) steps, and has the largest of these.
    """
    largest: dict[_Key, int] = {}
    for key, steps in _errors(findings):
        largest[key] = max(largest.get(key, 0), steps)
    by_size: dict[int, dict[_Key, int]] = {}
    for key, steps in largest.items():
        by_size.setdefault(steps.bit_length(), {})[key] = steps
    every = _kernel_sets(findings, kernel_sets)
    rows = [row for _, found in sorted(by_size.items()) for row in _rows(list(found), max(found.values()), every)]
    return list_text("rows", rows) if rows else ""


def _errors(findings: Sequence[Finding]) -> Iterator[tuple[_Key, int]]:
    for finding in findings:
        for kernel_set, steps in finding.steps.items():
            if is_correct(finding, kernel_set.split()[0]):
                yield (*_quantized(finding), ("kernels", kernel_set)), steps


def _quantized(finding: Finding) -> _Key:
    return tuple((variable, name) for variable, name in finding.types.items() if name.startswith("q"))


def _kernel_sets(findings: Sequence[Finding], kernel_sets: Sequence[str]) -> frozenset[str]:
    """Those of `kernel_sets` that have a quantized form."""
    quantized = [f for f in findings if _quantized(f)]
    return frozenset(
        s for s in kernel_sets if any(is_correct(f, s.split()[0]) and f.verdicts[s] == "correct" for f in quantized)
    )


def _rows(keys: Sequence[_Key], steps: int, every: frozenset[str]) -> Iterator[str]:
    for form in merged([Form({k: frozenset({v}) for k, v in key}, 0, 0, None, None) for key in keys]):
        sets: dict[str, frozenset[Any]] = {**form.sets, "kernels": _by_runtime(form.sets["kernels"], every)}
        texts = set_texts(Form(sets, *form.limits), {"kernels": every})
        yield "{ " + ", ".join([*texts, f"steps = {steps}"]) + " }"


def _by_runtime(kernels: frozenset[str], every: frozenset[str]) -> frozenset[str]:
    """`kernels` with a runtime instead of all of its kernel sets, unless they are all of `every`."""
    if kernels == every:
        return kernels
    whole = [r for r in RUNTIMES if (own := {k for k in every if k.startswith(r)}) and own <= kernels]
    return frozenset([*whole, *(k for k in kernels if k.split()[0] not in whole)])
