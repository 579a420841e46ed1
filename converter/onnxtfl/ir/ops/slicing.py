"""Ops that take parts of a tensor, or lay more around it: Slice Pad Tile Reverse ReverseSequence DepthToSpace
SpaceToDepth Trilu DynamicUpdateSlice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, ceildiv, fresh, is_open
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INDICES, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops.permutations import everywhere, moved, moved_all, rank_of
from onnxtfl.ir.shapes import known_dims, normalize_axes, normalize_axis, same_type
from onnxtfl.ir.types import Type

HUGE = 1 << 31
"""Numbers from here on mean "to the very end" in slices."""


def lower_bound(dim: Dim) -> int:
    """A number that `dim` is never under, every symbol being a size."""
    if isinstance(dim, int):
        return dim
    if any(c < 0 for m, c in dim.terms if m):
        return 0
    return sum(c for m, c in dim.terms if not m)


def _entry(value: Value, index: int) -> Dim | None:
    """Entry `index` of a vector operand, None where it is only known at run time."""
    known = known_dims(value)
    if known is None or is_open(known[index]):
        return None
    return known[index]


def slice_dim(size: Dim, start: Dim | None, limit: Dim | None, stride: Dim | None) -> Dim:
    """How many positions a slice takes of an axis; a fresh symbol where that depends on numbers not known."""
    if start is None or limit is None or not isinstance(stride, int):
        return fresh()
    if stride == 0:
        raise ValueError("a slice of stride 0")
    if isinstance(size, int) and isinstance(start, int) and isinstance(limit, int):
        return len(range(*slice(start, limit, stride).indices(size)))
    begin, end = _position(size, start, stride > 0, True), _position(size, limit, stride > 0, False)
    if begin is None or end is None:
        return fresh()
    count = ceildiv(end - begin, stride)
    return max(count, 0) if isinstance(count, int) else count


def _position(size: Dim, at: Dim, forward: bool, is_start: bool) -> Dim | None:
    """The position that a bound of a slice means on an axis whose size, or which itself, is symbolic.

    None where clamping would depend on the size. Bounds that are symbolic are taken to lie inside.
    """
    if not isinstance(at, int):
        negative = all(c < 0 for _, c in at.terms)
        return size + at if negative else at
    if at >= HUGE:
        return size if forward else size - 1
    if at <= -HUGE:
        return 0 if forward else -1
    if at < 0:
        inside = lower_bound(size) >= -at or not (is_start and forward) or at == -1
        return size + at if inside else None
    inside = lower_bound(size) >= at or (is_start and forward)
    return at if inside else None


class Slice(Op):
    """Every strides[i]-th position from starts[i] up to but without limits[i], along each axis i.

    Bounds mean what NumPy's x[start:limit:stride] means: negative ones count from the end, those outside are clamped,
    and with a negative stride a limit under -size goes through position 0. Source: neutral-ops 3.122, 3.92 (widened:
    negative strides, bounds known only at run time).
    """

    operands = (
        Operand("input"),
        Operand("starts", INDICES),
        Operand("limits", INDICES),
        Operand("strides", INDICES),
    )
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        bounds = [node.operand(i) for i in (1, 2, 3)]
        for vector in bounds:
            if vector.tensor_type.shape not in (None, (len(x.shape),)) and isinstance(vector.shape[0], int):
                raise ValueError(f"bounds of {vector.type} for rank {len(x.shape)}")
        dims = [slice_dim(d, *(_entry(v, i) for v in bounds)) for i, d in enumerate(x.shape)]
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, starts, limits, strides = operands
        assert x is not None and starts is not None and limits is not None and strides is not None
        bounds = zip(starts, limits, strides, strict=True)
        return x[tuple(slice(int(a), int(b), int(c)) for a, b, c in bounds)]

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        return _vectors(permutation, 1, 2, 3, operands=4)


def _vectors(permutation: Permutation, *vectors: int, operands: int) -> Relabeled:
    """Operand 0 and the result lie with `permutation`, operands `vectors` have an entry an axis."""
    absent: tuple[Permutation | None, ...] = (None,) * (operands - 1)
    return Relabeled((permutation, *absent), (permutation,), {}, dict.fromkeys(vectors, permutation))


class Pad(Op):
    """padding[i] = (before, after) more positions along axis i; negative numbers cut off.

    mode "constant" fills with `value` (rank 0; 0 where absent), "edge" repeats the border, "reflect" mirrors without
    it, "symmetric" with it, "wrap" goes on at the other end (all three as often as needed, as NumPy does); what is
    cut off is cut off first. With `flat`, padding is a vector: all befores, then all afters.
    Source: neutral-ops 3.86, 3.43 (DynamicPad is the flat one); wrap from ONNX Pad-19.
    """

    operands = (Operand("input"), Operand("padding", INDICES), Operand("value", optional=True))
    defaults = {"mode": "constant", "flat": False}
    core = True
    follows_values = True
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, padding = node.operand(0).tensor_type, node.operand(1)
        if node.attr("mode") not in cls.modes:
            raise ValueError(f"mode {node.attr('mode')}")
        if x.shape is None:
            return [same_type(x, None)]
        rank = len(x.shape)
        flat = node.attr("flat")
        if padding.tensor_type.is_static and padding.shape != ((2 * rank,) if flat else (rank, 2)):
            raise ValueError(f"padding of {padding.type} for rank {rank}")
        dims: list[Dim] = []
        for i, d in enumerate(x.shape):
            places = (i, rank + i) if flat else (2 * i, 2 * i + 1)
            before, after = (_entry(padding, place) for place in places)
            dims.append(fresh() if before is None or after is None else d + before + after)
        if any(isinstance(d, int) and d < 0 for d in dims):
            raise ValueError(f"padding cuts more than there is of {x.shape}")
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, padding = operands[0], operands[1]
        assert x is not None and padding is not None
        pairs = padding.reshape(2, -1).T if attributes.get("flat") else padding
        rows = [(int(a), int(b)) for a, b in pairs]
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(rows, x.shape, strict=True))]
        rows = [(max(a, 0), max(b, 0)) for a, b in rows]
        if attributes["mode"] != "constant":
            return np.asarray(np.pad(x, rows, attributes["mode"]))
        value = operands[2] if len(operands) > 2 else None
        return _filled(x, rows, value)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        relabeled = _vectors(permutation, 1, operands=len(node.operands))
        if not node.attr("flat"):
            return relabeled
        both = (*permutation, *(p + len(permutation) for p in permutation))
        return Relabeled(relabeled.operands, relabeled.results, {}, {1: both})


def _filled(x: Array, rows: Sequence[tuple[int, int]], value: Array | None) -> Array:
    shape = [n + a + b for n, (a, b) in zip(x.shape, rows, strict=True)]
    blank: Any = "" if x.dtype.kind in "OUS" and x.size and isinstance(x.reshape(-1)[0], str) else 0
    result = np.full(shape, blank if value is None else value.reshape(-1)[0], x.dtype)
    result[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, rows, strict=True))] = x
    return result


class Tile(Op):
    """The operand repeated multiples[i] times along axis i. Source: neutral-ops 3.134 (name only), ONNX Tile."""

    operands = (Operand("input"), Operand("multiples", INDICES))
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, multiples = node.operand(0).tensor_type, node.operand(1)
        if x.shape is None:
            return [same_type(x, None)]
        if multiples.tensor_type.is_static and multiples.shape != (len(x.shape),):
            raise ValueError(f"multiples of {multiples.type} for rank {len(x.shape)}")
        times = [_entry(multiples, i) for i in range(len(x.shape))]
        return [same_type(x, tuple(fresh() if t is None else d * t for d, t in zip(x.shape, times, strict=True)))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, multiples = operands
        assert x is not None and multiples is not None
        return np.tile(x, [int(m) for m in multiples])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return None if index > 0 else _vectors(permutation, 1, operands=2)


class Reverse(Op):
    """The operand read backwards along `dimensions`. Source: neutral-ops 3.100."""

    operands = (Operand("input"),)
    defaults = {"dimensions": REQUIRED}
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axes(node.attr("dimensions"), len(x.shape))
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.flip(operands[0], tuple(attributes["dimensions"]))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return everywhere(node, permutation, dimensions=moved_all(node.attr("dimensions"), permutation))


class ReverseSequence(Op):
    """For each position i of `batch_axis`, the first lengths[i] positions of `seq_axis` read backwards.

    Source: neutral-ops 3.101 (time_axis there), with any two axes, as TFLite has it.
    """

    operands = (Operand("input"), Operand("lengths", INDICES))
    defaults = {"seq_axis": REQUIRED, "batch_axis": REQUIRED}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axes((node.attr("seq_axis"), node.attr("batch_axis")), len(x.shape))
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, lengths = operands
        assert x is not None and lengths is not None
        seq, batch = (normalize_axis(attributes[name], x.ndim) for name in ("seq_axis", "batch_axis"))
        result = x.copy()
        for i, length in enumerate(lengths):
            whole: list[Any] = [slice(None)] * x.ndim
            whole[batch], whole[seq] = i, slice(0, int(length))
            kept = seq - (batch < seq)
            result[tuple(whole)] = np.flip(x[tuple(whole)], kept)
        return result

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        axes = {name: moved(node.attr(name), permutation) for name in ("seq_axis", "batch_axis")}
        return Relabeled((permutation, None), (permutation,), axes)


class _Blocks(Op, register=False):
    """What DepthToSpace and SpaceToDepth share: a block of `block_size` along each of `space_dims`, and `depth_dim`.

    mode "DCR": the depth is (block positions, depth) with depth running fastest, "CRD": (depth, block positions).
    """

    operands = (Operand("input"),)
    defaults = {"block_size": REQUIRED, "mode": "DCR", "depth_dim": 1, "space_dims": (2, 3)}
    core = True

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        space = moved_all(node.attr("space_dims"), permutation)
        return everywhere(node, permutation, depth_dim=moved(node.attr("depth_dim"), permutation), space_dims=space)

    @classmethod
    def prefers(cls, node: Node, channels_last: bool) -> Relabeled | None:
        rank = rank_of(node.operand(0).type)
        if rank is None:
            return None
        depth, space = node.attr("depth_dim") % rank, tuple(node.attr("space_dims"))
        others = tuple(a for a in range(rank) if a != depth and a not in space)
        order = (*others, *space, depth) if channels_last else (*others, depth, *space)
        return cls.relabel(node, 0, order)


def _block_order(attributes: Mapping[str, Any], rank: int) -> tuple[list[int], int, tuple[int, ...]]:
    """Axes outside of the blocks, the depth axis and the space axes."""
    depth = normalize_axis(attributes["depth_dim"], rank)
    space = normalize_axes(attributes["space_dims"], rank)
    return [a for a in range(rank) if a != depth and a not in space], depth, space


class DepthToSpace(_Blocks):
    """Parts of the depth become blocks of space. Source: neutral-ops 3.35 (name only), ONNX DepthToSpace."""

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        _, depth, space = _block_order({**cls.defaults, **node.attributes}, len(x.shape))
        block, dims = node.attr("block_size"), list(x.shape)
        if isinstance(dims[depth], int) and dims[depth] % block ** len(space):
            raise ValueError(f"a depth of {dims[depth]} does not fill blocks of {block}")
        dims[depth] = dims[depth] // block ** len(space)
        for axis in space:
            dims[axis] = dims[axis] * block
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, block = operands[0], attributes["block_size"]
        assert x is not None
        others, depth, space = _block_order(attributes, x.ndim)
        n, first = len(space), attributes["mode"] == "DCR"
        order = (*others, depth, *space)
        y = x.transpose(order)
        lead, count, sizes = y.shape[: len(others)], y.shape[len(others)] // block**n, y.shape[len(others) + 1 :]
        blocks = (*(block,) * n, count) if first else (count, *(block,) * n)
        y = y.reshape(*lead, *blocks, *sizes)
        k = len(others)
        at_block, at_depth = (k, k + n) if first else (k + 1, k)
        pairs = [a for i in range(n) for a in (k + 1 + n + i, at_block + i)]
        y = y.transpose(*range(k), at_depth, *pairs).reshape(*lead, count, *(s * block for s in sizes))
        return y.transpose(np.argsort(order))


class SpaceToDepth(_Blocks):
    """Blocks of space become parts of the depth. Source: neutral-ops 3.127."""

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        _, depth, space = _block_order({**cls.defaults, **node.attributes}, len(x.shape))
        block, dims = node.attr("block_size"), list(x.shape)
        for axis in space:
            if isinstance(dims[axis], int) and dims[axis] % block:
                raise ValueError(f"a size of {dims[axis]} is not made of blocks of {block}")
            dims[axis] = dims[axis] // block
        dims[depth] = dims[depth] * block ** len(space)
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, block = operands[0], attributes["block_size"]
        assert x is not None
        others, depth, space = _block_order(attributes, x.ndim)
        n, k = len(space), len(others)
        order = (*others, depth, *space)
        y = x.transpose(order)
        lead, count, sizes = y.shape[:k], y.shape[k], [s // block for s in y.shape[k + 1 :]]
        y = y.reshape(*lead, count, *(d for s in sizes for d in (s, block)))
        spaces, blocks = [k + 1 + 2 * i for i in range(n)], [k + 2 + 2 * i for i in range(n)]
        inner = (*blocks, k) if attributes["mode"] == "DCR" else (k, *blocks)
        y = y.transpose(*range(k), *inner, *spaces).reshape(*lead, count * block**n, *sizes)
        return y.transpose(np.argsort(order))


class Trilu(Op):
    """The upper (or lower) triangle of the matrices on the last two axes, zeros elsewhere.

    `k` (rank 0 or one element, 0 where absent): the diagonal where the triangle begins, positive above the main one.
    Source: neutral-ops 3.137, with `k` as an operand as in ONNX.
    """

    operands = (Operand("input"), Operand("k", INDICES, optional=True))
    defaults = {"upper": True}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None and len(x.shape) < 2:
            raise ValueError(f"a triangle of rank {len(x.shape)}")
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, k = operands[0], operands[1] if len(operands) > 1 else None
        assert x is not None
        diagonal = 0 if k is None else int(k.reshape(()))
        rows, columns = x.shape[-2:]
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = distance >= diagonal if attributes["upper"] else distance <= diagonal
        return np.where(keep, x, np.zeros((), x.dtype))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        rank = len(permutation)
        if index > 0 or permutation[-2:] != (rank - 2, rank - 1):
            return None
        return Relabeled((permutation, *(None for _ in node.operands[1:])), (permutation,))


class DynamicUpdateSlice(Op):
    """`input` with `update` laid over it from position `starts` on; starts are clamped so that it fits.

    Source: neutral-ops 3.46.
    """

    operands = (Operand("input"), Operand("update"), Operand("starts", INDICES))

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if rank_of(node.operand(1).type) not in (None, x.rank) and x.rank is not None:
            raise ValueError("the update has another rank")
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, update, starts = operands
        assert x is not None and update is not None and starts is not None
        room = [n - m for n, m in zip(x.shape, update.shape, strict=True)]
        begins = [min(max(int(s), 0), r) for s, r in zip(starts, room, strict=True)]
        result = x.copy()
        result[tuple(slice(b, b + m) for b, m in zip(begins, update.shape, strict=True))] = update
        return result

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 1:
            return None
        return Relabeled((permutation, permutation, None), (permutation,), {}, {2: permutation})


__all__ = [
    "DepthToSpace",
    "DynamicUpdateSlice",
    "Pad",
    "Reverse",
    "ReverseSequence",
    "Slice",
    "SpaceToDepth",
    "Tile",
    "Trilu",
    "lower_bound",
    "slice_dim",
]
