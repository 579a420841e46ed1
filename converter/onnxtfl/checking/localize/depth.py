"""The errors of corresponding tensors along the depth of two models.

Each tensor is computed twice by the second model: from its own inputs, and from the values of the first model, so that
only the error of the ops since the corresponding tensors before it is left::

    %c = CONV_2D(%x)         %c = CONV_2D(%x')         x', c': values of the first model
    %s = SOFTMAX(%c)         %s = SOFTMAX(%c')         errors of %c and %s: their own
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.trace import InnerModel
from onnxtfl.checking.models.widened import HALF
from onnxtfl.checking.pairing.tensors import Converter, Match, is_multiple, relative_error
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.targets.target import as_form
from onnxtfl.targets.tflite import TfliteTarget

BATCH = 48 << 20
"""Bytes of tensors of one model that are computed at a time."""
MOST = 1024
"""Tensors that are computed at a time."""
_MEASURED = TfliteTarget()


@dataclass
class Layer:
    """A tensor of both models. `nodes`: those of the second model since the corresponding tensors `read` (numbers of
    its tensors). `error`, `own`: see `LayerError`; `check`: the comparison for `own`, None where it did not run.
    `is_multiple`: whether the tensor differs, and is that of the first model times a factor. `runs`: whether the second
    model can compute the tensor.
    """

    match: Match
    nodes: list[Node]
    read: list[int]
    error: float
    own: float | None = None
    check: OutputCheck | None = None
    is_multiple: bool = False
    runs: bool = True

    @property
    def fails(self) -> bool:
        """Whether the error of its own is beyond the tolerance."""
        return math.isinf(self.error) if self.check is None else not self.check.ok


@dataclass
class Depth:
    """Compares `matches` of two models. `expect`: the tolerance; `until`: when to stop, in seconds of the clock."""

    a: InnerModel
    b: InnerModel
    matches: Sequence[Match]
    expect: Expectation
    until: float
    layers: list[Layer] = field(default_factory=list)
    converter: Converter = field(init=False)
    _resolved: dict[int, Match] = field(default_factory=dict, init=False)
    _kept: dict[int, Array] = field(default_factory=dict, init=False)
    _halves: set[int] = field(default_factory=set, init=False)
    _batch: ClassVar[int] = BATCH

    def __post_init__(self) -> None:
        self.converter = Converter(self.a, self.b)

    def run(self) -> list[Layer]:
        """The layers in the order of the second model, as many as can be compared in time."""
        for batch in self._batches():
            if time.perf_counter() > self.until and self.layers:
                break
            self._compare(batch)
        return self.layers

    def _batches(self) -> Iterator[list[Match]]:
        batch, size = list[Match](), 0
        for match in sorted(self.matches, key=lambda m: m.b):
            nbytes = max(self.a.nbytes(match.a), self.b.nbytes(match.b))
            if batch and (size + nbytes > self._batch or len(batch) >= MOST):
                yield batch
                batch, size = [], 0
            batch.append(match)
            size += nbytes
        if batch:
            yield batch

    def _compare(self, batch: Sequence[Match]) -> None:
        values = self.a.fetch({m.a for m in batch})
        got = self.b.fetch({m.b for m in batch})
        self._halves |= {i for i, array in values.items() if array.dtype == np.float16}
        resolved = list(self._resolve(batch, values, got))
        self._resolved |= {m.b: m for m in resolved}
        layers = [Layer(m, *self.b.between(m.b, self._resolved), 0.0) for m in resolved]
        known = {m.b: made for m in resolved if (made := self._made(m, values, got)) is not None}
        before = {i for layer in layers for i in layer.read if i in self._resolved and i not in known}
        self._keep(known)
        known |= {i: self._kept[i] for i in before if i in self._kept}
        known |= self.expected([self._resolved[i] for i in sorted(before) if i not in known])
        for layer in layers:
            b = layer.match.b
            layer.error = relative_error(known[b], got[b], self.grid(layer.match)) if b in known else math.inf
        self.layers += layers
        self._add_missing(batch, values, got)
        alone = self.b.isolated(known, [layer.match.b for layer in layers if layer.match.b in known])
        for layer in layers:
            self._judge(layer, known.get(layer.match.b), alone.get(layer.match.b), known)

    def _keep(self, known: Mapping[int, Array]) -> None:
        """Keep what is known for later batches, the newest `BATCH` bytes: most tensors are read soon after."""
        self._kept |= known
        size = sum(array.nbytes for array in self._kept.values())
        for number in list(self._kept):
            if size <= BATCH:
                break
            if number not in known:
                size -= self._kept.pop(number).nbytes

    def _add_missing(self, batch: Sequence[Match], values: dict[int, Array], got: dict[int, Array]) -> None:
        """Add layers for what only the first model can compute."""
        missing = [m for m in batch if m.a in values and m.b not in got]
        self.layers += [Layer(m, *self.b.between(m.b, self._resolved), math.inf, runs=False) for m in missing]
        self.layers.sort(key=lambda layer: layer.match.b)

    def _resolve(self, batch: Sequence[Match], values: dict[int, Array], got: dict[int, Array]) -> Iterator[Match]:
        for match in batch:
            if match.a in values and match.b in got:
                found = self.converter.resolved(match, values[match.a], got[match.b])
                if found is not None:
                    yield found

    def _made(self, match: Match, values: dict[int, Array], got: dict[int, Array]) -> Array | None:
        return self.converter.made(match, values[match.a], got[match.b])

    def expected(self, matches: Sequence[Match]) -> dict[int, Array]:
        """What tensors of the second model should be by the values of the first."""
        values = self.a.fetch({m.a for m in matches})
        got = self.b.fetch({m.b for m in matches})
        pairs = [m for m in matches if m.a in values and m.b in got]
        return {m.b: made for m in pairs if (made := self._made(m, values, got)) is not None}

    def _judge(self, layer: Layer, expected: Array | None, got: Array | None, known: dict[int, Array]) -> None:
        if expected is None or got is None:
            return
        layer.own = relative_error(expected, got, self.grid(layer.match))
        name = self.b.values[layer.match.b].name or ""
        layer.check = compare(name, expected, got, self._expectation(layer, expected, known))
        layer.is_multiple = layer.fails and is_multiple(expected, got)

    def _coarseness(self, layer: Layer) -> float:
        """How many steps the TFLite kernels of a layer, in either model, were measured to be off the nearest ones."""
        stops = {match.a for match in self._resolved.values()}
        nodes = layer.nodes if self.a.format == "onnx" else [*layer.nodes, *self.a.between(layer.match.a, stops)[0]]
        tfl = [node for node in nodes if node.op.dialect == "tfl"]
        return float(max((_MEASURED.steps_off(as_form(node), node.results) for node in tfl), default=0))

    def _is_known(self, known: Mapping[int, Array]) -> Callable[[Value], bool]:
        return lambda value: self.b.number.get(value) in known

    def grid(self, match: Match) -> Quantization | None:
        """How the values are quantized."""
        qa, qb = self.converter.grids(match)
        return qb or qa

    def _expectation(self, layer: Layer, expected: Array, known: dict[int, Array]) -> Expectation:
        grid, value = self.grid(layer.match), self.b.values[layer.match.b]
        steps = roundings(value, self._is_known(known)) if grid is not None else 1.0
        coarse = self._coarseness(layer) if grid is not None else 0.0
        step = None if grid is not None else dequantized_step(value, self._is_known(known))
        found = replace(
            self.expect, step=step, quantization_a=grid, quantization_b=grid, roundings=steps, coarse=coarse
        )
        if layer.match.a not in self._halves and expected.dtype != np.float16:
            return found
        return replace(found, rtol=max(found.rtol, HALF), atol=max(found.atol, HALF))


def dequantized_step(value: Value, is_known: Callable[[Value], bool]) -> float | None:
    """The step of a real value that is dequantized from a tensor which is rounded here too; None for others."""
    node = value.producer
    source = node.operands[0] if node is not None and len(node.operands) == 1 else None
    inner = None if source is None or is_known(source) else quantization_of(source)
    return inner.scales[0] if inner is not None and inner.per_tensor and quantization_of(value) is None else None


def roundings(value: Value, is_known: Callable[[Value], bool]) -> float:
    """How many steps a quantized tensor may be off: one of its own (more where its kernel was measured to be coarser),
    and one of what it is requantized from, also rounded here.
    """
    quantization, node = quantization_of(value), value.producer
    source = node.operands[0] if node is not None and len(node.operands) == 1 else None
    inner = None if source is None or is_known(source) else quantization_of(source)
    found = max(1.0, 0.0 if node is None else _MEASURED.steps_off(as_form(node), node.results))
    if quantization is not None and inner is not None and quantization.per_tensor and inner.per_tensor:
        found += inner.scales[0] / quantization.scales[0]
    return found
