"""Conditions and loops. Their regions are lifted, and lowered, like the graph around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.rules import *

VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@regions_of("onnx.If")
def if_regions_onnx(node: Node) -> Inlined | None:
    """Branches have the captured values as their only operands; the branch of a known condition replaces the node."""
    return _branches(node, _graph(node, "then_branch"), _graph(node, "else_branch"))


@regions_of("tfl.IF")
def if_regions_tfl(node: Node) -> Inlined | None:
    """Branches take all operands but the condition."""
    return _branches(node, _graph(node, "then_subgraph_index"), _graph(node, "else_subgraph_index"))


def _graph(node: Node, name: str) -> Graph:
    """The graph that is attribute `name`; ValueError where it is none."""
    region = node.attributes.get(name)
    if not isinstance(region, Graph):
        raise ValueError(f"{name} is no graph")
    return region


def _branches(node: Node, then_branch: Graph, else_branch: Graph) -> Inlined | None:
    captures = node.operands[1:]
    truth = condition_value(node.operand(0))
    if truth is not None:
        return Inlined(then_branch if truth else else_branch, captures)
    for branch in (then_branch, else_branch):
        _without_state(branch)
        bind_captures(branch, captures)
    return None


def _without_state(region: Graph) -> None:
    if region.states:
        raise UnsupportedError("a subgraph of it keeps a state")


row(ops.If, onnx="If", since=VERSIONS, attributes="then_branch else_branch", lowers=False)
row(ops.If, tfl="IF", tfl_options={"then_branch": "then_subgraph_index", "else_branch": "else_subgraph_index"})
row(ops.While, tfl="WHILE", tfl_options={"cond": "cond_subgraph_index", "body": "body_subgraph_index"})


@lower_onnx(ops.If)
def if_lowered_onnx(node: Node, opset: int) -> Form | None:
    """If; what its branches take are captures."""
    branches = {name: node.attr(name) for name in ("then_branch", "else_branch")}
    return Form("If", tuple(node.operands), {**branches, "captures": len(node.operands) - 1})


FOREVER = (1 << 63) - 1


@regions_of("onnx.Loop")
def loop_regions(node: Node) -> None:
    """The body's operands: iteration number, condition, loop-carried values, captured values."""
    body, captures = _graph(node, "body"), node.attributes["captures"]
    carried = _carried(node)
    body.inputs[0].type, body.inputs[1].type = tensor("int64"), _condition_type(node)
    for inside, outside in zip(body.inputs[2:], carried, strict=False):
        if outside is None:
            raise ValueError("a value that goes round is absent")
        inside.type = outside.type
    if captures:
        bind_captures(body, node.operands[-captures:])


def _carried(node: Node) -> list[Value | None]:
    return node.operands[2 : len(node.operands) - node.attributes["captures"]]


def _condition_type(node: Node) -> TensorType:
    condition = node.operands[1]
    return tensor("bool") if condition is None else condition.tensor_type


@lift_onnx("Loop", VERSIONS)
def loop_onnx(b: Builder, node: Node) -> Sequence[Value]:
    """While over the number of the round, the condition, the values, what the body captures, and the trip count."""
    body, carried = _graph(node, "body"), _carried(node)
    end = 2 + len(carried)
    _check_rounds(body, len(carried))
    captures = [(i, o) for i, o in zip(body.inputs[end:], node.operands[end:], strict=True) if _is_used(body, i)]
    condition = node.operands[1] if node.operands[1] is not None else b.value(np.asarray(True))
    given = [b.value(np.asarray(0, np.int64)), condition, *carried, *(outside for _, outside in captures)]
    body.inputs = [*body.inputs[:end], *(inside for inside, _ in captures)]
    _next_round(body, [inside for inside, _ in captures])
    count = node.operands[0]
    counted = count is not None and static_ints(count) != [FOREVER]
    if count is not None and counted:
        given.append(b(ops.Reshape, count, []))
        body.outputs.append(body.add_input(tensor("int64")))
    return b.many(ops.While, *given, cond=_goes_on(body, counted), body=body)[2:end]


def _is_used(region: Graph, value: Value) -> bool:
    return bool(value.uses) or any(v is value for v in region.outputs)


def _check_rounds(body: Graph, carried: int) -> None:
    """UnsupportedError where rounds give what they do not take."""
    if len(body.outputs) != 1 + carried:
        raise UnsupportedError("what a loop collects from round to round is not converted")
    for taken, given in zip(body.inputs[2:], body.outputs[1:], strict=False):
        if taken.type != given.type:
            raise UnsupportedError(f"a value of a loop changes from {taken.type} to {given.type}")


def _next_round(body: Graph, captures: Sequence[Value]) -> None:
    """Let `body` count, and hand on what it captures."""
    b = Builder(body)
    condition = b(ops.Reshape, body.outputs[0], [1] * body.inputs[1].rank)
    body.outputs = [b(ops.Add, body.inputs[0], np.asarray(1, np.int64)), condition, *body.outputs[1:], *captures]


def _goes_on(body: Graph, counted: bool) -> Graph:
    """Whether there is another round: the condition, and that the last input, the trip count, is not reached."""
    region = Graph("goes_on")
    inputs = [region.add_input(v.type) for v in body.inputs]
    b = Builder(region)
    truth = b(ops.Reshape, inputs[1], [])
    if counted:
        truth = b(ops.And, truth, b(ops.Compare, inputs[0], inputs[-1], comparison_direction="LT"))
    region.outputs = [truth]
    return region


@regions_of("tfl.WHILE")
def while_regions_tfl(node: Node) -> Inlined | None:
    """Condition and body have inputs of their own types, which hold for every round."""
    for name in ("cond_subgraph_index", "body_subgraph_index"):
        _without_state(_graph(node, name))
    return None


@decompose(ops.While, "onnx")
def while_as_loop(b: Builder, node: Node) -> Sequence[Value]:
    """ONNX asks at the end of each round whether there is another."""
    cond, body = node.attr("cond"), node.attr("body")
    (go_on,) = copied(b, cond, node.operands)
    region = Graph(body.name)
    inside = Builder(region)
    inputs = [region.add_input(t) for t in (tensor("int64"), go_on.type, *(v.type for v in body.inputs))]
    values = copied(inside, body, inputs[2:])
    region.outputs = [*copied(inside, cond, values), *values]
    return b.many(ops.Loop, go_on, *node.operands, body=region)


@lower_onnx(ops.Loop)
def loop_lowered_onnx(node: Node, opset: int) -> Form:
    """Loop without a trip count."""
    return Form("Loop", (None, *node.operands), {"body": node.attr("body"), "captures": 0})
