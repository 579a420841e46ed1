"""Cases of an op on tensors without elements, and the rows of [OP.empty] that they are summarized to.

Each axis of the first operand has size 0 in turn, with the same axis of operands of the same shape: in a file with this
static size, and in one with a dynamic size whose input is resized.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from tools.probe.case import Array, Case
from tools.probe.measure import Finding
from tools.probe.registry import probes
from tools.probe.summary import KERNEL_SETS, kernel_sets_text

FILTERS = dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "FULLY_CONNECTED"), 1)
"""The operand whose sizes do not change with the first operand's."""
_VERDICTS = ("abort", "wrong", "refused")
"""The worst first."""
_SETS = [kernel_set for kernel_set in KERNEL_SETS if not kernel_set.endswith("reference")]
"""The kernel sets that count: the reference set is used to debug the others only."""
_RANKS = range(1, 5)
_BASES = 24
"""Most cases of an op that are emptied."""


def empty_cases_of(op: str) -> Iterator[Case]:
    """The cases of an op on tensors without elements."""
    for function in probes()[op]:
        yield from empty_cases(case for case in function(op) if case.types.get("T", "float32") in _COMMON)


_COMMON = ("float32", "int32", "bool")


def empty_cases(cases: Iterable[Case]) -> Iterator[Case]:
    """Emptied copies of the first cases of each rank and list of axes, all of one element type."""
    element, seen = "", set[tuple[int, str]]()
    for case in cases:
        key = case.rank, str([*(case.operands[i] for i in sorted(case.constants)), case.options.get("batch_dim")])
        plain = case.mode == "equal" and not case.quantizations and case.rank in _RANKS and key not in seen
        if not plain or case.states or case.types.get("T", "") not in ("", element or case.types.get("T", "")):
            continue
        element = case.types.get("T", "")
        seen.add(key)
        yield from _emptied(case, key[1])
        if len(seen) == _BASES:
            return


def _emptied(case: Case, axes: str) -> Iterator[Case]:
    first = case.operands[0] if case.operands and 0 not in case.constants else None
    for axis in range(0 if first is None else first.ndim):
        assert first is not None
        operands = [_cut(case, i, a, first, axis) for i, a in enumerate(case.operands)]
        expected = _expected(case, operands)
        place = "last" if axis == first.ndim - 1 else "inner" if axis else "first"
        known = expected is not None
        filled = any(y.size for y in expected) if expected is not None else case.evaluate is not None
        mode = "filled" if filled else place
        results = case.expected if expected is None else expected
        for is_open in (False, True):
            extra = {**case.extra, "known": known, "place": mode, "open": is_open, "axes": axes}
            emptied = replace(case, mode=mode, operands=operands, expected=results, extra=extra, dynamic=not known)
            yield replace(emptied, dynamic=True, open=True) if is_open else emptied


def _cut(case: Case, index: int, array: Array | None, first: Array, axis: int) -> Array | None:
    """An operand with size 0 on `axis`, where it has the shape of the first."""
    if array is None or index in case.constants or index == FILTERS.get(case.op):
        return array
    if array.shape == (first.shape[axis],) and case.options.get("batch_dim") == axis:  # a length for each row
        return array[:0]
    if array.ndim != first.ndim or array.shape[axis] != first.shape[axis]:
        return array
    return array[(slice(None),) * axis + (slice(0, 0),)]


def _expected(case: Case, operands: Sequence[Array | None]) -> list[Array] | None:
    """The results on these operands; None if only the end of a process is a finding."""
    if case.evaluate is None:
        return None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(case.evaluate(*operands))
    except (ValueError, IndexError, ZeroDivisionError):
        return None


_UNSET = ("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "MAX_POOL_2D", "SPACE_TO_DEPTH")
"""Ops for which XNNPACK does not compute the sizes of a result without a batch: uninitialized memory is used instead.

Most such sizes are too large and refused; others are not. Source: XNNPACK src/operators/max-pooling-nhwc.c (batch_size
== 0); the others were seen to return such sizes in runs of LiteRT 2.3.
"""


def _verdict(op: str, place: str, kernel_set: str, verdict: str) -> str:
    return "wrong" if op in _UNSET and place == "first" and kernel_set.endswith("xnnpack") else verdict


def empty_rows(op: str, findings: Sequence[Finding]) -> list[str]:
    """A row for each place of an axis of size 0 that is not computed, with the worst verdict."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for finding in findings:
        for kernel_set, verdict in finding.verdicts.items():
            if kernel_set not in _SETS:
                continue
            if verdict == "abort" or (verdict in _VERDICTS and finding.extra["known"]):
                found[finding.mode, _verdict(op, finding.mode, kernel_set, verdict)].add(kernel_set)
    rows = []
    for place in ("first", "inner", "last", "filled"):
        verdict = next((v for v in _VERDICTS if found[place, v]), None)
        if verdict is not None:
            failing = [k for k in _SETS if k in found[place, verdict]]
            kernels = "all" if failing == _SETS else kernel_sets_text(failing)
            rows.append(f'{{ axis = "{place}", verdict = "{verdict}", kernels = "{kernels}" }}')
    return rows
