"""Compare two models op by op: every op of the second reads the values that the first one computes.

In a network that amplifies rounding, the outputs of two correct models differ as much as those of two networks. Their
ops agree all the same, each on the same values. If the ops between the inputs and an output all agree, the second model
is the first one but for rounding::

    %c = CONV_2D(%x)         %c = CONV_2D(%x)          x: the input; c', s': values of the first model
    %s = SOFTMAX(%c)    ->   %s = SOFTMAX(%c')         %c, %s, %y are compared with c', s', y'
    %y = ADD(%s, %c)         %y = ADD(%s', %c')

Values are computed in parts, each from the tensors before it: neither model runs from its inputs again, and only
tensors that a later op reads are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from onnxtfl.checking.localize.culprit import neutral_values
from onnxtfl.checking.localize.depth import Depth, Layer
from onnxtfl.checking.models.trace import InnerModel
from onnxtfl.checking.pairing.tensors import Match
from onnxtfl.ir.data import Array
from onnxtfl.ir.quantization import quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import TensorType

BATCH = 64 << 20
"""Bytes of tensors of one model that are computed at a time."""
LARGE = 30.0
"""The largest value beyond which activations are constant."""
KEPT = 1 << 30
"""Bytes of tensors of either model that are kept for later ops; beyond it the oldest are computed again."""


@dataclass
class EachOp(Depth):
    """As :class:`Depth`; the layers have no error but their own. ``matches``: without those that nothing needs."""

    _values: dict[int, Array] = field(default_factory=dict, init=False)
    _last_a: dict[int, int] = field(default_factory=dict, init=False)
    _last_b: dict[int, int] = field(default_factory=dict, init=False)
    _batch: ClassVar[int] = BATCH

    def run(self) -> list[Layer]:
        """The layers in the order of the second model, as many as can be compared in time."""
        ordered = sorted(self.matches, key=lambda m: m.b)
        stops = {m.a for m in ordered}, {m.b for m in ordered}
        for match in ordered:
            self._last_a |= dict.fromkeys(self.a.between(match.a, stops[0])[1], match.b)
            self._last_b |= dict.fromkeys(self.b.between(match.b, stops[1])[1], match.b)
        return super().run()

    def _compare(self, batch: Sequence[Match]) -> None:
        values = self.a.isolated(self._values, {m.a for m in batch})
        self._halves |= {i for i, array in values.items() if array.dtype == np.float16}
        got = self._alike([m for m in batch if m.a in values], values)
        resolved = list(self._resolve(batch, values, got))
        self._resolved |= {m.b: m for m in resolved}
        layers = [Layer(m, *self.b.between(m.b, self._resolved), 0.0) for m in resolved]
        known = {m.b: made for m in resolved if (made := self._made(m, values, got)) is not None}
        before = {i for layer in layers for i in layer.read if i in self._resolved and i not in known}
        known |= {i: self._kept[i] for i in before if i in self._kept}
        known |= self.expected([self._resolved[i] for i in sorted(before) if i not in known])
        alone = self.b.isolated(known, [layer.match.b for layer in layers])
        for layer in layers:
            self._judge(layer, known.get(layer.match.b), alone.get(layer.match.b), known)
        self._values |= values
        self._judge_again([layer for layer in layers if layer.check is not None and not layer.check.ok], alone, known)
        self._judge_by_semantics(
            [layer for layer in layers if layer.check is not None and layer.check.biased], alone, known
        )
        self._judge_on_smaller(layers, known)
        self.layers += layers
        self._kept |= {m.b: known[m.b] for m in resolved if m.b in known}
        _drop(self._values, self._last_a, batch[-1].b)
        _drop(self._kept, self._last_b, batch[-1].b)

    def _alike(self, matches: Sequence[Match], values: Mapping[int, Array]) -> dict[int, Array]:
        """Arrays of the types and shapes that the second model's tensors have; other values say nothing here."""
        found = {m.b: like for m in matches if (like := _expected_form(self.b, m, values[m.a])) is not None}
        rest = [m.b for m in matches if m.b not in found]
        return found | (self.b.isolated(self._kept, rest) if rest else {})

    def _judge_again(self, layers: Sequence[Layer], alone: Mapping[int, Array], known: dict[int, Array]) -> None:
        """Judge layers that differ by what the first model computes of the same values.

        A runtime without kernels for float16 computes several ops in float32, and rounds only what it returns.
        """
        if not layers:
            return
        again = self.a.isolated(self._values, {layer.match.a for layer in layers})
        for layer in layers:
            b, array = layer.match.b, again.get(layer.match.a)
            expected = None if array is None else self.converter.made(layer.match, array, alone[b])
            before = layer.own, layer.check
            self._judge(layer, expected, alone[b], known)
            if layer.check is None or not layer.check.ok:
                layer.own, layer.check = before

    def _judge_by_semantics(self, layers: Sequence[Layer], alone: Mapping[int, Array], known: dict[int, Array]) -> None:
        """Judge layers with a mean error by what the ops of the .tflite mean, in place of what its kernels compute.

        A kernel that rounds to one side (integer MEAN, SUB, uint8 DEPTHWISE_CONV_2D) has a mean error of its own; the
        constants of the op are right if its semantics have none.
        """
        for layer in layers:
            b, expected = layer.match.b, known.get(layer.match.b)
            got: Array | None = alone[b]
            if self.b.format == "tflite":
                got = self._by_semantics(self.b, b, {i: known[i] for i in layer.read if i in known})
            else:
                read = self.a.between(layer.match.a, {match.a for match in self._resolved.values()})[1]
                exact = self._by_semantics(
                    self.a, layer.match.a, {i: self._values[i] for i in read if i in self._values}
                )
                expected = None if exact is None else self.converter.made(layer.match, exact, alone[b])
            before = layer.own, layer.check
            self._judge(layer, expected, got, known)
            if layer.check is None or not layer.check.ok:
                layer.own, layer.check = before

    def _by_semantics(self, model: InnerModel, number: int, fed: Mapping[int, Array]) -> Array | None:
        """A tensor as the neutral ops compute it from ``fed``, as it is stored; None where they cannot."""
        grid = quantization_of(model.values[number])
        final = neutral_values(model, number, fed, grid)[1]
        return final if final is None or grid is None else quantize(final, grid)

    def _judge_on_smaller(self, layers: Sequence[Layer], known: Mapping[int, Array]) -> None:
        """Judge layers that read one tensor of large values on smaller ones too, on which both models run.

        An activation of large values is constant: of another one it may be the same.
        """
        judged = [layer for layer in layers if layer.check is not None and layer.check.ok and self._alone(layer, known)]
        if not judged:
            return
        read = {layer.read[0] for layer in judged}
        small = {self._resolved[i].a: _smaller(self._values[self._resolved[i].a]) for i in read}
        values = self.a.isolated(small, {layer.match.a for layer in judged})
        fed = {i: self.converter.made(self._resolved[i], small[self._resolved[i].a], known[i]) for i in read}
        got = self.b.isolated({i: v for i, v in fed.items() if v is not None}, {layer.match.b for layer in judged})
        for layer in judged:
            b, array = layer.match.b, values.get(layer.match.a)
            expected = None if array is None or b not in got else self.converter.made(layer.match, array, got[b])
            if expected is None or not np.isfinite(expected).all():
                continue
            before = layer.own, layer.check
            self._judge(layer, expected, got[b], {**known})
            if layer.check is not None and layer.check.ok:
                layer.own, layer.check = before

    def _alone(self, layer: Layer, known: Mapping[int, Array]) -> bool:
        """Whether a layer reads one tensor of large real values in both models, and nothing else."""
        if len(layer.read) != 1 or layer.read[0] not in self._resolved or layer.read[0] not in known:
            return False
        before, stops = self._resolved[layer.read[0]].a, {match.a for match in self._resolved.values()}
        array = self._values.get(before)
        if array is None or not _is_large(array) or known[layer.read[0]].dtype.kind != "f":
            return False
        return self.a.between(layer.match.a, stops)[1] == [before]


def _is_large(array: Array) -> bool:
    return array.dtype.kind == "f" and LARGE < np.abs(array).max(initial=0.0) < np.inf


def _smaller(array: Array) -> Array:
    """An array of values up to 4, which are the same multiple of those of ``array``."""
    return np.ldexp(array, 2 - int(np.frexp(np.abs(array).max())[1]))


def _expected_form(b: InnerModel, match: Match, array: Array) -> Array | None:
    """An array of the type and shape of a tensor that takes no memory; None where they are not known.

    ``array``: of the first model, whose shape says that of a tensor with open sizes.
    """
    type_, way = b.type_of(match.b), match.way
    if way is None or not isinstance(type_, TensorType):
        return None
    if type_.is_static:
        shape = tuple(int(str(d)) for d in type_.shape or ())
    elif (moved := None if way.back else way.moved(array, ())) is not None:
        shape = moved.shape
    else:
        return None
    return np.broadcast_to(np.zeros((), type_.storage.numpy), shape)


def _drop(kept: dict[int, Array], last: Mapping[int, int], now: int) -> None:
    """Drop what no later op reads, and the oldest beyond `KEPT` bytes."""
    for number in [i for i in kept if last.get(i, -1) <= now]:
        del kept[number]
    size = sum(array.nbytes for array in kept.values())
    for number in list(kept):
        if size <= KEPT:
            break
        size -= kept.pop(number).nbytes


@dataclass(frozen=True)
class Coverage:
    """What is known of the ops between the inputs and some outputs.

    `layers`: the tensors compared, of these ops, in order; `missing`: outputs that could not be compared.
    """

    layers: list[Layer]
    missing: list[int]

    @cached_property
    def wrong(self) -> list[Layer]:
        """The layers that differ, or that say nothing."""
        return [layer for layer in self.layers if layer.fails or says_nothing(layer)]

    @property
    def agrees(self) -> bool:
        """Whether all ops between the inputs and the outputs agree."""
        return bool(self.layers) and not self.missing and not self.wrong

    @property
    def largest(self) -> float:
        """The largest error, relative to the largest value of its tensor."""
        return max((layer.own for layer in self.layers if layer.own is not None), default=0.0)


def says_nothing(layer: Layer) -> bool:
    """Whether a layer could not be compared, or has no finite value, so that any op agrees."""
    return layer.check is None or not (layer.check.compared or layer.check.is_empty)


def coverage(layers: Sequence[Layer], outputs: Collection[int]) -> Coverage:
    """The layers between the inputs and `outputs` (numbers of the second model).

    A layer covers the ops since the tensors that it reads; these need a layer each, unless they are inputs.
    """
    by_number = {layer.match.b: layer for layer in layers}
    needed, pending = set[int](), list(outputs)
    while pending:
        number = pending.pop()
        if number not in needed and number in by_number:
            needed.add(number)
            pending += [i for i in by_number[number].read if i in by_number]
    missing = [number for number in outputs if number not in by_number]
    return Coverage([layer for layer in layers if layer.match.b in needed], missing)


def needed_matches(b: InnerModel, matches: Sequence[Match], outputs: Collection[int]) -> list[Match]:
    """The matches of tensors that the `outputs` are computed of, and those of the outputs."""
    by_number = {match.b: match for match in matches}
    found, pending = set[int](), list(outputs)
    while pending:
        number = pending.pop()
        if number not in found and number in by_number:
            found.add(number)
            pending += b.between(number, by_number)[1]
    return [match for match in matches if match.b in found]
