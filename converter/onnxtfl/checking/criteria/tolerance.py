"""Tolerance: the allowed difference of outputs, absolute, relative or in quantization steps, and their layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.metrics.comparison import compare as compare_values
from onnxtfl.checking.models.facts import SIGMOID_ERROR
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.models.widened import HALF
from onnxtfl.checking.pairing.interface import Pair, Permutation, in_first_order, is_moved, permutations
from onnxtfl.checking.report import OutputCheck
from onnxtfl.checking.settings import Settings
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import numpy_type
from onnxtfl.metrics.noise import Noise
from onnxtfl.metrics.quality import measured
from onnxtfl.passes.quantize import TOLERANCE


@dataclass(frozen=True)
class Tolerance:
    """Compares the outputs of two models, with facts about them."""

    a: Side
    b: Side
    settings: Settings

    def compare(
        self, pair: Pair, expected: Any, got: Any, moved: bool, noise: Noise | None = None, drawn: bool | None = None
    ) -> OutputCheck:
        """Compare one output; another layout is allowed if the shape proves it, or inputs are permuted too.

        ``noise``: that of the first model, which allows more. ``drawn``: whether the values are random; None:
        determined from the graphs.
        """
        a, b = self.a.info.outputs[pair.a], self.b.info.outputs[pair.b]
        expect = replace(self._expectation(a, b), noise=noise)
        expect = expect if drawn is None else replace(expect, drawn=drawn)
        if isinstance(expected, list) or isinstance(got, list) or expected is None or got is None:
            return compare_values(a.name, expected, got, expect)
        if b.declared and b.declared == a.dtype:
            got = got.astype(numpy_type(a.dtype))
        tried = list[OutputCheck]()
        for way in self.ways(pair, expected, got, moved):
            tried.append(self._compare_moved(a.name, expected, got, expect, way))
            if tried[-1].ok:
                return tried[-1]
        return tried[0]

    def _compare_moved(self, name: str, expected: Any, got: Any, expect: Expectation, way: Permutation) -> OutputCheck:
        """Compare an output with the permuted one of the second model."""
        moved = in_first_order(got, way)
        result = compare_values(name, expected, moved, expect)
        if self.settings.metrics:
            result = replace(result, metrics=measured(expected, moved, self.settings.metrics))
        if not is_moved(way):
            return result
        return replace(result, note=", ".join(part for part in (result.note, f"axes {list(way)}") if part))

    def ways(self, pair: Pair, expected: Any, got: Any, moved: bool) -> list[Permutation]:
        """The layouts, the likeliest first, in which an output may be that of the first model.

        ``moved``: whether inputs have their axes in another order.
        """
        layout = self.settings.layout
        same = tuple(range(expected.ndim))
        ways = permutations(tuple(expected.shape), tuple(got.shape), layout) or [same]
        if not moved and layout == "auto":
            ways = ways[:1]
        if pair.recorded and pair.permutations[0] in ways:
            ways = list(pair.permutations)
        return ways

    @property
    def atol(self) -> float:
        """The absolute tolerance, at least that of kernels that quantize activations."""
        return max(self.settings.atol, TOLERANCE if self.a.info.hybrid or self.b.info.hybrid else 0.0)

    @property
    def expect(self) -> Expectation:
        """How close tensors inside of the models have to be."""
        return Expectation(self.settings.rtol, self.atol)

    @property
    def _half(self) -> float:
        """Return the tolerance for a .tflite that computes in float16 and rounds in each op; 0.0 for other files."""
        sides = [side for side in (self.a, self.b) if side.info.format == "tflite"]
        return HALF if any(side.facts.float16 for side in sides) else 0.0

    def _expectation(self, a: TensorInfo, b: TensorInfo) -> Expectation:
        step = self.a.facts.steps.get(a.name) or self.b.facts.steps.get(b.name)
        rtol, atol = self.settings.tolerances(a.name)
        atol = max(atol, self.atol if self.a.info.hybrid or self.b.info.hybrid else 0.0)
        sigmoid = a.name in self.a.facts.sigmoids or b.name in self.b.facts.sigmoids
        return Expectation(
            max(rtol, self._half),
            max(atol, self._half),
            step,
            a.name in self.a.facts.drawn or b.name in self.b.facts.drawn,
            a.quantization,
            b.quantization,
            self.settings.max_steps,
            self.settings.levels,
            SIGMOID_ERROR if sigmoid else 0.0,
            absolute=self.settings.is_absolute(a.name),
            in_steps=self.settings.accept is None or "quantization-steps" in self.settings.accept,
            unbiased=self.settings.max_steps <= 1,  # else the user allows as many steps in one direction
            per_slice=not (self._half or self.a.info.hybrid or self.b.info.hybrid),
        )
