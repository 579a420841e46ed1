"""Ops that change shapes and move whole axes: their numbers are never touched.

Reshape Transpose BroadcastTo Concatenate Split, and Shape Size Range, which make numbers out of shapes.
Slice, Pad and their kin stand in ``slicing.py`` and are given on from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, ceildiv, fresh, fresh_number, is_open, product, static
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.factors import factor_groups, follow_groups
from onnxtfl.ir.graph import KNOWN_LIMIT, Node, Value
from onnxtfl.ir.op import INDICES, NUMERIC, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops.permutations import compose, identity, inverse, moved, rank_of
from onnxtfl.ir.ops.slicing import (
    DepthToSpace,
    DynamicUpdateSlice,
    Pad,
    Reverse,
    ReverseSequence,
    Slice,
    SpaceToDepth,
    Tile,
    Trilu,
)
from onnxtfl.ir.shapes import broadcast_dim, dims_from, known_dims, normalize_axis, same_type
from onnxtfl.ir.types import DType, TensorType, Type

__all__ = [
    "BroadcastTo",
    "Concatenate",
    "DepthToSpace",
    "DynamicUpdateSlice",
    "Pad",
    "Range",
    "Reshape",
    "Reverse",
    "ReverseSequence",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Tile",
    "Transpose",
    "Trilu",
]


def objects(dims: Sequence[Dim]) -> Array:
    """A vector of dims, for following values."""
    result = np.empty(len(dims), object)
    result[:] = dims
    return result


def target_dims(value: Value) -> list[Dim] | None:
    """The sizes in a vector operand; fresh symbols for those known only at run time, None where even the count is."""
    dims = dims_from(value)
    return None if dims is None else [fresh() if is_open(d) else d for d in dims]


class Reshape(Op):
    """The same numbers in C order under the shape that the vector `shape` gives; one entry may be -1.

    Zeros mean size 0 (ONNX's copying zeros are resolved when lifting). Source: neutral-ops 3.98, 3.44.
    """

    operands = (Operand("input"), Operand("shape", INDICES))
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        dims = target_dims(node.operand(1))
        if dims is None:
            return [same_type(x, None)]
        if sum(d == -1 for d in dims) > 1 or any(isinstance(d, int) and d < -1 for d in dims):
            raise ValueError(f"shape {dims} has more than one open size")
        if -1 in dims:
            dims[dims.index(-1)] = _remaining(x.shape, [d for d in dims if d != -1])
        if static(x.shape) and static(dims) and product(x.shape or ()) != product(dims):
            raise ValueError(f"{x.shape} cannot be reshaped to {tuple(dims)}")
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, shape = operands
        assert x is not None and shape is not None
        return x.reshape([int(d) for d in shape])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        before, after = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
        if index > 0 or before is None or after is None:
            return None
        groups = factor_groups(before, after)
        if groups is None:
            return None
        if index == -1:
            ours = follow_groups([(b, a) for a, b in groups], after, permutation)
            return None if ours is None else Relabeled((ours, None), (permutation,), {}, {1: permutation})
        theirs = follow_groups(groups, before, permutation)
        return None if theirs is None else Relabeled((permutation, None), (theirs,), {}, {1: theirs})


def _remaining(shape: Dims | None, others: Sequence[Dim]) -> Dim:
    """The size that -1 stands for."""
    if shape is None:
        return fresh()
    total, rest = product(shape), product(others)
    if rest == 0:
        raise ValueError("-1 beside a size of 0 can be anything")
    if isinstance(total, int) and isinstance(rest, int) and total % rest:
        raise ValueError(f"{shape} does not divide by {list(others)}")
    return total // rest


class Transpose(Op):
    """Axis i of the result is axis permutation[i] of the operand. Source: neutral-ops 3.136."""

    operands = (Operand("input"),)
    defaults = {"permutation": REQUIRED}
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, permutation = node.operand(0).tensor_type, node.attr("permutation")
        if sorted(permutation) != list(range(len(permutation))):
            raise ValueError(f"{permutation} is no permutation")
        if x.shape is None:
            return [same_type(x, tuple(fresh() for _ in permutation))]
        if len(x.shape) != len(permutation):
            raise ValueError(f"permutation {permutation} for rank {len(x.shape)}")
        return [same_type(x, tuple(x.shape[p] for p in permutation))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        return operands[0].transpose(attributes["permutation"])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        """An alias: the result's label is the one under which the bytes stay where they are."""
        axes = tuple(node.attr("permutation"))
        if index == 0:
            ours, theirs = permutation, compose(inverse(axes), permutation)
        else:
            ours, theirs = compose(axes, permutation), permutation
        return Relabeled((ours,), (theirs,), {"permutation": identity(len(axes))})


class BroadcastTo(Op):
    """The operand repeated along missing and unit axes (aligned at the last axis) up to the shape given, which is the
    whole result's (ONNX's Expand, which takes a 1 for the operand's own size, is resolved when lifting).

    Source: neutral-ops 3.18, 3.41.
    """

    operands = (Operand("input"), Operand("shape", INDICES))
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, dims = node.operand(0).tensor_type, target_dims(node.operand(1))
        if x.shape is None or dims is None:
            return [same_type(x, None)]
        rank = max(len(x.shape), len(dims))
        padded = (1,) * (rank - len(x.shape)) + x.shape
        target = (1,) * (rank - len(dims)) + tuple(dims)
        return [same_type(x, tuple(broadcast_dim(t, d) for d, t in zip(padded, target, strict=True)))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, shape = operands
        assert x is not None and shape is not None
        target = [int(d) for d in shape]
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(target))).copy()

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        rank, inner = rank_of(node.result.type), rank_of(node.operand(0).type)
        count = node.operand(1).tensor_type.shape
        if rank is None or inner is None or count != (rank,) or index > 0:
            return None
        lead = rank - inner
        if index == 0:
            permutation = (*range(lead), *(p + lead for p in permutation))
        elif any(p < lead for p in permutation[lead:]):
            return None
        ours = tuple(p - lead for p in permutation[lead:])
        return Relabeled((ours, None), (permutation,), {}, {1: permutation})


class Concatenate(Op):
    """The operands one behind the other along `axis`. Source: neutral-ops 3.26."""

    operands = (Operand("inputs", variadic=True),)
    defaults = {"axis": REQUIRED}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        types = [node.operand(i).tensor_type for i in range(len(node.operands))]
        if not types:
            raise ValueError("nothing to concatenate")
        if any(t.dtype is not types[0].dtype for t in types):
            raise TypeError("operands differ in element type")
        shapes = [t.shape for t in types if t.shape is not None]
        if not shapes:
            return [same_type(types[0], None)]
        rank = len(shapes[0])
        axis = normalize_axis(node.attr("axis"), rank)
        if any(len(s) != rank for s in shapes):
            raise ValueError("operands differ in rank")
        dims = [_agreed([s[i] for s in shapes]) for i in range(rank)]
        dims[axis] = sum((s[axis] for s in shapes), 0) if len(shapes) == len(types) else fresh()
        if any(d is None for i, d in enumerate(dims) if i != axis):
            raise ValueError(f"shapes {shapes} do not fit along axis {axis}")
        return [same_type(types[0], tuple(d for d in dims if d is not None))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        return np.concatenate([x for x in operands if x is not None], attributes["axis"])

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """Known parts stay known beside unknown ones, so that a shape with one computed size is followed."""
        values = [v for v in node.operands if v is not None]
        if all(v.known is None for v in values):
            return [None]
        parts = [_contents(v) for v in values]
        if any(part is None for part in parts):
            return [None]
        whole = np.concatenate([p for p in parts if p is not None], node.attr("axis"))
        return [whole if whole.size <= KNOWN_LIMIT else None]

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if any(rank_of(v.type) != len(permutation) for v in node.operands if v is not None):
            return None
        axis = moved(node.attr("axis"), permutation)
        return Relabeled((permutation,) * len(node.operands), (permutation,), {"axis": axis})


def _contents(value: Value) -> Array | None:
    """The known contents, or as many symbols as the small integer vector has entries."""
    if value.known is not None:
        return value.known
    sizes = [d for d in value.tensor_type.shape or () if isinstance(d, int)]
    if not value.dtype.is_integer or value.tensor_type.rank != len(sizes) or math.prod(sizes) > KNOWN_LIMIT:
        return None
    return objects([fresh_number() for _ in range(math.prod(sizes))]).reshape(sizes)


def _agreed(dims: Sequence[Dim]) -> Dim | None:
    """The size that all `dims` have (an int wins over symbols); None where two ints differ."""
    ints = {d for d in dims if isinstance(d, int)}
    if len(ints) > 1:
        return None
    return ints.pop() if ints else dims[0]


class Split(Op):
    """The operand cut along `axis` into parts of the sizes given, or (`sizes` absent) into `count` equal ones.

    Source: neutral-ops 3.56 (name only); the meaning is ONNX Split's, with `sizes` as TFLite's SPLIT_V takes them.
    """

    operands = (Operand("input"), Operand("sizes", INDICES, optional=True))
    results = (Operand("outputs", variadic=True),)
    defaults = {"axis": REQUIRED, "count": 0}
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, axis = node.operand(0).tensor_type, node.attr("axis")
        sizes = cls.sizes(node)
        if x.shape is None:
            return [same_type(x, None)] * len(sizes)
        axis = normalize_axis(axis, len(x.shape))
        total = sum(sizes, 0)
        if isinstance(total, int) and isinstance(x.shape[axis], int) and total != x.shape[axis]:
            raise ValueError(f"sizes {sizes} for an axis of {x.shape[axis]}")
        return [same_type(x, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes]

    @classmethod
    def sizes(cls, node: Node) -> list[Dim]:
        """The sizes of the parts; ValueError where even their number is unknown."""
        sizes = node.optional(1)
        if sizes is not None:
            known = target_dims(sizes)
            if known is None:
                raise ValueError("the number of parts has to be known")
            return known
        count, shape = node.attr("count"), node.operand(0).tensor_type.shape
        if count < 1:
            raise ValueError("neither sizes nor a count of parts")
        total = fresh() if shape is None else shape[normalize_axis(node.attr("axis"), len(shape))]
        if isinstance(total, int) and total % count:
            raise ValueError(f"{total} does not divide into {count} equal parts")
        return [total // count] * count

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        x = operands[0]
        assert x is not None
        sizes = operands[1] if len(operands) > 1 else None
        if sizes is None:
            return tuple(np.split(x, attributes["count"], attributes["axis"]))
        ends = np.cumsum([int(s) for s in sizes])
        return tuple(np.split(x, ends[:-1], attributes["axis"]))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        axis = moved(node.attr("axis"), permutation)
        operands = (permutation, *(None for _ in node.operands[1:]))
        return Relabeled(operands, (permutation,) * len(node.results), {"axis": axis})


class Shape(Op):
    """The sizes of the operand's axes as a vector: of all, or of `axes` in that order.

    Source: neutral-ops 3.112; `axes` says what start and end say there, and keeps the order when the operand lies
    permuted in memory.
    """

    operands = (Operand("input"),)
    defaults = {"axes": None, "dtype": DType.INT64}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        rank, axes = rank_of(node.operand(0).type), node.attr("axes")
        if axes is not None and rank is not None and any(not 0 <= a < rank for a in axes):
            raise ValueError(f"axes {axes} of a tensor of rank {rank}")
        count: Dim = len(axes) if axes is not None else fresh() if rank is None else rank
        return [TensorType(node.attr("dtype"), (count,))]

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """The operand's own sizes."""
        shape, axes = node.operand(0).tensor_type.shape, node.attr("axes")
        if shape is None:
            return [None]
        dims = list(shape) if axes is None else [shape[a] for a in axes]
        return [objects(dims)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        shape, axes = operands[0].shape, attributes["axes"]
        return np.asarray(shape if axes is None else [shape[a] for a in axes], attributes["dtype"].numpy)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index != 0:
            return None
        axes = node.attr("axes") or identity(len(permutation))
        return Relabeled((permutation,), (None,), {"axes": tuple(moved(a, permutation) for a in axes)})


class Size(Op):
    """The number of elements, of rank 0. Source: neutral-ops 3.121; into the core: product of Shape."""

    operands = (Operand("input"),)
    defaults = {"dtype": DType.INT64}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.attr("dtype"), ())]

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """The product of the operand's own sizes."""
        shape = node.operand(0).tensor_type.shape
        if shape is None:
            return [None]
        result = np.empty((), object)
        result[()] = product(shape)
        return [result]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.asarray(operands[0].size, attributes["dtype"].numpy)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return Relabeled((permutation,), (None,)) if index == 0 else None


class Range(Op):
    """start, start + delta, ... up to but without limit: max(ceil((limit - start) / delta), 0) numbers.

    Operands of rank 0 (or one element). Source: ONNX Range.
    """

    operands = (Operand("start", NUMERIC), Operand("limit", NUMERIC), Operand("delta", NUMERIC))
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.operand(0).dtype, (cls.count(node),))]

    @classmethod
    def count(cls, node: Node) -> Dim:
        """How many numbers come out."""
        values = [node.operand(i) for i in range(3)]
        if all(v.is_constant for v in values):
            return _range_count(*(v.numpy().reshape(()) for v in values))
        known = [known_dims(v) for v in values]
        if any(k is None for k in known):
            return fresh()
        start, limit, delta = (k[0] for k in known if k is not None)
        room = ceildiv(limit - start, delta)
        return fresh() if is_open(room) else room

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        start, limit, delta = (x.reshape(()) for x in operands if x is not None)
        count = _range_count(start, limit, delta)
        wide = np.float64 if start.dtype.kind not in "iuO" else start.dtype
        steps = np.arange(count).astype(wide) * delta.astype(wide)
        return np.asarray(start.astype(wide) + steps).astype(start.dtype)


def _range_count(start: Array, limit: Array, delta: Array) -> int:
    if start.dtype.kind in "iuO":
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
