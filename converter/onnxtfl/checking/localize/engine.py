"""Compare two models op by op: every op of the second reads the values that the first one computes.

In a network that amplifies rounding, the outputs of two correct models may differ as much as those of two different
networks. Their ops agree nevertheless, each on the same values. If the ops between the inputs and an output all agree,
the second model is the first one but for rounding::

    %c = CONV_2D(%x)         %c = CONV_2D(%x)          x: the input; c', s': values of the first model
    %s = SOFTMAX(%c)    ->   %s = SOFTMAX(%c')         %c, %s, %y are compared with c', s', y'
    %y = ADD(%s, %c)         %y = ADD(%s', %c')

Values are computed in parts, each from the tensors before it, so that neither model runs from its inputs again. Only
tensors that a later op reads are kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from onnxtfl.checking.localize.steps import coarseness, dequantized_step, least_error, roundings
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.widened import HALF
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization, quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import TensorType
from onnxtfl.tracing.matches import Converter, Match, is_multiple, relative_error
from onnxtfl.tracing.semantics import neutral_values
from onnxtfl.tracing.trace import InnerModel

BATCH = 64 << 20
"""The most bytes of tensors of one model that are computed at a time."""
MOST = 1024
"""The most tensors that are computed at a time."""
KEPT = 1 << 30
"""The most bytes of tensors of a model that are kept for later ops; beyond it, the oldest are computed again."""
LARGE = 30.0
"""The value beyond which activations are constant."""


@dataclass
class Layer:
    """A tensor of both models. `nodes`: the nodes of the second model that compute it from the corresponding tensors
    `read` (numbers of its tensors). `error`, `own`: see `LayerError`; `check`: the comparison for `own`; None if it did
    not run. `is_multiple`: whether the tensor differs, and is that of the first model times a factor. `runs`: whether
    the second model can compute the tensor.
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
        """Whether its own error is beyond the tolerance."""
        return math.isinf(self.error) if self.check is None else not self.check.ok

    @property
    def agrees(self) -> bool:
        """Whether it was compared and is within the tolerance."""
        return self.check is not None and self.check.ok


@dataclass
class Engine:
    """Compares `matches` of two models. `expect`: the tolerance; `until`: when to stop, in seconds of the clock.

    `accumulated`: also measure the errors if each model reads its own values (`Layer.error`; else 0), for which the
    second model runs from its inputs. `sigmoids`: names of tensors of the first model (see `Facts`). `layers`: the
    compared ones.
    """

    a: InnerModel
    b: InnerModel
    matches: Sequence[Match]
    expect: Expectation
    until: float
    accumulated: bool = False
    sigmoids: Collection[str] = ()
    layers: list[Layer] = field(default_factory=list)
    converter: Converter = field(init=False)
    _resolved: dict[int, Match] = field(default_factory=dict, init=False)
    _values: dict[int, Array] = field(default_factory=dict, init=False)
    _made: dict[int, Array] = field(default_factory=dict, init=False)
    _halves: set[int] = field(default_factory=set, init=False)
    _batch: ClassVar[int] = BATCH

    def __post_init__(self) -> None:
        self.converter = Converter(self.a, self.b)

    def run(self) -> list[Layer]:
        """The layers in the order of the second model, as many as can be compared in time."""
        ordered = sorted(self.matches, key=lambda m: m.b)
        stops = {m.a for m in ordered}, {m.b for m in ordered}
        last_a, last_b = dict[int, int](), dict[int, int]()
        for match in ordered:
            last_a |= dict.fromkeys(self.a.between(match.a, stops[0])[1], match.b)
            last_b |= dict.fromkeys(self.b.between(match.b, stops[1])[1], match.b)
        for batch in self._batches(ordered):
            if time.perf_counter() > self.until and self.layers:
                break
            self._compare(batch)
            _drop(self._values, last_a, batch[-1].b)
            _drop(self._made, last_b, batch[-1].b)
        return self.layers

    def _batches(self, ordered: Sequence[Match]) -> Iterator[list[Match]]:
        batch, size = list[Match](), 0
        for match in ordered:
            nbytes = max(self.a.nbytes(match.a), self.b.nbytes(match.b))
            if batch and (size + nbytes > self._batch or len(batch) >= MOST):
                yield batch
                batch, size = [], 0
            batch.append(match)
            size += nbytes
        if batch:
            yield batch

    def _compare(self, batch: Sequence[Match]) -> None:
        """Compare the tensors of a batch on the values of the first model and, if requested, on the second model's
        own.
        """
        values = self.a.isolated(self._values, {m.a for m in batch})
        self._halves |= {i for i, array in values.items() if array.dtype == np.float16}
        self._values |= values
        found = [m for m in batch if m.a in values]
        own = self.b.fetch({m.b for m in found}) if self.accumulated else {}
        like = own if self.accumulated else self._alike(found)
        resolved = [r for m in found if m.b in like and (r := self.converter.resolved(m, values[m.a], like[m.b]))]
        self._resolved |= {m.b: m for m in resolved}
        layers = [Layer(m, *self.b.between(m.b, self._resolved), 0.0) for m in resolved]
        known = self._known(layers, like)
        for layer in layers if self.accumulated else ():
            b = layer.match.b
            layer.error = relative_error(known[b], own[b], self.grid(layer.match)) if b in known else math.inf
        missing = [m for m in found if m.b not in like]
        layers += [Layer(m, *self.b.between(m.b, self._resolved), math.inf, runs=False) for m in missing]
        self._judge_all([layer for layer in layers if layer.runs], known)
        self.layers += sorted(layers, key=lambda layer: layer.match.b)

    def _alike(self, matches: Sequence[Match]) -> dict[int, Array]:
        """Return arrays with the types and shapes of the second model's tensors; others cannot be compared."""
        forms = {m.b: _expected_form(self.b, m, self._values[m.a]) for m in matches}
        found = {b: form for b, form in forms.items() if form is not None}
        rest = [m.b for m in matches if m.b not in found]
        return found | (self.b.isolated(self._made, rest) if rest else {})

    def _known(self, layers: Sequence[Layer], like: Mapping[int, Array]) -> dict[int, Array]:
        """The expected tensors of the layers, and of those that they read, from the values of the first model."""
        made = {m.b: self.converter.made(m, self._values[m.a], like[m.b]) for m in (layer.match for layer in layers)}
        known = {b: array for b, array in made.items() if array is not None}
        before = {i for layer in layers for i in layer.read if i in self._resolved and i not in known}
        self._made |= known
        known |= {i: self._made[i] for i in before if i in self._made}
        return known | self.expected([self._resolved[i] for i in sorted(before) if i not in known])

    def expected(self, matches: Sequence[Match]) -> dict[int, Array]:
        """The expected tensors of the second model, from the values of the first model for its inputs."""
        values = self.a.fetch({m.a for m in matches})
        got = self.b.fetch({m.b for m in matches})
        pairs = [m for m in matches if m.a in values and m.b in got]
        made = {m.b: self.converter.made(m, values[m.a], got[m.b]) for m in pairs}
        return {b: array for b, array in made.items() if array is not None}

    def _judge_all(self, layers: Sequence[Layer], known: dict[int, Array]) -> None:
        """Judge layers on the values of the first model, and in other ways if that is no evidence."""
        alone = self.b.isolated(known, [layer.match.b for layer in layers])
        for layer in layers:
            self._judge(layer, known.get(layer.match.b), alone.get(layer.match.b), known)
        self._judge_again([layer for layer in layers if layer.check is not None and not layer.check.ok], alone, known)
        self._judge_by_semantics(
            [layer for layer in layers if layer.check is not None and layer.check.biased], alone, known
        )
        self._judge_on_smaller([layer for layer in layers if layer.agrees and self._is_large(layer, known)], known)

    def _judge(self, layer: Layer, expected: Array | None, got: Array | None, known: Mapping[int, Array]) -> None:
        if expected is None or got is None:
            return
        layer.own = relative_error(expected, got, self.grid(layer.match))
        name = self.b.values[layer.match.b].name or ""
        layer.check = compare(name, expected, got, self._expectation(layer, expected, known))
        layer.is_multiple = layer.fails and is_multiple(expected, got)

    def _judge_if_better(
        self, layer: Layer, expected: Array | None, got: Array | None, known: Mapping[int, Array]
    ) -> None:
        """Judge a failing layer on other values; if it fails again, the first result is kept."""
        before = layer.own, layer.check
        self._judge(layer, expected, got, known)
        if not layer.agrees:
            layer.own, layer.check = before

    def _judge_again(self, layers: Sequence[Layer], alone: Mapping[int, Array], known: Mapping[int, Array]) -> None:
        """Judge differing layers by the first model's results for the same values.

        A runtime without float16 kernels computes several ops in float32 and rounds only the final result.
        """
        again = self.a.isolated(self._values, {layer.match.a for layer in layers}) if layers else {}
        for layer in layers:
            b, array = layer.match.b, again.get(layer.match.a)
            expected = None if array is None else self.converter.made(layer.match, array, alone[b])
            self._judge_if_better(layer, expected, alone[b], known)

    def _judge_by_semantics(
        self, layers: Sequence[Layer], alone: Mapping[int, Array], known: Mapping[int, Array]
    ) -> None:
        """Judge layers with a mean error by evaluating the ops of the .tflite instead of running its kernels.

        A kernel that rounds to one side (integer MEAN, SUB, uint8 DEPTHWISE_CONV_2D) has a mean error of its own; the
        constants of the op are right if its semantics have none.
        """
        for layer in layers:
            b, expected = layer.match.b, known.get(layer.match.b)
            got: Array | None = alone[b]
            if self.b.format == "tflite":
                got = self._by_semantics(self.b, b, {i: known[i] for i in layer.read if i in known})
            else:
                read = self.a.between(layer.match.a, self._stops)[1]
                fed = {i: self._values[i] for i in read if i in self._values}
                exact = self._by_semantics(self.a, layer.match.a, fed)
                expected = None if exact is None else self.converter.made(layer.match, exact, alone[b])
            self._judge_if_better(layer, expected, got, known)

    def _by_semantics(self, model: InnerModel, number: int, fed: Mapping[int, Array]) -> Array | None:
        """Return a tensor as evaluated by the neutral ops from ``fed``, in stored form; None if impossible."""
        grid = quantization_of(model.values[number])
        final = neutral_values(model, number, fed, grid)[1]
        return final if final is None or grid is None else quantize(final, grid)

    def _judge_on_smaller(self, layers: Sequence[Layer], known: Mapping[int, Array]) -> None:
        """Judge layers that read one tensor of large values on smaller values too, on which both models run.

        An activation of large values is constant: of another one it may be the same.
        """
        if not layers:
            return
        read = {layer.read[0] for layer in layers}
        small = {self._resolved[i].a: _smaller(self._values[self._resolved[i].a]) for i in read}
        values = self.a.isolated(small, {layer.match.a for layer in layers})
        fed = {i: self.converter.made(self._resolved[i], small[self._resolved[i].a], known[i]) for i in read}
        got = self.b.isolated({i: v for i, v in fed.items() if v is not None}, {layer.match.b for layer in layers})
        for layer in layers:
            b, array = layer.match.b, values.get(layer.match.a)
            expected = None if array is None or b not in got else self.converter.made(layer.match, array, got[b])
            if expected is None or not np.isfinite(expected).all():
                continue
            before = layer.own, layer.check
            self._judge(layer, expected, got[b], known)
            if layer.agrees:
                layer.own, layer.check = before

    @property
    def _stops(self) -> set[int]:
        """The tensors of the first model that have a counterpart."""
        return {match.a for match in self._resolved.values()}

    def _is_large(self, layer: Layer, known: Mapping[int, Array]) -> bool:
        """Whether a layer reads one tensor of large real values in both models, and nothing else."""
        if len(layer.read) != 1 or layer.read[0] not in self._resolved or layer.read[0] not in known:
            return False
        before = self._resolved[layer.read[0]].a
        array = self._values.get(before)
        if array is None or array.dtype.kind != "f" or known[layer.read[0]].dtype.kind != "f":
            return False
        is_large = LARGE < np.abs(array).max(initial=0.0) < np.inf
        return bool(is_large) and self.a.between(layer.match.a, self._stops)[1] == [before]

    def grid(self, match: Match) -> Quantization | None:
        """How the values are quantized."""
        qa, qb = self.converter.grids(match)
        return qb or qa

    def _expectation(self, layer: Layer, expected: Array, known: Mapping[int, Array]) -> Expectation:
        grid, value = self.grid(layer.match), self.b.values[layer.match.b]

        def is_known(inner: Value) -> bool:
            return self.b.number.get(inner) in known

        if grid is None:
            step, least = dequantized_step(value, is_known), least_error(self.a.values[layer.match.a], self.sigmoids)
            found = replace(self.expect, step=step, least=least)
        else:
            nodes = [*layer.nodes, *([] if self.a.format == "onnx" else self.a.between(layer.match.a, self._stops)[0])]
            steps = roundings(value, is_known)
            found = replace(
                self.expect, quantization_a=grid, quantization_b=grid, roundings=steps, coarse=coarseness(nodes)
            )
        if layer.match.a not in self._halves and expected.dtype != np.float16:
            return found
        return replace(found, rtol=max(found.rtol, HALF), atol=max(found.atol, HALF))


def _smaller(array: Array) -> Array:
    """``array``, scaled to values up to 4."""
    return np.ldexp(array, 2 - int(np.frexp(np.abs(array).max())[1]))


def _expected_form(b: InnerModel, match: Match, array: Array) -> Array | None:
    """Return an array of the type and shape of a tensor without allocating its elements; None if unknown.

    ``array``: that of the first model, whose shape determines the dynamic sizes of the tensor.
    """
    type_, way = b.type_of(match.b), match.way
    if way is None or not isinstance(type_, TensorType):
        return None
    if type_.is_static:
        shape = tuple(known_size(d) for d in type_.shape or ())
    elif (moved := None if way.back else way.moved(array, ())) is not None:
        shape = moved.shape
    else:
        return None
    return np.broadcast_to(np.zeros((), type_.storage.numpy), shape)


def _drop(kept: dict[int, Array], last: Mapping[int, int], now: int) -> None:
    """Drop tensors that no later op reads, and beyond `KEPT` bytes the oldest."""
    for number in [i for i in kept if last.get(i, -1) <= now]:
        del kept[number]
    size = sum(array.nbytes for array in kept.values())
    for number in list(kept):
        if size <= KEPT:
            break
        size -= kept.pop(number).nbytes
