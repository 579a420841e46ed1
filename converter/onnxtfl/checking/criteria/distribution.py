"""Distribution: outputs that depend on random values are compared by their distributions over many runs.

Both models draw each element many times from the same inputs, and the two empirical distributions are compared
(Kolmogorov-Smirnov, blurred by the tolerance, so that what hardly varies is compared as other outputs are).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, Ruling
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.pairing.interface import in_first_order
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.data import Array

LEAST_DRAWS, DRAWS = 50, 200
"""The fewest draws for a comparison of distributions, and those of fast models with small outputs."""
SECONDS = 2.0
LARGEST = 64 << 20
"""The most bytes of the outputs of a model in all draws, if these are more than the fewest."""
ELEMENTS = 1024
"""The number of compared elements of an output, evenly spread."""
CHANCE = 1e-4
"""The probability that equal distributions are rejected, over all elements."""


class Distribution:
    """Judges outputs that depend on random values."""

    name: CriterionName = "distribution"

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        if attempt.keeps_state:
            return Ruling()
        drawn = _draw(attempt, pending)
        return Ruling({k: self._judgment(attempt, k, *drawn[k]) for k in pending if k in drawn})

    def _judgment(self, attempt: Attempt, k: int, a: Array, b: Array) -> Judgment:
        """Compare float64[draws, elements]."""
        count, elements = a.shape
        evidence = {"draws": float(count), "elements": float(elements)}
        if not elements or count < LEAST_DRAWS:
            return Judgment(self.name, Verdict.INCONCLUSIVE, f"{count} draws are too few", evidence)
        rtol, atol = attempt.settings.tolerances(attempt.a.info.outputs[attempt.out_pairs[k].a].name)
        allowed = rtol * np.abs(a).max(0) + atol * np.abs(a).max(initial=0.0)
        distances = [distribution_distance(a[:, i], b[:, i], allowed[i]) for i in range(elements)]
        limit = math.sqrt(math.log(2 * elements / CHANCE) / count)
        evidence |= {"distance": max(distances), "limit": limit}
        if max(distances) <= limit:
            reason = f"random, equal distributions of {elements} elements over {count} draws"
            return Judgment(self.name, Verdict.ACCEPT, reason, evidence)
        at = int(np.argmax(distances))
        reason = (
            f"random, drawn from another distribution: element {at} is {_spread(a[:, at])}, not {_spread(b[:, at])}"
        )
        return Judgment(self.name, Verdict.REJECT, reason, evidence)


def distribution_distance(a: Array, b: Array, allowed: float) -> float:
    """The largest difference of two empirical distribution functions, of values that may be off by ``allowed``."""
    x, y = np.sort(a), np.sort(b)
    return max(_one_sided(x, y, allowed), _one_sided(y, x, allowed))


def _one_sided(x: Array, y: Array, allowed: float) -> float:
    share = np.searchsorted(x, x, "right") / x.size
    return float((share - np.searchsorted(y, x + allowed, "right") / y.size).max(initial=0.0))


def _spread(values: Array) -> str:
    return f"{values.mean():.3g} +- {values.std():.2g}"


def _draw(attempt: Attempt, pending: Sequence[int]) -> dict[int, tuple[Array, Array]]:
    """Values of each output in many runs of both models on the same inputs: float64[draws, elements].

    All draws are consecutive: a model loaded again repeats those of its seed.
    """
    started = time.perf_counter()
    found = _drawn(attempt, pending, LEAST_DRAWS)
    size = sum(getattr(x, "nbytes", 0) for x in attempt.reference.runs[0].outputs)
    is_slow = (time.perf_counter() - started) * DRAWS / LEAST_DRAWS > SECONDS
    return found if is_slow or size * DRAWS > LARGEST else _drawn(attempt, pending, DRAWS)


def _drawn(attempt: Attempt, pending: Sequence[int], count: int) -> dict[int, tuple[Array, Array]]:
    values, fed = attempt.reference.runs[0].values, attempt.fed[0]
    a = attempt.a.begin([values] * count, attempt.options).result()
    b = attempt.b.begin([fed] * count, attempt.b_options).result()
    found: dict[int, tuple[Array, Array]] = {}
    for k in pending:
        pairs = [pair for both in zip(a, b, strict=False) if (pair := _pair(attempt, k, *both)) is not None]
        if pairs and len({x.size for x, _ in pairs}) == 1:
            found[k] = np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])
    return found


def _pair(attempt: Attempt, k: int, outputs_a: Sequence[Any], outputs_b: Sequence[Any]) -> tuple[Array, Array] | None:
    """Some elements of an output in one run of both models; None if shapes differ."""
    pair = attempt.out_pairs[k]
    a, b = outputs_a[pair.a], outputs_b[pair.b]
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.dtype.kind not in "fiub":
        return None
    b = in_first_order(b, attempt.ways(k, a, b)[0])
    if a.shape != b.shape:
        return None
    every = max(1, -(-a.size // ELEMENTS))
    return a.reshape(-1)[::every].astype(np.float64), b.reshape(-1)[::every].astype(np.float64)
