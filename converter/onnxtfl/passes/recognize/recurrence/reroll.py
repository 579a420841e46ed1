"""Rerolling: unrolled steps as a Scan of which they are the iterations.

::

    %p0, %p1, %p2 = Split(%products)
    %h0 = Tanh(%p0)                                          %h2, %y = Scan(%zeros, %products) {
    %h1 = Tanh(Add(%p1, DotGeneral(%h0, %R)))          ->      body = (%h, %p) -> (%n, %n) {
    %h2 = Tanh(Add(%p2, DotGeneral(%h1, %R)))                    %n = Tanh(Add(%p, DotGeneral(%h, %R))) } }
    %y = Concatenate(%h0, %h1, %h2)

The last step is converted to polynomials of its part and of values of the previous step, its states. Each previous step
has to compute the same, and the first step the same from initial states, which are zeros or values of the graph. A
single step is a Scan of one iteration. Only layers are written: steps of no known layer stay unrolled.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import without_reshapes
from onnxtfl.passes.recognize.recurrence.chains import Chain, source_of
from onnxtfl.passes.recognize.recurrence.iterations import Iterations
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps
from onnxtfl.passes.recognize.recurrence.matching import state
from onnxtfl.passes.recognize.recurrence.polynomials import ZERO, Atom, Poly, UnfitError, functions
from onnxtfl.passes.recognize.recurrence.reading import Reader

NEAR = 6
"""The most nodes between an initial state and the first step."""
MOST_INITIAL = 4
"""The most candidates for initial states."""


@dataclass(frozen=True)
class Rolled:
    """The steps of `chain` as a Scan over the step of `layer`.

    `initial`: the carried values, None for zeros. `finals`: values of the last step and their states; `collecting`: the
    nodes that concatenate the outputs of all steps, and whether as [T, N, H] (else [N, T, H]).
    """

    chain: Chain
    layer: Layer
    steps: Steps
    initial: Sequence[Value | None]
    finals: Mapping[Value, int]
    collecting: Mapping[Node, bool]


def rerolled(graph: Graph, chain: Chain) -> Iterator[Rolled]:
    """Yield the Scans of which `chain` may be the steps; several if the roles of states are ambiguous."""
    with contextlib.suppress(UnfitError):
        steps = _Steps(graph, chain)
        orders = chain.taken if chain.is_single else itertools.permutations(chain.taken[-1])
        for order in orders:
            for layer, polys in steps.layers(order):
                with contextlib.suppress(UnfitError):
                    yield steps.rolled(layer, polys, order)


class _Steps:
    """The steps of a candidate for a layer."""

    def __init__(self, graph: Graph, chain: Chain) -> None:
        self.graph, self.chain, self.count = graph, chain, len(chain.parts)
        self.iterations = Iterations(chain.parts[0], [v for values in chain.taken for v in values])
        self.others, self.atoms = set(chain.parts), self.iterations.atoms
        self.steps = self.iterations.steps(chain.sequence, chain.axis, self.count, chain.reverse)

    def layers(self, order: Sequence[Value]) -> Iterator[tuple[Layer, list[Poly]]]:
        """Yield layers that match the last step, with its new states; `order`: the states that it reads, by role."""
        last = self.count - 1
        if last > 1:  # the last step may not compute all states: those without users are missing
            for before in itertools.permutations(self.chain.taken[last - 1]):
                reader = self._reader(last - 1, before)
                hidden, *others = [reader.poly(v) for v in order]
                found = self.iterations.layer(hidden, others or None)
                if found is not None:
                    yield found
            return
        read = self._last_polys(order)
        polys = list(read.values())
        polys += [p for poly in polys for p in self._states_of(poly)]
        for hidden in reversed(polys):
            found = self.iterations.layer(hidden, polys if len(order) == 2 else None)
            if found is not None and (not self.chain.is_single or self._is_single(found[0], hidden, read)):
                yield found

    def _is_single(self, layer: Layer, hidden: Poly, read: Mapping[Value, Poly]) -> bool:
        """Whether a single step is one of `layer`; one without activation only if its result is the next state."""
        if layer.lengths is not None or not all(v.is_constant for v in layer.values):
            return False
        return layer.pattern.kind is not ops.Rnn or any(
            p.key == hidden.key and self._is_kept(v) for v, p in read.items()
        )

    def _is_kept(self, value: Value) -> bool:
        """Whether the graph returns `value` as the next state."""
        source = source_of(self.chain.taken[0][0])
        kept = [s.output for s in self.graph.states if s.input is source]
        kept += [v for v in self.graph.outputs if source in self.graph.inputs and v.tensor_type == source.tensor_type]
        return any(without_reshapes(v) is without_reshapes(value) for v in kept)

    def _last_polys(self, order: Sequence[Value]) -> dict[Value, Poly]:
        """Return the values of the last step that have one column per cell."""
        last, level = self.count - 1, self.chain.level
        values = [r for node in self.chain.nodes for r in node.results if level[r] == last and r.dtype.is_float]
        return self.iterations.polys(self._reader(last, order), values)

    def _states_of(self, poly: Poly) -> Iterator[Poly]:
        """Yield candidates for the (unused) states after a step if `poly` is an output masked by zeros."""
        atom, cells = poly.atom, self.iterations.cells
        if atom is None or atom.name is not ops.Select or atom.arguments[2].terms:
            return
        mask, after, _ = atom.arguments
        yield self.atoms.apply(ops.Select, None, [mask, after, self.atoms.leaf(state(0), 0, cells)])
        for inner in functions(after):
            for argument in inner.arguments:
                yield self.atoms.apply(ops.Select, None, [mask, argument, self.atoms.leaf(state(1), 0, cells)])

    def _reader(self, step: int, states: Sequence[Value]) -> Reader:
        """Return a reader of `step`, which reads `states` in the order of their roles."""
        index = self.count - 1 - step if self.chain.reverse else step
        return self.iterations.reader(self.chain.parts[step], states, self.others, index)[0]

    def rolled(self, layer: Layer, polys: Sequence[Poly], order: Sequence[Value]) -> Rolled:
        """Return the Scan if all steps compute `polys`, else UnfitError; `order`: what the last step reads, by role."""
        read = self._last_polys(order)
        readers, initial = {self.count - 1: self._reader(self.count - 1, order)}, list[Value | None](order)
        for step in range(self.count - 2, 0, -1):
            order, readers[step] = self._before(step, order, polys)
        collecting = {}
        if not self.chain.is_single:
            readers[0] = self._reader(0, ())
            candidates = self._candidates(readers[0])
            initial = self._initial(readers[0], order, polys, candidates)
            output = self.iterations.output(layer, polys[0])
            started = self._started(output, [candidates[v] for v in initial])
            collecting = self._collecting(readers, [started.key, *[output.key] * (self.count - 1)])
        finals = {v: role for role, poly in enumerate(polys) for v, p in read.items() if p.key == poly.key}
        return Rolled(self.chain, layer, self.steps, initial, finals, collecting)

    def _before(self, step: int, after: Sequence[Value], polys: Sequence[Poly]) -> tuple[Sequence[Value], Reader]:
        """Return the states of `step`, by role, for which `after` are its new states `polys`; and its reader."""
        for order in itertools.permutations(self.chain.taken[step]):
            reader = self._reader(step, order)
            if all(reader.poly(v).key == poly.key for v, poly in zip(after, polys, strict=True)):
                return order, reader
        raise UnfitError

    def _candidates(self, reader: Reader) -> dict[Value | None, Poly]:
        """Return candidates for initial states: zeros, and nearby values that do not depend on the sequence."""
        found: dict[Value | None, Poly] = {None: ZERO}
        found.update(self.iterations.polys(reader, self._invariants()).items())
        return found

    def _initial(
        self,
        reader: Reader,
        after: Sequence[Value],
        polys: Sequence[Poly],
        candidates: Mapping[Value | None, Poly],
    ) -> list[Value | None]:
        """Return the initial states, by role, for which the first step has the new states `after`."""
        wanted = [reader.poly(v).key for v in after]
        for chosen in itertools.product(candidates, repeat=len(polys)):
            if [self._started(p, [candidates[v] for v in chosen]).key for p in polys] == wanted:
                return list(chosen)
        raise UnfitError

    def _started(self, poly: Poly, initial: Sequence[Poly]) -> Poly:
        """Return `poly` with the states replaced by initial states."""
        names = {state(role): value for role, value in enumerate(initial)}

        def leaf(atom: Atom) -> Poly | None:
            value = names.get(atom.name)
            return value if value is None else self.atoms.columns(value, atom.start, atom.start + atom.detail)

        return self.atoms.substitute(poly, leaf)

    def _invariants(self) -> Iterable[Value]:
        level, found = self.chain.level, dict[Value, None]()
        work = [v for node in self.chain.nodes if level[node.results[0]] == 0 for v in node.operands]
        for _ in range(NEAR):
            values = [v for v in work if v is not None and not v.is_constant and v not in level]
            found |= {
                without_reshapes(v): None for v in values if isinstance(v.tensor_type.shape, tuple) and v.dtype.is_float
            }
            work = [o for v in values if v.producer is not None for o in v.producer.operands]
        return list(found)[:MOST_INITIAL]

    def _collecting(self, readers: Mapping[int, Reader], wanted: Sequence[object]) -> dict[Node, bool]:
        """Return the nodes that concatenate `wanted` of all steps, and whether as [T, N, H] (else [N, T, H])."""
        found = {}
        for node in self.chain.collecting:
            values = node.operands[::-1] if self.chain.reverse else node.operands
            with contextlib.suppress(UnfitError):
                keys = [readers[i].poly(v).key for i, v in enumerate(values) if v is not None]
                if keys == wanted:
                    found[node] = self.iterations.is_time_first(node.result, node.attr("axis"))
        return found
