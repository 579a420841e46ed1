"""Recurrent layers that a file has step by step.

::

    %p0, %p1, %p2 = Split(%products)
    %h0 = Tanh(%p0)
    %h1 = Tanh(Add(%p1, DotGeneral(%h0, %R)))          ->     %y, %h2 = Rnn(%x, %W, %R, %b)
    %h2 = Tanh(Add(%p2, DotGeneral(%h1, %R)))
    %y = Concatenate(%h0, %h1, %h2)

The last step is read as a layer of its part and of values of the step before, its states; each step before has to
compute the same, and the first the same from initial states, which are zeros or values of the graph.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps, layer_of, output_of
from onnxtfl.passes.recognize.recurrence.matching import PART, state
from onnxtfl.passes.recognize.recurrence.polynomials import ZERO, Atom, Atoms, Poly, UnfitError, functions
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader, peeled
from onnxtfl.rewriting.patterns import erase_dead

MOST_STEPS = 1 << 10
NODES_OF_STEP = 64
"""Nodes that are looked at for each step; those of layers have fewer than 30."""
NEAR = 6
"""How far before the first step an initial state is looked for, in nodes."""
MOST_INITIAL = 4
"""Values that are tried as initial states."""


def recognize_unrolled(graph: Graph) -> bool:
    """Replace the steps of recurrent layers by the layers; returns whether there were any."""
    changed = False
    for split in [node for node in graph.nodes if _may_be_steps(node)]:
        if split.graph is graph:
            changed |= any(_replaced(graph, split, reverse) for reverse in (False, True))
    return changed


def _may_be_steps(node: Node) -> bool:
    """Whether `node` splits a sequence into equal parts, each of which is used."""
    if node.op is not ops.Split or not 1 < len(node.results) <= MOST_STEPS or not all(r.uses for r in node.results):
        return False
    first = node.results[0]
    if not isinstance(first.tensor_type.shape, tuple) or not first.dtype.is_float or first.is_quantized:
        return False
    return all(r.shape == first.shape for r in node.results)


def _replaced(graph: Graph, split: Node, reverse: bool) -> bool:
    parts = split.results[::-1] if reverse else split.results
    steps = _StepNodes(parts)
    states = steps.states()
    if states is None:
        return False
    try:
        return _Unrolled(graph, split, steps, states, reverse).replace()
    except UnfitError:
        return False


class _StepNodes:
    """The nodes that depend on the parts, by the last part that they depend on.

    `level`: the index of that part for each value; `collecting`: nodes that take a value of each step, in order.
    """

    def __init__(self, parts: Sequence[Value]) -> None:
        self.parts = parts
        self.level = {part: i for i, part in enumerate(parts)}
        self.collecting: list[Node] = []
        self.nodes: list[Node] = []
        near = self._near()
        self._has_products = any(node.op in (ops.DotGeneral, ops.DotGeneralBias) for node in near)
        if self._has_products:
            self._sort(near)

    def _near(self) -> dict[Node, None]:
        """The nodes nearest to the parts."""
        near: dict[Node, None] = {}
        work = deque(self.parts)
        while work and len(near) < NODES_OF_STEP * len(self.parts):
            for node in work.popleft().users():
                if node not in near:
                    near[node] = None
                    work.extend(node.results)
        return near

    def _sort(self, near: Mapping[Node, None]) -> None:
        """Put `near` in order of dependence; what depends on collecting nodes is left out."""
        missing = {n: sum(v is not None and v.producer in near for v in n.operands) for n in near}
        work = deque(node for node, count in missing.items() if not count)
        while work:
            node = work.popleft()
            levels = [self.level.get(v, -1) for v in node.operands if v is not None]
            if self._collects(node, levels):
                self.collecting.append(node)
                continue
            self.nodes.append(node)
            for result in node.results:
                self.level[result] = max(levels)
                for user, _ in result.uses:
                    if user in missing:
                        missing[user] -= 1
                        if not missing[user]:
                            work.append(user)

    def _collects(self, node: Node, levels: Sequence[int]) -> bool:
        steps = list(range(len(self.parts)))
        if node.op is not ops.Concatenate or levels not in (steps, steps[::-1]):
            return False
        return not any(peeled(v) in self.parts for v in node.operands if v is not None)

    def states(self) -> list[list[Value]] | None:
        """For each step but the first, the values of the step before that it takes; None where there are none."""
        if not self._has_products:
            return None
        found: list[dict[Value, None]] = [{} for _ in self.parts]
        for node in self.nodes:
            if node.op in (ops.Reshape, ops.Copy):
                continue
            step = self.level[node.results[0]]
            for value in node.operands:
                if value is not None and -1 < self.level.get(value, -1) < step:
                    if self.level[value] != step - 1:
                        return None
                    found[step][_before_products(value)] = None
        counts = {len(values) for values in found[1:]}
        return [list(values) for values in found[1:]] if counts in ({1}, {2}) else None


def _before_products(value: Value) -> Value:
    """The value of which `value` is a linear function with constants: a step may compute that of the next one."""
    while (node := value.producer) is not None:
        variable = [v for v in node.operands if v is not None and not v.is_constant]
        if node.op not in _LINEAR or len(variable) != 1:
            break
        value = variable[0]
    return value


_LINEAR = (ops.Reshape, ops.Copy, ops.DotGeneral, ops.DotGeneralBias, ops.Split, ops.Slice, ops.Mul, ops.Add)


class _Unrolled:
    """The steps of what may be a layer, `states[i]` those that step i + 1 takes."""

    def __init__(
        self, graph: Graph, split: Node, steps: _StepNodes, states: Sequence[Sequence[Value]], reverse: bool
    ) -> None:
        self.graph, self.split, self.nodes, self.states, self.reverse = graph, split, steps, states, reverse
        self.atoms, self.count = Atoms(), len(steps.parts)
        first = states[0][0]
        if any(len(v.shape) < 2 or not v.dtype.is_float for each in states for v in each):
            raise UnfitError
        self.batch, cells = product(first.shape[:-1]), first.shape[-1]
        if not isinstance(cells, int):
            raise UnfitError
        self.cells = cells
        self.width = self._reader(0, ()).width(steps.parts[0])
        self.steps = self._steps()

    def _steps(self) -> Steps:
        x, axis = self.split.operand(0), normalize_axis(self.split.attr("axis"), self.split.operand(0).rank)
        before = product(x.shape[:axis])
        if before not in (1, self.batch):
            raise UnfitError
        return Steps(x, self.count, self.batch, before == 1, self.reverse)

    def replace(self) -> bool:
        """Replace the steps by a layer, if they are one."""
        for order in itertools.permutations(self.states[-1]):
            for layer, polys in self._layers(order):
                with contextlib.suppress(UnfitError):
                    if self._is_written(layer, polys, order):
                        return True
        return False

    def _layers(self, order: Sequence[Value]) -> Iterator[tuple[Layer, list[Poly]]]:
        """Layers of which a step is one, with its states; `order`: the states that the last step takes, by role."""
        last = self.count - 1
        if last > 1:  # the step before the last computes all states, also those that nothing uses after the last
            for before in itertools.permutations(self.states[last - 2]):
                reader = self._reader(last - 1, before)
                hidden, *others = [reader.poly(v) for v in order]
                found = layer_of(self.atoms, self.cells, hidden, others or None, self.width)
                if found is not None:
                    yield found
            return
        polys = list(self._last_polys(order).values())
        polys += [p for poly in polys for p in self._states_of(poly)]
        for hidden in reversed(polys):
            found = layer_of(self.atoms, self.cells, hidden, polys if len(order) == 2 else None, self.width)
            if found is not None:
                yield found

    def _last_polys(self, order: Sequence[Value]) -> dict[Value, Poly]:
        """What the last step computes for each cell."""
        last, level = self.count - 1, self.nodes.level
        values = [r for node in self.nodes.nodes for r in node.results if level[r] == last and r.dtype.is_float]
        return self._polys(self._reader(last, order), values)

    def _states_of(self, poly: Poly) -> Iterator[Poly]:
        """The states after a step, which nothing uses, if `poly` is an output that is masked by zeros."""
        atom = poly.atom
        if atom is None or atom.name is not ops.Select or atom.arguments[2].terms:
            return
        mask, after, _ = atom.arguments
        yield self.atoms.apply(ops.Select, None, [mask, after, self.atoms.leaf(state(0), 0, self.cells)])
        for inner in functions(after):
            for argument in inner.arguments:
                yield self.atoms.apply(ops.Select, None, [mask, argument, self.atoms.leaf(state(1), 0, self.cells)])

    def _polys(self, reader: Reader, values: Iterable[Value]) -> dict[Value, Poly]:
        """Those of `values` that have as many columns as there are cells."""
        found = {}
        for value in values:
            with contextlib.suppress(UnfitError):
                if reader.width(value) == self.cells:
                    found[value] = reader.poly(value)
        return found

    def _reader(self, step: int, states: Sequence[Value]) -> Reader:
        """A reader of `step`, which takes `states` in the order of their roles."""
        places: dict[Value, Columns] = {}
        part, others = self.nodes.parts[step], set(self.nodes.parts)
        index = self.count - 1 - step if self.reverse else step

        def leaf(value: Value) -> Columns | None:
            base = peeled(value)
            found = places.get(base)
            if found is None and base in others:
                raise UnfitError
            if found is not None and reader.width(value) != found[0][0]:
                raise UnfitError
            return found

        reader = Reader(self.atoms, self.batch, leaf, index)
        for name, value in [(PART, part), *((state(role), v) for role, v in enumerate(states))]:
            places[value] = reader.named(value, name)
        return reader

    def _is_written(self, layer: Layer, polys: Sequence[Poly], order: Sequence[Value]) -> bool:
        """Write the layer if all steps compute `polys`; `order`: the states that the last step takes, by role."""
        read = self._last_polys(order)
        readers = {self.count - 1: self._reader(self.count - 1, order)}
        for step in range(self.count - 2, 0, -1):
            found = self._before(step, order, polys)
            if found is None:
                return False
            order, readers[step] = found
        readers[0] = self._reader(0, ())
        initial = self._initial(readers[0], order, polys)
        if initial is None:
            return False
        finals = {v: role for role, poly in enumerate(polys) for v, p in read.items() if p.key == poly.key}
        collecting = self._collecting(readers, output_of(self.atoms, layer, polys[0]), initial)
        return self._replace(layer, list(initial.values()), finals, collecting)

    def _before(
        self, step: int, after: Sequence[Value], polys: Sequence[Poly]
    ) -> tuple[Sequence[Value], Reader] | None:
        """The states that `step` takes, by role, so that `after` are its new states `polys`; and its reader."""
        for order in itertools.permutations(self.states[step - 1]):
            reader = self._reader(step, order)
            if all(reader.poly(v).key == poly.key for v, poly in zip(after, polys, strict=True)):
                return order, reader
        return None

    def _initial(self, reader: Reader, after: Sequence[Value], polys: Sequence[Poly]) -> dict[int, Value | None] | None:
        """The initial states with which the first step has the new states `after`; None where there are none."""
        wanted = [reader.poly(v).key for v in after]
        candidates: dict[Value | None, Poly] = {None: ZERO}
        for value, poly in self._polys(reader, self._invariants()).items():
            candidates[value] = poly
        for chosen in itertools.product(candidates, repeat=len(polys)):
            replaced = [self._started(p, [candidates[v] for v in chosen]).key for p in polys]
            if replaced == wanted:
                self.started = [candidates[v] for v in chosen]
                return dict(enumerate(chosen))
        return None

    def _started(self, poly: Poly, initial: Sequence[Poly]) -> Poly:
        """`poly` with initial states for the states."""
        names = {state(role): value for role, value in enumerate(initial)}

        def leaf(atom: Atom) -> Poly | None:
            value = names.get(atom.name)
            return value if value is None else self.atoms.columns(value, atom.start, atom.start + atom.detail)

        return self.atoms.substitute(poly, leaf)

    def _invariants(self) -> list[Value]:
        """Values near the first step that do not depend on the sequence."""
        level, found = self.nodes.level, dict[Value, None]()
        work = [v for node in self.nodes.nodes if level[node.results[0]] == 0 for v in node.operands]
        for _ in range(NEAR):
            values = [v for v in work if v is not None and not v.is_constant and v not in level]
            found |= {peeled(v): None for v in values if isinstance(v.tensor_type.shape, tuple) and v.dtype.is_float}
            work = [o for v in values if v.producer is not None for o in v.producer.operands]
        return list(found)[:MOST_INITIAL]

    def _collecting(self, readers: Mapping[int, Reader], output: Poly, initial: object) -> dict[Node, bool]:
        """The nodes that join the outputs of all steps, and whether as [T, N, H], not [N, T, H]."""
        wanted = [self._started(output, self.started).key, *[output.key] * (self.count - 1)]
        found = {}
        for node in self.nodes.collecting:
            values = node.operands[::-1] if self.reverse else node.operands
            with contextlib.suppress(UnfitError):
                keys = [readers[i].poly(v).key for i, v in enumerate(values) if v is not None]
                if keys == wanted:
                    found[node] = self._is_time_first(node)
        return found

    def _is_time_first(self, node: Node) -> bool:
        """Whether `node` joins [N, H] of all steps to [T, N, H]; UnfitError where it is not [N, T, H] either."""
        shape, axis = node.result.shape, normalize_axis(node.attr("axis"), node.result.rank)
        before, after = product(shape[:axis]), product(shape[axis:])
        if before == 1:
            return True
        if before != self.batch or after != self.count * self.cells:
            raise UnfitError
        return False

    def _replace(
        self,
        layer: Layer,
        initial: Sequence[Value | None],
        finals: Mapping[Value, int],
        collecting: Mapping[Node, bool],
    ) -> bool:
        """Write the layer for `finals` and the results of `collecting`; not if the steps have other users."""
        joined = [v for node in collecting for v in node.operands if v is not None]
        inside = self._made_for([*finals, *joined])
        outside = self.graph.output_set()
        kept = {r for node in inside for r in node.results if r not in finals}
        if any(touches_quantized(node) for node in (*inside, *collecting)):
            return False
        if any(r in outside or any(u not in inside and u not in collecting for u in r.users()) for r in kept):
            return False
        sources = [self.steps.sequence, *layer.values, *(v for v in initial if v is not None)]
        before = self._place(sources, inside)
        b = Builder(self.graph, before, cause=self.split, maker="recurrent layers")
        output, *states = layer.write(b, self.steps, initial)
        for made in b.created:
            made.add_history(*inside)
        for value, role in finals.items():
            self.graph.substitute(value, reshape(b, states[role], value.shape, states[role], value))
        for node, time_first in collecting.items():
            steps = replace(self.steps, time_first=time_first)
            self.graph.replace(node, [steps.as_written(b, output, node.result)])
        erase_dead(self.graph, [v.producer for v in (*finals, *joined) if v.producer is not None])
        return True

    def _made_for(self, values: Sequence[Value]) -> set[Node]:
        """The nodes of the steps that `values` depend on."""
        inside: set[Node] = set()
        work = [v.producer for v in values]
        while work:
            node = work.pop()
            if node is None or node in inside or node is self.split or self.nodes.level.get(node.results[0]) is None:
                continue
            inside.add(node)
            work.extend(v.producer for v in node.operands if v is not None)
        return inside

    def _place(self, sources: Sequence[Value], inside: set[Node]) -> Node:
        """The node that is the first after all producers of `sources`; UnfitError where one depends on the steps."""
        waiting = {node for v in sources if (node := v.producer) is not None}
        last, node, seen, left = self.split, self.split, set[Node](), len(inside)
        while left:
            following = node.next
            assert following is not None
            node = following
            left -= node in inside
            seen.add(node)
            last = node if node in waiting else last
        if self._reaches([node for node in waiting if node in seen], seen, inside) or last.next is None:
            raise UnfitError
        return last.next

    def _reaches(self, work: list[Node], among: set[Node], inside: set[Node]) -> bool:
        """Whether one of `work` depends on a node of `inside` through nodes of `among`."""
        done: set[Node] = set()
        while work:
            node = work.pop()
            if node in inside:
                return True
            if node not in done:
                done.add(node)
                work.extend(p for v in node.operands if v is not None and (p := v.producer) is not None and p in among)
        return False
