"""The cases of a target whose kernels depend on properties of their operands, and which of these decide."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tools.probe.case import Case, batches_of
from tools.probe.measure import Finding
from tools.probe.registry import BOUNDS, cases_of

from onnxtfl.targets.properties import EXACT_INTEGERS, PROPERTIES

_EACH = 3
"""The number of cases of each type, mode, rank and combination of properties."""
_TYPES = frozenset({"float32", "int32", "bool", "qint8", "qint32"})
_CONVERTED = _TYPES | {"float16", "int8", "uint8"}
"""The element types in which results for the accelerator compute, and those that they convert."""
_MOVING = ("RESHAPE", "TRANSPOSE", "SPLIT", "SPLIT_V", "TILE", "REVERSE_V2", "SELECT", "MIRROR_PAD", "REDUCE_MIN")
_OF_ANY_TYPE = frozenset((*_MOVING, "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "REDUCE_PROD"))
"""The ops that mostly move elements: they are tried on all of these types."""
_MODES = ("equal", "scalar", "broadcast")
_RANK = 4
_PLAIN = ("equal_ranks", "constant_ranks", "unit_constants", "flat_scalars", "plain_slice", "unit_strides", "shrinks")
_RANKS = (*_PLAIN, "channels_of_groups", "whole_slices", "closed_windows", "axes")
_ALWAYS = ("constant", "required", "per_axis", "quantization")
_LAST = ("constants", "unit_batch")
"""The properties that are tried first, since they say the most, and last, before and after options."""
_LEAST_GAIN = 0.01
"""The part of all correct cases that a property has to explain to be a constraint of forms."""
_DELEGATED = frozenset({"float32", "int32", "qint8", "quint8", "qint32"})
"""The element types of which a delegate of the CPU takes any."""
_OF_VULKAN = 1e-3
_MOST_AXES = 6
"""XNN_MAX_TENSOR_DIMS."""
NOT_IN_BATCHES = (ValueError, IndexError)
"""What cases raise that cannot have a batch of 1."""
Key = tuple[Any, ...]


def cases_with_properties(op: str) -> Iterator[Case]:
    """A few static cases of each kind, with batches of 1 and more, whose `extra` has options and properties."""
    seen: Counter[Key] = Counter()
    for first in (2, 1):
        with batches_of(first, EXACT_INTEGERS // 4), contextlib.suppress(*NOT_IN_BATCHES if first == 1 else ()):
            for case in cases_of(op):
                for found in (*_of_equal_ranks(case), case, *_of_batch_1(case), *_of_a_constant(case)):
                    if _is_suitable(found):
                        extra = {**_properties(found), **found.extra}
                        known = replace(found, extra=extra, tolerance=max(found.tolerance, _OF_VULKAN))
                        key = known.group, known.mode, known.rank, known.constants
                        seen[key] += 1
                        if seen[key] <= _EACH:
                            yield known


def delegated_cases(op: str) -> Iterator[Case]:
    """The static cases of the types that a delegate of the CPU takes, a few of each kind, with their properties."""
    seen: Counter[Key] = Counter()
    for case in cases_of(op):
        every = (*case.operands, *case.expected)
        is_small = all(array is None or array.ndim <= _MOST_AXES for array in every)
        if is_small and not case.dynamic and case.mode != "nan" and set(case.types.values()) <= _DELEGATED:
            known = replace(case, extra={**_properties(case), **case.extra}, tolerance=np.inf)
            key = known.group, known.mode, known.rank, known.constants
            seen[key] += 1
            if seen[key] <= _EACH:
                yield known


def accelerated(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases with the tolerance of SIN and COS in Vulkan (2**-11 of the largest value), if that is larger."""
    for case in cases:
        yield replace(case, tolerance=max(case.tolerance, _OF_VULKAN))


def _is_suitable(case: Case) -> bool:
    every = (*case.operands, *case.expected)
    types = set(case.types.values())
    small = all(array is None or array.ndim <= _RANK + 1 for array in every)
    if case.dynamic or case.mode == "nan":
        return False
    return small and types <= (_CONVERTED if "U" in case.types or case.op in _OF_ANY_TYPE else _TYPES)


def _of_batch_1(case: Case) -> Iterator[Case]:
    """The case with the first entry only of computed operands, if it can be evaluated and there are more."""
    names = [parameter.variable for _, parameter, _ in case.instance().operands]
    computed = {v for i, v in enumerate(names) if i not in case.constants}
    if case.evaluate is None or case.quantizations or case.mode not in _MODES or computed != {"T"}:
        return
    operands = [a if a is None or a.ndim < 2 or i in case.constants else a[:1] for i, a in enumerate(case.operands)]
    if any(
        a is not None and b is not None and a.shape != b.shape for a, b in zip(operands, case.operands, strict=True)
    ):
        with contextlib.suppress(*NOT_IN_BATCHES):
            yield replace(case, operands=operands, expected=case.evaluate(*operands))


def _of_equal_ranks(case: Case) -> Iterator[Case]:
    """A case that broadcasts, with unit axes before those of operands of lower rank."""
    if case.mode == "broadcast" and case.evaluate is not None and not case.quantizations:
        rank = case.expected[0].ndim
        operands = [a if a is None else a.reshape((1,) * (rank - a.ndim) + a.shape) for a in case.operands]
        with contextlib.suppress(*NOT_IN_BATCHES):
            yield replace(case, operands=operands, expected=case.evaluate(*operands))


def _of_a_constant(case: Case) -> Iterator[Case]:
    """A conversion of a constant: weights are stored in other types."""
    if "U" in case.types and not case.constants:
        yield replace(case, constants=frozenset({0}))


def _properties(case: Case) -> dict[str, Any]:
    """The properties of a case and its plain options."""
    instance = case.instance()
    options = {name: value for name, value in case.options.items() if _decides(name, value)}
    found = {}
    for name, function in PROPERTIES.items():
        if name == "operand_shapes":  # the mode of a case says it
            continue
        with contextlib.suppress(IndexError, AttributeError, KeyError, ZeroDivisionError):
            found[name] = function(instance)
    return {**options, **found}


def _decides(name: str, value: Any) -> bool:
    """Whether an option can be a constraint: of masks and axes, `plain_slice` and `axes` say what matters."""
    return isinstance(value, int | float | str) and not name.endswith("_mask") and name != "axis"


def deciding(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with those constraints only without which a correct case would count as wrong."""
    known = {name for f in findings for name, value in f.extra.items() if _decides(name, value)}
    names = sorted(known, key=lambda name: (_RANKS.index(name) if name in _RANKS else len(_RANKS), name in _LAST, name))
    broadcasts = any(finding.mode in ("scalar", "broadcast") for finding in findings)
    always = [name for name in names if name in _ALWAYS or (name == "has_axes" and broadcasts)]
    chosen: list[str] = list(always)
    best, correct = _kept(findings, chosen), sum(set(f.verdicts.values()) == {"correct"} for f in findings)
    while best < len(findings):
        gains = ((_kept(findings, [*chosen, name]) - best, name) for name in names)
        gain, name = next(((gain, name) for gain, name in gains if gain > _LEAST_GAIN * correct), (0, ""))
        if not gain:
            break
        chosen.append(name)
        best += gain
    for name in sorted(set(chosen).difference(always), key=names.index, reverse=True):
        others = [other for other in chosen if other != name]
        chosen = others if _kept(findings, others) == best else chosen
    plain = [name for name in _PLAIN if name in chosen]
    lacking = (_lacking(f, plain) for f in findings if _is_bad(f))
    failing = {found[0] for found in lacking if len(found) == 1}
    findings = [_refused(f) if failing.intersection(_lacking(f, plain)) else f for f in findings]
    narrowed = [replace(f, extra={k: v for k, v in f.extra.items() if k in chosen}) for f in findings]
    unfit = {_cell(f) for f in narrowed if f.mode == "equal" and set(f.verdicts.values()) != {"correct"}}
    return [f for f in narrowed if f.mode not in BOUNDS or _cell(f) not in unfit]


def _is_bad(finding: Finding) -> bool:
    return not {"wrong", "abort"}.isdisjoint(finding.verdicts.values())


def _refused(finding: Finding) -> Finding:
    """A finding as if a correct result were refused."""
    verdicts = {name: "refused" if found == "correct" else found for name, found in finding.verdicts.items()}
    return replace(finding, verdicts=verdicts)


def _lacking(finding: Finding, properties: Sequence[str]) -> list[Key]:
    """The properties that a case lacks, with its types and constants.

    If others with these types and constants are wrong for lack of one alone, a case without it is right by chance.
    """
    alike = tuple(sorted(finding.types.items())), finding.extra.get("constants")
    return [(*alike, name) for name in properties if finding.extra.get(name) is False]


def _cell(finding: Finding) -> Key:
    """The form and rank of a finding."""
    return tuple(sorted(finding.types.items())), tuple(sorted(finding.extra.items())), finding.rank


def _kept(findings: Sequence[Finding], names: Sequence[str]) -> int:
    """The number of correct findings whose cell has correct ones only."""
    cells: defaultdict[Key, list[bool]] = defaultdict(list)
    for f in findings:
        extra = tuple((name, f.extra.get(name)) for name in names)
        cells[tuple(sorted(f.types.items())), f.mode, f.rank, extra].append(set(f.verdicts.values()) == {"correct"})
    return sum(len(cell) for cell in cells.values() if all(cell))
