"""The check of a converted decoder: the source and the result decode tokens greedily after the same prompts.

The source runs in ONNX Runtime with growing caches, the result in LiteRT through its signatures `prefill_N` and
`decode`. The result gets the source's tokens, so both compute the logits of the same text at each step; that it would
have chosen another token is a difference only if the logits are beyond the tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.evidence import Judgment, Verdict
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.widened import HALF, HALVES, may_round_operands, write_widened
from onnxtfl.checking.quantized import for_quantized
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import OnnxtflError, UnsupportedError
from onnxtfl.formats import files
from onnxtfl.inputs.description import describe
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model, Signature
from onnxtfl.ir.types import TensorType
from onnxtfl.llm.decoders import Decoder, decoder_of
from onnxtfl.metrics.noise import Noise
from onnxtfl.passes.quantize import TOLERANCE
from onnxtfl.passes.states.fixed_caches import MASK, POSITIONS, TOKENS
from onnxtfl.runtimes import RunError, RunOptions, Worker, Workers
from onnxtfl.tracing.parts import temporary_directory

STEPS = 32
"""Tokens decoded after each prompt."""
BUDGET = 60.0
"""Seconds after which no further prompt is decoded, unless the check is required."""
HEAVY = 64 << 20
"""Bytes of a result that runs on its default kernels only, unless the check is required."""
ROUNDINGS = 4.0
"""The largest mean error of a result that rounds activations to int8 by rows, relative to that of ONNX Runtime's
kernels, which round them by blocks. Measured: 0.7 to 1.2, on tiny models with random weights.
"""
WIDE, ROUNDED = "wide", "rounded"
"""Copies of the source: in float32, and with activations rounded to int8."""
DECODE, PREFILL = "decode", "prefill_"
"""The key of the signature for one token, and the prefix of those for more."""
WINDOW, WINDOWED = "local_window_size", "sliding_window_cache"
"""Attributes of attention: places that a token attends to, and whether the cache has these only."""
_EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
"""Kinds of `RunError` that are no evidence against the result."""
Piece = tuple[str, int, int]
"""A signature, the number of its tokens, and how many of these are in use."""


def check_pair(a: Path, b: Path, settings: Settings) -> CheckReport | None:
    """The check of the decoder `a`, an .onnx, and its conversion `b`; None for other models."""
    if files.sniff(a) != "onnx" or files.sniff(b) != "tflite" or Entries.of(files.read(b)) is None:
        return None
    try:
        return check_generation(a, decoder_of(files.read(a).main), b, settings)
    except UnsupportedError as error:
        return CheckReport("not checked", str(error))


def check_generation(
    source: Path, decoder: Decoder, result: Path, settings: Settings, workers: Workers | None = None
) -> CheckReport:
    """Compare the logits of the .tflite `result` with those of the .onnx `source`, over `STEPS` tokens (fewer with
    small caches) after prompts of several lengths. `workers`: processes that were started before, and stay open. Raises
    UnsupportedError for a result without the signatures of a decoder.
    """
    started = time.perf_counter()
    model = files.read(result)
    entries = Entries.of(model)
    if entries is None:
        raise UnsupportedError(f"the result has no signature {DECODE} with {TOKENS}, {POSITIONS} and {MASK}")
    with ExitStack() as stack:
        workers = workers or stack.enter_context(Workers(settings.runtime))
        workers.start("onnx", "tflite", result.stat().st_size)
        if workers.a is None or workers.b is None:
            return CheckReport("not checked", workers.problem)
        settings = for_quantized(settings, source, result)
        heavy = settings.patience is not None and result.stat().st_size > HEAVY
        settings = replace(settings, kernels=settings.kernels[:1]) if heavy else settings
        reference = _Reference(source, decoder, entries, workers.a, settings, stack)
        hybrid = describe(result, model).hybrid
        checked = _Generation(reference, result, workers.b, settings, hybrid, started)
        report = replace(checked.report(), runtimes=tuple(workers.runtimes))
        note = f"builtin kernels not compared: the model has more than {HEAVY >> 20} MB"
        report = replace(report, notes=(*report.notes, *([note] if heavy else [])))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)


@dataclass(frozen=True)
class Entries:
    """The signatures of a converted decoder: the sizes of prefill, the places of its caches, the vocabulary, the shapes
    of caches by name, and whether these are rounded to float16.
    """

    prefill: tuple[int, ...]
    context: int
    vocabulary: int
    shapes: Mapping[str, tuple[int, ...]]
    half: bool

    @classmethod
    def of(cls, model: Model) -> Entries | None:
        """Those of a .tflite; None if it is no decoder."""
        decode = next((s for s in model.signatures if s.key == DECODE), None)
        if decode is None:
            return None
        inputs, outputs = _values(decode, "inputs"), _values(decode, "outputs")
        if not {TOKENS, POSITIONS, MASK} <= inputs.keys() or "logits" not in outputs:
            return None
        sizes = [s.key.removeprefix(PREFILL) for s in model.signatures if s.key.startswith(PREFILL)]
        shapes = {name: _shape(value) for name, value in inputs.items() if name in outputs}
        half = any(inputs[name].dtype in HALVES for name in shapes)
        context, vocabulary = _shape(inputs[MASK])[-1], _shape(outputs["logits"])[-1]
        return cls(tuple(sorted(int(n) for n in sizes if n.isdigit())), context, vocabulary, shapes, half)

    def pieces(self, count: int) -> list[Piece]:
        """How a number of tokens is prefilled: in the largest pieces, then in the smallest that has the rest."""
        found, sizes = list[Piece](), self.prefill
        while count and sizes:
            size = next((n for n in sizes if n >= count), sizes[-1])
            found.append((f"{PREFILL}{size}", size, min(size, count)))
            count -= found[-1][2]
        return found

    def small_pieces(self, count: int) -> list[Piece]:
        """Another way: in the smallest pieces, whose rest is decoded."""
        size = self.prefill[0] if self.prefill else 1
        return [(f"{PREFILL}{size}", size, size)] * (count // size if self.prefill else 0)

    @property
    def steps(self) -> int:
        """Tokens decoded after each prompt, for which small caches have no place."""
        return min(STEPS, max(1, self.context // 2))

    def lengths(self, windows: Sequence[int]) -> list[int]:
        """Lengths of prompts, whose last token is decoded: one, around the sizes of prefill and the windows of
        attention, and the longest such that `steps` tokens follow.
        """
        steps = self.steps
        longest = max(1, self.context - steps)
        around = [n + more for n in self.prefill for more in (0, 1, 2)]
        around += [n for window in windows for n in (window - steps // 2, window + 1)]
        return sorted({n for n in (1, *around, longest) if 1 <= n <= longest})


def _values(signature: Signature, side: str) -> dict[str, Value]:
    values = getattr(signature.graph, side)
    return {name: values[index] for name, index in getattr(signature, side)}


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)


@dataclass(frozen=True)
class _Reference:
    """The source, which decodes freely, or the tokens that it is given."""

    source: Path
    decoder: Decoder
    entries: Entries
    worker: Worker
    settings: Settings
    stack: ExitStack

    def decode(
        self, prompt: Sequence[int], forced: Sequence[int] | None = None, kernels: str = "default", copy: str = ""
    ) -> tuple[list[int], Array]:
        """The tokens and logits after a prompt; `copy`: of the source in float32 (`WIDE`), or with activations rounded
        to int8 (`ROUNDED`). Raises RunError.
        """
        d = self.decoder
        names = {"tokens": d.tokens, "attention": d.attention, "positions": d.positions, "logits": d.logits}
        plan = {"prompt": prompt, "steps": self.entries.steps, "forced": forced, "names": names, "caches": self._caches}
        model = self._copies[copy] if copy else self.source
        self.worker.is_source = copy != ROUNDED
        return self.worker.generate(model, plan, RunOptions(kernels, self.settings.time_limit))

    @cached_property
    def _model(self) -> Model:
        return files.read(self.source)

    @cached_property
    def windows(self) -> list[int]:
        """The windows of attention that the model's ops have as an attribute."""
        found = {node.attributes.get(WINDOW, 0) for node in self._model.main.walk()}
        return sorted(int(n) for n in found if n > 0)

    @cached_property
    def is_rough(self) -> bool:
        """Whether it computes in float16, or rounds operands of products."""
        types = [v.type for node in self._model.main.walk() for v in node.operands if v is not None]
        halves = any(isinstance(t, TensorType) and t.dtype in HALVES for t in types)
        return halves or may_round_operands(self.source)

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        """The paths of copies of the source."""
        folder = temporary_directory(self.stack)
        found = {name: folder / f"{name}.onnx" for name in (WIDE, ROUNDED)}
        for name, path in found.items():
            write_widened(self.source, path, rounding=name == ROUNDED)
        return found

    @cached_property
    def _caches(self) -> list[tuple[str, str, list[int], int]]:
        """The names, the empty shape and the axis of each cache; one that has the places of a window only has that many
        from the start.
        """
        nodes = [node for node in self._model.main.walk() if node.attributes.get(WINDOWED)]
        windowed = {v.name: n.attributes[WINDOW] for n in nodes for v in n.operands if v is not None}
        found = []
        for cache in self.decoder.caches:
            shape = list(self.entries.shapes[cache.name])
            window = windowed.get(cache.past, 0)
            shape[cache.axis] = max(window, self.entries.context) if window else 0
            found.append((cache.past, cache.present, shape, cache.axis))
        return found


@dataclass(frozen=True)
class _Generation:
    """A check: the source, the result with its process, and when the check started."""

    reference: _Reference
    result: Path
    worker: Worker
    settings: Settings
    hybrid: bool
    started: float

    def report(self) -> CheckReport:
        """The report on all prompts for which there is time, without the settings."""
        lengths = self.reference.entries.lengths(self.reference.windows)
        outputs, done = list[OutputCheck](), list[int]()
        try:
            for length in lengths:
                if done and self._is_late:
                    break
                checks = list(self._checks(length))
                outputs.append(min(checks, key=lambda check: (check.ok, -(check.max_abs or 0.0))))
                done.append(length)
        except RunError as error:
            side, excused = ("first", True) if error.args[-1:] == (_FIRST,) else ("second", error.kind in _EXCUSES)
            reason = f"the {side} model does not run: {error.message}"
            return CheckReport("not checked" if excused else "failed", reason, outputs=tuple(outputs))
        bad = next((f"{out.name}: {out.message}" for out in outputs if not out.ok), "")
        steps, prompts = self.reference.entries.steps, ", ".join(map(str, done))
        notes = [f"{steps} tokens each, decoded greedily after prompts of {prompts} random tokens"]
        if len(done) < len(lengths):
            notes.append(f"no time for prompts of {', '.join(map(str, lengths[len(done) :]))} tokens")
        return CheckReport("failed" if bad else "passed", bad, outputs=tuple(outputs), notes=tuple(notes))

    @property
    def _is_late(self) -> bool:
        return self.settings.patience is not None and time.perf_counter() - self.started > BUDGET

    def _checks(self, length: int) -> Iterator[OutputCheck]:
        """Compare the logits after a prompt, for each set of kernels and for another split of a long prompt."""
        entries = self.reference.entries
        rng = np.random.default_rng((self.settings.seed, length))
        prompt = rng.integers(0, entries.vocabulary, length).tolist()
        try:
            tokens, logits = self.reference.decode(prompt)
        except RunError as error:
            error.args = (*error.args, _FIRST)
            raise
        splits = [entries.pieces(length - 1), entries.small_pieces(length - 1)]
        ways = [(kernels, splits[0]) for kernels in self.settings.kernels]
        ways += [(self.settings.kernels[0], splits[1])] if splits[1] != splits[0] else []
        for kernels, pieces in ways:
            plan = {"prompt": prompt, "steps": entries.steps, "forced": tokens, "pieces": pieces}
            chosen, got = self.worker.generate(self.result, plan, RunOptions(kernels, self.settings.time_limit))
            name = f"logits after {length} token{'s' * (length > 1)}" + _way(kernels, pieces, splits[0])
            yield self._judged(name, prompt, (tokens, logits), (chosen, got))

    def _judged(
        self, name: str, prompt: Sequence[int], expected: tuple[list[int], Array], got: tuple[list[int], Array]
    ) -> OutputCheck:
        """Compare logits by the tolerance, then by further criteria as far as needed."""
        tokens, logits = expected
        checks = [compare(name, logits, got[1], self._expectation)]
        others = {"float32-reference": self._in_float32, "rounding-noise": self._with_noise}
        for criterion, further in others.items():
            if not checks[-1].ok and (self.settings.accept is None or criterion in self.settings.accept):
                checks += further(checks[0], prompt, expected, got[1])
        found = next((check for check in checks if check.ok), checks[0])
        words = ", ".join(part for part in (_tokens_in_words(tokens, got[0], logits), found.note) if part)
        return replace(found, note=words)

    def _in_float32(
        self, check: OutputCheck, prompt: Sequence[int], expected: tuple[list[int], Array], got: Array
    ) -> Iterator[OutputCheck]:
        """The comparison with the source in float32, if it rounds."""
        wide = self._other(prompt, expected[0], copy=WIDE) if self.reference.is_rough else None
        if wide is not None:
            yield _noted(compare(check.name, wide, got, self._expectation), "the source in float32")

    def _with_noise(
        self, check: OutputCheck, prompt: Sequence[int], expected: tuple[list[int], Array], got: Array
    ) -> Iterator[OutputCheck]:
        """The comparison that allows the source's own noise: without the optimizations of its runtime; and of rounded
        activations, if the result rounds them too.
        """
        tokens, logits = expected
        if not self.hybrid and (other := self._other(prompt, tokens, kernels="builtin")) is not None:
            expect = replace(self._expectation, noise=Noise(np.abs(_difference(other, logits)), _size(other, logits)))
            yield _noted(compare(check.name, logits, got, expect), "the source's own noise allowed")
        exact = self._other(prompt, tokens, copy=WIDE) if self.hybrid else None
        rounded = self._other(prompt, tokens, copy=ROUNDED) if exact is not None else None
        if exact is not None and rounded is not None:
            noise, error = _size(rounded, exact), _size(got, exact)
            reason = f"mean error {error:.3g}, where ONNX Runtime has {noise:.3g} by rounding activations to int8"
            verdict = Verdict.ACCEPT if error <= ROUNDINGS * noise else Verdict.INCONCLUSIVE
            yield check.judged(Judgment("rounding-noise", verdict, reason, {"noise": noise, "error": error}))

    def _other(self, prompt: Sequence[int], tokens: Sequence[int], **how: Any) -> Array | None:
        """The logits of the source computed in another way; None if it does not run so."""
        try:
            return self.reference.decode(prompt, tokens, **how)[1]
        except (RunError, OnnxtflError):
            return None

    @cached_property
    def _expectation(self) -> Expectation:
        """The tolerance; as large as that of other outputs where kernels of the result round activations, or caches are
        rounded.
        """
        rtol, atol = self.settings.tolerances(self.reference.decoder.logits)
        rounding = HALF if self.reference.entries.half else 0.0
        rtol, atol = max(rtol, rounding), max(atol, rounding, TOLERANCE if self.hybrid else 0.0)
        steps, levels = self.settings.max_steps, self.settings.levels
        return Expectation(rtol, atol, roundings=steps, levels=levels)


def _difference(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float64) - b)


def _size(a: Array, b: Array) -> float:
    """The root mean square of the difference."""
    return float(np.sqrt(np.mean(_difference(a, b) ** 2)))


_FIRST = "first"
"""Marks errors of the source."""


def _way(kernels: str, pieces: Sequence[Piece], usual: Sequence[Piece]) -> str:
    words = [] if kernels == "default" else [f"{kernels} kernels"]
    words += [] if pieces == usual else [f"in pieces of {pieces[0][1]}" if pieces else "decoded one by one"]
    return f" ({', '.join(words)})" if words else ""


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
