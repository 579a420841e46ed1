"""The two models of a check: how their inputs and outputs are paired, and how both run and are compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from onnxtfl.checking.criteria.tolerance import Tolerance
from onnxtfl.checking.models.copies import use_copy_with_weights, use_exact_copy, use_sorted_copy
from onnxtfl.checking.models.fallbacks import in_words
from onnxtfl.checking.models.side import Begun, Side, judged_refusal
from onnxtfl.checking.pairing.feeding import as_type, dtype_kept
from onnxtfl.checking.pairing.interface import Pair, Permutation, is_moved, match
from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck, Status, worst
from onnxtfl.checking.settings import Settings
from onnxtfl.formats import files
from onnxtfl.inputs.description import with_fixed_sizes
from onnxtfl.ir.data import PathLike
from onnxtfl.runtimes import RunError, RunOptions, Workers, fit_together, is_fixed

CHEAP = 0.2
SMALL = 16 << 20
"""Models without state run a second time, on other inputs, if the first run took at most `CHEAP` seconds and neither
model has more than `SMALL` bytes: time alone is unreliable while other processes compete for the processor.
"""
Chosen = list[Permutation]
"""The axis orders in which the second model gets its inputs, in the order of the first model's."""


@dataclass(frozen=True)
class ModelPair:
    """Both models. ``inputs``, ``outputs``: their pairs; () until they are `matched`. ``together``: whether there is
    memory to load both at once. ``keep``: whether both stay loaded for further sets of inputs.
    """

    a: Side
    b: Side
    settings: Settings
    workers: Workers
    together: bool
    keep: bool = False
    inputs: Sequence[Pair] = ()
    outputs: Sequence[Pair] = ()

    @classmethod
    def read(cls, a: PathLike, b: PathLike, settings: Settings, workers: Workers, stack: ExitStack) -> ModelPair:
        """Read both graphs while the runtimes start. Raises `InvalidModelError` and `UnsupportedError`."""
        together = fit_together((a, b))
        workers.start(files.sniff(a), files.sniff(b), os.path.getsize(b))
        options = RunOptions(settings.kernels[0], settings.time_limit)
        if together:
            workers.load_a(a, options)
            workers.load_b(b, options)
        found = cls(Side.read(a, workers.a), Side.read(b, workers.b), settings, workers, together)
        for side in (found.a, found.b):
            use_sorted_copy(side, stack)
            use_exact_copy(side, stack)
            use_copy_with_weights(side, stack)
            if is_fixed(settings.runtime) and side.info.format == "tflite":
                side.info = with_fixed_sizes(side.info)
        found.a.flatten(found.b.info)
        found.b.flatten(found.a.info)
        names = [{spec.name for spec in side.info.inputs} for side in (found.a, found.b)]
        found.a.hide(names[1])
        found.b.hide(names[0])
        return found

    def matched(self, keep: bool) -> ModelPair:
        """The models with their inputs and outputs paired. Raises `MismatchError`.

        Where the shapes prove that an input was permuted, permuted ones come first for all others.
        """
        (a, b), settings = (self.a.info, self.b.info), self.settings
        inputs = match(a.inputs, b.inputs, "input", settings.layout, settings.tensors)
        if settings.layout == "auto" and any(pair.moved for pair in inputs):
            inputs = match(a.inputs, b.inputs, "input", "channels-last")
        outputs = match(a.outputs, b.outputs, "output", settings.layout, settings.tensors)
        return replace(self, inputs=inputs, outputs=outputs, keep=keep)

    def with_orders(self, chosen: Chosen) -> ModelPair:
        """The models with the known axis orders of their inputs."""
        inputs = [replace(pair, permutations=(way,)) for pair, way in zip(self.inputs, chosen, strict=True)]
        return replace(self, inputs=inputs)

    @property
    def attempts(self) -> range:
        """Return the indices of the layouts that are compatible with the shapes."""
        return range(max((len(pair.permutations) for pair in self.inputs), default=1))

    @cached_property
    def tolerance(self) -> Tolerance:
        """How outputs are compared."""
        return Tolerance(self.a, self.b, self.settings)

    @property
    def options(self) -> RunOptions:
        """How models run on the first of the kernel sets."""
        return RunOptions(self.settings.kernels[0], self.settings.time_limit)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernel sets on which the second model runs."""
        several = self.b.info.format == "tflite" and not is_fixed(self.settings.runtime)
        return self.settings.kernels if several else self.settings.kernels[:1]

    @property
    def keeps_state(self) -> bool:
        """Whether runs depend on those before."""
        return self.a.keeps_state or self.b.keeps_state

    @property
    def runs(self) -> int:
        """The number of consecutive runs, each on other inputs: with state, that of the settings; else 2 if that is
        cheap.
        """
        if self.keeps_state:
            return self.settings.runs
        return min(self.settings.runs, 2) if self.size <= SMALL else 1

    @property
    def size(self) -> int:
        """The bytes of the larger model."""
        return max(self.a.summary.size, self.b.summary.size)

    @property
    def spare(self) -> float:
        """If the first run takes more than these seconds, the others are skipped; 0: never."""
        return 0.0 if self.keeps_state else CHEAP

    def chosen(self, attempt: int) -> list[Permutation]:
        """The axis orders of an attempt."""
        return [pair.permutations[min(attempt, len(pair.permutations) - 1)] for pair in self.inputs]

    def fed_to_b(self, chosen: Chosen, values: Sequence[Any]) -> list[Any]:
        """The inputs of the second model for those of the first. Raises `MismatchError`."""
        result: list[Any] = [None] * len(self.inputs)
        for pair, permutation, value in zip(self.inputs, chosen, values, strict=True):
            moved = value.transpose(permutation) if is_moved(permutation) else value
            result[pair.b] = as_type(moved, self.a.info.inputs[pair.a], self.b.info.inputs[pair.b])
        return result

    def used(self, chosen: Chosen, values: Sequence[Any], choices: Sequence[str]) -> tuple[InputUsed, ...]:
        """How inputs are fed (``choices``: how each was chosen), and whether the second model has their types."""
        return tuple(map(self._used, self.inputs, chosen, values, choices))

    def _used(self, pair: Pair, permutation: Permutation, value: Any, choice: str) -> InputUsed:
        a, b = self.a.info.inputs[pair.a], self.b.info.inputs[pair.b]
        notes = [f"axes {list(permutation)}"] if is_moved(permutation) else []
        notes += [f"{a.dtype} became {b.dtype}"] if a.dtype != b.dtype else []
        kept, moved = dtype_kept(a, b), is_moved(permutation)
        return InputUsed(a.name, a.dtype, tuple(value.shape), choice, ", ".join(notes), kept, moved)

    def begin_b(self, kernels: str, fed: Sequence[Sequence[Any]]) -> Begun:
        """Begin to run the second model on the inputs of each run. Raises `RunError`."""
        main, keep = kernels == self.kernels[0], self.keep and not self.b.keeps_state
        options = replace(self.options, kernels=kernels, spare=self.spare, keep=keep)
        return self.b.begin(fed, options, None if main else self.workers.other)

    def compare(
        self, wanted: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]], used: tuple[InputUsed, ...]
    ) -> CheckReport:
        """Compare the outputs of each run by the tolerance."""
        moved = any(spec.moved for spec in used)
        runs = list(zip(wanted, got, strict=False))  # one of the two may have left out the second run
        outputs = tuple(
            worst([self.tolerance.compare(pair, x[pair.a], y[pair.b], moved) for x, y in runs]) for pair in self.outputs
        )
        wrong = [f"input {spec.name!r}: {spec.note}" for spec in used if not spec.ok]
        wrong += [f"output {out.name!r}: {out.problem}" for out in outputs if not out.ok]
        report = self.result("failed" if wrong else "passed", wrong[0] if wrong else "", used, outputs)
        return replace(report, runs=len(runs))

    def result(
        self, status: Status, reason: str, used: tuple[InputUsed, ...] = (), outputs: tuple[OutputCheck, ...] = ()
    ) -> CheckReport:
        """A report with how both models ran."""
        notes = [in_words(which, side) for which, side in (("first", self.a), ("second", self.b)) if side.way]
        return CheckReport(status, reason, used, outputs, runtimes=tuple(self.workers.runtimes), notes=tuple(notes))

    def does_not_run(self, error: RunError, used: tuple[InputUsed, ...]) -> CheckReport:
        """The report if the second model does not run: no failure if the first one refuses these values too."""
        return self.result(*judged_refusal(self.a, self.b, error), used)
