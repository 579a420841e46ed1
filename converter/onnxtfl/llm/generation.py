"""The check of a converted decoder: the source and the result decode tokens greedily after the same prompts.

The source runs in ONNX Runtime with growing caches, the result in LiteRT through its signatures `prefill_N` and
`decode`. The result gets the source's tokens, so both compute the logits of the same text at each step; that it would
have chosen another token is a difference only if the logits are beyond the tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.evidence import Judgment, Verdict
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.widened import HALF
from onnxtfl.checking.quantized import for_quantized
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import OnnxtflError, UnsupportedError
from onnxtfl.formats import files
from onnxtfl.inputs.description import describe
from onnxtfl.ir.data import Array
from onnxtfl.ir.model import Model
from onnxtfl.llm import real_products
from onnxtfl.llm.encoder_decoders import ENCODE, PREFILL, EncoderDecoder
from onnxtfl.llm.entries import DECODE, Entries
from onnxtfl.llm.fixed_decoders import FixedDecoder
from onnxtfl.llm.kinds import kind_of
from onnxtfl.llm.reference import ROUNDED, WIDE, Encoded, Fixed, Growing, Plan, Source
from onnxtfl.metrics.noise import Noise
from onnxtfl.passes.quantize import TOLERANCE
from onnxtfl.passes.states.fixed_caches import MASK, POSITIONS, TOKENS
from onnxtfl.runtimes import RunError, RunOptions, Worker, Workers

BUDGET = 60.0
"""Seconds after which no further prompt is decoded, unless the check is required."""
HEAVY = 64 << 20
"""Bytes of a result that runs on its default kernels only, unless the check is required."""
FACTOR, ROUNDED_ACTIVATIONS, BIAS = 2.0, 0.1, 0.01
"""Where a result rounds activations to int8: how much farther from the source in float32 its logits may be than those
of ONNX Runtime's kernels (measured: 0.7 to 1.2 times as far), the distance that is allowed in any case (0.03 to 0.07 in
decoders of two layers), and the mean error, both relative to the size of the logits.
"""
_READS_PADDING = "the source with the same padded inputs: its encoder reads what its mask hides"
_EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
"""Kinds of `RunError` that are no evidence against the result."""


def check_pair(a: Path, b: Path, settings: Settings) -> CheckReport | None:
    """The check of the decoder `a`, an .onnx, and its conversion `b`; None for other models."""
    if files.sniff(a) != "onnx" or files.sniff(b) != "tflite" or Entries.of(files.read(b)) is None:
        return None
    try:
        return check_generation(a, b, settings)
    except UnsupportedError as error:
        return CheckReport("not checked", str(error))


def check_generation(source: Path, result: Path, settings: Settings, workers: Workers | None = None) -> CheckReport:
    """Compare the logits of the .tflite `result` with those of `source`, an .onnx decoder or one of the files of a
    model of several, over `STEPS` tokens (fewer with small caches) after prompts of several lengths.

    ``workers``: processes that were started before, and stay open. Raises UnsupportedError for a source that is no
    decoder, and for a result without the signatures of one.
    """
    started = time.perf_counter()
    model = files.read(result)
    entries = Entries.of(model)
    if entries is None:
        raise UnsupportedError(f"the result has no signature {DECODE} with {TOKENS}, {POSITIONS} and {MASK}")
    kind = kind_of(source)
    with ExitStack() as stack:
        workers = workers or stack.enter_context(Workers(settings.runtime))
        workers.start("onnx", "tflite", result.stat().st_size)
        if workers.a is None or workers.b is None:
            return CheckReport("not checked", workers.problem)
        settings = for_quantized(settings, source, result)
        heavy = settings.patience is not None and result.stat().st_size > HEAVY
        settings = replace(settings, kernels=settings.kernels[:1]) if heavy else settings
        common = (source, entries, workers.a, settings, stack)
        reference: Source
        if isinstance(kind, FixedDecoder):
            reference = Fixed(*common, kind)
        elif isinstance(kind, EncoderDecoder):
            reference = Encoded(*common, kind, _first_tokens(model), _read_sizes(model))
        else:
            reference = Growing(*common, kind)
        hybrid = describe(result, model).hybrid
        checked = _Generation(reference, result, workers.b, settings, hybrid, started)
        report = replace(checked.report(), runtimes=tuple(workers.runtimes))
        note = f"builtin kernels not compared: the model has more than {HEAVY >> 20} MB"
        report = replace(report, notes=(*report.notes, *([note] if heavy else [])))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)


@dataclass(frozen=True)
class _Generation:
    """A check: the source, the result with its process, and when the check started."""

    reference: Source
    result: Path
    worker: Worker
    settings: Settings
    hybrid: bool
    started: float

    def report(self) -> CheckReport:
        """The report on all prompts for which there is time, without the settings."""
        lengths, subject = self.reference.lengths, self.reference.subject
        outputs, done, notes = list[OutputCheck](), list[int](), list[str]()
        for length in lengths:
            if done and self._is_late:
                break
            try:
                checks = list(self._checks(length))
            except RunError as error:
                is_source = error.args[-1:] == (_FIRST,)
                reason = f"the {'first' if is_source else 'second'} model does not run: {error.message}"
                if is_source and error.kind not in _EXCUSES and length != lengths[-1]:
                    notes.append(f"after {length} {subject}{'s' * (length > 1)}, {reason}")
                    continue
                excused = is_source or error.kind in _EXCUSES
                return CheckReport("not checked" if excused else "failed", reason, outputs=tuple(outputs))
            outputs.append(min(checks, key=lambda check: (check.ok, -(check.max_abs or 0.0))))
            done.append(length)
        bad = next((f"{out.name}: {out.message}" for out in outputs if not out.ok), "")
        steps, prompts = self.reference.entries.steps, ", ".join(map(str, done))
        notes += [f"{steps} tokens each, decoded greedily after prompts of {prompts} random {subject}s"]
        if late := [length for length in lengths if length > done[-1]]:
            notes.append(f"no time for prompts of {', '.join(map(str, late))} {subject}s")
        return CheckReport("failed" if bad else "passed", bad, outputs=tuple(outputs), notes=tuple(notes))

    @property
    def _is_late(self) -> bool:
        return self.settings.patience is not None and time.perf_counter() - self.started > BUDGET

    def _checks(self, length: int) -> Iterator[OutputCheck]:
        """Compare the logits after a prompt, for each set of kernels and for another split of a long prompt."""
        plans = self.reference.plans(length)
        usual = plans[0][1]
        try:
            tokens, logits = self.reference.decode(usual)
        except RunError as error:
            error.args = (*error.args, _FIRST)
            raise
        ways = [(kernels, *plans[0]) for kernels in self.settings.kernels]
        ways += [(self.settings.kernels[0], *plan) for plan in plans[1:]]
        for kernels, way, plan in ways:
            options = RunOptions(kernels, self.settings.time_limit)
            chosen, got = self.worker.generate(self.result, plan | {"forced": tokens}, options)
            words = ", ".join(filter(None, ["" if kernels == "default" else f"{kernels} kernels", way]))
            after = f"logits after {length} {self.reference.subject}{'s' * (length > 1)}"
            name = after + (f" ({words})" if words else "")
            yield self._with_padding(
                self._judged(name, usual, (tokens, logits), (chosen, got)), usual, tokens, (chosen, got)
            )

    def _with_padding(
        self, check: OutputCheck, plan: Plan, tokens: Sequence[int], got: tuple[list[int], Array]
    ) -> OutputCheck:
        """The check; where it fails, that of the source with the padded inputs of the result, if there are such.

        An encoder's padding is to have no effect, but some read it despite their mask (convolutions before attention).
        """
        padded = None if check.ok else self.reference.padded(plan)
        if padded is None:
            return check
        again = self._judged(check.name, padded, self.reference.decode(padded, tokens), got)
        return _noted(again, _READS_PADDING) if again.ok else check

    def _judged(
        self, name: str, plan: Plan, expected: tuple[list[int], Array], got: tuple[list[int], Array]
    ) -> OutputCheck:
        """Compare logits by the tolerance, then by further criteria as far as needed."""
        tokens, logits = expected
        checks = [compare(name, logits, got[1], self._expectation)]
        others = {"float32-reference": self._in_float32, "rounding-noise": self._with_noise}
        for criterion, further in others.items():
            if not checks[-1].ok and (self.settings.accept is None or criterion in self.settings.accept):
                checks += further(checks[0], plan, expected, got[1])
        found = next((check for check in checks if check.ok), checks[0])
        words = ", ".join(part for part in (_tokens_in_words(tokens, got[0], logits), found.note) if part)
        return replace(found, note=words)

    def _in_float32(
        self, check: OutputCheck, plan: Plan, expected: tuple[list[int], Array], got: Array
    ) -> Iterator[OutputCheck]:
        """The comparison with the source in float32, if it rounds."""
        wide = self._other(plan, expected[0], copy=WIDE) if self.reference.is_rough else None
        if wide is not None:
            yield _noted(compare(check.name, wide, got, self._expectation), "the source in float32")

    def _with_noise(
        self, check: OutputCheck, plan: Plan, expected: tuple[list[int], Array], got: Array
    ) -> Iterator[OutputCheck]:
        """The comparison that allows the source's own noise: without the optimizations of its runtime; and of rounded
        activations, if the result rounds them too.
        """
        tokens, logits = expected
        if not self.hybrid and (other := self._other(plan, tokens, kernels="builtin")) is not None:
            expect = replace(self._expectation, noise=Noise(np.abs(error := _difference(other, logits)), _size(error)))
            yield _noted(compare(check.name, logits, got, expect), "the source's own noise allowed")
        if self.hybrid:
            found = self._by_distance(check, plan, expected, got)
            yield found
            if not found.ok:
                yield from self._by_real_products(check, plan, expected, got)

    def _by_real_products(
        self, check: OutputCheck, plan: Plan, expected: tuple[list[int], Array], got: Array
    ) -> Iterator[OutputCheck]:
        """The judgment by a copy of the result in which no kernel rounds, if it can be made."""
        copy = self.reference.with_real_products
        is_late = self.settings.patience is not None and self.result.stat().st_size > HEAVY
        accepted = self.settings.accept is None or real_products.CRITERION in self.settings.accept
        if copy is None or is_late or not accepted:
            return
        exact = self._other(plan, expected[0], copy=WIDE)
        exact = expected[1] if exact is None else exact
        options = RunOptions(self.settings.kernels[0], self.settings.time_limit)
        try:
            _, logits = self.worker.generate(copy.path, plan | {"forced": expected[0]}, options)
        except (RunError, OnnxtflError):
            return
        yield check.judged(real_products.judged(exact, logits, got, ROUNDED_ACTIVATIONS))

    def _by_distance(
        self, check: OutputCheck, plan: Plan, expected: tuple[list[int], Array], got: Array
    ) -> OutputCheck:
        """Accept logits that are about as far from those in float32 as ONNX Runtime's where it rounds activations too,
        and not on one side of them.
        """
        exact = self._other(plan, expected[0], copy=WIDE)
        exact = expected[1] if exact is None else exact
        rounded = self._other(plan, expected[0], copy=ROUNDED)
        error, own = _distance(exact, got), 0.0 if rounded is None else _distance(exact, rounded)
        bias = abs(float(np.mean(_difference(got, exact)))) / (_size(exact) or 1.0)
        reason = (
            f"distance {error:.3f} of their size from the source in float32, {own:.3f} of the source rounded to int8"
        )
        near = error <= max(FACTOR * own, ROUNDED_ACTIVATIONS) and bias <= BIAS
        evidence = {"error": error, "noise": own, "bias": bias}
        return check.judged(
            Judgment("rounding-noise", Verdict.ACCEPT if near else Verdict.INCONCLUSIVE, reason, evidence)
        )

    def _other(self, plan: Plan, tokens: Sequence[int], **how: Any) -> Array | None:
        """The logits of the source computed in another way; None if it does not run so."""
        try:
            return self.reference.decode(plan, tokens, **how)[1]
        except (RunError, OnnxtflError):
            return None

    @cached_property
    def _expectation(self) -> Expectation:
        """The tolerance; as large as that of other outputs where kernels of the result round activations, or caches are
        rounded.
        """
        rtol, atol = self.settings.tolerances(self.reference.logits)
        rounding = HALF if self.reference.entries.half else 0.0
        rtol, atol = max(rtol, rounding), max(atol, rounding, TOLERANCE if self.hybrid else 0.0)
        steps, levels = self.settings.max_steps, self.settings.levels
        return Expectation(rtol, atol, roundings=steps, levels=levels)


def _difference(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float64) - b)


def _size(a: Array) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(a, dtype=np.float64))))


def _distance(a: Array, b: Array) -> float:
    """The size of the difference over that of `a`."""
    return _size(_difference(a, b)) / (_size(a) or 1.0)


_FIRST = "first"
"""Marks errors of the source."""


def _first_tokens(model: Model) -> int:
    """The number of tokens that the signature prefill of an encoder-decoder reads."""
    prefill = next(s for s in model.signatures if s.key == PREFILL)
    return int(prefill.graph.inputs[dict(prefill.inputs)[TOKENS]].shape[-1])


def _read_sizes(model: Model) -> dict[str, tuple[int, ...]]:
    """The sizes of the inputs of the encoder, by name."""
    encode = next(s for s in model.signatures if s.key == ENCODE)
    return {name: tuple(encode.graph.inputs[index].shape) for name, index in encode.inputs}


def _noted(check: OutputCheck, note: str) -> OutputCheck:
    return replace(check, note=", ".join(part for part in (check.note, note) if part))


def _tokens_in_words(tokens: Sequence[int], chosen: Sequence[int], logits: Array) -> str:
    """How many of the result's tokens are those of the source, and the first other one."""
    differing = [k for k, (a, b) in enumerate(zip(tokens, chosen, strict=True)) if a != b]
    if not differing:
        return f"the same {len(tokens)} tokens"
    k = differing[0]
    gap = float(logits[k, tokens[k]] - logits[k, chosen[k]])
    first = f"token {k + 1} is {chosen[k]} instead of {tokens[k]}, whose logit is larger by {gap:.3g}"
    return f"{len(differing)} of {len(tokens)} tokens differ: {first}"
