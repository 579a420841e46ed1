"""Axis refinement: ops on merged axes are rewritten to the axes before the merge, so that layouts propagate.

::

    %r = Reshape(%x: 1x32x8x8) [1, 4, 512]             %r = Reshape(%x) [1, 4, 8, 64]
    %m = Reduce(%r) mean over [2], keepdims      ->    %m = Reduce(%r) mean over [2, 3], keepdims
    %d = Sub(%r, %m)                                   %d = Sub(%r, %m)
    %y = Reshape(%d) [1, 32, 8, 8]                     %y = Reshape(%d) [1, 32, 8, 8]

Exporters write group normalization this way. Only elementwise ops and reductions may be between the two reshapes.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, Shape, product
from onnxtfl.ir.factors import Factors
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axes, static_ints
from onnxtfl.ir.types import TensorType


@dataclass(frozen=True)
class Refinement:
    """A merged shape, the finer shape, and the axes of the finer shape for each merged axis."""

    merged: Shape
    fine: Shape
    axes: tuple[tuple[int, ...], ...]

    def shape(self, shape: Shape) -> Shape:
        """The finer shape of a tensor that broadcasts to the merged shape."""
        padded = (1,) * (len(self.merged) - len(shape)) + tuple(shape)
        fine: list[Dim] = [1] * len(self.fine)
        for size, axes in zip(padded, self.axes, strict=True):
            for axis in axes if size != 1 else ():
                fine[axis] = self.fine[axis]
        return tuple(fine)


def refine(graph: Graph) -> bool:
    """Rewrite all such groups of nodes between reshapes; return whether there were any."""
    found = [(node, plan) for node in graph.nodes if (plan := _plan(graph, node)) is not None]
    done: set[Node] = set()
    for head, (refinement, members, exits) in found:
        if not done & {head, *members, *exits}:
            _rewrite(graph, head, refinement, members, exits)
            done |= {head, *members, *exits}
    return bool(done)


def _plan(graph: Graph, head: Node) -> tuple[Refinement, list[Node], list[Node]] | None:
    if head.op is not ops.Reshape or head.operand(0).is_constant:
        return None
    inner = [user.op for user in head.result.users() if user.op is not ops.Reshape]
    if not inner or not all(op is ops.Reduce or issubclass(op, Elementwise) for op in inner):
        return None  # before the factors, which take time
    before, after = head.operand(0).tensor_type.shape, head.result.tensor_type.shape
    refinement = common_refinement(before, after) if before is not None and after is not None else None
    if refinement is None or before is None or len(refinement.fine) <= len(refinement.merged):
        return None
    return _between(graph, head, refinement, before)


def common_refinement(before: Shape, after: Shape) -> Refinement | None:
    """Return the coarsest common refinement of both shapes, in which each axis of both is a product of axes.

    Adjacent axes of `before` that are not split stay merged, since kernels limit the rank; but axis 1, the features,
    which other layouts have last. None if the sizes have no common factors.
    """
    factors = Factors.of(before, after)
    if factors is None:
        return None
    whole = {places[0] for axis, places in enumerate(factors.before) if len(places) == 1 and axis != 1}
    fine: list[Dim] = []
    axes: list[tuple[int, ...]] = []
    for places in factors.after:
        parts = [product(factors.sizes[k] for k in run) for run in _runs(places, whole)] or [1]
        axes.append(tuple(range(len(fine), len(fine) + len(parts))))
        fine += parts
    return Refinement(after, tuple(fine), tuple(axes))


def _runs(places: Sequence[int], whole: set[int]) -> list[list[int]]:
    """Group adjacent `places` that are both in `whole`."""
    runs: list[list[int]] = []
    for place in places:
        if runs and {runs[-1][-1], place} <= whole:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _between(
    graph: Graph, head: Node, refinement: Refinement, before: Shape
) -> tuple[Refinement, list[Node], list[Node]] | None:
    """Return the nodes between `head` and the reshapes back; None if another node reads a value between them."""
    inside: set[Value] = {head.result}
    members: list[Node] = []
    exits: list[Node] = []
    outputs = graph.output_set()
    work = [head.result]
    while work:
        value = work.pop()
        if value in outputs:
            return None
        for user in value.users():
            if user.op is ops.Reshape and user.result.tensor_type.shape == before:
                exits.append(user)
            elif _follows(user, refinement):
                if user.result not in inside:
                    inside.add(user.result)
                    members.append(user)
                    work.append(user.result)
            else:
                return None
    return (refinement, members, exits) if exits and members else None


def _follows(node: Node, refinement: Refinement) -> bool:
    """Whether `node` can be computed on the finer axes."""
    if touches_quantized(node) or len(node.results) != 1 or not isinstance(node.result.type, TensorType):
        return False
    shape = node.result.type.shape
    if shape is None or len(shape) != len(refinement.merged):
        return False
    if any(d not in (1, full) for d, full in zip(shape, refinement.merged, strict=True)):
        return False
    if issubclass(node.op, Elementwise):
        return all(v is None or (v.type is not None and v.tensor_type.shape is not None) for v in node.operands)
    axes = node.optional(1)
    known = axes is not None and static_ints(axes) is not None
    return node.op is ops.Reduce and bool(node.attr("keepdims")) and known


def _rewrite(graph: Graph, head: Node, refinement: Refinement, members: Sequence[Node], exits: Sequence[Node]) -> None:
    builder = Builder(graph, head, maker="refine")
    fine = {head.result: reshape(builder, head.operand(0), refinement.fine)}
    wanted = {*members, *exits}
    ordered = [node for node in graph.nodes if node in wanted]
    for node in ordered:
        builder = Builder(graph, node, maker="refine")
        if node.op is ops.Reshape:
            graph.replace(node, [reshape(builder, fine[node.operand(0)], node.result.shape)])
        else:
            fine[node.result] = _refined(builder, node, refinement, fine)
    for node in reversed(ordered):
        if node.graph is graph:
            graph.remove(node)
    graph.remove(head)


def _refined(builder: Builder, node: Node, refinement: Refinement, fine: dict[Value, Value]) -> Value:
    def operand(value: Value | None) -> Value | None:
        if value is None or value in fine:
            return None if value is None else fine[value]
        return reshape(builder, value, refinement.shape(value.shape))

    if node.op is ops.Reduce:
        merged = normalize_axes(static_ints(node.operand(1)) or [], len(refinement.merged))
        axes = [axis for a in merged for axis in refinement.axes[a]]
        return builder(ops.Reduce, operand(node.operand(0)), axes, **node.attributes)
    return builder(node.op, *map(operand, node.operands), **node.attributes)
