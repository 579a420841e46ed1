"""Float32 reference: a source in float16, or with rounded operands of products, is evaluated in float32."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, PerOutput
from onnxtfl.checking.criteria.reference import as_float32
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.localize.inside import Inside
from onnxtfl.checking.localize.selections import with_equal_selections
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.models.widened import write_widened
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.data import Array
from onnxtfl.tracing.matches import Match, Way
from onnxtfl.tracing.parts import temporary_directory

COARSE = 0.05
"""The largest difference between a source in float16 and in float32, relative to the largest value. Beyond it, the
source is no reference.
"""


class Float32Reference(PerOutput):
    """Accepts outputs that agree with the source evaluated in float32, if that is near the source's own outputs."""

    name: CriterionName = "float32-reference"

    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        return out.is_float and not attempt.keeps_state and attempt.reference.is_rough

    def judgment(self, attempt: Attempt, k: int) -> Judgment:
        pair, largest = attempt.out_pairs[k], 0.0
        for number in attempt.runs:
            expected = attempt.reference.runs[number].outputs[pair.a]
            wide = attempt.reference.widened[number][pair.a]
            if not _near(expected, wide) and not _selects_alike(attempt, pair.a, number):
                return Judgment(self.name, Verdict.INCONCLUSIVE, "in float32 the source computes something else")
            check = attempt.compare(k, number, expected=wide.astype(expected.dtype))
            largest = max(largest, check.max_abs or 0.0)
            if not check.ok:
                reason = f"against the source in float32: {check.message}"
                return Judgment(self.name, Verdict.INCONCLUSIVE, reason, {"max_abs": largest})
        return Judgment(self.name, Verdict.ACCEPT, "", {"max_abs": largest})


def _selects_alike(attempt: Attempt, output: int, number: int) -> bool:
    """Whether an output of the source in float32 is near the source's if it selects the same elements.

    A TopK over scores with rounded operands, as a router of experts, selects others in float32.
    """
    side, values = attempt.a, attempt.reference.runs[number].values
    if not side.facts.selects or side.slots is not None:
        return False
    with ExitStack() as stack:
        folder = temporary_directory(stack)
        path = folder / "float32.onnx"
        write_widened(side.info.path, path)
        wide = replace(side, info=replace(side.info, path=path))
        a = side.traced(values, attempt.options, folder)
        b = wide.traced([*map(as_float32, values)], attempt.options, folder)
        name = side.info.outputs[output].name
        ends = [model.number.get(model.graph.outputs[model.graph.output_names.index(name)]) for model in (a, b)]
        if ends[0] is None or ends[1] is None:
            return False
        inside = Inside(a, b, (), Expectation(0.0, COARSE))
        outputs = with_equal_selections(inside, {output: Match(ends[0], ends[1], Way())})
        return outputs is not None and _near(*outputs[output])


def _near(a: Array, b: Array) -> bool:
    """Whether two computations of an output differ by little, and overflow at the same places."""
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if (finite != np.isfinite(b)).any():
        return False
    peak = np.abs(b[finite]).max(initial=0.0)
    return bool((np.abs(a[finite] - b[finite]) <= COARSE * peak).all())
