"""Rows of whole numbers that a kernel reads as they are, although it quantizes each row at run time.

A kernel of float activations and 8-bit weights divides the range of each row, and 0, into 255 steps. Two columns
with the ends of a range of 255 make the steps 1 wide, so that whole numbers are not rounded::

    rows [..., k + 2] = Max(Min(numbers, highest - zero), lowest - zero)
        lowest    0   0 ..   0  0 255
        highest 255 255 .. 255  0 255

    rows [..., k + 2] = Convert(Concatenate(%q: quantized, [lowest, highest]))

A kernel of convolutions quantizes each sample, which has the ends at each position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import dim_vector
from onnxtfl.ir.types import DType, rank_of

COLUMNS = 2
"""How many columns the ends are."""
STEPS = 255
"""How many steps 8 bits have."""
OPTION = "asymmetric_quantize_inputs"
"""The option of TFLite ops whether they divide ranges that are not symmetric into steps."""
Meaning = Callable[[Node], type[Op] | None]
"""The neutral op that a node is; None for other nodes."""


def quantized_rows(b: Builder, x: Value, scale: Value, zero: Value, dtype: DType, width: int) -> Value:
    """`x` [..., k = `width`] in whole steps of `scale`, clamped as 8-bit integers of `dtype` less `zero`: [..., k + 2].

    `scale`, `zero`: float32 of one element; `zero` is a whole number within the limits of `dtype`.
    """
    least, most = limits(dtype)
    inner = np.full(width, least, np.float32), np.full(width, most, np.float32)
    lowest, highest = (constant(np.concatenate([part, np.asarray([least, most], np.float32)])) for part in inner)
    padding = np.asarray([[0, 0]] * (x.rank - 1) + [[0, COLUMNS]])
    numbers = b(ops.RoundNearestEven, b(ops.Div, b(ops.Pad, x, padding), scale))
    return b(ops.Max, b(ops.Min, numbers, b(ops.Sub, highest, zero)), b(ops.Sub, lowest, zero))


def quantized_numbers(b: Builder, x: Value, scale: Value, zero: Value, dtype: DType) -> Value:
    """`x` in whole steps of `scale`, clamped as 8-bit integers of `dtype` less `zero`, as in `quantized_rows`."""
    least, most = (b(ops.Sub, b.scalar(limit, DType.FLOAT32), zero) for limit in limits(dtype))
    return b(ops.Max, b(ops.Min, b(ops.RoundNearestEven, b(ops.Div, x, scale)), most), least)


def rounds_to_steps(option: object, weights: Value | None) -> bool:
    """Whether a kernel for these quantized weights divides the range of float activations into 255 steps.

    `option`: the value of `OPTION`; None for kernels without it, which have steps on both sides of 0 where all
    features have one scale. Source: LiteRT kernels/conv.cc (is_hybrid_per_channel).
    """
    quantization = quantization_of(weights)
    several = quantization is not None and len(set(quantization.scales)) > 1
    return several if option is None else bool(option)


def with_two_scales(one: Quantization, count: int, axis: int) -> Quantization:
    """One scale of weights as one for each of `count` features along `axis`, of which the last is the next float32.

    Kernels that tell scales from each other then have 255 steps; the difference is what a product is rounded by.
    """
    scale = np.float32(one.scales[0])
    other = float(np.nextafter(scale, np.float32(np.inf)))
    return replace(one, scales=(float(scale),) * (count - 1) + (other,), zero_points=(0,) * count, axis=axis)


def with_one_scale(several: Quantization) -> Quantization:
    """The one scale that `with_two_scales` made `several` of; `several` for others."""
    if several.axis is None or several.block is not None or len(several.scales) < 2:
        return several
    one = replace(several, scales=tuple(several.scales[:1]), zero_points=(0,), axis=None)
    return one if with_two_scales(one, len(several.scales), several.axis) == several else several


def with_ends(b: Builder, x: Value, axis: int) -> Value:
    """`x`, of 8 bits with one scale, with two more elements along `axis`: the ends of the range of its type."""
    storage = x.tensor_type.storage
    ends = np.asarray(limits(storage), storage.numpy).reshape([COLUMNS if i == axis else 1 for i in range(x.rank)])
    dims = [COLUMNS if i == axis else d for i, d in enumerate(x.shape)]
    appended = constant(ends, type_=x.tensor_type.with_shape(ends.shape))
    return b(ops.Concatenate, x, b(ops.BroadcastTo, appended, dim_vector(b, dims, x)), axis=axis)


def _own_meaning(node: Node) -> type[Op] | None:
    return node.lowered_from or node.op


def are_whole_rows(value: Value, meaning: Meaning = _own_meaning, axis: int | None = -1) -> bool:
    """Whether each row (along `axis`) of `value` has multiples of one number only, and 255 steps from end to end, with
    0; or zeros only.

    `value` has to be written as `quantized_rows` does (last axis), or as the real values of what `with_ends` returns,
    moved or padded along other axes. `axis`: None if samples (first axis) are rows. `meaning`: of nodes of a file; by
    default that of neutral nodes and of those lowered from them.
    """
    rank = rank_of(value.type)
    if not rank:
        return False
    return (axis in (-1, rank - 1) and _are_clamped(value, meaning)) or bool(_from_ends(value, axis, meaning))


def summed_axes(node: Node) -> tuple[int, int] | None:
    """The axes of activations and of weights that a convolution, or a product over one axis, sums over; else None."""
    if issubclass(node.op, ops.Convolution):
        return int(node.attr("input_feature_dimension")), int(node.attr("kernel_input_feature_dimension"))
    roles = ops.DotRoles.of(node)
    return (roles.lhs_contract[0], roles.rhs_contract[0]) if len(roles.lhs_contract) == 1 else None


def without_ends(b: Builder, value: Value, axis: int) -> Value | None:
    """`value`, whose rows along `axis` are real values of what `with_ends` returns, without the ends; else None."""
    nodes = _from_ends(value, axis, _own_meaning)
    if not nodes:
        return None
    inner = nodes[0].operand(0)
    for node in nodes[1:]:
        if node.op is ops.Reshape:
            dims = (*node.result.shape[:-1], inner.shape[-1])
            inner = b(ops.Reshape, inner, dim_vector(b, dims, inner))
        else:
            inner = b(node.op, inner, *node.operands[1:], **node.attributes)
    return inner


def _are_clamped(value: Value, meaning: Meaning) -> bool:
    """Whether `value` is written as `quantized_rows` does."""
    for clamped, low in _pairs(value, ops.Max, meaning):
        for numbers, high in _pairs(clamped, ops.Min, meaning):
            lowest, highest = _offset(low, meaning), _offset(high, meaning)
            if lowest is None or highest is None or lowest[1] is not highest[1]:
                continue
            if _is(numbers, ops.RoundNearestEven, meaning) and _has_ends(lowest[0], highest[0]):
                return _is_whole(lowest[1], float(lowest[0].min()), meaning)
    return False


def _from_ends(value: Value, axis: int | None, meaning: Meaning) -> list[Node]:
    """The nodes that compute `value`, from the Concatenate that `with_ends` makes along `axis`; empty for others."""
    nodes, before = list[Node](), value
    axis = axis if axis is None else axis % value.rank
    while (node := before.producer) is not None and not value.is_quantized:
        nodes.insert(0, node)
        if meaning(node) is ops.Concatenate:
            return nodes if _is_with_ends(node, axis, meaning) else []
        if axis is None and not _keeps_samples(node, meaning):
            return []
        if axis is not None and (axis := _axis_before(node, axis, meaning)) is None:
            return []
        before = node.operand(0)
    return []


def _keeps_samples(node: Node, meaning: Meaning) -> bool:
    """Whether the node moves the elements of each sample, or adds zeros to them."""
    if meaning(node) is ops.Reshape:
        before, after = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
        return bool(before and after and before[0] == after[0])
    return _axis_before(node, 0, meaning) == 0


def _axis_before(node: Node, axis: int, meaning: Meaning) -> int | None:
    """The axis of the first operand that is `axis` of the result, if the node moves rows along it or adds zeros."""
    op = meaning(node)
    if op is ops.Convert:
        return axis if node.result.dtype is DType.FLOAT32 and not node.result.is_quantized else None
    if op is ops.Transpose:
        permutation = node.attributes.get("permutation", _constant(node.optional(1)))
        return None if permutation is None else int(permutation[axis])
    if op is ops.Reshape:
        before, after = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
        keeps = before and after and axis == len(after) - 1 and before[-1] == after[-1]
        return len(before) - 1 if before and keeps else None
    padding = _constant(node.operand(1)) if op is ops.Pad and node.optional(2) is None else None
    if padding is None or node.attributes.get("mode", "constant") != "constant":
        return None
    return axis if padding.min() >= 0 and not padding[axis].any() else None


def _constant(value: Value | None) -> Array | None:
    return None if value is None or value.data is None else value.numpy()


def _is_with_ends(joined: Node, axis: int | None, meaning: Meaning) -> bool:
    """Whether a Concatenate appends the ends of the range of 8 bits along `axis` (None: not the first)."""
    value, type_ = joined.operands[-1], joined.result.tensor_type
    quantization, rank = type_.quantization, type_.rank
    if value is not None and value.producer is not None and meaning(value.producer) is ops.BroadcastTo:
        value = value.producer.operand(0)
    if value is None or value.data is None or not rank or value.rank != rank or len(joined.operands) != 2:
        return False
    if quantization is None or not quantization.per_tensor or quantization.dtype.bits != 8:
        return False
    own = int(joined.attr("axis")) % rank
    if value.shape[own] != COLUMNS or own == 0 or own != (own if axis is None else axis):
        return False
    stored, ends = value.data.numpy(), limits(quantization.dtype)
    return all((stored.take(i, own) == end).all() for i, end in enumerate(ends))


def _is_whole(zero: Value, least: float, meaning: Meaning) -> bool:
    """Whether `zero` is a whole number from `least` to 255 more (of ops of a target: whether it is a whole number)."""
    node = zero.producer
    if node is None or node.op.dialect != "neutral":
        return _is(zero, ops.RoundNearestEven, meaning) or _is(zero, ops.Convert, meaning)
    known = facts_of(zero)
    return known.integral and least <= known.low and known.high <= least + STEPS


def _pairs(value: Value, op: type[Op], meaning: Meaning) -> list[tuple[Value, Value]]:
    """Both orders of the operands of the node that computes `value`, if that is an `op`."""
    node = value.producer
    if node is None or meaning(node) is not op:
        return []
    lhs, rhs = node.operand(0), node.operand(1)
    return [(lhs, rhs), (rhs, lhs)]


def _is(value: Value, op: type[Op], meaning: Meaning) -> bool:
    return value.producer is not None and meaning(value.producer) is op


def _offset(bounds: Value, meaning: Meaning) -> tuple[Array, Value] | None:
    """The constant vector and the single element that is subtracted from it."""
    node = bounds.producer
    if node is None or meaning(node) is not ops.Sub:
        return None
    vector, zero = node.operand(0), node.operand(1)
    is_vector = vector.data is not None and vector.tensor_type.rank == 1 and not vector.is_quantized
    return (vector.numpy(), zero) if is_vector and zero.is_single else None


def _has_ends(lowest: Array, highest: Array) -> bool:
    """Whether whole numbers between both vectors are within 255 steps, and both ends are forced."""
    if lowest.shape != highest.shape or not lowest.size or (lowest > highest).any() or (lowest % 1).any():
        return False
    least, forced = lowest.min(), lowest[lowest == highest]
    return bool(highest.max() == least + STEPS and least in forced and least + STEPS in forced)
