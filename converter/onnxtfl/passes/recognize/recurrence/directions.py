"""Two layers of which only the last states are used, or that other nodes stand between, as a bidirectional layer.

::

    %f, %h = Lstm(%x, ...)
    %b, %k = Lstm(%x, ...) {reverse = true}      ->      _, %h, %k = Bidirectional(%x, ..., %x, ...)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.passes.recognize.recurrence.cleanup import LAYERS, operands_of

MOST_BETWEEN = 1 << 10
"""Nodes between two layers that are joined."""
_OF_DIRECTION = ("activations", "alphas", "betas", "reverse")


def join_directions(graph: Graph) -> bool:
    """Join layers that differ in direction; returns whether there were any."""
    single: dict[Hashable, Node] = {}
    changed = False
    for node in list(graph.nodes):
        if node.op not in LAYERS or not _is_plain(node):
            continue
        other = single.pop(_key(node, not node.attr("reverse")), None)
        if other is not None:
            forward, backward = (node, other) if other.attr("reverse") else (other, node)
            if _is_pair(graph, forward, backward) and _brought_together(other, node):
                _join(graph, forward, backward, at=other)
                changed = True
                continue
        single[_key(node, node.attr("reverse"))] = node
    return changed


def _is_plain(node: Node) -> bool:
    """Whether a bidirectional layer has all that `node` has."""
    known = {*ops.Bidirectional.defaults, "reverse"}
    extra = [name for name, v in attributes_of(node).items() if name not in known and v != node.op.defaults[name]]
    return not extra and not touches_quantized(node)


def _key(node: Node, reverse: bool) -> Hashable:
    """What a layer has in common with the one that it is joined with, which is `reverse` or not."""
    given = operands_of(node)
    common = tuple(sorted((k, str(v)) for k, v in attributes_of(node).items() if k not in _OF_DIRECTION))
    return node.op, node.operand(0), given["lengths"], node.operand(1).shape, node.operand(2).shape, common, reverse


def _brought_together(first: Node, second: Node) -> bool:
    """Move what `second` needs before `first`; returns whether it does not depend on `first`."""
    between: list[Node] = []
    node = first.next
    while node is not None and node is not second and len(between) < MOST_BETWEEN:
        between.append(node)
        node = node.next
    if node is not second or first.graph is None:
        return False
    among, needed = {first, *between}, set[Node]()
    work = [v.producer for v in second.operands if v is not None]
    while work:
        node = work.pop()
        if node is first:
            return False
        if node in among and node not in needed:
            needed.add(node)
            work.extend(v.producer for v in node.operands if v is not None)
    for node in between:
        if node in needed:
            graph = first.graph
            graph.unlink(node)
            graph.insert(node, first)
    return True


def _is_pair(graph: Graph, forward: Node, backward: Node) -> bool:
    """Whether the outputs are used joined only, or not at all."""
    outputs = [node.results[0] for node in (forward, backward)]
    users = [user for v in outputs for user in v.users()]
    return not any(graph.is_output(v) for v in outputs) and all(_joins(user, outputs) for user in users)


def _joins(node: Node, outputs: Sequence[Value]) -> bool:
    return node.op is ops.Concatenate and node.operands == outputs and node.attr("axis") in (2, -1)


def _join(graph: Graph, forward: Node, backward: Node, at: Node) -> None:
    b = Builder(graph, at, maker="bidirectional layers")
    operands = [v for node in (forward, backward) for v in node.op.padded(node.operands)]
    attributes = {k: v for k, v in forward.attributes.items() if k in ops.Bidirectional.defaults}
    both = {k: _both(forward, backward, k) for k in ("activations", "alphas", "betas")}
    output, *states = b.many(ops.Bidirectional, *operands, **{**attributes, **both}, layer=forward.op.name)
    for made in b.created:
        made.add_history(forward, backward)
    for user in forward.results[0].users():
        graph.replace(user, [output])
    for old, new in zip([*forward.results[1:], *backward.results[1:]], states, strict=True):
        graph.substitute(old, new)
    graph.remove(forward)
    graph.remove(backward)


def _both(forward: Node, backward: Node, name: str) -> tuple[object, ...]:
    """An attribute of both layers with an entry for each activation."""
    count = len(forward.attr("activations"))
    values = [list(node.attr(name)) for node in (forward, backward)]
    return tuple(v for each in values for v in (each + [0.0] * count)[:count])
