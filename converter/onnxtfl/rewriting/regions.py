"""Regions (graphs in a node's attributes): input types before lifting, constant conditions.

A rule for a file's op with regions (:func:`onnxtfl.rewriting.registry.regions_of`) assigns types and constants to the
inputs of each region before that is lifted, or returns the region that replaces the node, if known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node, is_small
from onnxtfl.ir.ops.sequences import Assembled
from onnxtfl.ir.shapes import known_dims
from onnxtfl.rewriting.registry import Prepared, rules_for

MAX_DEPTH = 8
"""The most producers that are evaluated for a condition."""
SMALL = 1 << 10
"""The most elements of a constant that is read for it."""


def prepare_region(node: Node) -> Prepared:
    """Run the rule for the regions of `node`; UnsupportedError if there is none."""
    if node.attributes.get("captures"):
        _capture_elements(node)
    rule = rules_for(node.op).regions.get(node.op.name)
    if rule is None:
        raise UnsupportedError(
            "subgraphs of this op are not supported",
            code="E-OP-005",
        )
    return rule(node)


def _capture_elements(node: Node) -> None:
    """Capture the elements of captured sequences; the regions rebuild the sequences."""
    i = len(node.operands) - node.attributes["captures"]
    while i < len(node.operands):
        outer = node.operands[i]
        if outer is None or not is_sequence(outer) or outer.producer is None:
            i += 1
            continue
        for region in node.regions:
            rebuild_input(region, len(region.inputs) - len(node.operands) + i, outer.producer)
        elements = outer.producer.operands
        replace_operands(node, [*node.operands[:i], *elements, *node.operands[i + 1 :]])
        node.attributes["captures"] += len(elements) - 1


def is_sequence(value: Value) -> bool:
    """Whether `value` is a sequence or an optional that was resolved to its elements."""
    return value.producer is not None and issubclass(value.producer.op, Assembled)


def rebuild_input(region: Graph, index: int, maker: Node) -> None:
    """Replace input `index` of `region` by inputs for the operands of `maker`, and recompute it inside."""
    old = region.inputs[index]
    inputs = [Value(None if v is None else v.type) for v in maker.operands]
    region.inputs[index : index + 1] = inputs
    (made,) = Builder(region, region.first).many(maker.op, *inputs, **maker.attributes)
    region.substitute(old, made, retyped=True)


def replace_operands(node: Node, operands: Sequence[Value | None]) -> None:
    """Replace the operands of `node` by any number of others."""
    for i in range(len(node.operands)):
        node.set_operand(i, None)
    node.operands = [None] * len(operands)
    for i, value in enumerate(operands):
        node.set_operand(i, value)


def bind_captures(region: Graph, operands: Sequence[Value | None]) -> None:
    """Give the last inputs of `region` the types and known values of the captured `operands`.

    A captured constant is copied into the region; the input is unused then.
    """
    for inside, outside in zip(region.inputs[len(region.inputs) - len(operands) :], operands, strict=True):
        if outside is None:
            raise ValueError("a captured operand of a region is absent")
        inside.type, inside.known = outside.type, outside.known
        inside.add_origins(outside.origins)
        if outside.data is not None:
            region.substitute(inside, constant(outside.data, type_=outside.type))


def set_regions(node: Node, regions: Sequence[Graph]) -> None:
    """Replace the regions of `node`, in their order, by `regions`."""
    new = dict(zip(node.regions, regions, strict=True))

    def replaced(value: Any) -> Any:
        if isinstance(value, Graph):
            return new.get(value, value)
        return tuple(map(replaced, value)) if isinstance(value, tuple) else value

    node.attributes = {name: replaced(value) for name, value in node.attributes.items()}
    node.regions = tuple(regions)


def size_of(region: Graph) -> int:
    """Return the number of nodes of `region`, including inner regions."""
    return sum(1 for _ in region.walk())


def condition_value(value: Value) -> bool | None:
    """Return the value of a constant condition of one element, else None."""
    found = _known(value, MAX_DEPTH)
    return None if found is None or found.size != 1 else bool(found.reshape(-1)[0])


def _known(value: Value, steps: int) -> Array | None:
    if value.data is not None:
        return value.stored() if value.data.size <= SMALL else None
    if value.known is not None and is_static(known_dims(value)):
        return value.known.astype(value.dtype.numpy)
    node = value.producer
    if node is None or not steps or node.op.dialect != "neutral" or not node.is_pure:
        return None
    if not is_small(node, SMALL):
        return None
    operands = [None if v is None else _known(v, steps - 1) for v in node.operands]
    if any(a is None and v is not None for a, v in zip(operands, node.operands, strict=True)):
        return None
    try:
        return evaluate_node(node, operands)[value.index]
    except NotImplementedError:
        return None


def graph_in(node: Node, name: str) -> Graph:
    """Return the graph in attribute `name`; ValueError if it is not a graph."""
    region = node.attributes.get(name)
    if not isinstance(region, Graph):
        raise ValueError(f"{name} is not a graph")
    return region


def refuse_states(region: Graph) -> None:
    """Raise UnsupportedError if `region` keeps a state."""
    if region.states:
        raise UnsupportedError("a subgraph of it keeps a state", code="E-OP-005")
