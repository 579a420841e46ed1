"""Two layers that differ only in direction become a bidirectional one.

::

    %f, %h = Lstm(%x, ...)                             %y, %h, %c, %k, %d = Bidirectional(%x, ..., %x, ...)
    %b, %k = Lstm(%x, ...) {reverse = true}      ->
    %y = Concatenate(%f, %b) {axis = 2}

The outputs may be concatenated batch-major, or unused; other nodes may be between the layers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dependencies import needed_nodes
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import transposed
from onnxtfl.passes.recognize.recurrence.cleanup import LAYERS
from onnxtfl.rewriting.patterns import erase_dead

MOST_BETWEEN = 1 << 10
"""The most nodes between two layers that are joined."""
_OF_DIRECTION = ("activations", "alphas", "betas", "reverse")
_BATCH_MAJOR = (1, 0, 2)


def join_directions(graph: Graph) -> bool:
    """Join layers that differ only in direction; return whether there were any."""
    single: dict[Hashable, Node] = {}
    changed = False
    for node in [n for n in graph.nodes if n.op in LAYERS]:
        if not _is_plain(node):
            continue
        other = single.pop(_key(node, not node.attr("reverse")), None)
        if other is not None:
            forward, backward = (node, other) if other.attr("reverse") else (other, node)
            joining = _joining(graph, [forward.results[0], backward.results[0]])
            if joining is not None and _brought_together(other, node):
                _join(graph, forward, backward, joining, at=other)
                changed = True
                continue
        single[_key(node, node.attr("reverse"))] = node
    return changed


def _is_plain(node: Node) -> bool:
    """Whether a bidirectional layer can represent `node`."""
    known = {*ops.Bidirectional.defaults, "reverse"}
    extra = [name for name, v in attributes_of(node).items() if name not in known and v != node.op.defaults[name]]
    return not extra and not touches_quantized(node)


def _key(node: Node, reverse: bool) -> Hashable:
    """Return what both layers have to have in common; `reverse` is the direction of the other layer."""
    given = ops.operands_of(node)
    common = tuple(sorted((k, str(v)) for k, v in attributes_of(node).items() if k not in _OF_DIRECTION))
    return node.op, node.operand(0), given["lengths"], node.operand(1).shape, node.operand(2).shape, common, reverse


def _brought_together(first: Node, second: Node) -> bool:
    """Move the dependencies of `second` before `first`; False if they include `first`."""
    between: list[Node] = []
    node = first.next
    while node is not None and node is not second and len(between) < MOST_BETWEEN:
        between.append(node)
        node = node.next
    if node is not second or first.graph is None:
        return False
    needed = needed_nodes(second.operands, {first, *between})
    if first in needed:
        return False
    for node in between:
        if node in needed:
            graph = first.graph
            graph.unlink(node)
            graph.insert(node, first)
    return True


def _joining(graph: Graph, outputs: list[Value]) -> dict[Node, bool] | None:
    """Return the nodes that concatenate `outputs`, and whether batch-major; None if there are other users."""
    moved = [next((user.result for user in v.users() if _moves_batch(user)), v) for v in outputs]
    if len({a is b for a, b in zip(outputs, moved, strict=True)}) > 1:
        return None
    found = {}
    for values in (outputs, moved):
        if any(graph.is_output(v) for v in values):
            return None
        for user in (user for v in values for user in v.users()):
            if user.op is ops.Concatenate and user.operands == values and user.attr("axis") in (2, -1):
                found[user] = values is moved
            elif user.results[0] not in moved:
                return None
    return found if moved != outputs else dict.fromkeys(found, False)


def _moves_batch(node: Node) -> bool:
    return node.op is ops.Transpose and tuple(node.attr("permutation")) == _BATCH_MAJOR


def _join(graph: Graph, forward: Node, backward: Node, joining: Mapping[Node, bool], at: Node) -> None:
    b = Builder(graph, at, maker="bidirectional layers")
    operands = [v for node in (forward, backward) for v in node.op.padded(node.operands)]
    attributes = {k: v for k, v in forward.attributes.items() if k in ops.Bidirectional.defaults}
    both = {k: _both(forward, backward, k) for k in ("activations", "alphas", "betas")}
    output, *states = b.many(ops.Bidirectional, *operands, **{**attributes, **both}, layer=forward.op.name)
    for made in b.created:
        made.add_history(forward, backward)
    for user, batch_major in joining.items():
        inside = Builder(graph, user, cause=user, maker="bidirectional layers")
        graph.replace(user, [transposed(inside, output, _BATCH_MAJOR) if batch_major else output])
    erase_dead(graph, list(forward.results[0].users()) + list(backward.results[0].users()))
    for old, new in zip([*forward.results[1:], *backward.results[1:]], states, strict=True):
        graph.substitute(old, new)
    graph.remove(forward)
    graph.remove(backward)


def _both(forward: Node, backward: Node, name: str) -> tuple[object, ...]:
    """Concatenate an attribute of both layers that has an entry per activation."""
    count = len(forward.attr("activations"))
    values = [list(node.attr(name)) for node in (forward, backward)]
    return tuple(v for each in values for v in (each + [0.0] * count)[:count])
