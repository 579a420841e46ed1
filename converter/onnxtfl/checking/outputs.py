"""Compare an output of one model with that of another: how close it has to be, in which layout, near-ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxtfl.checking.inputs.generation import numpy_type
from onnxtfl.checking.metrics.comparison import Expectation, flips
from onnxtfl.checking.metrics.comparison import compare as compare_values
from onnxtfl.checking.metrics.noise import Noise
from onnxtfl.checking.models.description import TensorInfo
from onnxtfl.checking.models.facts import SIGMOID_ERROR
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.models.widened import HALF
from onnxtfl.checking.pairing.interface import Pair, Permutation, is_moved, permutations
from onnxtfl.checking.report import OutputCheck
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.permutations import inverse
from onnxtfl.passes.quantize import TOLERANCE
from onnxtfl.runtimes import RunOptions


@dataclass(frozen=True)
class Outputs:
    """The outputs of two models, and what is known of them."""

    a: Side
    b: Side
    settings: Settings
    options: RunOptions

    def compare(
        self, pair: Pair, expected: Any, got: Any, moved: bool, values: Sequence[Any], noise: Noise | None = None
    ) -> OutputCheck:
        """Compare one output; another layout is allowed where the shape proves it or inputs are permuted too.

        ``values``: the inputs of the first model; ``noise``: that of the first model, which allows more.
        """
        a, b = self.a.info.outputs[pair.a], self.b.info.outputs[pair.b]
        expect = replace(self._expectation(a, b), noise=noise)
        if isinstance(expected, list) or isinstance(got, list) or expected is None or got is None:
            return compare_values(a.name, expected, got, expect)
        if b.declared and b.declared == a.dtype:
            got = got.astype(numpy_type(a.dtype))
        ways = self.ways(pair, expected, got, moved)
        tried = list[OutputCheck]()
        for way in ways:
            tried.append(_compare_moved(a.name, expected, got, expect, way))
            if tried[-1].ok:
                return tried[-1]
        return self._excuse(a, expected, got, tried[0], values)

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

    def _excuse(
        self, a: TensorInfo, expected: Any, got: Any, result: OutputCheck, values: Sequence[Any]
    ) -> OutputCheck:
        """Accept positions chosen differently where the elements that they point to are nearly equal."""
        selection = self.a.facts.selections.get(a.name)
        if selection is None or expected.dtype != got.dtype or expected.dtype.kind not in "iu":
            return result
        from onnxtfl.checking.models.parts import tensor_inside

        assert self.a.worker is not None
        try:
            given = self.a.hidden.given(values)
            data = tensor_inside(self.a.info.path, selection.data, self.a.worker, given, self.options)
        except OnnxtflError:
            return result
        count = flips(data, selection, expected, got, self.settings.rtol, self.settings.atol)
        note = f"{count} positions differ where elements are nearly equal"
        return result if count is None else replace(result, ok=True, message="", note=note)

    @property
    def atol(self) -> float:
        """The absolute tolerance, at least that of kernels that quantize activations."""
        return max(self.settings.atol, TOLERANCE if self.a.info.hybrid or self.b.info.hybrid else 0.0)

    @property
    def _half(self) -> float:
        """The tolerance of a .tflite that computes in float16, each op of which rounds; 0.0 for others."""
        sides = [side for side in (self.a, self.b) if side.info.format == "tflite"]
        return HALF if any(side.facts.float16 for side in sides) else 0.0

    def _expectation(self, a: TensorInfo, b: TensorInfo) -> Expectation:
        step = self.a.facts.steps.get(a.name) or self.b.facts.steps.get(b.name)
        drawn = a.name in self.a.facts.drawn or b.name in self.b.facts.drawn
        tolerances = (max(self.settings.rtol, self._half), max(self.atol, self._half))
        quantizations = (a.quantization, b.quantization)
        least = SIGMOID_ERROR if a.name in self.a.facts.sigmoids or b.name in self.b.facts.sigmoids else 0.0
        return Expectation(
            *tolerances, step, drawn, *quantizations, self.settings.max_steps, self.settings.levels, least
        )


def _compare_moved(name: str, expected: Any, got: Any, expect: Expectation, way: Permutation) -> OutputCheck:
    """Compare an output with the permuted one of the second model."""
    if not is_moved(way):
        return compare_values(name, expected, got, expect)
    result = compare_values(name, expected, got.transpose(inverse(way)), expect)
    return replace(result, note=", ".join(part for part in (result.note, f"axes {list(way)}") if part))
