"""Reshape DynamicReshape Squeeze Unsqueeze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, fresh_symbol, indivisible, is_static, known_size, known_sizes, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.factors import factor_groups, permuted_groups
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INDICES, Op, Operand, Permutation, Permuted
from onnxtfl.ir.ops.comparison import Compare
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.selection import Select
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.shapes import normalize_axes, required_axes, static_ints, target_dims
from onnxtfl.ir.shown_sizes import shown_shape


class Reshape(Op):
    """The same elements in C order with the shape in the vector `shape`; one entry may be -1.

    Zeros mean size 0 (ONNX's copying zeros are resolved when lifting). Source: neutral-ops 3.98, 3.44.
    """

    operands = (Operand("input"), Operand("shape", INDICES, likely=(1, 2)))
    core = True
    moves = slice(0, 1)
    keeps_all = "in order"
    propagates = True

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        shape = node.result.tensor_type.shape
        return {1: shape} if is_static(shape) else {}

    @staticmethod
    def shape(x: Value, shape: Value) -> Dims | None:
        dims, before = target_dims(shape), x.tensor_type.shape
        if dims is None:
            return None
        if sum(d == -1 for d in dims) > 1 or min(known_sizes(dims), default=0) < -1:
            raise ValueError(f"shape {shown_shape(dims)} has more than one dynamic size")
        if -1 in dims:
            dims[dims.index(-1)] = _remaining(before, [d for d in dims if d != -1])
        if before is not None and _differ(product(before), product(dims)):
            raise ValueError(f"{shown_shape(before)} cannot be reshaped to {shown_shape(dims)}")
        return tuple(dims)

    @staticmethod
    def compute(x: Array, shape: Array) -> Array:
        return x.reshape([int(d) for d in shape])

    @classmethod
    def kept(cls, node: Node, quantization: Quantization, shape: Dims | None) -> Quantization | None:
        before = node.operand(0).tensor_type.shape
        if before is None or shape is None:
            return super().kept(node, quantization, shape)
        return quantization.reshaped(before, shape)

    @classmethod
    def origin_before(cls, node: Node, origin: Origin) -> Origin | None:
        shape = node.operand(0).tensor_type.shape
        return None if shape is None else origin.reshaped(shape, node.result.tensor_type.shape)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        before, after = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
        if index > 0 or before is None or after is None:
            return None
        groups = factor_groups(before, after)
        if groups is None:
            return None
        if index == -1:
            ours = permuted_groups([(b, a) for a, b in groups], after, permutation)
            return None if ours is None else Permuted((ours, None), (permutation,), {}, {1: permutation})
        theirs = permuted_groups(groups, before, permutation)
        return None if theirs is None else Permuted((permutation, None), (theirs,), {}, {1: theirs})


def _differ(before: Dim, after: Dim) -> bool:
    """Whether two numbers of elements are known and differ (with a size of 0, dynamic sizes do not matter)."""
    return differ(before, after)


def _remaining(shape: Dims | None, others: Sequence[Dim]) -> Dim:
    """Return the size for -1. ValueError if the others do not divide the number of elements."""
    if shape is None:
        return fresh_symbol()
    total, rest = product(shape), product(others)
    if rest == 0:
        raise ValueError("-1 beside a size of 0 can be anything")
    if indivisible(total, rest):
        raise ValueError(f"{shown_shape(shape)} does not divide by {shown_shape(others)}")
    return total // rest


@by_expansion(Operand("input"), Operand("shape", INDICES))
def DynamicReshape(b: Builder, x: Value, shape: Value, allowzero: int = 0) -> Value:
    """Reshape where a 0 copies the operand's size, unless `allowzero`. Source: neutral-ops 3.44."""
    known = static_ints(shape)
    if allowzero or (known is not None and 0 not in known):
        return b(Reshape, x, shape)
    if known is not None and is_static(x.shape[i] for i, d in enumerate(known) if d == 0):
        return b(Reshape, x, [x.shape[i] if d == 0 else d for i, d in enumerate(known)])
    count = known_size(shape.shape[0], "the number of sizes")
    own = b(Gather, b(Concatenate, b(Shape, x), [1] * count, axis=0), list(range(count)), axis=0)
    return b(Reshape, x, b(Select, b(Compare, shape, b.scalar(0, shape), comparison_direction="EQ"), own, shape))


@by_expansion(Operand("input"), Operand("axes", INDICES, optional=True), keeps_all="in order")
def Squeeze(b: Builder, x: Value, axes: Value | None) -> Value:
    """The operand without `axes` of size 1; if absent, without all axes known to have size 1.

    Source: neutral-ops 3.129.
    """
    gone = [i for i, d in enumerate(x.shape) if d == 1]
    if axes is not None:
        gone = list(normalize_axes(required_axes(axes), x.rank))
        if any(differ(x.shape[a], 1) for a in gone):
            raise ValueError(f"axes {gone} of {shown_shape(x.shape)} are not all 1")
    return b(Reshape, x, b(Shape, x, axes=tuple(i for i in range(x.rank) if i not in gone)))


@by_expansion(Operand("input"), Operand("axes", INDICES), keeps_all="in order")
def Unsqueeze(b: Builder, x: Value, axes: Value) -> Value:
    """The operand with axes of size 1 at `axes` of the result. Source: neutral-ops 3.139."""
    given = required_axes(axes)
    new = normalize_axes(given, x.rank + len(given))
    places = iter(range(x.rank))
    order = [x.rank if i in new else next(places) for i in range(x.rank + len(new))]
    return b(Reshape, x, b(Gather, b(Concatenate, b(Shape, x), [1], axis=0), order, axis=0))
