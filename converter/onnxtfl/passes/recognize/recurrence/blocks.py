"""Recurrent layers over long sequences that are written in blocks: a Scan over blocks of steps, and the steps left.

::

    %h, %y = Scan(%zeros, Reshape(%x, [T / k, k, ...])) {body = graph (%h, %p) -> (%n, %o) { k steps of a layer }}

    ->     %y, %h = Rnn(%x, %W, %R, %b)

    %y, %h = Rnn(%x, %W, %R, %b)
    %z, %k = Rnn(%v, %W, %R, %b, _, %h)                ->     %s, %k = Rnn(Concatenate(%x, %v), %W, %R, %b)
    %s = Concatenate(%y, %z)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.control import ScanParts
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.cleanup import LAYERS, is_zero, operands_of, remade
from onnxtfl.passes.recognize.recurrence.layers import Factors, factors_of, matrix_of
from onnxtfl.passes.recognize.recurrence.polynomials import UnfitError
from onnxtfl.passes.recognize.recurrence.reading import peeled
from onnxtfl.passes.recognize.recurrence.unrolled import recognize_unrolled
from onnxtfl.rewriting.patterns import Patterns, erase_dead
from onnxtfl.rewriting.regions import copied

BLOCKS = Patterns()
_STATES = ("hidden", "cell")
_SEQUENCE = ("input", *_STATES)


@BLOCKS.on(ops.Scan)
def scan_of_blocks(b: Builder, node: Node) -> list[Value] | None:
    """Replace a Scan over blocks of steps by the layer whose steps each round computes."""
    parts = ScanParts.of(node)
    if parts.count not in (1, 2) or parts.length is not None or parts.captures or not _has_blocks(parts):
        return None
    try:
        factors = factors_of(parts.scanned[0])
    except UnfitError:
        factors = None
    if factors is not None and factors.matrix.rows != parts.scanned[0].shape[-1]:
        return None
    return _Blocks(node, parts, factors).written(b)


def _has_blocks(parts: ScanParts) -> bool:
    """Whether rounds split the only scanned value into equal parts, of known sizes, along its second axis."""
    static = all(v.tensor_type.is_static and v.dtype.is_float for v in parts.values)
    if not static or len(parts.axes) != 1 or any((*parts.axes, *parts.result_axes)) or parts.scanned[0].rank < 3:
        return False
    if any(back != parts.reversed[0] for back in parts.result_reversed):
        return False
    taken = parts.body.inputs[parts.count]
    splits = [n for n in parts.body.nodes if n.op is ops.Split and peeled(n.operand(0)) is taken]
    return [len(n.results) for n in splits] == [parts.scanned[0].shape[1]]


class _Blocks:
    """A Scan over blocks, and a copy of its body that computes the product with the weights of the input too."""

    def __init__(self, node: Node, parts: ScanParts, factors: Factors | None) -> None:
        self.node, self.parts, self.factors = node, parts, factors
        x, self.region = parts.scanned[0], Graph(parts.body.name)
        inside = Builder(self.region)
        self.width = x.shape[-1] if factors is None else factors.matrix.right - factors.matrix.left
        self.states = [self.region.add_input(v.type) for v in parts.body.inputs[: parts.count]]
        self.rows = self.region.add_input(x.tensor_type.with_shape((*x.shape[1:-1], self.width)))
        product = self.rows if factors is None else self.product(inside, factors)
        self.region.outputs = copied(inside, parts.body, [*self.states, product])

    def product(self, b: Builder, factors: Factors) -> Value:
        contracted = {"lhs_contracting_dimensions": (self.rows.rank - 1,), "rhs_contracting_dimensions": (1,)}
        made = b(ops.DotGeneral, self.rows, matrix_of(b, factors.matrix), **contracted)
        return made if factors.bias is None else b(ops.Add, made, constant(factors.bias, made.dtype))

    def written(self, b: Builder) -> list[Value] | None:
        """The results of the layer over all blocks in place of those of the Scan; None where a block is no layer."""
        if not recognize_unrolled(self.region):
            return None
        layers = [n for n in self.region.nodes if n.op in LAYERS]
        if len(layers) != 1 or not self.is_block(layers[0]):
            return None
        (layer,) = layers
        places = [layer.results.index(peeled(v)) for v in self.region.outputs]
        given, shape = operands_of(layer), layer.operand(0).shape
        order = [self.states.index(v) for v in self.order(layer) if v is not None]
        weights = self.weights(b, given)
        if weights is None:
            return None
        x = self.parts.scanned[0]
        rows = x if self.factors is None else self.factors.rows(b)
        given |= {**weights, "input": reshape(b, rows, (x.shape[0] * x.shape[1], *shape[1:]))}
        for name, i in zip(_STATES, order, strict=False):
            start = self.parts.carried[i]
            given[name] = None if is_zero(start) else reshape(b, start, layer.results[1].shape)
        results = remade(b, layer, given)
        return [reshape(b, results[i], v.shape) for i, v in zip(places, self.node.results, strict=True)]

    def weights(self, b: Builder, given: Mapping[str, Value | None]) -> dict[str, Value] | None:
        """Copies of the operands `given` that are no sequence or state; None where they depend on these."""
        found = {name: v for name, v in given.items() if v is not None and name not in _SEQUENCE}
        self.region.outputs = list(found.values())
        erase_dead(self.region, list(self.region.nodes))
        if any(v.uses or self.region.is_output(v) for v in self.region.inputs):
            return None
        made = copied(b, self.region, [*self.parts.carried, self.parts.scanned[0]])
        return dict(zip(found, made, strict=True))

    def order(self, layer: Node) -> list[Value | None]:
        """The inputs of the region that are the states of `layer`, by role."""
        found = [operands_of(layer).get(name) for name in _STATES[: len(layer.results) - 1]]
        return [None if v is None else peeled(v) for v in found]

    def is_block(self, layer: Node) -> bool:
        """Whether `layer` computes all that a round does, from the states to the states and outputs."""
        order, given = self.order(layer), operands_of(layer)
        if len(order) != len(self.states) or set(order) != set(self.states) or given["lengths"] is not None:
            return False
        if peeled(layer.operand(0)) is not self.rows or layer.operand(0).shape[::2] != (self.rows.shape[0], self.width):
            return False
        outputs = [peeled(v) for v in self.region.outputs]
        finals = [layer.results[1 + order.index(v)] for v in self.states]
        collected = [layer.results[0]] * len(self.parts.result_axes)
        return outputs == [*finals, *collected] and layer.attr("reverse") == self.parts.reversed[0]


def join_parts(graph: Graph) -> bool:
    """Join layers that continue each other, and whose outputs are joined; returns whether there were any."""
    changed = False
    for node in [n for n in graph.nodes if n.op is ops.Concatenate and len(n.operands) == 2]:
        if normalize_axis(node.attr("axis"), node.result.rank) == 0:
            changed |= _joined(graph, node)
    return changed


def _joined(graph: Graph, node: Node) -> bool:
    outputs = [peeled(v) for v in node.operands if v is not None]
    early, late = (made_by(v, *LAYERS) for v in outputs)
    if early is None or late is None or outputs != [early.results[0], late.results[0]]:
        return False
    first, second = (late, early) if early.attr("reverse") else (early, late)
    if not _continues(first, second) or not _is_all(graph, outputs, node):
        return False
    if not _is_all(graph, first.results[1:], second):
        return False
    b = Builder(graph, second, maker="recurrent layers")
    given = operands_of(first)
    given["input"] = b(ops.Concatenate, early.operand(0), late.operand(0), axis=0)
    output, *states = remade(b, first, given)
    for made in b.created:
        made.add_history(first, second)
    for old, new in zip(second.results[1:], states, strict=True):
        graph.substitute(old, new)
    graph.replace(node, [reshape(Builder(graph, node), output, node.result.shape)])
    erase_dead(graph, [second, first])
    return True


def _continues(first: Node, second: Node) -> bool:
    """Whether `second` is the layer that `first` is, from its last states on."""
    if first is second or first.op is not second.op or attributes_of(first) != attributes_of(second):
        return False
    if touches_quantized(first) or touches_quantized(second):
        return False
    lhs, rhs = operands_of(first), operands_of(second)
    states = [rhs.get(name) for name in _STATES[: len(first.results) - 1]]
    if any(v is None or peeled(v) is not r for v, r in zip(states, first.results[1:], strict=True)):
        return False
    if lhs["lengths"] is not None or rhs["lengths"] is not None:
        return False
    parts = [first.operand(0), second.operand(0)]
    if not all(v.tensor_type.is_static for v in parts) or parts[0].shape[1:] != parts[1].shape[1:]:
        return False
    return all(_same(v, rhs[name]) for name, v in lhs.items() if name not in _SEQUENCE)


def _same(lhs: Value | None, rhs: Value | None) -> bool:
    """Whether both are one value, or equal constants."""
    if lhs is rhs:
        return True
    if lhs is None or rhs is None or lhs.data is None or rhs.data is None or lhs.type != rhs.type:
        return False
    return lhs.data.key == rhs.data.key or np.array_equal(lhs.numpy(), rhs.numpy())


def _is_all(graph: Graph, values: Sequence[Value], user: Node) -> bool:
    """Whether `user` is all that uses `values`, reshaped or not."""
    work = list(values)
    while work:
        value = work.pop()
        if graph.is_output(value):
            return False
        for node in value.users():
            if node.op in (ops.Reshape, ops.Copy):
                work.extend(node.results)
            elif node is not user:
                return False
    return True
