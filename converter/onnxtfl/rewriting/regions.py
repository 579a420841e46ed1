"""Regions: graphs among a node's attributes, on their way into the neutral graph.

A rule for a file's op with regions (:func:`onnxtfl.rewriting.registry.regions_of`) says which values of the node each
region's inputs are, before the region is lifted; or which region takes the node's place, where that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, constant, inherit
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Effect
from onnxtfl.rewriting.registry import Inlined, rules

MOST_STEPS = 8
"""Nodes in a row that are computed to find out what a condition is."""
SMALL = 1 << 10
"""Elements of the largest value looked at on the way."""


def prepare(node: Node) -> Inlined | None:
    """Run the rule for the regions of `node`; UnsupportedError where there is none."""
    rule = rules().regions.get(node.op.name)
    if rule is None:
        raise UnsupportedError(
            "its subgraphs are not converted", hint="cut the model around it with --inputs/--outputs"
        )
    return rule(node)


def hand_in(region: Graph, operands: Sequence[Value | None]) -> None:
    """Let the last inputs of `region` be `operands`: of the same type, and known as far as these are.

    For a constant one stands inside, and the input is left unused.
    """
    for inside, outside in zip(region.inputs[len(region.inputs) - len(operands) :], operands, strict=True):
        if outside is None:
            raise ValueError("a region takes an absent value")
        inside.type, inside.known = outside.type, outside.known
        inside.add_origins(outside.origins)
        if outside.data is not None:
            region.substitute(inside, constant(outside.data, type_=outside.type))


def copied(b: Builder, region: Graph, operands: Sequence[Value | None]) -> list[Value]:
    """The outputs of `region`, whose nodes are made again by `b` over `operands`."""
    values: dict[Value, Value | None] = dict(zip(region.inputs, operands, strict=True))

    def seen(value: Value) -> Value | None:
        return values.get(value, value)

    for node in region.nodes:
        results = b.remade(node, *(None if v is None else seen(v) for v in node.operands))
        for old, new in zip(node.results, results, strict=True):
            if new.producer is not None and new.producer in b.created:
                new.producer.add_history(node)
            inherit(old, new)
            values[old] = new
    outputs = [seen(v) for v in region.outputs]
    return [v for v in outputs if v is not None]


def truth_of(value: Value) -> bool | None:
    """What a condition of one element is, where that is known before run time."""
    found = _known(value, MOST_STEPS)
    return None if found is None or found.size != 1 else bool(found.reshape(-1)[0])


def _known(value: Value, steps: int) -> Array | None:
    if value.data is not None:
        return value.stored() if value.data.size <= SMALL else None
    if value.known is not None and all(isinstance(d, (int, np.integer)) for d in value.known.reshape(-1).tolist()):
        return value.known.astype(value.dtype.numpy)
    node = value.producer
    if node is None or not steps or node.op.dialect != "neutral" or node.op.effect_of(node) is not Effect.PURE:
        return None
    operands = [None if v is None else _known(v, steps - 1) for v in node.operands]
    if any(a is None and v is not None for a, v in zip(operands, node.operands, strict=True)):
        return None
    try:
        return evaluate_node(node, operands)[value.index]
    except NotImplementedError:
        return None
