"""Inputs like those of a model's calibration, with the same range, mean and standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import make_input
from onnxtfl.inputs.ranges import Range
from onnxtfl.ir.data import Array

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    """The lowest and highest value, the mean and the standard deviation of an input over several samples."""

    low: float
    high: float
    mean: float
    std: float

    @property
    def is_valid(self) -> bool:
        """Whether it is the spread of possible samples."""
        finite = all(map(math.isfinite, (self.low, self.high, self.mean, self.std)))
        return finite and self.low <= self.mean <= self.high and self.std >= 0

    def make(
        self, info: TensorInfo, shape: tuple[int, ...], known: Range | None, seed: Sequence[int]
    ) -> tuple[Array, str]:
        """Return values like the samples, and a description; arguments as for `make_input`."""
        choice = f"range of the calibration data, [{self.low:g}, {self.high:g}]"
        if info.dtype.startswith(("int", "uint", "bool")):
            within = Range("range", self.low, math.floor(self.high) + 1)
            return make_input(info, shape, within, seed)[0], choice
        made, how = make_input(info, shape, known, seed)
        if made.dtype.kind != "f" or (known is not None and known.kind == "mask"):
            return made, how
        values = made.astype(np.float64)
        deviation = values.std() if values.size else 0.0
        values = (values - values.mean()) / deviation if deviation else np.zeros(shape)
        return np.clip(self.mean + self.std * values, self.low, self.high).astype(made.dtype), choice


class Spreads:
    """The spread of each input over the observed samples, without elements that are not finite."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, float, float, float, float]] = {}

    def observed(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples."""
        for sample in samples:
            for name, array in sample.items():
                values = np.asarray(array).astype(np.float64)
                values = values[np.isfinite(values)]
                if values.size:
                    self._add(name, values)
            yield sample

    def _add(self, name: str, x: Array) -> None:
        count, total, squares, low, high = self._found.get(name, (0, 0.0, 0.0, math.inf, -math.inf))
        sums = total + float(x.sum()), squares + float(np.square(x).sum())
        self._found[name] = (count + x.size, *sums, min(low, float(x.min())), max(high, float(x.max())))

    def by_input(self) -> dict[str, Spread]:
        """The spreads by input name."""
        found = {}
        for name, (count, total, squares, low, high) in self._found.items():
            mean = min(max(total / count, low), high)
            found[name] = Spread(low, high, mean, math.sqrt(max(0.0, squares / count - mean * mean)))
        return found
