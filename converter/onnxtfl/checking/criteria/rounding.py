"""Judge float outputs that differ: by what the source itself leaves open, as its roundings differ.

A source that computes in float16, or rounds operands of products, is computed in float32 instead. An output that is a
Sigmoid is compared before it, where values near 0 or 1 still say something. Any other may differ by a multiple of the
source's own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxtfl.checking.metrics import noise
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.metrics.noise import Noise, Nudge
from onnxtfl.checking.models.parts import temporary_directory, tensor_inside
from onnxtfl.checking.models.perturbed import write_nudged
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.models.widened import may_round_operands, write_widened
from onnxtfl.checking.pairing.interface import Pair, is_moved, permutations
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.permutations import inverse
from onnxtfl.runtimes import RunOptions

OWN_NOISE = "agrees within the source's own noise"
IN_FLOAT32 = "agrees with the source computed in float32"
BEFORE_SIGMOID = "compared before its Sigmoid"
COARSE = 0.05
"""How far a source in float16 may be from itself in float32, over its largest value: beyond it the rounding of the
source says nothing.
"""
LARGEST = 1 << 30
"""Bytes of the largest model that is written again with other constants, to measure its noise."""
Compare = Callable[[Pair, Any, Any, Noise | None], OutputCheck]


@dataclass
class RoundingLook:
    """Both models, how their outputs are paired, and how one is compared, given the noise of the source.

    ``runs``: inputs and outputs of the first model, and inputs of the second, for each run.
    """

    a: Side
    b: Side
    out_pairs: Sequence[Pair]
    runs: Sequence[tuple[Sequence[Any], Sequence[Any], Sequence[Any]]]
    options: RunOptions
    compare: Compare
    expect: Expectation
    _noise: dict[tuple[int, bool], list[Noise | None]] = field(default_factory=dict)
    _widened: list[list[Any]] | None = None
    _rough: bool | None = None

    def judge(self, report: CheckReport, kernels: str) -> CheckReport:
        """The report, with those outputs accepted whose difference is of rounding; passed if these are all."""
        wrong = [out for out in report.outputs if not out.ok]
        comparable = all(spec.ok for spec in report.inputs) and all(map(_is_float, wrong))
        if report.status != "failed" or not wrong or not comparable or self.a.keeps_state or self.b.keeps_state:
            return report
        try:
            got = [self.b.run(fed, replace(self.options, kernels=kernels)) for _, _, fed in self.runs]
            outputs = [
                out if out.ok else self._judged(pair, out, got, kernels)
                for pair, out in zip(self.out_pairs, report.outputs, strict=True)
            ]
        except OnnxtflError as error:
            return replace(report, notes=(*report.notes, f"noise of the source not measured: {error}"))
        wrong = [out for out in outputs if not out.ok]
        reason = f"output {wrong[0].name!r}: {wrong[0].message}" if wrong else ""
        return replace(report, status="failed" if wrong else "passed", reason=reason, outputs=tuple(outputs))

    def _judged(self, pair: Pair, out: OutputCheck, got: Sequence[Sequence[Any]], kernels: str) -> OutputCheck:
        """Judge one output over all runs; as it is where it is only wrong in a run after another one."""
        found = None
        alone = (self.compare(pair, run[1][pair.a], one[pair.b], None) for run, one in zip(self.runs, got, strict=True))
        if out.message.startswith("in run") and all(check.ok for check in alone):
            return out
        if self._is_rough():
            found = self._in_float32(pair, got)
        elif self._names(pair) is not None:
            found = self.before_sigmoid(pair, kernels)
        elif not (self.a.facts.quantized or self.b.facts.quantized):
            found = self._within_noise(pair, out, got, sums=False)
            found = found if found is None or found.ok else self._within_noise(pair, out, got, sums=True)
        return out if found is None else found

    def _is_rough(self) -> bool:
        """Whether the source computes in float16, or may round operands of products to int8."""
        if self._rough is None:
            is_onnx = self.a.info.format == "onnx"
            self._rough = is_onnx and (self.a.facts.halves or may_round_operands(self.a.info.path))
        return self._rough

    def _in_float32(self, pair: Pair, got: Sequence[Sequence[Any]]) -> OutputCheck | None:
        """Compare with what the source computes in float32, if it is near that itself."""
        if self._widened is None:
            self._widened = self._run_widened()
        checks = []
        for number, (_, outputs, _) in enumerate(self.runs):
            expected, wide = outputs[pair.a], self._widened[number][pair.a]
            if expected.shape != wide.shape or not _near(expected.astype(np.float64), wide.astype(np.float64)):
                return None
            checks.append(self.compare(pair, wide.astype(expected.dtype), got[number][pair.b], None))
        worst = _worst(checks)
        return replace(worst, note=IN_FLOAT32) if worst.ok else worst

    def _run_widened(self) -> list[list[Any]]:
        with ExitStack() as stack:
            path = temporary_directory(stack) / "float32.onnx"
            write_widened(self.a.info.path, path)
            side = replace(self.a, info=replace(self.a.info, path=path))
            return [side.run([_wide(value) for value in values], self.options) for values, _, _ in self.runs]

    def _names(self, pair: Pair) -> tuple[str, str] | None:
        """What the Sigmoids of both models read whose results are this output."""
        logits = (side.facts.logits.get(side.info.outputs[k].name) for side, k in ((self.a, pair.a), (self.b, pair.b)))
        a, b = logits
        return None if a is None or b is None or self.a.slots or self.b.slots else (a, b)

    def before_sigmoid(self, pair: Pair, kernels: str) -> OutputCheck | None:
        """Compare what the Sigmoids read whose results this output is; None where it is none."""
        names = self._names(pair)
        if names is None or self.a.worker is None or self.b.worker is None:
            return None
        checks = []
        for values, _, fed in self.runs:
            a = tensor_inside(self.a.info.path, names[0], self.a.worker, self.a.hidden.given(values), self.options)
            options = replace(self.options, kernels=kernels)
            b = tensor_inside(self.b.info.path, names[1], self.b.worker, self.b.hidden.given(fed), options)
            ways = permutations(tuple(a.shape), tuple(b.shape), "auto") or [tuple(range(a.ndim))]
            name = self.a.info.outputs[pair.a].name
            moved = [b.transpose(inverse(way)) if is_moved(way) and b.ndim == a.ndim else b for way in ways]
            found = [compare(name, a, one, self.expect) for one in moved]
            checks.append(next((check for check in found if check.ok), found[0]))
        worst = _worst(checks)
        note = "" if worst.ok else f"before its Sigmoid: {worst.message}"
        return replace(worst, message=note, note=BEFORE_SIGMOID)

    def _within_noise(
        self, pair: Pair, out: OutputCheck, got: Sequence[Sequence[Any]], sums: bool
    ) -> OutputCheck | None:
        """Compare again, with an error allowed that the source's own noise explains; ``sums``: that of long sums."""
        checks = []
        for number, (_, outputs, _) in enumerate(self.runs):
            found = self._noise_in(number, sums)[pair.a]
            if found is None:
                return None
            checks.append(self.compare(pair, outputs[pair.a], got[number][pair.b], found))
        worst = _worst(checks)
        if worst.ok:
            return replace(worst, note=OWN_NOISE)
        noises = [of[pair.a] for of in self._noise.values()]
        largest = max((float(one.elements.max(initial=0.0)) for one in noises if one is not None), default=0.0)
        return replace(out, note=", ".join(part for part in (out.note, f"noise of the source {largest:.3g}") if part))

    def _noise_in(self, number: int, sums: bool) -> list[Noise | None]:
        key = number, sums
        if key not in self._noise:
            values, outputs, _ = self.runs[number]
            measure = noise.measure_sums if sums else noise.measure
            self._noise[key] = measure(self._run, values, outputs, self._nudging)
        return self._noise[key]

    def others(self, number: int) -> Iterator[Sequence[Any]]:
        """The outputs of the source in a run that differs from run ``number`` by rounding only, one after the other."""
        return noise.others(self._run, self.runs[number][0], self._nudging, self._wide_runs(number))

    def _wide_runs(self, number: int) -> Iterator[Sequence[Any]]:
        """What the source computes in float32, if it is rough."""
        if not self._is_rough():
            return
        self._widened = self._run_widened() if self._widened is None else self._widened
        outputs = zip(self._widened[number], self.runs[number][1], strict=True)
        yield [wide.astype(out.dtype) if isinstance(wide, np.ndarray) else wide for wide, out in outputs]

    @property
    def _nudging(self) -> noise.RunNudged | None:
        """Runs the source with changed constants; None for a large one."""
        small = self.a.summary is not None and self.a.summary.size <= LARGEST
        return self._run_nudged if small else None

    def _run(self, values: Sequence[Any], kernels: str) -> Sequence[Any]:
        return self.a.run(values, replace(self.options, kernels=kernels))

    def _run_nudged(self, values: Sequence[Any], nudge: Nudge) -> Sequence[Any]:
        """The outputs of the source with changed constants."""
        with ExitStack() as stack:
            path = temporary_directory(stack) / f"nudged.{self.a.info.format}"
            write_nudged(self.a.info.path, path, nudge)
            return replace(self.a, info=replace(self.a.info, path=path)).run(values, self.options)


def _is_float(out: OutputCheck) -> bool:
    return out.max_abs is not None and out.dtype.startswith("float")


def _near(a: Any, b: Any) -> bool:
    """Whether two computations of the same differ by little, and overflow at the same places."""
    finite = np.isfinite(a)
    if (finite != np.isfinite(b)).any():
        return False
    peak = np.abs(b[finite]).max(initial=0.0)
    return bool((np.abs(a[finite] - b[finite]) <= COARSE * peak).all())


def _wide(value: Any) -> Any:
    halves = isinstance(value, np.ndarray) and value.dtype.name in ("float16", "bfloat16")
    return value.astype(np.float32) if halves else value


def _worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    return next((check for check in checks if not check.ok), max(checks, key=lambda check: check.max_abs or 0.0))
