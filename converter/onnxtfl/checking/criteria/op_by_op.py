"""Op by op: each op of the second model reads the values that the first one computes, and has to agree.

If differences of rounding are amplified, outputs say little about a conversion: in deep quantized models one step
becomes many, and in networks of random weights the source's own outputs differ as much once nothing but rounding
differs. There each op between the inputs and the outputs that differ is compared on its own (see `engine`): float ops
within the tolerance, quantized ones within the steps that their kernel was measured to be off, without a mean error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, Ruling
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.localize import naming
from onnxtfl.checking.localize.coverage import Coverage, coverage, first_failure, needed_matches, says_nothing
from onnxtfl.checking.localize.engine import Engine
from onnxtfl.checking.localize.inside import Inside
from onnxtfl.checking.localize.selections import with_equal_selections
from onnxtfl.checking.pairing.interface import in_first_order, is_moved
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.graph import Value
from onnxtfl.metrics.noise import FACTOR, distance, is_amplified
from onnxtfl.tracing.matches import Match, Way
from onnxtfl.tracing.parts import temporary_directory

QUANTIZED = "in quantized models a difference of one step is amplified"
ROUNDS = "the source rounds values inside: a change in the last place moves them by a step"
SELECTED = "near-ties: with the elements that the source selects, the outputs agree within the tolerance"
UNUSUAL = "inputs of another magnitude may amplify rounding"
Differing = dict[int, list[int]]
"""Number of a run -> the outputs (positions in the report) that differ in it."""


@dataclass
class OpByOp:
    """Judges outputs by the ops that compute them. ``spent``: the seconds of the longest comparison."""

    name: CriterionName = "op-by-op"
    spent: float = 0.0

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        sides = attempt.a, attempt.b
        if attempt.settings.levels is not None:  # one model is quantized: no op agrees within rounding
            return Ruling()
        if any(side.info.hybrid for side in sides):  # kernels round their operands differently
            return Ruling()
        quantized = all(side.facts.quantized for side in sides)
        if attempt.keeps_state and not quantized:
            return Ruling()
        started = time.perf_counter()
        try:
            return self._ruling(attempt, pending, quantized)
        finally:
            self.spent = max(self.spent, time.perf_counter() - started)

    def _ruling(self, attempt: Attempt, pending: Sequence[int], quantized: bool) -> Ruling:
        differing = _differing(attempt, pending)
        with ExitStack() as stack:
            folder = temporary_directory(stack)
            inside = {number: _inside(attempt, number, folder) for number in differing}
            why = (QUANTIZED if quantized else _why(attempt, differing, inside)) if differing else ""
            if not why:
                return Ruling()
            if _is_over(attempt, self.spent):
                reason = f"outputs differ, ops would have to be compared again ({self.spent:.1f} s): {why}"
                return Ruling(unfinished=reason)
            return self._judged(attempt, pending, differing, inside, why)

    def _judged(
        self, attempt: Attempt, pending: Sequence[int], differing: Differing, inside: Mapping[int, Inside], why: str
    ) -> Ruling:
        found, done, started = list[Coverage](), set[int](), time.perf_counter()
        for number, positions in differing.items():
            if done.issuperset(positions) and _is_over(attempt, time.perf_counter() - started):
                continue
            done.update(positions)
            engine, covered = _compared(attempt, number, positions, inside[number])
            found.append(covered)
            if not covered.agrees:
                ruling = self._refused(engine, covered, pending, why)
                undefined = any(layer.check for layer in covered.wrong if says_nothing(layer))
                if ruling.judgments or not (attempt.is_unusual and undefined):
                    return ruling
                return Ruling(unfinished="the source has tensors without a finite value inside")
        if all(_is_exact(one) for one in found):
            return Ruling(notes=("not explained op by op: no op rounds otherwise, so there is nothing to amplify",))
        return self._accepted(found, pending, why)

    def _accepted(self, found: Sequence[Coverage], pending: Sequence[int], why: str) -> Ruling:
        count, largest = max(len(one.layers) for one in found), max(one.largest for one in found)
        note = (
            f"accepted op by op on the source's values: {count} tensors compared, of all ops between the inputs and "
            f"the outputs that differ; largest error {_in_words(found, largest)}"
        )
        evidence = {"tensors": float(count), "max_rel": largest, **_steps(found)}
        judgment = Judgment(self.name, Verdict.ACCEPT, "each op agrees, rounding is amplified", evidence)
        return Ruling(dict.fromkeys(pending, judgment), (note, why))

    def _refused(self, engine: Engine, found: Coverage, pending: Sequence[int], why: str) -> Ruling:
        """Reject outputs by the first op with a larger error than that of its kernel, if ops could be compared."""
        telling = [layer for layer in found.wrong if not says_nothing(layer)]
        wrong = first_failure(telling) or next(iter(telling), None)
        if wrong is None or wrong.check is None:
            return Ruling(notes=(f"not compared op by op: {_uncompared(engine, found)}",))
        ends = {engine.b.number[value] for value in engine.b.graph.outputs}
        if len(wrong.nodes) > 1 and all(layer.match.b in ends for layer in found.layers):
            return Ruling(notes=("not compared op by op: no tensors inside of the two models correspond",))
        difference = replace(naming.difference(engine, wrong), error_in=0.0)  # both read the same values
        said = f"op by op on the source's values, {len(found.wrong)} of {len(found.layers)} tensors differ"
        reason = f"{difference.op} {difference.b!r} differs on the source's values: {wrong.check.message}"
        evidence = {"tensors": float(len(found.layers)), "differ": float(len(found.wrong)), **_steps([found])}
        judgment = Judgment(self.name, Verdict.REJECT, reason, evidence)
        return Ruling(dict.fromkeys(pending, judgment), (why, said), difference)


def _is_exact(covered: Coverage) -> bool:
    """Whether all compared tensors are equal."""
    return all(layer.check is not None and layer.check.max_abs == 0 for layer in covered.layers)


def _is_over(attempt: Attempt, seconds: float) -> bool:
    patience = attempt.settings.patience
    return patience is not None and seconds > patience


def _differing(attempt: Attempt, pending: Sequence[int]) -> Differing:
    """Return the outputs that differ in each run; none if one differs only in a repeated run, or in its type.

    Models with state read their own states in later runs: there ops are compared on the inputs of these runs, from the
    first state on.
    """
    found: Differing = {}
    for number in attempt.runs:
        for k in pending:
            pair = attempt.out_pairs[k]
            a, b = attempt.reference.runs[number].outputs[pair.a], attempt.alone[number][pair.b]
            check = attempt.compare(k, number)
            arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
            if not arrays or (check.max_abs is None and a.dtype != b.dtype):
                return {}
            if not check.ok:
                found.setdefault(number, []).append(k)
    return found if set(pending) == {k for differ in found.values() for k in differ} else {}


def _why(attempt: Attempt, differing: Differing, inside: Mapping[int, Inside]) -> str:
    """Return why the outputs may differ although the conversion is correct; "" if there is no reason."""
    a, b = attempt.a.facts, attempt.b.facts
    if a.rounds or (a.quantized and b.rounds):
        return ROUNDS if a.rounds else QUANTIZED
    if attempt.is_unusual:
        return UNUSUAL
    if attempt.a.facts.selects and all(_selects_alike(attempt, i, differing[i], inside[i]) for i in differing):
        return SELECTED
    noises = [_amplified_noise(attempt, number, positions) for number, positions in differing.items()]
    if not all(noises):
        return ""
    return f"the source's own outputs differ by {max(noises):.2g} on average where nothing but rounding differs"


def _amplified_noise(attempt: Attempt, number: int, positions: Sequence[int]) -> float:
    """The largest noise of the source's outputs in a run; 0 if it does not explain each error, or is not amplified."""
    outputs, pairs = attempt.reference.runs[number].outputs, [attempt.out_pairs[k] for k in positions]
    got = attempt.alone[number]
    errors = [_distance(attempt, k, outputs[p.a], got[p.b]) for k, p in zip(positions, pairs, strict=True)]
    own = [0.0] * len(pairs)
    for other in attempt.reference.others(number):
        own = [max(o, distance(outputs[p.a], other[p.a])) for o, p in zip(own, pairs, strict=True)]
        explained = [0 < e <= FACTOR * o for e, o in zip(errors, own, strict=True)]
        if all(explained) and all(is_amplified(o, outputs[p.a]) for o, p in zip(own, pairs, strict=True)):
            return max(own)
    return 0.0


def _distance(attempt: Attempt, k: int, expected: Any, got: Any) -> float:
    moved = [in_first_order(got, way) for way in attempt.ways(k, expected, got)] or [got]
    return min(distance(expected, one) for one in moved)


def _inside(attempt: Attempt, number: int, folder: Path) -> Inside:
    """The tensors inside of both models in a run. ``folder``: for parts of the models."""
    values, options = attempt.reference.runs[number].values, attempt.b_options
    a = attempt.a.traced(values, replace(attempt.options, kernels="builtin"), folder)
    b = attempt.b.traced(attempt.fed[number], replace(options, **attempt.b.run_options), folder)
    return Inside(a, b, attempt.settings.tensors, attempt.tolerance.expect, attempt.a.facts.sigmoids)


def _selects_alike(attempt: Attempt, number: int, positions: Sequence[int], inside: Inside) -> bool:
    """Whether outputs agree if the second model selects as the first one does."""
    ends = {k: end for k in positions if (end := _end(attempt, k, number, inside)) is not None}
    outputs = with_equal_selections(inside, ends)
    if outputs is None or len(ends) < len(positions):
        return False
    return all(attempt.compare(k, number, got, expected).ok for k, (expected, got) in outputs.items())


def _compared(attempt: Attempt, number: int, positions: Sequence[int], inside: Inside) -> tuple[Engine, Coverage]:
    """Compare the ops that compute some outputs in a run."""
    ends = [_end(attempt, k, number, inside) for k in positions]
    known = inside.matches | {end.b: end for end in ends if end is not None}
    matches = needed_matches(inside.b, [known[i] for i in sorted(known)], [end.b for end in ends if end is not None])
    until = time.perf_counter() + attempt.options.time_limit
    engine = Engine(inside.a, inside.b, matches, attempt.tolerance.expect, until, sigmoids=inside.sigmoids)
    return engine, coverage(engine.run(), [-1 if end is None else end.b for end in ends])


def _end(attempt: Attempt, k: int, number: int, inside: Inside) -> Match | None:
    """Return the match of an output in a layout that the comparison allows; None if there is none."""
    pair, a, b = attempt.out_pairs[k], inside.a, inside.b
    names = attempt.a.info.outputs[pair.a].name, attempt.b.info.outputs[pair.b].name
    values = [
        dict(zip(m.graph.output_names, m.graph.outputs, strict=False)).get(name, Value(None))
        for m, name in zip((a, b), names, strict=True)
    ]
    i, j = a.number.get(values[0]), b.number.get(values[1])
    if i is None or j is None or j not in b.changing or b.graph.outputs.count(values[1]) > 1:
        return None
    expected, got = attempt.reference.runs[number].outputs[pair.a], attempt.alone[number][pair.b]
    ways = attempt.ways(k, expected, got)
    way = Way(ways[0] if is_moved(ways[0]) else None) if len(ways) == 1 else None
    return Match(i, j, way, recorded=True)


def _steps(found: Sequence[Coverage]) -> dict[str, float]:
    """The largest difference and mean error in steps, of quantized tensors."""
    checks = [layer.check for one in found for layer in one.layers if layer.check is not None]
    steps = [check.steps for check in checks if check.steps is not None]
    bias = [abs(check.bias) for check in checks if check.bias is not None]
    return {"steps": max(steps), "bias": max(bias, default=0.0)} if steps else {}


def _in_words(found: Sequence[Coverage], largest: float) -> str:
    steps = _steps(found)
    said = f"{largest:.2g} of the largest value"
    return f"{said}, {steps['steps']:.3g} steps, mean error {steps['bias']:.2g} steps" if steps else said


def _uncompared(engine: Engine, found: Coverage) -> str:
    """Describe what could not be compared."""
    if not found.wrong:
        return "an output has no counterpart"
    layer = found.wrong[0]
    name = engine.b.values[layer.match.b].name
    return f"tensor {name!r} cannot be computed on its own" if layer.check is None else f"{name!r} has no finite value"
