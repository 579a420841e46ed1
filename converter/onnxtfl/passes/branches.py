"""Canonical forms of conditions: a branch that is known to run stands in the graph, and branches take what they need.

::

    If(true, x) then A else B         ->  A(x)
    If(p, x, %constant) then A else B ->  If(p, x) then A' else B', which have the constant inside
    If(p, x, x, unused) then A else B ->  If(p, x) then A' else B'
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.rewriting.regions import copied, truth_of

BRANCHES = Patterns()


@BRANCHES.on(ops.If, quantized=True)
def chosen(b: Builder, node: Node) -> Sequence[Value] | None:
    """The branch that a known condition chooses."""
    truth = truth_of(node.operand(0))
    return None if truth is None else copied(b, node.attr("then_branch" if truth else "else_branch"), node.operands[1:])


@BRANCHES.on(ops.If, quantized=True)
def needed(b: Builder, node: Node) -> Sequence[Value] | None:
    """Constants go inside; of the same value twice, and of one that no branch looks at, nothing stays."""
    branches = [node.attr("then_branch"), node.attr("else_branch")]
    captures = node.operands[1:]
    kept = [i for i, v in enumerate(captures) if v is not None and _is_needed(i, captures, branches)]
    if len(kept) == len(captures):
        return None
    for branch in branches:
        _take(branch, captures, kept)
    return b.many(ops.If, node.operand(0), *(captures[i] for i in kept), **node.attributes)


def _is_needed(index: int, captures: Sequence[Value | None], branches: Sequence[Graph]) -> bool:
    value = captures[index]
    if value is None or value.is_constant or value in captures[:index]:
        return False
    places = [i for i, other in enumerate(captures) if other is value]
    return any(branch.inputs[i].uses or branch.inputs[i] in branch.outputs for branch in branches for i in places)


def _take(branch: Graph, captures: Sequence[Value | None], kept: Sequence[int]) -> None:
    """Let `branch` take only the captures that are kept; the others are constants or among these."""
    for i, (inside, outside) in enumerate(zip(branch.inputs, captures, strict=True)):
        if i not in kept and outside is not None:
            stand_in = outside if outside.is_constant else branch.inputs[captures.index(outside)]
            if stand_in is not inside:
                branch.substitute(inside, stand_in)
    branch.inputs = [branch.inputs[i] for i in kept]
