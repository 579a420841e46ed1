"""State tensors of kernels: reset before their op in each invocation.

::

    %y, %h1 = tfl.RNN(%x, %w, %r, %b, %zeros)         %h = tfl.BROADCAST_TO(%zeros)
    %z = tfl.NEG(%h1)                          ->     %y, %h1 = tfl.RNN(%x, %w, %r, %b, %h)   h and h1 are one tensor
                                                      %c = tfl.CONCATENATION(%h1, last step of %y)
                                                      %z = tfl.NEG(part of %c)

The kernel updates a state tensor in place, so nothing else may read it before; later readers also depend on the
kernel's output, so that a delegate cannot schedule them earlier. A state of the graph keeps its tensor.
"""

from __future__ import annotations

from collections.abc import Callable

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, State, Value
from onnxtfl.ir.outputs import replace_in
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.tflite import TfliteTarget

StateOperands = Callable[[str, int], tuple[int, ...]]
"""The operands that an op updates in place, by name and number of operands."""
_FAR = (1 << 31) - 1


def own_state_tensors(graph: Graph, target: TfliteTarget, operands: StateOperands) -> None:
    """Give each kernel with states separate tensors, and add these to the states of `graph`."""
    owned: list[tuple[Node, int, Value]] = []
    changed = False
    for node in list(graph.nodes):
        name = node.op.name_in_file
        places = [i for i in operands(name, len(node.operands)) if node.optional(i) is not None]
        if not places or len(node.results) <= len(places):
            continue
        for place, result in zip(places, node.results[-len(places) :], strict=True):
            if not any(state.input is node.operand(place) for state in graph.states):
                node.set_operand(place, _own(graph, node, node.operand(place)))
                owned.append((node, place, result))
            _read_later(graph, node, result)
            changed = True
    if changed:
        legalize(graph, target, late=True)
        lower(graph, target)
    graph.states += [State(node.operand(place), result) for node, place, result in owned]


def _own(graph: Graph, node: Node, value: Value) -> Value:
    """Copy `value`, of known shape, to a tensor that no other op uses.

    The op of the copy must not run in place (the planner would not allocate the state tensor), nor in Prepare.
    """
    b = Builder(graph, node, maker="state tensors")
    is_zero = value.data is not None and not value.numpy().any()
    return b(ops.BroadcastTo, b.scalar(0, value) if is_zero else value, list(value.shape))


def _read_later(graph: Graph, node: Node, state: Value) -> None:
    """Let the users of `state` [N, K] depend on `node`, whose first result is [T, N, K]."""
    outside = state in graph.outputs
    if not state.uses and not outside:
        return
    b = Builder(graph, node.next, cause=node, maker="state tensors")
    last = b(ops.Slice, node.results[0], [-1, 0, 0], [_FAR] * 3, [1] * 3)
    joined = b(ops.Concatenate, state, b(ops.Reshape, last, [-1, state.shape[1]]), axis=1)
    read = b(ops.Slice, joined, [0, 0], [_FAR, state.shape[1]], [1, 1])
    read.type = state.type
    for user, index in list(state.uses):
        if user not in b.created:
            user.set_operand(index, read)
    replace_in(graph.outputs, state, read)
    read.name, read.origins, state.name = state.name, state.origins, None
