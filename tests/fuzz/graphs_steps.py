"""Judges a graph that differs op by op: each op, on the operands that the result of the conversion computed.

Where every op agrees, only rounding, which a later op made larger (a Ceil, an index of the largest element, integers
at a tie), lets the outputs differ. Where an op agrees only with its own runtime's float32 kernel, its float16 kernel
is coarse. An op that is converted wrong differs on its own operands as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from tests.fuzz.graphs_judge import Arrays, Noisy, Run, difference, noisy_inputs, with_noise
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_text import reads
from tests.fuzz.soaking import Found
from tests.fuzz.tflite_drawing import Op, TfliteDrawing
from tests.harness.compare import largest_error, wide
from tests.harness.litert import Array, narrow


@dataclass(frozen=True)
class Step:
    """An op of the source. ``wide``: it runs the op in float32 instead of float16."""

    operands: Sequence[str]
    results: Sequence[str]
    run: Run
    wide: Run | None = None


@dataclass(frozen=True)
class Steps:
    """A source op by op. ``values``: all values of the source. ``quantized``: one step of those that are
    quantized or were: they may differ by it."""

    steps: Callable[[Arrays], Iterable[Step]]
    values: Run
    quantized: Mapping[str, float] = field(default_factory=dict)

    def judged(self, found: Found, result: Run, every: Run, runs: Iterable[tuple[Arrays, Arrays]]) -> Found:
        """A difference; "doubtful" instead where all ops agree, "source" where a float16 kernel of it is coarse.

        ``result``: the outputs of the conversion. ``every``: all values, of the source with all values as outputs.
        """
        try:
            kinds = {self._of_run(result(fed), every(fed), fed) for fed, _ in runs}
        except Exception:  # what a runtime refuses with these outputs
            return found
        return found if "" in kinds else replace(found, kind=max(kinds))

    def _of_run(self, outputs: Arrays, every: Arrays, fed: Arrays) -> str:
        known = self.values(fed)
        shown = {**known, **every}
        if not all(n in shown and largest_error(narrow(shown[n]), a) <= 1 for n, a in outputs.items()):
            return ""  # with all values as outputs it is another conversion
        values = {**known, **{n: _as_in_source(a, known[n]) for n, a in every.items() if n in known}, **fed}
        return _of_steps(self.steps(values), values, self.quantized)


def _as_in_source(array: Array, source: Array) -> Array:
    """The target's float32 of a float64; an array of a scalar, which ONNX Runtime would refuse."""
    return np.asarray(array, source.dtype if source.dtype == np.float64 else None)


def _of_steps(steps: Iterable[Step], values: Arrays, quantized: Mapping[str, float]) -> str:
    kind = "doubtful"
    for step in steps:
        if not _agrees(step, step.run, values, quantized):
            if step.wide is None or not _is_as_near(step, step.wide, values):
                return ""
            kind = "source"
    return kind


def _is_as_near(step: Step, in_float32: Run, values: Arrays) -> bool:
    """Whether no element is farther from the result in float32 than the source's own, beyond rounding to float16."""
    fed = {n: values[n] for n in step.operands if n}
    exact, own = in_float32(fed), step.run(fed)
    if not exact or any(values[n].shape != a.shape for n, a in exact.items()):
        return False
    errors = [(_distance(values[n], a), _distance(own[n], a), wide(a)) for n, a in exact.items()]
    return all(bool((error <= coarse + 2e-3 * np.abs(a)).all()) for error, coarse, a in errors)


def _distance(one: Array, other: Array) -> Array:
    return np.abs(wide(one) - wide(other))


def _agrees(step: Step, run: Run, values: Arrays, quantized: Mapping[str, float]) -> bool:
    fed = {n: values[n] for n in step.operands if n}
    expected = run(fed)
    actual = {n: narrow(values[n]) for n in step.results if n}
    return expected.keys() == actual.keys() and difference(actual, expected, fed, noisy_inputs(run), quantized) is None


def noisy_steps(steps: Callable[[Arrays], Iterable[Step]], values: Run) -> Noisy:
    """Noise in the inputs and in all that a source computes op by op; in the inputs only where it does not run so."""

    def noisy(inputs: Arrays, noise: float, seed: int) -> Arrays:
        random = np.random.default_rng(seed)
        found = {**values(inputs), **{n: with_noise(random, a, noise) for n, a in inputs.items()}}
        for step in steps(found):
            results = step.run({n: found[n] for n in step.operands if n})
            if results.keys() != {n for n in step.results if n}:
                return noisy_inputs(values)(inputs, noise, seed)
            found |= {n: with_noise(random, a, noise, offset=0.1) for n, a in results.items()}
        return found

    return noisy


def onnx_steps(g: Drawing) -> Callable[[Arrays], Iterator[Step]]:
    """The nodes of an ONNX graph, each run in ONNX Runtime."""

    def steps(values: Arrays) -> Iterator[Step]:
        for node in g.nodes:
            yield Step(reads(node), list(node.output), _of_node(g, node, values))

    return steps


def _of_node(g: Drawing, node: onnx.NodeProto, values: Arrays) -> Run:
    def run(fed: Arrays) -> Arrays:
        other = copy(g)
        other.arrays = {**values, **fed}
        return other.results(node)

    return run


def tflite_steps(g: TfliteDrawing) -> Callable[[Arrays], Iterator[Step]]:
    """The ops of a TFLite graph, each run in LiteRT."""

    def steps(values: Arrays) -> Iterator[Step]:
        for op in g.ops:
            half = any(values[n].dtype == np.float16 for n in (*op.inputs, *op.results) if n)
            yield Step(op.inputs, op.results, _of_op(g, op, values), _of_op(g, op, values, wide=True) if half else None)

    return steps


def _of_op(g: TfliteDrawing, op: Op, values: Arrays, wide: bool = False) -> Run:
    def run(fed: Arrays) -> Arrays:
        other = copy(g)
        other.rankless = False
        other.arrays = {**values, **fed}
        if wide:
            other.arrays = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in other.arrays.items()}
        kinds = {n: (str(other.arrays[n].dtype), values[n].ndim) for n in op.results}
        return {n: a.astype(values[n].dtype) if wide else a for n, a in other.results(op, kinds).items()}

    return run
