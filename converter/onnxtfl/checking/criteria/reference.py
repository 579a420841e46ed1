"""The runs of the first model, and its results with other rounding; each is measured once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxtfl.checking.models.perturbed import write_perturbed
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.models.widened import may_round_operands, write_widened
from onnxtfl.metrics import noise
from onnxtfl.metrics.noise import Noise, Perturbation
from onnxtfl.runtimes import RunOptions
from onnxtfl.tracing.parts import temporary_directory

LARGEST = 1 << 30
"""Bytes of the largest model that is written with perturbed constants, to measure its noise."""


@dataclass(frozen=True)
class SourceRun:
    """The inputs and outputs of the first model in one run."""

    values: Sequence[Any]
    outputs: Sequence[Any]


@dataclass
class Reference:
    """The first model and its runs. Measurements are kept, since several attempts are compared with it."""

    side: Side
    runs: tuple[SourceRun, ...]
    options: RunOptions
    _noise: dict[tuple[int, bool], list[Noise | None]] = field(default_factory=dict)
    _widened: list[list[Any]] | None = None
    _rough: bool | None = None

    @property
    def is_rough(self) -> bool:
        """Whether the source computes in float16 or may round operands of products to int8."""
        if self._rough is None:
            is_onnx = self.side.info.format == "onnx"
            self._rough = is_onnx and (self.side.facts.halves or may_round_operands(self.side.info.path))
        return self._rough

    @property
    def widened(self) -> list[list[Any]]:
        """The outputs of each run of the source in float32."""
        if self._widened is None:
            with ExitStack() as stack:
                path = temporary_directory(stack) / "float32.onnx"
                write_widened(self.side.info.path, path)
                side = replace(self.side, info=replace(self.side.info, path=path))
                self._widened = [side.run([as_float32(v) for v in run.values], self.options) for run in self.runs]
        return self._widened

    def noise_in(self, number: int, sums: bool) -> list[Noise | None]:
        """The noise of each output in a run; ``sums``: that of long sums of large values."""
        key = number, sums
        if key not in self._noise:
            measure = noise.measure_sums if sums else noise.measure
            run = self.runs[number]
            self._noise[key] = measure(self._run, run.values, run.outputs, self._perturbing)
        return self._noise[key]

    def others(self, number: int) -> Iterator[Sequence[Any]]:
        """Yields the outputs of the source in runs that differ from run ``number`` by rounding only."""
        return noise.others(self._run, self.runs[number].values, self._perturbing, self._wide_runs(number))

    def _wide_runs(self, number: int) -> Iterator[Sequence[Any]]:
        if self.is_rough:
            outputs = zip(self.widened[number], self.runs[number].outputs, strict=True)
            yield [wide.astype(out.dtype) if isinstance(wide, np.ndarray) else wide for wide, out in outputs]

    @property
    def _perturbing(self) -> noise.RunPerturbed | None:
        """Runs the source with perturbed constants; None for a large one."""
        return self._run_perturbed if self.side.summary.size <= LARGEST else None

    def _run(self, values: Sequence[Any], kernels: str) -> Sequence[Any]:
        return self.side.run(values, replace(self.options, kernels=kernels))

    def _run_perturbed(self, values: Sequence[Any], perturbation: Perturbation) -> Sequence[Any]:
        with ExitStack() as stack:
            path = temporary_directory(stack) / f"perturbed.{self.side.info.format}"
            write_perturbed(self.side.info.path, path, perturbation)
            return replace(self.side, info=replace(self.side.info, path=path)).run(values, self.options)


def as_float32(value: Any) -> Any:
    """An input of the source for its version in float32."""
    halves = isinstance(value, np.ndarray) and value.dtype.name in ("float16", "bfloat16")
    return value.astype(np.float32) if halves else value
