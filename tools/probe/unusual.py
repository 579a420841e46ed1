"""Cases of an op on large floats, infinities and NaN, and the rows of [OP.unusual] that summarize them.

Ops on one float tensor get elements of each magnitude in turn. All ops get NaN, then infinities, in one of their float
operands, while the other operands are finite.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from tools.probe.case import Array, Case
from tools.probe.measure import Finding
from tools.probe.registry import probes
from tools.probe.runtime import KERNELS
from tools.probe.summary import kernel_sets_text

from onnxtfl.targets.table import entry

MAGNITUDES = (1e4, 1e6, 1e8, 1e10, 1e30)
"""The largest absolute value of the elements, by case."""
_COUNT = 1024
_SETS = tuple(f"litert {kernels}" for kernels in KERNELS)
_SPECIAL = {"nan": (np.nan, np.nan, np.nan), "inf": (np.inf, -np.inf, np.inf)}
"""The first element, one in the middle, and the last one of an operand, by the name of the mode."""


def unusual_cases_of(op: str) -> Iterator[Case]:
    """The cases of an op on large floats, infinities and NaN."""
    for function in probes()[op]:
        base = next(filter(_is_suitable, function(op)), None)
        if base is not None:
            yield from _large(base) if _is_of_one_tensor(base) else ()
            yield from _with_special_elements(base)
        for case in filter(_converts_floats, function(op)):
            to = case.expected[0].dtype
            yield from _with_special_elements(replace(case, evaluate=lambda x, to=to: [x.astype(to)]))


def _is_suitable(case: Case) -> bool:
    is_plain = case.mode == "equal" and 0 not in case.constants and not case.states and not case.quantizations
    return is_plain and case.types.get("T") == "float32" and case.rank == 2 and case.evaluate is not None


def _converts_floats(case: Case) -> bool:
    """Whether a case only converts a float tensor to another float type."""
    return set(case.types) == {"T", "U"} and set(case.types.values()) == {"float32", "float16"} and case.rank == 4


def _is_of_one_tensor(case: Case) -> bool:
    return len(case.operands) == len(case.expected) == 1 and case.operands[0].shape == case.expected[0].shape


def _large(case: Case) -> Iterator[Case]:
    """Copies of a case with elements of each magnitude, of both signs; the results are those of float64."""
    rng = np.random.default_rng(0)
    for magnitude in MAGNITUDES:
        x = rng.uniform(-magnitude, magnitude, (2, _COUNT)).astype(np.float32)
        yield from _evaluated(case, [x.astype(np.float64)], f"up to 1e{round(math.log10(magnitude))}")


def _with_special_elements(case: Case) -> Iterator[Case]:
    """Copies of a case with NaN or infinities in one operand."""
    parameters = entry(case.op).operands
    for (name, elements), (i, array) in itertools.product(_SPECIAL.items(), enumerate(case.operands)):
        if array is not None and array.dtype.kind == "f" and array.size >= len(elements):
            changed = array.copy()
            changed.reshape(-1)[[0, array.size // 2, -1]] = elements
            operands = [changed if j == i else other for j, other in enumerate(case.operands)]
            yield from _evaluated(case, operands, f"{name} in {parameters[min(i, len(parameters) - 1)].name}")


def _evaluated(case: Case, operands: Sequence[Array | None], mode: str) -> Iterator[Case]:
    """A copy of a case with other operands; none if NumPy cannot compute its results."""
    assert case.evaluate is not None
    with contextlib.suppress(ValueError, IndexError), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [_in_float32(array) for array in case.evaluate(*operands)]
        yield replace(case, mode=mode, operands=[_in_float32(x) for x in operands], expected=expected)


def _in_float32(array: Array | None) -> Array | None:
    return array.astype(np.float32) if array is not None and array.dtype == np.float64 else array


def unusual_rows(findings: Sequence[Finding], kernel_sets: Sequence[str] = _SETS) -> list[str]:
    """A row for the operands that some kernel sets compute wrong: of magnitudes, the smallest of each kernel set."""
    rows, known = [], set[str]()
    for finding in findings:
        is_large = finding.mode.startswith("up to")
        wrong = [k for k in kernel_sets if finding.verdicts.get(k) == "wrong" and not (is_large and k in known)]
        known.update(wrong if is_large else ())
        if wrong:
            rows.append(f'{{ operands = "{finding.mode}", kernels = "{kernel_sets_text(wrong)}" }}')
    return list(dict.fromkeys(rows))
