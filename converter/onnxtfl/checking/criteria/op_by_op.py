"""Judge models whose outputs differ because the network amplifies rounding: op by op.

Outputs say nothing about a conversion where the source's own outputs differ as much once nothing but rounding differs
(deep networks of random weights, positions of nearly equal elements), or where the source quantizes at run time, so
that a change in the last place moves a value by a step. Then each op has to agree on the source's values (see
`each_op`), of all ops between the inputs and the outputs that differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.checking.criteria.rounding import RoundingLook
from onnxtfl.checking.localize import naming
from onnxtfl.checking.localize.each_op import Coverage, EachOp, coverage, needed_matches, says_nothing
from onnxtfl.checking.localize.first_difference import known_matches
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.metrics.noise import FACTOR, distance, is_amplified
from onnxtfl.checking.models.parts import temporary_directory
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.models.trace import InnerModel
from onnxtfl.checking.outputs import Outputs
from onnxtfl.checking.pairing.interface import Pair, is_moved
from onnxtfl.checking.pairing.tensors import Match, Way
from onnxtfl.checking.report import CheckReport
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.graph import Value
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.record import TensorEntry
from onnxtfl.runtimes import RunOptions

EACH_OP = "each op agrees, rounding is amplified"
DYNAMIC = "the source quantizes at run time: a change in the last place moves values by a step"
Differing = dict[int, list[int]]
"""Number of a run -> the outputs (positions in the report) that differ in it."""


@dataclass(frozen=True)
class OpLook:
    """Both models, how their outputs are paired and compared, and the record of the conversion.

    ``moved``: whether inputs have their axes in another order.
    """

    a: Side
    b: Side
    out_pairs: Sequence[Pair]
    rounding: RoundingLook
    outputs: Outputs
    moved: bool
    tensors: Sequence[TensorEntry]
    options: RunOptions
    expect: Expectation
    patience: float | None

    def judge(self, report: CheckReport, kernels: str, spent: float = 0.0) -> CheckReport:
        """The report; passed if the outputs that differ do so because rounding is amplified, and each op agrees.

        Where an op does not agree, it is the first difference. "not checked" where an earlier look ``spent`` more
        seconds than the patience.
        """
        differ = report.status == "failed" and any(not out.ok for out in report.outputs)
        if not differ or not all(spec.ok for spec in report.inputs) or not all(map(_is_exact, (self.a, self.b))):
            return report
        options = replace(self.options, kernels=kernels)
        try:
            got = [self.b.run(fed, options) for _, _, fed in self.rounding.runs]
            differing = self._differing(report, got)
            why = self._why(got, differing) if differing else ""
            if why and self._is_over(spent):
                reason = f"outputs differ, ops would have to be compared again ({spent:.1f} s): {why}"
                return replace(report, status="not checked", reason=reason)
            return self._judged(report, got, differing, why, options) if why else report
        except OnnxtflError as error:
            return replace(report, notes=(*report.notes, f"not compared op by op: {error}"))

    def _is_over(self, seconds: float) -> bool:
        return self.patience is not None and seconds > self.patience

    def _differing(self, report: CheckReport, got: Sequence[Sequence[Any]]) -> Differing:
        """The outputs that differ in each run.

        None where one only does so in a run after another one, or has another type.
        """
        wrong = [k for k, out in enumerate(report.outputs) if not out.ok]
        found: Differing = {}
        for number, (_, expected, _) in enumerate(self.rounding.runs):
            for k in wrong:
                a, b = expected[self.out_pairs[k].a], got[number][self.out_pairs[k].b]
                check = self.rounding.compare(self.out_pairs[k], a, b, None)
                arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
                if not arrays or (check.max_abs is None and a.dtype != b.dtype):
                    return {}
                if not check.ok:
                    found.setdefault(number, []).append(k)
        return found if set(wrong) == {k for differ in found.values() for k in differ} else {}

    def _why(self, got: Sequence[Sequence[Any]], differing: Differing) -> str:
        """Why the outputs may differ though the conversion is correct; "" where nothing says so."""
        if self.a.facts.rounds:
            return DYNAMIC
        largest = 0.0
        for number, positions in differing.items():
            expected = self.rounding.runs[number][1]
            pairs = [self.out_pairs[k] for k in positions]
            own = dict.fromkeys(positions, 0.0)
            for other in self.rounding.others(number):
                far = [distance(expected[pair.a], other[pair.a]) for pair in pairs]
                own = {k: max(own[k], d) for k, d in zip(positions, far, strict=True)}
            for k, pair in zip(positions, pairs, strict=True):
                is_noise = 0 < self._distance(pair, expected[pair.a], got[number][pair.b]) <= FACTOR * own[k]
                if not is_noise or not is_amplified(own[k], expected[pair.a]):
                    return ""
            largest = max(largest, *own.values())
        return f"the source's own outputs differ by {largest:.2g} on average where nothing but rounding differs"

    def _distance(self, pair: Pair, expected: Any, got: Any) -> float:
        ways = self.outputs.ways(pair, expected, got, self.moved)
        moved = [got.transpose(inverse(way)) if is_moved(way) else got for way in ways] or [got]
        return min(distance(expected, one) for one in moved)

    def _judged(
        self, report: CheckReport, outputs: Sequence[Any], differing: Differing, why: str, options: RunOptions
    ) -> CheckReport:
        found, done, started = list[Coverage](), set[int](), time.perf_counter()
        for number, positions in differing.items():
            if done.issuperset(positions) and self._is_over(time.perf_counter() - started):
                continue
            done.update(positions)
            with ExitStack() as stack:
                values, expected, fed = self.rounding.runs[number]
                folder = temporary_directory(stack)
                a = InnerModel.of(self.a, values, replace(options, kernels="builtin"), folder)
                b = InnerModel.of(self.b, fed, options, folder)
                ends = [self._end(a, b, self.out_pairs[k], expected, outputs[number]) for k in positions]
                matches = self._matches(a, b, [end for end in ends if end is not None])
                each = EachOp(a, b, matches, self.expect, time.perf_counter() + options.time_limit)
                found.append(coverage(each.run(), [-1 if end is None else end.b for end in ends]))
                if not found[-1].agrees:
                    return _refused(report, each, found[-1], why)
        return _accepted(report, found, why)

    def _end(
        self, a: InnerModel, b: InnerModel, pair: Pair, expected: Sequence[Any], got: Sequence[Any]
    ) -> Match | None:
        """The match of an output, in the layout that the comparison of outputs allows; None where it has none."""
        names = self.a.info.outputs[pair.a].name, self.b.info.outputs[pair.b].name
        values = [
            dict(zip(m.graph.output_names, m.graph.outputs, strict=False)).get(name, Value(None))
            for m, name in zip((a, b), names, strict=True)
        ]
        i, j = a.number.get(values[0]), b.number.get(values[1])
        if i is None or j is None or j not in b.changing or b.graph.outputs.count(values[1]) > 1:
            return None
        ways = self.outputs.ways(pair, expected[pair.a], got[pair.b], self.moved)
        way = Way(ways[0] if is_moved(ways[0]) else None) if len(ways) == 1 else None
        return Match(i, j, way, recorded=True)

    def _matches(self, a: InnerModel, b: InnerModel, ends: Sequence[Match]) -> list[Match]:
        """The tensors that correspond, of those that the outputs are computed of."""
        known = {match.b: match for match in known_matches(a, b, self.tensors)[0]}
        known |= {end.b: end for end in ends}
        return needed_matches(b, [known[number] for number in sorted(known)], [end.b for end in ends])


def _is_exact(side: Side) -> bool:
    """Whether ops that agree say something: each run begins anew, and no kernel rounds what it reads."""
    return not side.keeps_state and not side.info.hybrid


def _accepted(report: CheckReport, found: Sequence[Coverage], why: str) -> CheckReport:
    count, largest = max(len(one.layers) for one in found), max(one.largest for one in found)
    note = (
        f"accepted: each op agrees on the source's values: {count} tensors compared, of all ops between the inputs and "
        f"the outputs that differ; largest error {largest:.2g} of the largest value"
    )
    outputs = tuple(out if out.ok else replace(out, ok=True, message="", note=EACH_OP) for out in report.outputs)
    return replace(report, status="passed", reason="", outputs=outputs, notes=(*report.notes, note, why))


def _refused(report: CheckReport, each: EachOp, found: Coverage, why: str) -> CheckReport:
    """The report, still failed, with the first op that differs where ops could be compared."""
    wrong = next((layer for layer in found.wrong if not says_nothing(layer)), None)
    if wrong is None:
        said = f"not compared op by op: {_uncompared(each, found)}"
        return replace(report, notes=(*report.notes, said))
    ends = {each.b.number[value] for value in each.b.graph.outputs}
    if len(wrong.nodes) > 1 and all(layer.match.b in ends for layer in found.layers):
        said = "not compared op by op: no tensors inside of the two models correspond"
        return replace(report, notes=(*report.notes, said))
    difference = naming.difference(each, wrong)
    difference = replace(difference, error_in=0.0)  # both read the same values
    said = f"op by op on the source's values, {len(found.wrong)} of {len(found.layers)} tensors differ"
    return replace(report, first_difference=difference, notes=(*report.notes, why, said))


def _uncompared(each: EachOp, found: Coverage) -> str:
    """What could not be compared, in words."""
    if not found.wrong:
        return "an output has no counterpart"
    layer = found.wrong[0]
    name = each.b.values[layer.match.b].name
    return f"tensor {name!r} cannot be computed on its own" if layer.check is None else f"{name!r} has no finite value"
