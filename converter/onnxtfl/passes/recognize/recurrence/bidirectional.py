"""Recurrent layers in both directions.

::

    %f, %h = Lstm(%x, ...)                             %y, %h, %c, %k, %d = Bidirectional(%x, ..., %x, ...)
    %b, %k = Lstm(%x, ...) {reverse = true}      ->
    %y = Concatenate(%f, %b) {axis = 2}
"""

from __future__ import annotations

from typing import Any

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.rewriting.patterns import Patterns

DIRECTIONS = Patterns()
_LAYERS = (ops.Rnn, ops.Gru, ops.Lstm)
_BATCH_MAJOR = (1, 0, 2)
_OF_EACH = ("activations", "alphas", "betas")


@DIRECTIONS.on(ops.Concatenate)
def both_directions(b: Builder, node: Node) -> Value | None:
    """Join a forward and a backward layer; both outputs may be batch-major."""
    if len(node.operands) != 2 or node.attr("axis") not in (2, -1):
        return None
    forward, backward = (_layer(b, v) for v in node.operands)
    if forward is None or backward is None or forward[1] != backward[1]:
        return None
    pair = (forward[0], backward[0])
    attributes = _joined(*pair)
    later = _later(*pair)
    if attributes is None or later is None:
        return None
    inside = Builder(b.graph, later, maker=b.maker)
    operands = [v for layer in pair for v in layer.op.padded(layer.operands)]
    output, *states = inside.many(ops.Bidirectional, *operands, **attributes)
    b.created += inside.created
    for old, new in zip([r for layer in pair for r in layer.results[1:]], states, strict=True):
        b.graph.substitute(old, new)
    return b(ops.Transpose, output, permutation=_BATCH_MAJOR) if forward[1] else output


def _layer(b: Builder, value: Value | None) -> tuple[Node, bool] | None:
    """The layer whose output is `value`, used only there, and whether it is batch-major; None for other values."""
    moved = made_by(value, ops.Transpose)
    batch_major = moved is not None and tuple(moved.attr("permutation")) == _BATCH_MAJOR
    source = moved.operand(0) if moved is not None and batch_major else value
    node = None if source is None else source.producer
    if value is None or source is None or node is None or node.op not in _LAYERS or source.index != 0:
        return None
    if touches_quantized(node):
        return None
    return (node, batch_major) if single_use(value, b.graph) and single_use(source, b.graph) else None


def _joined(forward: Node, backward: Node) -> dict[str, Any] | None:
    """The attributes of the layer in both directions; None where the two layers are no such pair."""
    first, second = attributes_of(forward), attributes_of(backward)
    inputs = [[layer.operand(0), layer.op.padded(layer.operands)[_lengths(layer)]] for layer in (forward, backward)]
    if forward.op is not backward.op or inputs[0] != inputs[1] or first.pop("reverse") or not second.pop("reverse"):
        return None
    of_each = {name: (*first.pop(name), *second.pop(name)) for name in _OF_EACH}
    known = {n: v for n, v in first.items() if n in ops.Bidirectional.defaults}
    if first != second or any(v != forward.op.defaults[n] for n, v in first.items() if n not in known):
        return None
    return {"layer": forward.op.name, **known, **of_each}


def _lengths(layer: Node) -> int:
    return [o.name for o in layer.op.operands].index("lengths")


def _later(a: Node, b: Node) -> Node | None:
    """The layer that comes last, before which both may be computed; None where a state is used between them."""
    for first, last in ((a, b), (b, a)):
        users = {user for result in first.results for user in result.users()}
        node = first.next
        while node is not None and node is not last:
            if node in users:
                break
            node = node.next
        if node is last:
            return last
    return None
