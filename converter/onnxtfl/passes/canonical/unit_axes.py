"""Reshapes that only insert or remove axes of size 1 sink through the ops after them, until two cancel.

::

    %r = Reshape(%c: 1x8x1x9) [1, 8, 9]            %a = Relu(%c)
    %a = Relu(%r)                                  %p = Pad(%a) [[0, 0], [0, 0], [0, 0], [2, 0]]
    %p = Pad(%a) [[0, 0], [0, 0], [2, 0]]    ->    %y = Conv(%p)
    %q = Reshape(%p) [1, 8, 1, 11]
    %y = Conv(%q)

Convolutions over one axis are computed over two in TFLite; without this pass each would be between two reshapes.
A reshape with several users sinks only if it can sink through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import Elementwise, Op
from onnxtfl.ir.ops.slicing import INT32_MAX
from onnxtfl.ir.reshape import has_constant_target, reshape, reshaped_constant
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import TensorType
from onnxtfl.passes.canonical.canonicalize import MOVES
from onnxtfl.rewriting.patterns import Patterns

T = TypeVar("T")
MOST_USERS = 8
"""The most users of a reshape that sinks, and the most results of an op that it sinks through."""


@dataclass(frozen=True, eq=False)
class UnitReshape:
    """A Reshape that only inserts, removes or moves axes of size 1.

    `place`: the operand's axis for each axis of the result whose size is not 1.
    """

    node: Node
    before: Shape
    after: Shape
    place: dict[int, int]

    @classmethod
    def of(cls, value: Value | None) -> UnitReshape | None:
        """Return the reshape that produces `value` and only changes unit axes, else None."""
        node = made_by(value, ops.Reshape, quantized=True)
        if node is None or not isinstance(node.result.type, TensorType):
            return None
        before, after = node.operand(0).tensor_type.shape, node.result.type.shape
        if before is None or after is None or 0 in before:
            return None
        near, far = ([i for i, d in enumerate(s) if d != 1] for s in (before, after))
        if [before[i] for i in near] != [after[i] for i in far]:
            return None
        return cls(node, before, after, dict(zip(far, near, strict=True)))

    @property
    def source(self) -> Value:
        """The operand of the reshape."""
        return self.node.operand(0)

    def like(self, other: UnitReshape) -> bool:
        """Whether both reshapes have the same operand shape and the same result shape."""
        return self.before == other.before and self.after == other.after

    def applied_to(self, b: Builder, value: Value, shape: Shape) -> Value:
        """Reshape `value`, which has the operand's axes, to `shape`."""
        if shape != self.after:
            return reshape(b, value, shape, value)
        result = b(ops.Reshape, value, self.node.operand(1))
        if not result.is_constant:
            result.type = result.tensor_type.with_shape(shape)
        return result

    def vector(self, numbers: Sequence[T], default: T) -> list[T]:
        """Convert a vector with entries for the result's axes to one for the operand's axes."""
        moved = [default] * len(self.before)
        for far, near in self.place.items():
            moved[near] = numbers[far]
        return moved


SINK = Patterns()


def sink_reshapes(graph: Graph) -> None:
    """Let reshapes of unit axes sink as far as possible; those that meet cancel."""
    Patterns.of(MOVES, SINK).apply(graph)


def _through(b: Builder, node: Node, operands: Sequence[Value | None]) -> UnitReshape | None:
    """The common reshape of the given operands of `node`, if it may sink through `node`; else None."""
    moves = [UnitReshape.of(v) for v in operands]
    first = moves[0] if moves else None
    if _has_scales_along_an_axis(node) or first is None or any(m is None or not m.like(first) for m in moves):
        return None
    for move in moves:
        users = move.node.result.users() if move is not None else []
        shared = move is not None and move.node.result in b.graph.outputs
        if shared or len(users) > MOST_USERS or not all(u is node or _may_sink_through(u, first) for u in users):
            return None
    return first


def _has_scales_along_an_axis(node: Node) -> bool:
    """Whether a result of `node` has scales along an axis, which may be the one that a reshape inserts."""
    types = [r.type for r in node.results if isinstance(r.type, TensorType)]
    return any(t.quantization is not None and not t.quantization.per_tensor for t in types)


def _may_sink_through(user: Node, move: UnitReshape) -> bool:
    """Whether an equal reshape could sink through `user` too, judged by its op and operands."""
    if user.op is ops.Reshape:
        return UnitReshape.of(user.result) is not None
    if not SINK.has(user.op) or len(user.results) > MOST_USERS:
        return False
    if issubclass(user.op, Elementwise) and user.results[0].tensor_type.shape != move.after:
        return False
    moves = [UnitReshape.of(v) for v in user.present_operands if not v.is_constant]
    return all(m is not None and m.like(move) for m in moves)


@SINK.on(Elementwise, quantized=True)
def _elementwise(b: Builder, node: Node) -> Value | None:
    """Sink equal reshapes of all tensors; constants are reshaped to the operand's axes."""
    if len(node.results) != 1 or node.op is ops.Copy:
        return None
    varying = [v for v in node.present_operands if not v.is_constant]
    move = _through(b, node, varying)
    if move is None or node.result.tensor_type.shape != move.after:
        return None
    operands = [_before(v, move) for v in node.operands]
    if any(now is None and v is not None for now, v in zip(operands, node.operands, strict=True)):
        return None
    return move.applied_to(b, b.remade(node, *operands)[0], move.after)


def _before(value: Value | None, move: UnitReshape) -> Value | None:
    """Return the operand of an elementwise node before the reshape; None if a constant cannot be reshaped so."""
    if value is None or value.data is None:
        made = made_by(value, ops.Reshape, quantized=True)
        return made.operand(0) if made is not None else None
    shape = value.data.shape
    full = (1,) * (len(move.after) - len(shape)) + shape
    return reshaped_constant(value, () if all(d == 1 for d in full) else move.vector(full, 1))


@SINK.on(ops.Reshape, quantized=True)
def _two_around_elementwise(b: Builder, node: Node) -> Value | None:
    """Replace Reshape(f(Reshape(x))) by f(Reshape(x)) for an elementwise f of one tensor."""
    inner = made_by(node.operand(0), quantized=True)
    if inner is None or not issubclass(inner.op, Elementwise) or not single_use(node.operand(0), b.graph):
        return None
    if inner.op is ops.Copy or len(inner.results) != 1 or _has_scales_along_an_axis(inner):
        return None
    varying = [v for v in inner.present_operands if not (v.data is not None and v.data.size == 1)]
    first = made_by(varying[0], ops.Reshape, quantized=True) if len(varying) == 1 else None
    if first is None or not single_use(first.result, b.graph) or first.result.type != inner.result.type:
        return None
    singles = {v: reshaped_constant(v, ()) for v in inner.present_operands if v.data is not None}
    if None in singles.values():
        return None
    moved = b(ops.Reshape, first.operand(0), node.operand(1))
    moved.type = moved.tensor_type.with_shape(node.result.tensor_type.shape)
    operands = {varying[0]: moved, **singles}
    return b.remade(inner, *(None if v is None else operands[v] for v in inner.operands))[0]


_PER_AXIS: dict[type[Op], dict[int, int]] = {ops.Slice: {1: 0, 2: INT32_MAX, 3: 1}, ops.Pad: {1: 0}}
"""Operands with an entry for each axis, and the entry that does not change an axis."""


@SINK.on(ops.Slice, ops.Pad, ops.Split, ops.Reduce, ops.Softmax, ops.LogSoftmax, quantized=True)
def _renumbered(b: Builder, node: Node) -> list[Value] | None:
    """Renumber the axes of an op that does not change unit axes."""
    move = _through(b, node, node.operands[:1]) if len(node.results) <= MOST_USERS else None
    if move is None or not all(_is_computed_alike(r.shape, move.after) for r in node.results):
        return None
    operands: list[Operand] = [move.source, *node.operands[1:]]
    for i, unchanged in _PER_AXIS.get(node.op, {}).items():
        operands[i] = _entries(move, node.operand(i), unchanged)
    if node.op is ops.Reduce:
        axes = [normalize_axis(a, len(move.after)) for a in static_ints(node.optional(1)) or ()]
        operands = [move.source, sorted(move.place[a] for a in axes if a in move.place)]
        if not operands[1]:
            return None  # all axes (kernels limit the rank), or unit axes only
    axis = node.attr("axis")
    changed = {} if axis is None else {"axis": move.place.get(normalize_axis(axis, len(move.after)))}
    if None in changed.values() or any(v is None is not w for v, w in zip(operands, node.operands, strict=True)):
        return None
    parts = b.remade(node, *operands, **changed)
    return [move.applied_to(b, part, r.shape) for part, r in zip(parts, node.results, strict=True)]


def _is_computed_alike(shape: Shape, after: Shape) -> bool:
    """Whether a reshape to `shape` needs no other sizes than one to `after`, or one dynamic size only."""
    return has_constant_target(shape) or all(isinstance(d, int) or d in after for d in shape)


def _entries(move: UnitReshape, vector: Value, unchanged: int) -> Array | None:
    """Return the entries of `vector` for the operand's axes; None if unknown, or if they change a unit axis."""
    numbers = static_ints(vector)
    if numbers is None:
        return None
    rows = np.asarray(numbers).reshape(len(move.after), -1)
    units = [i for i in range(len(move.after)) if i not in move.place]
    if (np.minimum(rows[units], 1) != min(unchanged, 1)).any():
        return None
    moved = move.vector(rows.tolist(), [unchanged] * rows.shape[1])
    return np.asarray(moved).reshape(-1, *vector.shape[1:])


@SINK.on(ops.Concatenate, quantized=True)
def _concatenate(b: Builder, node: Node) -> Value | None:
    """Concatenate before the reshapes, along an axis that is not a unit axis."""
    axis, moves = node.attr("axis"), [UnitReshape.of(v) for v in node.operands]
    first = moves[0]
    found = [m for m in moves if m is not None and first is not None and m.place == first.place]
    if _has_scales_along_an_axis(node) or first is None or len(found) < len(moves) or axis not in first.place:
        return None
    if any(len(m.node.result.uses) != 1 or len(m.before) != len(first.before) for m in found):
        return None
    if any(_units(m) != _units(first) for m in found):
        return None
    whole = b.remade(node, *(m.source for m in found), axis=first.place[axis])[0]
    return first.applied_to(b, whole, node.result.shape)


def _units(move: UnitReshape) -> tuple[list[int], list[int]]:
    before, after = ([i for i, d in enumerate(s) if d == 1] for s in (move.before, move.after))
    return before, after
