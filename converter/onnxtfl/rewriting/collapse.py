"""Rank reduction: an elementwise node with more axes than a kernel accepts, rewritten with fewer axes.

::

    %y = Add(%a: 2x3x4x5x6x7, %b: 2x3x1x1x6x7)
      ->
    %p = Reshape(%a) [6, 20, 42]; %q = Reshape(%b) [6, 1, 42]; %y = Reshape(Add(%p, %q)) [2, 3, 4, 5, 6, 7]

With a batch of 1, for kernels whose constants have no batch, and that take the first axis of any tensor for it::

    %y = Add(%a: 6x7, %b: 7)
      ->
    %p = Reshape(%a) [1, 6, 7]; %q = Reshape(%b) [1, 1, 7]; %y = Reshape(Add(%p, %q)) [6, 7]

Adjacent axes are merged where every operand either has the full size of both or broadcasts over both, whatever its
symbols are at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.reshape import broadcast, reshape
from onnxtfl.ir.types import TensorType


def collapse(builder: Builder, node: Node, limit: int) -> list[Value] | None:
    """Return the results of `node` on at most `limit` merged axes; None if not elementwise or not mergeable."""
    if not issubclass(node.op, Elementwise) or len(node.results) != 1:
        return None
    full = node.result.tensor_type.shape
    if full is None or not all(
        isinstance(v.type, TensorType) and v.type.shape is not None for v in node.present_operands
    ):
        return None
    shapes = [(1,) * (len(full) - v.rank) + v.shape if v is not None else None for v in node.operands]
    groups = _groups(full, [s for s in shapes if s is not None])
    sources = node.present_operands
    if len(groups) > limit:
        return _repeated(builder, node, full, sources) if limit else None
    operands = [
        None if v is None or s is None else reshape(builder, v, _merged(s, groups), *sources)
        for v, s in zip(node.operands, shapes, strict=True)
    ]
    (result,) = builder.remade(node, *operands)
    return [reshape(builder, result, full, *sources)]


def with_unit_batch(builder: Builder, node: Node, most: int) -> list[Value] | None:
    """Return the results of `node` on operands of equal rank, at most `most`, with a first axis of size 1.

    None if they have this form, or if axes cannot be merged.
    """
    full = node.result.tensor_type.shape if issubclass(node.op, Elementwise) and len(node.results) == 1 else None
    sources = node.present_operands
    if full is None or not all(isinstance(v.type, TensorType) and v.type.shape is not None for v in sources):
        return None
    shapes = [(1,) * (len(full) - v.rank) + v.shape for v in sources]
    is_unit = len(full) > 1 and full[0] == 1
    groups = [[axis] for axis in range(len(full))] if is_unit else [[], *_groups(full, shapes)]
    merged = [_merged(shape, groups) for shape in shapes]
    if len(groups) > most or merged == [v.shape for v in sources]:
        return None
    made = iter([reshape(builder, v, s, *sources) for v, s in zip(sources, merged, strict=True)])
    (result,) = builder.remade(node, *(None if v is None else next(made) for v in node.operands))
    return [reshape(builder, result, full, *sources)]


def _repeated(builder: Builder, node: Node, full: Shape, sources: Sequence[Value]) -> list[Value]:
    """Compute on one axis, after operands with too many broadcast axes are expanded."""
    operands = [
        v if v is None or v.rank == 0 else reshape(builder, broadcast(builder, v, full, *sources), [product(full)])
        for v in node.operands
    ]
    (result,) = builder.remade(node, *operands)
    return [reshape(builder, result, full, *sources)]


def _groups(full: Shape, shapes: Sequence[Shape]) -> list[list[int]]:
    """Group contiguous axes over which the same operands broadcast; axes of size 1 join any group."""
    groups: list[list[int]] = []
    last: tuple[int, ...] | None = None
    for axis, size in enumerate(full):
        pattern: tuple[int, ...] | None = None if size == 1 else tuple(s[axis] == 1 for s in shapes)
        if any(s[axis] not in (1, size) for s in shapes):
            pattern = (axis,)  # a symbol that may be 1, so that its operand broadcasts over this axis only
        if groups and (pattern is None or last in (None, pattern)):
            groups[-1].append(axis)
        else:
            groups.append([axis])
        last = pattern or last
    return groups


def _merged(shape: Shape, groups: Sequence[Sequence[int]]) -> Shape:
    return tuple(product(shape[a] for a in g) for g in groups)
