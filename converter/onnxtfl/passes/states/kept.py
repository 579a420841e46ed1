"""Streaming: recurrent layers whose state carries over to the next invocation.

::

    %y, %h, %c = Lstm(%x, %w, %r, %b)      ->      state %h0 = 0, next %h;  state %c0 = 0, next %c
                                                   %y, %h, %c = Lstm(%x, %w, %r, %b, _, %h0, %c0)

Only layers with initial state 0, for which the target has a kernel with states, are changed.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Node, State, Value, constant
from onnxtfl.rewriting.target import Target


def keep_states(graph: Graph, target: Target) -> None:
    """Replace the initial states of layers by states of `graph` if `target` has a kernel with states."""
    for node in list(graph.nodes):
        if node.op in (ops.Rnn, ops.Lstm) and _begins_from_zeros(node):
            _keep(graph, node, target)


def _begins_from_zeros(node: Node) -> bool:
    """Whether all initial states are zeros of known shape."""
    states = ops.states_of(node).values()
    zeros = all(v is None or (v.data is not None and not v.numpy().any()) for v in states)
    return zeros and all(r.is_static for r in node.results[1:])


def _keep(graph: Graph, node: Node, target: Target) -> None:
    given, before = ops.operands_of(node), len(graph.states)
    names = list(ops.states_of(node))
    b = Builder(graph, node, maker="keep states")
    if given["bias"] is None:
        check_elements(node.operand(1).shape[0], "the bias")
        given["bias"] = constant(np.zeros(node.operand(1).shape[0]), node.operand(0).dtype)
    for name, result in zip(names, node.results[1:], strict=True):
        given[name] = Value(result.type, f"{node.name or node.op.name.lower()}_{name}")
    made = b.many(node.op, *given.values(), **node.attributes)
    for name, result in zip(names, made[1:], strict=True):
        state = given[name]
        assert state is not None
        graph.states.append(State(state, result, ArrayData(np.zeros((), state.dtype.numpy), state.dtype)))
    layer = made[0].producer
    assert layer is not None
    if target.accepted(layer) is not None:
        graph.replace(node, made)
    else:
        del graph.states[before:]
        graph.remove(layer)
