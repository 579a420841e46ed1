"""Recurrent layers in the form of a Scan.

::

    %h, %y = Scan(%zeros, %products) {body = graph (%h, %p) -> (%n, %n) { %n = Tanh(Add(%p, DotGeneral(%h, %R))) }}

    ->     %y, %h = Rnn(%x, %W, %R, %b)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import without_reshapes
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.passes.recognize.recurrence.cleanup import counts, is_zero
from onnxtfl.passes.recognize.recurrence.iterations import Iterations
from onnxtfl.passes.recognize.recurrence.layers import Steps
from onnxtfl.passes.recognize.recurrence.polynomials import Poly, UnfitError, number
from onnxtfl.rewriting.patterns import Patterns

LAYERS_IN_SCANS = Patterns()
POSITION = ("position",)


@LAYERS_IN_SCANS.on(ops.Scan)
def scan_of_layer(b: Builder, node: Node) -> list[Value] | None:
    """Replace a Scan whose body is the step of a layer by the layer."""
    parts = ScanParts.of(node)
    if parts.count not in (1, 2) or (parts.length is not None and static_ints(parts.length) != [parts.rounds]):
        return None
    for order in itertools.permutations(range(parts.count)):
        try:
            return _Body(node, parts, order).written(b)
        except UnfitError:
            continue
    return None


class _Body:
    """The body of a Scan; carried value order[i] is state i of a layer."""

    def __init__(self, node: Node, parts: ScanParts, order: Sequence[int]) -> None:
        self.node, self.parts, self.order = node, parts, order
        self.body: Graph = parts.body
        count = parts.count
        slices, inside = self.body.inputs[count : count + len(parts.axes)], self.body.inputs[count + len(parts.axes) :]
        self.place = self._scanned()
        states = [self.body.inputs[i] for i in order]
        self.iterations = Iterations(slices[self.place], states)
        self.reader, places = self.iterations.reader(slices[self.place], states)
        for value, outside in zip(slices, parts.scanned, strict=True):
            if counts(outside):
                places[value] = [(1, self.iterations.atoms.leaf(POSITION, 0, None))]
        for value, outside in zip(inside, parts.captures, strict=True):
            self.reader.outside[value] = outside
            if outside.rank == 1 and outside.is_constant and outside.dtype.is_float:
                places[value] = [(outside.shape[0], number(outside.numpy()))]

    def _scanned(self) -> int:
        """Return the index of the only scanned value that is not the step index."""
        floats = [i for i, v in enumerate(self.parts.scanned) if v.dtype.is_float]
        if len(floats) != 1 or len(set(self.parts.reversed)) != 1:
            raise UnfitError
        return floats[0]

    def written(self, b: Builder) -> list[Value]:
        """Return the results of the layer that replace those of the Scan; UnfitError if it is no layer."""
        polys = [self.reader.poly(self.body.outputs[i]) for i in self.order]
        found = self.iterations.layer(polys[0], polys[1:] or None)
        if found is None:
            raise UnfitError
        layer, count = found[0], self.parts.count
        outside = {*self.parts.captures, *map(without_reshapes, self.parts.captures)}
        if not all(v.is_constant or v in outside for v in layer.values):
            raise UnfitError
        self._check_collected(self.iterations.output(layer, polys[0]))
        initial = [None if is_zero(v := self.parts.carried[i]) else v for i in self.order]
        steps = self._steps()
        output, *states = layer.write(b, steps, initial)
        results = [reshape(b, states[self.order.index(i)], self.node.results[i].shape, output) for i in range(count)]
        return [*results, *(self._collected(b, steps, output, i) for i in range(len(self.parts.result_axes)))]

    def _steps(self) -> Steps:
        x, axis = self.parts.scanned[self.place], self.parts.axes[self.place]
        return self.iterations.steps(x, axis, x.shape[axis], self.parts.reversed[self.place])

    def _check_collected(self, wanted: Poly) -> None:
        """Raise UnfitError if the Scan collects anything but the output."""
        back = self.parts.reversed[self.place]
        for value, reverse in zip(self.body.outputs[self.parts.count :], self.parts.result_reversed, strict=True):
            if self.reader.poly(value).key != wanted.key or reverse != back:
                raise UnfitError

    def _collected(self, b: Builder, steps: Steps, output: Value, index: int) -> Value:
        result = self.node.results[self.parts.count + index]
        time_first = self.iterations.is_time_first(result, self.parts.result_axes[index])
        return replace(steps, time_first=time_first).as_written(b, output, result)
