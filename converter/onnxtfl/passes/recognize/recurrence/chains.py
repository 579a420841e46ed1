"""Candidates for the steps of a recurrent layer: nodes, parts of the sequence, values from the previous step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import without_reshapes

MOST_STEPS = 1 << 10
NODES_OF_STEP = 64
"""The most nodes examined per step; steps of layers have fewer than 30."""
NODES_OF_SINGLE_STEP = 40
"""The most nodes examined after the product with the state of a single step."""
PRODUCTS = (ops.DotGeneral, ops.DotGeneralBias)
_PARTS = (ops.Reshape, ops.Copy, ops.Slice, ops.Split, ops.Gather, ops.Transpose)
"""Ops whose result is a part of their operand."""
_LINEAR = (ops.Reshape, ops.Copy, *PRODUCTS, ops.Split, ops.Slice, ops.Mul, ops.Add)


@dataclass(frozen=True)
class Chain:
    """Steps: step i reads `parts[i]`, along `axis` of `sequence`, and the states `taken[i]`.

    `taken[0]` is empty if the initial states are unknown. `start`: the first node, or the one before it; `level`: the
    step of each value; `collecting`: nodes that read one value of each step, in order.
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
    """Yield the steps, forward and backward, that read the parts of `split`."""
    if not _may_be_steps(split):
        return
    for reverse in (False, True):
        steps = _StepNodes(split.results[::-1] if reverse else split.results)
        if (taken := steps.taken()) is not None:
            x, nodes = split.operand(0), dict.fromkeys(steps.nodes)
            axis = split.attr("axis")
            yield Chain(split, x, axis, steps.parts, taken, nodes, steps.level, steps.collecting, reverse)


def _may_be_steps(node: Node) -> bool:
    """Whether `node` splits a sequence into equal parts that are all used."""
    if node.op is not ops.Split or not 1 < len(node.results) <= MOST_STEPS or not all(r.uses for r in node.results):
        return False
    first = node.results[0]
    if not isinstance(first.tensor_type.shape, tuple) or not first.dtype.is_float or first.is_quantized:
        return False
    return all(r.shape == first.shape for r in node.results)


@dataclass
class _StepNodes:
    """The nodes that depend on the parts, with the last part that they depend on."""

    parts: Sequence[Value]
    level: dict[Value, int] = field(default_factory=dict)
    collecting: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def taken(self) -> list[list[Value]] | None:
        """Return, for each step, the values that it reads from the previous one; None if these cannot be states."""
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
        """Sort `near` topologically, without nodes that depend on collecting nodes."""
        missing = {n: sum(v is not None and v.producer in near for v in n.operands) for n in near}
        work = deque(node for node, count in missing.items() if not count)
        while work:
            node = work.popleft()
            levels = [self.level.get(v, -1) for v in node.present_operands]
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
        return not any(without_reshapes(v) in self.parts for v in node.present_operands)


def _near(values: Sequence[Value], most: int) -> dict[Node, None]:
    """Return the nearest `most` (or more) nodes that depend on `values`."""
    near: dict[Node, None] = {}
    work = deque(values)
    while work and len(near) < most:
        for node in work.popleft().users():
            if node not in near:
                near[node] = None
                work.extend(node.results)
    return near


def _before_products(value: Value) -> Value:
    """Return the value of which `value` is a linear function: a step may compute the product for the next one."""
    while (node := value.producer) is not None:
        variable = [v for v in node.present_operands if not v.is_constant]
        if node.op not in _LINEAR or len(variable) != 1:
            break
        value = variable[0]
    return value


# --- single steps, whose states are outside ---------------------------------------------------------------------------


def single_steps(dot: Node, sources: set[Value]) -> Iterator[Chain]:
    """Yield candidates for the only step of a layer: `dot` multiplies its state, a part of one of `sources`."""
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
    """Return the values of which the initial state of a single step may be a part."""
    return {*graph.inputs, *(s.input for s in graph.states)}


def source_of(value: Value) -> Value:
    """Return the value of which `value` is a part."""
    while (node := value.producer) is not None and node.op in _PARTS:
        if any(not v.is_constant for v in node.operands[1:] if v is not None):
            break
        value = node.operand(0)
    return value


def _operands(dot: Node, sources: set[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield candidates for the input of a step and the state that `dot` multiplies."""
    left = without_reshapes(dot.operand(0))
    if not dot.operand(1).is_constant or not left.dtype.is_float:
        return
    node = left.producer
    if node is not None and node.op is ops.Concatenate and len(node.operands) == 2:
        first, second = node.operand(0), node.operand(1)
        yield from ((x, h) for x, h in ((first, second), (second, first)) if source_of(h) in sources)
    elif source_of(left) in sources:
        yield from ((x, dot.operand(0)) for x in _added(dot.result))


def _added(value: Value) -> list[Value]:
    """Return the left operands of products that are added to `value` or to parts of it."""
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
    """Return the product that computes `value`, up to slices and added constants."""
    while (node := value.producer) is not None and node.op not in PRODUCTS:
        constants = all(v is None or v.is_constant for v in node.operands[1:])
        if node.op not in (*_PARTS, ops.Add) or not constants:
            return None
        value = node.operand(0)
    return node


def _cells(near: Mapping[Node, None], h: Value, sources: set[Value]) -> list[Value]:
    """Return candidates for the cell state: values as large as `h` that are factors of a Mul."""
    values = [v for node in near if node.op is ops.Mul for v in node.present_operands if not v.is_constant]
    size = product(h.shape)
    found = {
        without_reshapes(v): v for v in values if v.producer not in near and isinstance(v.tensor_type.shape, tuple)
    }
    return [
        v
        for base, v in found.items()
        if base is not without_reshapes(h) and product(v.shape) == size and source_of(v) in sources
    ]
