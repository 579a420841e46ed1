"""Conditions and loops. Their regions are lifted, and lowered, like the graph around them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.rewriting.regions import Inlined, hand_in, regions_of, truth_of
from onnxtfl.rewriting.registry import Form, lift_onnx, lift_tfl, lower_onnx, lower_tfl

IF_VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@regions_of("onnx.If")
def if_regions_onnx(node: Node) -> Inlined | None:
    """Branches take the captures alone; the one that a known condition chooses stands for the node."""
    return _branches(node, node.attributes["then_branch"], node.attributes["else_branch"])


@regions_of("tfl.IF")
def if_regions_tfl(node: Node) -> Inlined | None:
    """Branches take all operands but the condition."""
    return _branches(node, node.attributes["then_subgraph_index"], node.attributes["else_subgraph_index"])


def _branches(node: Node, then_branch: Graph, else_branch: Graph) -> Inlined | None:
    captures = node.operands[1:]
    truth = truth_of(node.operand(0))
    if truth is not None:
        return Inlined(then_branch if truth else else_branch, captures)
    for branch in (then_branch, else_branch):
        _without_state(branch)
        hand_in(branch, captures)
    return None


def _without_state(region: Graph) -> None:
    if region.states:
        raise UnsupportedError("a subgraph of it keeps a state")


@lift_onnx("If", IF_VERSIONS)
def if_onnx(b: Builder, node: Node) -> Sequence[Value]:
    """Captures are operands already."""
    branches = {name: node.attributes[name] for name in ("then_branch", "else_branch")}
    return b.many(ops.If, *node.operands, **branches)


@lift_tfl("IF")
def if_tfl(b: Builder, node: Node) -> Sequence[Value]:
    """The same under other names."""
    then_branch, else_branch = node.attributes["then_subgraph_index"], node.attributes["else_subgraph_index"]
    return b.many(ops.If, *node.operands, then_branch=then_branch, else_branch=else_branch)


@lower_tfl(ops.If)
def if_lowered_tfl(node: Node) -> Form | None:
    """IF."""
    branches = {"then_subgraph_index": node.attr("then_branch"), "else_subgraph_index": node.attr("else_branch")}
    return Form("IF", tuple(node.operands), branches)


@lower_onnx(ops.If)
def if_lowered_onnx(node: Node, opset: int) -> Form | None:
    """If; what its branches take are captures."""
    branches = {name: node.attr(name) for name in ("then_branch", "else_branch")}
    return Form("If", tuple(node.operands), {**branches, "captures": len(node.operands) - 1})


@regions_of("tfl.WHILE")
def while_regions_tfl(node: Node) -> Inlined | None:
    """Condition and body have inputs of their own types, which hold for every round."""
    for name in ("cond_subgraph_index", "body_subgraph_index"):
        _without_state(node.attributes[name])
    return None


@lift_tfl("WHILE")
def while_tfl(b: Builder, node: Node) -> Sequence[Value]:
    """The same under other names."""
    cond, body = node.attributes["cond_subgraph_index"], node.attributes["body_subgraph_index"]
    return b.many(ops.While, *node.operands, cond=cond, body=body)


@lower_tfl(ops.While)
def while_lowered_tfl(node: Node) -> Form | None:
    """WHILE."""
    regions = {"cond_subgraph_index": node.attr("cond"), "body_subgraph_index": node.attr("body")}
    return Form("WHILE", tuple(node.operands), regions)
