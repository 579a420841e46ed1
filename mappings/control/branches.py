"""If: ONNX's If, TFLite's IF and STABLEHLO_CASE. The branches are lifted and lowered like the graph around them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.build.rows import row
from onnxtfl.build.sequences import Outputs
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.op import Effect
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import TensorType, differ_in_unit_axes
from onnxtfl.rewriting.regions import bind_captures, condition_value, graph_in, refuse_states
from onnxtfl.rewriting.registry import Form, Inlined, decompose, lift_onnx, lift_tfl, lower_onnx, regions_of


@regions_of("onnx.If")
def if_regions_onnx(node: Node) -> Inlined | Sequence[Inlined]:
    """The operands of branches are captured values; with a constant condition, a branch replaces the node."""
    return _branches(node, graph_in(node, "then_branch"), graph_in(node, "else_branch"))


@regions_of("tfl.IF")
def if_regions_tfl(node: Node) -> Inlined | Sequence[Inlined]:
    """Branches have all operands but the condition as inputs."""
    return _branches(node, graph_in(node, "then_subgraph_index"), graph_in(node, "else_subgraph_index"))


def _branches(node: Node, then_branch: Graph, else_branch: Graph) -> Inlined | Sequence[Inlined]:
    captures = node.operands[1:]
    known = condition_value(node.operand(0))
    if known is not None:
        return Inlined(then_branch if known else else_branch, captures)
    for branch in (then_branch, else_branch):
        refuse_states(branch)
        bind_captures(branch, captures)
    return [Inlined(branch, captures) for branch in (then_branch, else_branch)]


@lift_onnx("If", (1, 11, 13, 16, 19, 21, 23, 24, 25))
def if_onnx(b: Builder, node: Node) -> Sequence[Value]:
    """Lift If; a sequence that the branches return becomes its elements, one element has one rank in both branches."""
    branches = {name: graph_in(node, name) for name in ("then_branch", "else_branch")}
    _with_one_rank(branches["then_branch"], branches["else_branch"], node)
    outputs = Outputs(list(branches.values()))
    return outputs.regrouped(b, b.many(ops.If, *node.operands, **branches))


def _with_one_rank(first: Graph, second: Graph, node: Node) -> None:
    """Let both branches return results of one element in the declared rank, else in that of the first.

    Paddle's exporter adds vectors of one element to scalars.
    """
    for i, (a, b, result) in enumerate(zip(first.outputs, second.outputs, node.results, strict=False)):
        if differ_in_unit_axes(a.type, b.type):
            branch, other, like = (first, a, b) if differ_in_unit_axes(a.type, result.type) else (second, b, a)
            branch.outputs[i] = reshape(Builder(branch), other, like.shape)


row(ops.If, tfl="IF", tfl_options={"then_branch": "then_subgraph_index", "else_branch": "else_subgraph_index"})


@decompose(ops.If, "gpu")
def if_as_select(b: Builder, node: Node) -> list[Value] | None:
    """Compute both branches and select the results: the accelerator has no control flow."""
    branches = [node.attr("then_branch"), node.attr("else_branch")]
    pure = all(inner.op.effect is Effect.PURE for branch in branches for inner in branch.walk())
    if not pure or any(not isinstance(result.type, TensorType) for result in node.results):
        return None
    chosen, other = (map(_without_copy, copy_region(b, branch, node.operands[1:])) for branch in branches)
    return [b(ops.Select, node.operand(0), v, w) for v, w in zip(chosen, other, strict=True)]


def _without_copy(value: Value) -> Value:
    """The constant of which `value` is a copy, as regions return constants; `value` itself if there is none."""
    copy = made_by(value, ops.Copy)
    return copy.operand(0) if copy is not None and copy.operand(0).is_constant else value


@lower_onnx(ops.If)
def if_lowered_onnx(node: Node, opset: int) -> Form | None:
    """Lower If; the inputs of its branches become captured values."""
    branches = {name: node.attr(name) for name in ("then_branch", "else_branch")}
    return Form("If", tuple(node.operands), {**branches, "captures": len(node.operands) - 1})


@regions_of("tfl.STABLEHLO_CASE")
def case_regions(node: Node) -> None:
    """Branches have all operands but the index as inputs."""
    for branch in node.regions:
        refuse_states(branch)
        bind_captures(branch, node.operands[1:])


@lift_tfl("STABLEHLO_CASE")
def case(b: Builder, node: Node) -> Sequence[Value]:
    """Return nested Ifs, one per branch but the last, which is the default."""
    operands = [v for v in node.operands[1:] if v is not None]
    return _one_of(b, b(ops.Reshape, node.operand(0), []), operands, node.regions)


def _one_of(
    b: Builder, index: Value, operands: Sequence[Value], branches: Sequence[Graph], first: int = 0
) -> list[Value]:
    """Return the results of branch `index` of the branches from `first`."""
    branch = branches[first]
    if first == len(branches) - 1:
        return copy_region(b, branch, operands)
    regions = []
    for is_first in (True, False):
        region = Graph(branch.name if is_first else "otherwise")
        inside, place = Builder(region), region.add_input(index.type)
        given = [region.add_input(v.type) for v in operands]
        outputs = copy_region(inside, branch, given) if is_first else _one_of(inside, place, given, branches, first + 1)
        region.outputs = outputs
        regions.append(region)
    chosen = b(ops.Compare, index, b.scalar(first, index), comparison_direction="EQ")
    return b.many(ops.If, chosen, index, *operands, then_branch=regions[0], else_branch=regions[1])
