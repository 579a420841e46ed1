"""If simplification: a branch that is known to run replaces the If, and unneeded captured values are removed.

::

    If(true, x) then A else B         ->  A(x)
    If(p, x, %constant) then A else B ->  If(p, x) then A' else B', which contain the constant
    If(p, x, x, unused) then A else B ->  If(p, x) then A' else B'
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.rewriting.regions import condition_value

IF_SIMPLIFICATION = Patterns()


@IF_SIMPLIFICATION.on(ops.If, quantized=True)
def known_condition(b: Builder, node: Node) -> Sequence[Value] | None:
    """Replace an If whose condition is known by the nodes of the chosen branch."""
    truth = condition_value(node.operand(0))
    return (
        None
        if truth is None
        else copy_region(b, node.attr("then_branch" if truth else "else_branch"), node.operands[1:])
    )


@IF_SIMPLIFICATION.on(ops.If, quantized=True)
def captured_values(b: Builder, node: Node) -> Sequence[Value] | None:
    """Move captured constants into the branches; remove duplicate captured values and those that no branch reads."""
    branches = [node.attr("then_branch"), node.attr("else_branch")]
    captures = node.operands[1:]
    kept = [i for i, v in enumerate(captures) if v is not None and _is_needed(i, captures, branches)]
    if len(kept) == len(captures):
        return None
    for branch in branches:
        _keep(branch, captures, kept)
    return b.many(ops.If, node.operand(0), *(captures[i] for i in kept), **node.attributes)


def _is_needed(index: int, captures: Sequence[Value | None], branches: Sequence[Graph]) -> bool:
    value = captures[index]
    if value is None or value.is_constant or value in captures[:index]:
        return False
    places = [i for i, other in enumerate(captures) if other is value]
    return any(branch.inputs[i].uses or branch.inputs[i] in branch.outputs for branch in branches for i in places)


def _keep(branch: Graph, captures: Sequence[Value | None], kept: Sequence[int]) -> None:
    """Remove the inputs of `branch` that are not in `kept`; they are constants or duplicates of others."""
    for i, (inside, outside) in enumerate(zip(branch.inputs, captures, strict=True)):
        if i not in kept and outside is not None:
            replacement = outside if outside.is_constant else branch.inputs[captures.index(outside)]
            if replacement is not inside:
                branch.substitute(inside, replacement)
    branch.inputs = [branch.inputs[i] for i in kept]
