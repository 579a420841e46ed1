"""Inlining of calls of the model's own functions.

::

    %y = onnx.F@1@local(%x)     ->     %f_t = onnx.Exp@13(%x); %y = onnx.Neg@13(%f_t)

Values and nodes of a body get the name of the call as prefix: "call/node", "outer/inner/node".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.model import Function, FunctionKey, Model
from onnxtfl.ir.origin import Origin

MOST_NODES = 1 << 18
"""The most nodes after inlining: nested calls can grow exponentially."""

LONGEST_NAME = 1 << 10
"""The most characters of a name inside of a call."""


def inline_functions(model: Model) -> None:
    """Inline every call, also nested ones and those in regions.

    Raises InvalidModelError for recursion, and if the result would have more than `MOST_NODES` nodes.
    """
    if not model.functions:
        return
    sizes: dict[FunctionKey, float] = {}
    total = 0.0
    for node in (node for graph in model.graphs() for node in graph.walk()):
        if (key := _key(node)) in model.functions:
            total += _size(key, model.functions, sizes)
            if total > MOST_NODES:
                message = f"the function {key[1]!r} is recursive, or its calls expand to over {MOST_NODES} nodes"
                raise InvalidModelError(message, node=node.name, code="E-FILE-011")
    room = MOST_NODES
    for graph in model.graphs():
        room = _inline_calls(graph, model.functions, room)


def _size(key: FunctionKey, functions: Mapping[FunctionKey, Function], sizes: dict[FunctionKey, float]) -> float:
    """Return the number of nodes of a function with all its calls inlined; infinite for recursion. `sizes`: a cache."""
    pending = [key]
    while pending:
        callees = functions[pending[-1]].callees
        if pending[-1] not in sizes:
            sizes[pending[-1]] = math.inf
            pending += [k for k in callees if k in functions and k not in sizes]
        else:
            sizes[pending.pop()] = sum(n * (1 + sizes.get(k, 0)) for k, n in callees.items())
    return sizes[key]


def _inline_calls(graph: Graph, functions: Mapping[FunctionKey, Function], room: int) -> int:
    """Inline the calls in `graph`; `room`: the most nodes in graphs that calls pass on; return the remaining room."""
    node = graph.first
    while node is not None:
        following = node.next
        for region in node.regions:
            room = _inline_calls(region, functions, room)
        function = functions.get(_key(node))
        if function is not None:
            if node.regions:
                room -= function.graph_references * sum(1 for region in node.regions for _ in region.walk())
            if room < 0:
                message = f"the graphs that calls of functions pass on expand to over {MOST_NODES} nodes"
                raise InvalidModelError(message, node=node.name, op=node.op.name, code="E-FILE-011")
            current_budget().step(node.name, node.op.name)
            before = node.previous
            _inline_call(graph, node, function)
            following = before.next if before is not None else graph.first
        node = following
    return room


def _inline_call(graph: Graph, call: Node, function: Function) -> None:
    body = function.body(call)
    prefix = call.shown_name or call.op.name
    for node in graph.splice(body, call.operands, call):
        node.name = _inner_name(prefix, node.name)
        for result in (r for r in node.results if r.name):
            result.name = _inner_name(prefix, result.name)
            result.origin = Origin(result.name) if result.name else None
    for old, new in zip(call.results, body.outputs, strict=True):
        new.name, new.origin, new.type = old.name, old.origin, new.type or old.type
    graph.replace(call, body.outputs, retyped=True)


def _inner_name(prefix: str, name: str | None) -> str | None:
    """Return the name inside of a call; None if it is too long."""
    return f"{prefix}/{name}" if name and len(prefix) + len(name) < LONGEST_NAME else None


def _key(node: Node) -> FunctionKey:
    name, _, overload = node.op.name_in_file.partition(":")
    return node.op.domain, name, overload


__all__ = ["MOST_NODES", "inline_functions"]
