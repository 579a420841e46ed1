"""Nodes that may be the steps of a recurrent layer: what each takes of a sequence, and of the step before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxtfl.ir import ops
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.passes.recognize.recurrence.reading import peeled

MOST_STEPS = 1 << 10
NODES_OF_STEP = 64
"""Nodes that are looked at for each step; those of layers have fewer than 30."""
NODES_OF_SINGLE_STEP = 40
"""Nodes that are looked at after the product with the state of a single step."""
PRODUCTS = (ops.DotGeneral, ops.DotGeneralBias)
_PARTS = (ops.Reshape, ops.Copy, ops.Slice, ops.Split, ops.Gather, ops.Transpose)
"""Ops whose result is a part of what they are applied to."""
_LINEAR = (ops.Reshape, ops.Copy, *PRODUCTS, ops.Split, ops.Slice, ops.Mul, ops.Add)


@dataclass(frozen=True)
class Chain:
    """Steps of which step i takes `parts[i]`, along `axis` of `sequence`, and the states `taken[i]`.

    `taken` has nothing for the first step where its states are not known. `start`: the node before which, or at which,
    the steps begin; `level`: the step of each value; `collecting`: nodes that take a value of each step, in order.
    """

    start: Node
    sequence: Value
    axis: int
    parts: Sequence[Value]
    taken: Sequence[Sequence[Value]]
    nodes: Mapping[Node, None]
    level: Mapping[Value, int]
    collecting: Sequence[Node] = ()
    reverse: bool = False

    @property
    def is_single(self) -> bool:
        return len(self.parts) == 1


# --- steps that take the parts of a Split -----------------------------------------------------------------------------


def chains_of(split: Node) -> Iterator[Chain]:
    """The steps, forward and backward, that take the parts of `split`."""
    if not _may_be_steps(split):
        return
    for reverse in (False, True):
        steps = _StepNodes(split.results[::-1] if reverse else split.results)
        if (taken := steps.taken()) is not None:
            x, nodes = split.operand(0), dict.fromkeys(steps.nodes)
            axis = split.attr("axis")
            yield Chain(split, x, axis, steps.parts, taken, nodes, steps.level, steps.collecting, reverse)


def _may_be_steps(node: Node) -> bool:
    """Whether `node` splits a sequence into equal parts, each of which is used."""
    if node.op is not ops.Split or not 1 < len(node.results) <= MOST_STEPS or not all(r.uses for r in node.results):
        return False
    first = node.results[0]
    if not isinstance(first.tensor_type.shape, tuple) or not first.dtype.is_float or first.is_quantized:
        return False
    return all(r.shape == first.shape for r in node.results)


@dataclass
class _StepNodes:
    """The nodes that depend on the parts, by the last part that they depend on."""

    parts: Sequence[Value]
    level: dict[Value, int] = field(default_factory=dict)
    collecting: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def taken(self) -> list[list[Value]] | None:
        """For each step, the values of the step before that it takes; None where these are no states."""
        near = _near(self.parts, NODES_OF_STEP * len(self.parts))
        if not any(node.op in PRODUCTS for node in near):
            return None
        self.level.update((part, i) for i, part in enumerate(self.parts))
        self._sort(near)
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
        return [list(values) for values in found] if counts in ({1}, {2}) else None

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


def _near(values: Sequence[Value], most: int) -> dict[Node, None]:
    """The nodes nearest to `values` that depend on them, at least `most` if there are so many."""
    near: dict[Node, None] = {}
    work = deque(values)
    while work and len(near) < most:
        for node in work.popleft().users():
            if node not in near:
                near[node] = None
                work.extend(node.results)
    return near


def _before_products(value: Value) -> Value:
    """The value of which `value` is a linear function with constants: a step may compute that of the next one."""
    while (node := value.producer) is not None:
        variable = [v for v in node.operands if v is not None and not v.is_constant]
        if node.op not in _LINEAR or len(variable) != 1:
            break
        value = variable[0]
    return value


# --- single steps, whose states are outside ---------------------------------------------------------------------------


def single_steps(dot: Node, sources: set[Value]) -> Iterator[Chain]:
    """What may be the only step of a layer, where `dot` multiplies its state: a part of one of `sources`."""
    if dot.op not in PRODUCTS:
        return
    for x, hidden in _operands(dot, sources):
        near = {dot: None, **_near(dot.results, NODES_OF_SINGLE_STEP)}
        known = all(isinstance(v.tensor_type.shape, tuple) and v.dtype.is_float for v in (x, hidden))
        if not known or x.producer in near:
            continue
        for cell in [*_cells(near, hidden, sources), None]:
            taken = [hidden] if cell is None else [hidden, cell]
            yield Chain(dot, x, 0, [x], [taken], near, {r: 0 for node in near for r in node.results})


def sources_of(graph: Graph) -> set[Value]:
    """The values that a state before a single step may be a part of."""
    return {*graph.inputs, *(s.input for s in graph.states)}


def source_of(value: Value) -> Value:
    """What `value` is a part of."""
    while (node := value.producer) is not None and node.op in _PARTS:
        if any(not v.is_constant for v in node.operands[1:] if v is not None):
            break
        value = node.operand(0)
    return value


def _operands(dot: Node, sources: set[Value]) -> Iterator[tuple[Value, Value]]:
    """What may be the input of a step, and the state before it, of which `dot` is a product."""
    left = peeled(dot.operand(0))
    if not dot.operand(1).is_constant or not left.dtype.is_float:
        return
    node = left.producer
    if node is not None and node.op is ops.Concatenate and len(node.operands) == 2:
        first, second = node.operand(0), node.operand(1)
        yield from ((x, h) for x, h in ((first, second), (second, first)) if source_of(h) in sources)
    elif source_of(left) in sources:
        yield from ((x, dot.operand(0)) for x in _added(dot.result))


def _added(value: Value) -> list[Value]:
    """What is multiplied by the matrices whose products are added to `value`, or to parts of it."""
    found: dict[Value, None] = {}
    work = list(value.users())
    for node in work:
        if node.op in (ops.Reshape, ops.Split, ops.Slice):
            work.extend(user for result in node.results for user in result.users())
        for operand in node.operands if node.op is ops.Add else ():
            dot = None if operand is None else _product_of(operand)
            if dot is not None and dot.result is not value:
                found[dot.operand(0)] = None
    return list(found)


def _product_of(value: Value) -> Node | None:
    """The product that `value` is, is a part of, or is the sum of with a constant."""
    while (node := value.producer) is not None and node.op not in PRODUCTS:
        constants = all(v is None or v.is_constant for v in node.operands[1:])
        if node.op not in (*_PARTS, ops.Add) or not constants:
            return None
        value = node.operand(0)
    return node


def _cells(near: Mapping[Node, None], h: Value, sources: set[Value]) -> list[Value]:
    """What may be the cell state: a value like `h` that a gate is multiplied by."""
    values = [v for node in near if node.op is ops.Mul for v in node.operands if v is not None and not v.is_constant]
    size = product(h.shape)
    found = {peeled(v): v for v in values if v.producer not in near and isinstance(v.tensor_type.shape, tuple)}
    return [
        v for base, v in found.items() if base is not peeled(h) and product(v.shape) == size and source_of(v) in sources
    ]
