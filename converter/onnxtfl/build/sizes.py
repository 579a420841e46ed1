"""Vectors of sizes and indices for mapping rules: constants if they are known, else computed at run time.

Computed vectors consist of Shape, Gather and Concatenate where possible. For TFLite the whole chain is rewritten to
int32 (:func:`narrow_constant`), since delegates reject int64 and casts in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_static
from onnxtfl.ir.facts import fits_int32
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.ops.slicing import INT32_MAX as INT32_MAX
from onnxtfl.ir.ops.slicing import slice_axes as slice_axes
from onnxtfl.ir.reshape import dim_value, iota, reshape, transpose_and_merge
from onnxtfl.ir.shapes import possible_rank, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import DecomposeRule

HUGE = (1 << 63) - 1


def vector_length(vector: Value) -> int:
    """The number of entries of a vector with one for each axis; UnsupportedError if it is unknown before run time."""
    shape = vector.tensor_type.shape
    if not is_static(shape) or len(shape) != 1:
        raise UnsupportedError("the number of axes is unknown before run time", code="E-SHAPE-001")
    return possible_rank(shape[0])


def may_hold_zeros(shape: Value) -> bool:
    """Whether the sizes are moved elements of a graph input, so that they may contain zeros."""
    if shape.is_constant:
        return False
    node = shape.producer
    if node is None:
        return True
    moving = (ops.Concatenate, ops.Reshape, ops.Slice, ops.Gather, ops.Convert)
    return node.op in moving and any(may_hold_zeros(v) for v in node.operands[:1] if v is not None)


def clamp_to_int32(values: Sequence[int] | Array) -> Array:
    """Constant sizes or indices as int32; larger ones, which mean "to the end", are clamped. ValueError for others."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fc":
        raise ValueError(f"sizes or indices of type {values.dtype}")
    return np.clip(np.asarray(values, np.int64), -INT32_MAX, INT32_MAX).astype(np.int32)


def narrow_constant(vector: Value) -> Value | Array:
    """A constant vector as int32; other vectors are returned unchanged."""
    if not vector.is_constant or vector.dtype is DType.INT32:
        return vector
    return clamp_to_int32(vector.numpy())


def widen_constant(vector: Value) -> Value | Array:
    """A constant as int64; other values are returned unchanged."""
    return np.asarray(vector.numpy(), np.int64) if vector.is_constant else vector


def constant_elements(value: Value | None, what: str) -> list[int]:
    """The elements of an integer operand; UnsupportedError (about `what`) if they are unknown before run time."""
    elements = static_ints(value)
    if elements is None:
        raise UnsupportedError(f"{what} that is dynamic", hint="freeze it to an initializer", code="E-SHAPE-002")
    return elements


def sizes_as_int64(b: Builder, value: Value) -> Value:
    """Return sizes as int64; in ops of the first opset they have the dtype of the tensor."""
    if value.is_constant:
        return constant(np.asarray(value.numpy(), np.int64))
    return value if value.dtype is DType.INT64 else b(ops.Convert, value, dtype=DType.INT64)


def as_int32(b: Builder, value: Value) -> Value:
    """An integer vector as int32: the shape arithmetic that computes it is rewritten in int32."""
    if value.dtype is DType.INT32:
        return value
    if value.is_constant:
        return constant(clamp_to_int32(value.numpy()))
    node = value.producer
    if node is None:
        return b(ops.Convert, value, dtype=DType.INT32)
    if node.op is ops.Shape:
        return b(ops.Shape, node.operand(0), axes=node.attr("axes"), dtype=DType.INT32)
    if node.op is ops.Convert and node.operand(0).dtype is DType.INT32:
        return node.operand(0)
    moved = node.op.moves if not node.op.inserts else None  # the other operands are indices
    if moved is not None or _is_arithmetic(node):
        narrowed = range(len(node.operands))[moved or slice(None)]
        operands = [v if v is None or i not in narrowed else as_int32(b, v) for i, v in enumerate(node.operands)]
        results = b.many(node.op, *operands, **node.attributes)
        return results[value.index]
    return b(ops.Convert, value, dtype=DType.INT32)


def _is_arithmetic(node: Node) -> bool:
    """Whether `node` computes sizes from others of the same element type, and does so in int32 too.

    A bound that only selects (Min, Max) may be clamped, a term or factor may not.
    """
    same = all(v is None or v.dtype is node.results[0].dtype for v in node.operands)
    fits = node.op.selects is not None or all(v is None or not v.is_constant or fits_int32(v) for v in node.operands)
    return same and issubclass(node.op, Elementwise) and node.op.propagates and fits


def with_int32(b: Builder, node: Node, *indices: int) -> list[Value] | None:
    """The results of `node` with the computed vectors among operands `indices` as int32; None if they already are."""
    operands = list(node.operands)
    for i in indices:
        if (v := node.optional(i)) is not None and not v.is_constant:
            operands[i] = as_int32(b, v)
    return None if operands == node.operands else b.many(node.op, *operands, **node.attributes)


def with_dtype(b: Builder, node: Node, dtype: DType | None) -> list[Value] | None:
    """The results of `node` with another attribute `dtype`, converted back; None if `node` already has that dtype."""
    if node.attr("dtype") is dtype:
        return None
    results = zip(b.many(node.op, *node.operands, **{**node.attributes, "dtype": dtype}), node.results, strict=True)
    return [new if new.dtype is old.dtype else b(ops.Convert, new, dtype=old.dtype) for new, old in results]


def int32_operands(*indices: int) -> DecomposeRule:
    """The decomposition that converts the computed vectors among operands `indices` to int32."""

    def in_int32(b: Builder, node: Node) -> list[Value] | None:
        return with_int32(b, node, *indices)

    return in_int32


def range_below(b: Builder, size: Dim, source: Value) -> Value:
    """0, 1, ... below `size` as int64, a size of `source`."""
    return iota(b, dim_value(b, size, source))


def merge_whole(whole: Sequence[bool]) -> list[list[int]]:
    """Group adjacent axes that are both `whole`; every other axis is a separate group."""
    groups: list[list[int]] = []
    for axis, is_whole in enumerate(whole):
        if is_whole and groups and whole[groups[-1][-1]]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def on_fewer_axes(
    b: Builder, node: Node, rows: Array, neutral: Sequence[int], apply: Callable[[Value, Array], Value]
) -> Value | None:
    """Split `node`, an op with a row of parameters for each axis, into ops on tensors of lower rank.

    Adjacent axes with the `neutral` row are merged. If there are none, the op is applied to half of the other axes,
    then to the other half; None if there is only one such axis, and for ranks up to 4. `apply` makes the op.
    """
    x, kept = node.operand(0), (rows == neutral).all(axis=1)
    groups = merge_whole(kept.tolist())
    if len(groups) < x.rank:
        made = apply(transpose_and_merge(b, x, groups), rows[[group[0] for group in groups]])
        places = {group[0]: place for place, group in enumerate(groups) if not kept[group[0]]}
        sizes = [made.shape[places[i]] if i in places else d for i, d in enumerate(x.shape)]
        return reshape(b, made, sizes, made, x)
    changed = np.flatnonzero(~kept)
    if x.rank <= 4 or len(changed) < 2:
        return None
    for half in (changed[: len(changed) // 2], changed[len(changed) // 2 :]):
        x = apply(x, np.where(np.isin(np.arange(x.rank), half)[:, None], rows, neutral))
    return x
