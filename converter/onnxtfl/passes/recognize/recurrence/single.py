"""Recurrent layers of one step, as models have them that keep the state of a layer outside, between their runs.

::

    graph (%x, %h) -> (%y)
    %p = DotGeneralBias(%x, %W, %b)
    %d = DotGeneral(%h, %R)                            ->     %y, %last = Rnn(%x, %W, %R, %b, hidden = %h)
    %y = Tanh(Add(%p, %d))

What a matrix multiplies is tried as the state before the step where it is a part of an input or of a state of the
graph.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps, layer_of
from onnxtfl.passes.recognize.recurrence.matching import PART, state
from onnxtfl.passes.recognize.recurrence.polynomials import Atoms, Poly, UnfitError
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader, peeled
from onnxtfl.rewriting.patterns import erase_dead

NODES_OF_STEP = 40
"""Nodes that are looked at after the product with the state; those of layers have fewer than 30."""
_PRODUCTS = (ops.DotGeneral, ops.DotGeneralBias)
_PARTS = (ops.Reshape, ops.Copy, ops.Slice, ops.Split, ops.Gather, ops.Transpose)
"""Ops whose result is a part of what they are applied to."""


def recognize_single_steps(graph: Graph) -> bool:
    """Replace single steps of recurrent layers by the layers; returns whether there were any."""
    sources = {*graph.inputs, *(s.input for s in graph.states)}
    changed = False
    for node in [node for node in graph.nodes if node.op in _PRODUCTS]:
        if node.graph is graph:
            changed |= any(_is_replaced(graph, node, x, h, sources) for x, h in _operands(node, sources))
    return changed


def _operands(dot: Node, sources: set[Value]) -> Iterator[tuple[Value, Value]]:
    """What may be the input of a step, and the state before it, of which `dot` is a product."""
    left = peeled(dot.operand(0))
    if not dot.operand(1).is_constant or not left.dtype.is_float:
        return
    node = left.producer
    if node is not None and node.op is ops.Concatenate and len(node.operands) == 2:
        first, second = node.operand(0), node.operand(1)
        for x, h in ((first, second), (second, first)):
            if _source(h) in sources:
                yield x, h
    elif _source(left) in sources:
        for x in _added(dot.result):
            yield x, dot.operand(0)


def _source(value: Value) -> Value:
    """What `value` is a part of."""
    while (node := value.producer) is not None and node.op in _PARTS:
        if any(not v.is_constant for v in node.operands[1:] if v is not None):
            break
        value = node.operand(0)
    return value


def _added(value: Value) -> list[Value]:
    """What is multiplied by the matrices whose products are added to `value`, or to parts of it."""
    found: dict[Value, None] = {}
    for node in _after(value):
        for operand in node.operands if node.op is ops.Add else ():
            dot = None if operand is None else _product_of(operand)
            if dot is not None and dot.result is not value:
                found[dot.operand(0)] = None
    return list(found)


def _after(value: Value) -> Iterator[Node]:
    """The first nodes that compute something of `value` or parts of it."""
    work = list(value.users())
    for node in work:
        if node.op in (ops.Reshape, ops.Split, ops.Slice):
            work.extend(user for result in node.results for user in result.users())
        else:
            yield node


def _product_of(value: Value) -> Node | None:
    """The product that `value` is, is a part of, or is the sum of with a constant."""
    while (node := value.producer) is not None and node.op not in _PRODUCTS:
        constants = all(v is None or v.is_constant for v in node.operands[1:])
        if node.op not in (*_PARTS, ops.Add) or not constants:
            return None
        value = node.operand(0)
    return node


def _is_replaced(graph: Graph, dot: Node, x: Value, h: Value, sources: set[Value]) -> bool:
    if any(not isinstance(v.tensor_type.shape, tuple) or not v.dtype.is_float for v in (x, h)) or h.rank < 2:
        return False
    near = _near(dot)
    if x.producer in near:
        return False
    for cell in [*_cells(near, h, sources), None]:
        with contextlib.suppress(UnfitError):
            if _Single(graph, near, x, [h] if cell is None else [h, cell]).replace():
                return True
    return False


def _near(dot: Node) -> dict[Node, None]:
    """`dot` and the nodes that depend on it, the nearest ones."""
    near, work = {dot: None}, deque([dot])
    while work:
        for user in (u for result in work.popleft().results for u in result.users()):
            if user not in near and len(near) < NODES_OF_STEP:
                near[user] = None
                work.append(user)
    return near


def _cells(near: Mapping[Node, None], h: Value, sources: set[Value]) -> list[Value]:
    """What may be the cell state: a value like `h` that a gate is multiplied by."""
    values = [v for node in near if node.op is ops.Mul for v in node.operands if v is not None and not v.is_constant]
    size = product(h.shape)
    found = {peeled(v): v for v in values if v.producer not in near and isinstance(v.tensor_type.shape, tuple)}
    return [
        v for base, v in found.items() if base is not peeled(h) and product(v.shape) == size and _source(v) in sources
    ]


class _Single:
    """What may be a step of a layer that takes `x` and the states `before`, among the nodes `near`."""

    def __init__(self, graph: Graph, near: Mapping[Node, None], x: Value, before: Sequence[Value]) -> None:
        self.graph, self.near, self.x, self.before = graph, near, x, before
        hidden = before[0]
        self.batch, cells = product(hidden.shape[:-1]), hidden.shape[-1]
        if not isinstance(cells, int):
            raise UnfitError
        self.cells, self.atoms = cells, Atoms()
        self.reader = self._reader()

    def _reader(self) -> Reader:
        places: dict[Value, Columns] = {}

        def leaf(value: Value) -> Columns | None:
            found = places.get(peeled(value))
            if found is not None and reader.width(value) != found[0][0]:
                raise UnfitError
            return found

        reader = Reader(self.atoms, self.batch, leaf, 0)
        self.width = reader.width(self.x)
        for name, value in [(PART, self.x), *((state(role), v) for role, v in enumerate(self.before))]:
            places[peeled(value)] = reader.named(value, name)
        return reader

    def replace(self) -> bool:
        """Replace the step by a layer, if it is one."""
        read = self._read()
        others = list(read.values()) if len(self.before) == 2 else None
        for value, poly in read.items():
            found = layer_of(self.atoms, self.cells, poly, others, self.width)
            if found is None or (found[0].pattern.kind is ops.Rnn and not self._is_kept(value)):
                continue
            layer, polys = found
            if layer.lengths is None and all(v.is_constant for v in layer.values):
                finals = {v: role for role, new in enumerate(polys) for v, p in read.items() if p.key == new.key}
                if self._write(layer, finals):
                    return True
        return False

    def _read(self) -> dict[Value, Poly]:
        """The values near that have as many columns as there are cells."""
        found = {}
        for value in (r for node in self.near for r in node.results if r.dtype.is_float):
            with contextlib.suppress(UnfitError):
                if self.reader.width(value) == self.cells:
                    found[value] = self.reader.poly(value)
        return found

    def _is_kept(self, value: Value) -> bool:
        """Whether `value` is what the graph returns as the next state: other sums of products are no layers."""
        source = _source(self.before[0])
        kept = [s.output for s in self.graph.states if s.input is source]
        kept += [v for v in self.graph.outputs if source in self.graph.inputs and v.tensor_type == source.tensor_type]
        return any(peeled(v) is peeled(value) for v in kept)

    def _write(self, layer: Layer, finals: Mapping[Value, int]) -> bool:
        """Write the layer for `finals`; not if the step has other users."""
        inside = self._made_for(finals)
        kept = {r for node in inside for r in node.results if r not in finals}
        outside = self.graph.output_set()
        if any(touches_quantized(node) for node in inside):
            return False
        if any(r in outside or any(u not in inside for u in r.users()) for r in kept):
            return False
        first = next(node for node in self.graph.nodes if any(r in finals for r in node.results))
        b = Builder(self.graph, first, cause=first, maker="recurrent layers")
        _, *states = layer.write(b, Steps(self.x, 1, self.batch), self.before)
        for made in b.created:
            made.add_history(*inside)
        for value, role in finals.items():
            self.graph.substitute(value, reshape(b, states[role], value.shape, states[role], value))
        erase_dead(self.graph, [v.producer for v in finals if v.producer is not None])
        return True

    def _made_for(self, finals: Mapping[Value, int]) -> set[Node]:
        """The nodes near that `finals` depend on."""
        inside: set[Node] = set()
        work = [v.producer for v in finals]
        while work:
            node = work.pop()
            if node is not None and node in self.near and node not in inside:
                inside.add(node)
                work.extend(v.producer for v in node.operands if v is not None)
        return inside
