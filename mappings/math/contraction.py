"""MatMul, Gemm and other contractions: one neutral op, DotGeneral.

=====================  ==========================================================================================
ONNX                   MatMul 1 9 13, Gemm 1 6 7 9 11 13
TFLite                 FULLY_CONNECTED (constant rhs, [n, k]), BATCH_MATMUL
=====================  ==========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from functools import partial

import numpy as np

from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.build.operands import flat_bias, summed_in_float
from onnxtfl.build.rows import apply_activation
from onnxtfl.build.sizes import slice_axes
from onnxtfl.build.stablehlo import int_list, summing_type
from onnxtfl.build.stored import has_weights_of_few_bits, with_weights_in_bytes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import Dim, broadcast_dim, differ, known_sizes, product, size_or
from onnxtfl.ir.facts import exact_terms
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import is_weight
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import (
    broadcast,
    broadcast_to_sizes,
    concatenated,
    dim_vector,
    reshape,
    transpose_and_merge,
    transposed,
)
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.shapes import check_spreads
from onnxtfl.ir.types import DType
from onnxtfl.ir.whole_rows import are_whole_rows
from onnxtfl.kernels.batch_matmul import with_one_scale
from onnxtfl.kernels.products_int16 import in_int32, may_sum_int16, zero_bias
from onnxtfl.rewriting.registry import (
    Computed,
    Form,
    decompose,
    decompose_late,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)


def matmul(b: Builder, lhs: Value, rhs: Value) -> Value:
    """Return NumPy's matmul, for ranks >= 1 with broadcast batch axes."""
    if 1 in (lhs.rank, rhs.rank) or rhs.rank == 2:
        return contracted(b, lhs, rhs, lhs.rank - 1, max(0, rhs.rank - 2))
    return batched(b, lhs, rhs)


def contracted(b: Builder, lhs: Value, rhs: Value, lhs_axis: int, rhs_axis: int) -> Value:
    """Contract one axis of each operand."""
    if 0 in (lhs.shape[lhs_axis], rhs.shape[rhs_axis]):
        sizes = [d for v, axis in ((lhs, lhs_axis), (rhs, rhs_axis)) for i, d in enumerate(v.shape) if i != axis]
        return _empty_sums(b, sizes, lhs, rhs)
    axes = {"lhs_contracting_dimensions": (lhs_axis,), "rhs_contracting_dimensions": (rhs_axis,)}
    return b(ops.DotGeneral, lhs, rhs, **axes)


def _empty_sums(b: Builder, shape: Sequence[Dim], lhs: Value, rhs: Value) -> Value:
    """Return zeros: TFLite's kernels refuse empty operands or omit the bias (LiteRT 2.3)."""
    return b(ops.BroadcastTo, b.scalar(0, lhs), dim_vector(b, shape, lhs, rhs))


def batched(b: Builder, lhs: Value, rhs: Value, adjoint_lhs: bool = False, adjoint_rhs: bool = False) -> Value:
    """Return [batch..., m, k] x [batch..., k, n], with the last two axes of an adjoint operand swapped.

    Batch axes broadcast; missing ones are unit axes.
    """
    rank = max(lhs.rank, rhs.rank)
    lhs, rhs = (reshape(b, v, (1,) * (rank - v.rank) + v.shape) for v in (lhs, rhs))
    count = rank - 2
    if 0 in (lhs.shape[-2 if adjoint_lhs else -1], rhs.shape[-1 if adjoint_rhs else -2]):
        rows, columns = lhs.shape[-1 if adjoint_lhs else -2], rhs.shape[-2 if adjoint_rhs else -1]
        batch = [broadcast_dim(x, y) for x, y in zip(lhs.shape[:count], rhs.shape[:count], strict=True)]
        return _empty_sums(b, [*batch, rows, columns], lhs, rhs)
    return b(
        ops.DotGeneral,
        lhs,
        rhs,
        lhs_batching_dimensions=tuple(range(count)),
        rhs_batching_dimensions=tuple(range(count)),
        lhs_contracting_dimensions=(count if adjoint_lhs else count + 1,),
        rhs_contracting_dimensions=(count + 1 if adjoint_rhs else count,),
    )


@lift_onnx("MatMul", since=(1, 9, 13))
def _matmul(b: Builder, node: Node) -> Value:
    return matmul(b, node.operand(0), node.operand(1))


@upgrade("Gemm", since=(1, 6))
def _gemm_6(b: Builder, node: Node) -> None:
    """NumPy's broadcasting of C includes that of the attribute `broadcast`."""
    node.attributes.pop("broadcast", None)


@lift_onnx("Gemm", since=(7, 9, 11, 13))
def _gemm(b: Builder, node: Node) -> Value:
    lhs, rhs, c = node.operand(0), node.operand(1), node.optional(2)
    alpha = float(node.attr("alpha", 1.0))
    data = rhs.data if rhs.dtype is DType.FLOAT32 and alpha != 1.0 else None
    if data is not None:
        rhs, alpha = constant(data.scale(np.full(data.shape[0], alpha, np.float32), 0)), 1.0
    axes = 0 if node.attr("transA", 0) else 1, 1 if node.attr("transB", 0) else 0
    product = times(b, contracted(b, lhs, rhs, *axes), alpha)
    if c is None:
        return product
    check_spreads(product, c)
    return b(ops.Add, product, times(b, c, float(node.attr("beta", 1.0))))


def times(b: Builder, x: Value, factor: float) -> Value:
    """Return `x` * factor; the factor of integers has to be an integer."""
    if factor == 1.0:
        return x
    if not x.dtype.is_float and factor != int(factor):
        raise UnsupportedError(f"integers cannot be scaled by {factor}")
    return b(ops.Mul, x, b.scalar(factor, x))


@lift_tfl("BATCH_MATMUL")
def _tfl_batch_matmul(b: Builder, node: Node) -> Value:
    lhs, rhs, adjoint = node.operand(0), with_one_scale(node), bool(node.attr("adj_x"))
    if lhs.dtype is DType.INT8:  # stored integers: their products are summed in int32
        lhs, rhs = (b(ops.Convert, v, dtype=DType.INT32) for v in (lhs, rhs))
    lhs = _rounded_rows(b, node, lhs, rhs, lhs.rank - 2 if adjoint else lhs.rank - 1)
    return batched(b, lhs, rhs, adjoint, bool(node.attr("adj_y")))


def _rounded_rows(b: Builder, node: Node, x: Value, weights: Value, axis: int) -> Value:
    """Round `x` row by row (along `axis`) if a hybrid kernel quantizes it."""
    if not is_hybrid(x, weights):
        return x
    of_blocks = (quantization := quantization_of(weights)) is not None and quantization.block is not None
    asymmetric = of_blocks or bool(node.attr("asymmetric_quantize_inputs", False))
    keeps = asymmetric and axis == x.rank - 1 and are_whole_rows(x)
    return x if keeps else on_int8_grid(b, x, [axis], asymmetric=asymmetric)


@lift_tfl("FULLY_CONNECTED")
def _tfl_fully_connected(b: Builder, node: Node) -> Value:
    x, weights, bias = node.operand(0), node.operand(1), flat_bias(b, node.optional(2))
    if node.attr("weights_format", "DEFAULT") != "DEFAULT":
        raise UnsupportedError(f"weights_format {node.attr('weights_format')}")
    if not _has_rows(x, weights.shape[1], bool(node.attr("keep_num_dims"))):
        x = b(ops.Reshape, x, dim_vector(b, [-1, weights.shape[1]], weights))
    x = _rounded_rows(b, node, x, weights, x.rank - 1)
    axes = {"lhs_contracting_dimensions": (x.rank - 1,), "rhs_contracting_dimensions": (1,)}
    smooth = is_hybrid(x, weights)  # EvalHybrid calls ApplyActivationToVector
    if bias is None:
        return apply_activation(b, b(ops.DotGeneral, x, weights, **axes), node, smooth=smooth)
    return apply_activation(b, b(ops.DotGeneralBias, x, weights, bias, **axes), node, smooth=smooth)


def _has_rows(x: Value, features: Dim, kept: bool) -> bool:
    """Whether the last axis of `x` is the feature axis; else the kernel reshapes to rows (fully_connected.cc, Prepare).

    With `kept` (keep_num_dims) the kernel checks that axis; otherwise the run-time size may differ.
    """
    return not differ(x.shape[-1], features) if kept else x.shape[-1] == features and x.rank == 2


_EXACT = {"asymmetric_quantize_inputs": False}


def _filter_order(node: Node) -> tuple[int, ...] | None:
    """Return the order [n, k...] of rhs's axes for FULLY_CONNECTED with lhs [free..., k...]; None if there is none.

    With several contracting axes, lhs has one free axis: the kernel flattens the others.
    """
    lhs, rhs = node.operand(0), node.operand(1)
    if lhs.tensor_type.rank is None or rhs.tensor_type.rank is None or node.attr("output_permutation"):
        return None
    roles = ops.DotRoles.of(node)
    pairs = sorted(zip(roles.lhs_contract, roles.rhs_contract, strict=True))
    last = tuple(range(lhs.rank - len(pairs), lhs.rank))
    if roles.lhs_batch or len(roles.rhs_free) != 1 or tuple(axis for axis, _ in pairs) != last:
        return None
    fits = len(roles.lhs_free) >= 1 if len(pairs) == 1 else len(roles.lhs_free) == 1 and rhs.is_constant
    return (*roles.rhs_free, *(axis for _, axis in pairs)) if fits else None


@lower_tfl(ops.DotGeneral)
@lower_tfl(ops.DotGeneralBias)
def _fully_connected(node: Node) -> Form | None:
    """Transpose a constant to the kernel's order, and flatten several contracted axes of lhs.

    The CPU's kernels flatten lhs themselves; LiteRT's GPU accelerator returns wrong results for a lhs of rank 4.

    `keep_num_dims` has no effect on matrices, but without it XNNPACK copies the operand (xnnpack_delegate.cc), and with
    dynamic sizes it may skip that copy from the second invocation on: permanently, once the copy's memory starts at the
    old address of the operand (XNNPACK's unary-elementwise-nc.c). Some quantized kernels of 2.14 lack the option.

    int16 gets a bias: without one, LiteRT accumulates in int32, which may overflow (fully_connected.cc).
    """
    lhs, rhs, order = node.operand(0), node.operand(1), _filter_order(node)
    if order is None:
        return None
    weights: Value | TensorData = rhs
    if rhs.data is not None and rhs.tensor_type.quantization is None and order != (0, 1):
        ordered = rhs.data.transpose(order)
        weights = ordered.reshape((ordered.shape[0], math.prod(ordered.shape[1:])))
    elif rhs.data is not None and order == (1, 0):
        weights = constant(rhs.data.transpose(order), type_=rhs.tensor_type.permuted(order))
    elif order != (0, 1):
        return None
    options = {
        "fused_activation_function": "NONE",
        "weights_format": "DEFAULT",
        "keep_num_dims": rhs.rank == 2 and (lhs.rank > 2 or not (lhs.is_quantized or rhs.is_quantized)),
        "asymmetric_quantize_inputs": rhs.is_quantized and not lhs.is_quantized,
    }
    bias = node.optional(2)
    features = rhs.shape[order[0]]
    if bias is None and (q := quantization_of(lhs)) is not None and q.storage == "int16" and isinstance(features, int):
        bias = zero_bias(lhs, weights if isinstance(weights, Value) else rhs, features)
    rows = lhs if rhs.rank == 2 else _flat_rows(lhs, math.prod(rhs.size(axis) for axis in order[1:]))
    return Form("FULLY_CONNECTED", (rows, weights, bias), options)


def _flat_rows(lhs: Value, features: int) -> Computed:
    """Return lhs [n, k...] as the matrix [n, features]."""
    type_ = lhs.tensor_type.with_shape((lhs.shape[0], features))
    return Computed(type_, lambda b: b(ops.Reshape, lhs, [size_or(lhs.shape[0], -1), features]))


@lower_tfl(ops.DotGeneral, rank=-1)
@lower_tfl(ops.DotGeneralBias, rank=-1)
def _fully_connected_in_int32(node: Node) -> Form | None:
    """Tried before the form that accumulates in int64, whose kernel is ten times slower."""
    return in_int32(_fully_connected(node), axis=0) if may_sum_int16(node) else None


def _batched_order(node: Node) -> tuple[int, ...] | None:
    """Return the result's axis order of [batch..., two axes] times [batch..., two axes]; None for other nodes."""
    lhs, rhs = node.operand(0), node.operand(1)
    if lhs.tensor_type.rank is None or rhs.tensor_type.rank is None or not ops.DotRoles.of(node).is_batch_matmul:
        return None
    natural = tuple(range(lhs.rank))
    order = tuple(node.attr("output_permutation")) or natural
    return order if order in (natural, (*natural[:-2], lhs.rank - 1, lhs.rank - 2)) else None


@lower_tfl(ops.DotGeneral, rank=1)
def _batch_matmul(node: Node) -> Form | None:
    order, lhs, rhs = _batched_order(node), node.operand(0), node.operand(1)
    if order is None:
        return None
    roles, last = ops.DotRoles.of(node), lhs.rank - 1
    lhs_flag, rhs_flag = roles.lhs_contract != (last,), roles.rhs_contract == (last,)
    if order[-1] != last:  # (A B)^T = B^T A^T
        lhs, rhs, lhs_flag, rhs_flag = rhs, lhs, not rhs_flag, not lhs_flag
    return Form("BATCH_MATMUL", (lhs, rhs), {"adj_x": lhs_flag, "adj_y": rhs_flag, **_EXACT})


@lower_tfl(ops.DotGeneral, rank=2)
def _rows_times_matrix(node: Node) -> Form | None:
    """Broadcast one matrix to multiply [free..., k]."""
    order, lhs, rhs = _filter_order(node), node.operand(0), node.operand(1)
    if order is None or rhs.rank != 2 or lhs.rank == 2:
        return None
    return Form("BATCH_MATMUL", (lhs, rhs), {"adj_x": False, "adj_y": order == (0, 1), **_EXACT})


@decompose(ops.DotGeneral, "tfl", "operands")
@decompose(ops.DotGeneralBias, "tfl", "operands")
def _weight_in_order(b: Builder, node: Node) -> Value | None:
    """Transpose a weight to [n, k...], with its contracting axes in lhs's order, if nothing else is missing."""
    rhs, order = node.operand(1), _filter_order(node)
    if order is None or order == tuple(range(len(order))) or not is_weight(rhs):
        return None
    last = node.operand(0).rank
    contract = {
        "lhs_contracting_dimensions": tuple(range(last - rhs.rank + 1, last)),
        "rhs_contracting_dimensions": tuple(range(1, rhs.rank)),
    }
    return b(node.op, node.operand(0), transposed(b, rhs, order), *node.operands[2:], **contract)


def _is_from_the_left(node: Node) -> bool:
    """Whether the left operand alone is constant."""
    return node.operand(0).is_constant and not node.operand(1).is_constant and not node.attr("output_permutation")


@decompose(ops.DotGeneral, "gpu", order="operands", when=_is_from_the_left)
def _constant_on_the_right(b: Builder, node: Node) -> Value:
    """A B = (B^T A^T)^T: kernels of the accelerator take constants on the right."""
    roles = ops.DotRoles.of(node)
    axes = {
        "lhs_batching_dimensions": roles.rhs_batch,
        "rhs_batching_dimensions": roles.lhs_batch,
        "lhs_contracting_dimensions": roles.rhs_contract,
        "rhs_contracting_dimensions": roles.lhs_contract,
    }
    turned = b(ops.DotGeneral, node.operand(1), node.operand(0), **axes)
    count, right = len(roles.lhs_batch), len(roles.rhs_free)
    places = range(turned.rank)
    return transposed(b, turned, (*places[:count], *places[count + right :], *places[count : count + right]))


def _has_constants_of_batches(node: Node) -> bool:
    roles, lhs, rhs = ops.DotRoles.of(node), node.operand(0), node.operand(1)
    known = lhs.is_static and rhs.is_constant and not (lhs.is_quantized or rhs.is_quantized)
    return known and 1 < math.prod(lhs.size(a) for a in roles.lhs_batch) <= _MOST_BATCHES


_MOST_BATCHES = 64
"""The most products that a product of batches becomes."""


@decompose(ops.DotGeneral, "gpu", order="operands", when=_has_constants_of_batches)
def _product_of_each_batch(b: Builder, node: Node) -> Value | None:
    """One product for each batch of constants: kernels of the accelerator take those of the first batch."""
    roles, lhs, rhs = ops.DotRoles.of(node), node.operand(0), node.operand(1)
    batch = [lhs.size(a) for a in roles.lhs_batch]
    if node.attr("output_permutation") or batch != list(node.result.shape[: len(batch)]):
        return None
    x = transposed(b, lhs, (*roles.lhs_batch, *roles.lhs_free, *roles.lhs_contract))
    depth = math.prod(lhs.size(a) for a in roles.lhs_contract)
    rows = reshape(b, x, (math.prod(batch), math.prod(lhs.size(a) for a in roles.lhs_free), depth))
    weights = rhs.numpy().transpose((*roles.rhs_batch, *roles.rhs_contract, *roles.rhs_free))
    weights = np.broadcast_to(weights, (*batch, *weights.shape[len(batch) :])).reshape(rows.shape[0], depth, -1)
    each = (slice_axes(b, rows, {0: slice(i, i + 1)}) for i in range(len(weights)))
    parts = [contracted(b, row, constant(w.copy()), 2, 0) for row, w in zip(each, weights, strict=True)]
    return reshape(b, b(ops.Concatenate, *parts, axis=0), node.result.shape)


def _broadcasts_batches(node: Node) -> bool:
    """Whether batches of known sizes broadcast."""
    lhs, rhs = node.operand(0), node.operand(1)
    if any(not v.is_static or v.is_quantized for v in (lhs, rhs)):
        return False
    roles = ops.DotRoles.of(node)
    return [lhs.shape[i] for i in roles.lhs_batch] != [rhs.shape[i] for i in roles.rhs_batch]


@decompose(ops.DotGeneral, "gpu", order="operands", when=_broadcasts_batches, benefit=1)
def _of_equal_batches(b: Builder, node: Node) -> Value:
    """Broadcast the batches of both operands, which kernels of the accelerator compute wrong."""
    roles = ops.DotRoles.of(node)
    lhs, rhs = node.operand(0), node.operand(1)
    left, right = list(lhs.shape), list(rhs.shape)
    for i, j in zip(roles.lhs_batch, roles.rhs_batch, strict=True):
        left[i] = right[j] = broadcast_dim(left[i], right[j])
    whole = broadcast_to_sizes(b, lhs, left), broadcast_to_sizes(b, rhs, right)
    return b(ops.DotGeneral, *whole, **attributes_of(node))


def _has_few_axes(node: Node) -> bool:
    return max(node.operand(0).rank, node.operand(1).rank) < _MOST_AXES and not node.attr("output_permutation")


_MOST_AXES = 4
"""The axes of products on the accelerator."""


@decompose(ops.DotGeneral, "gpu", order="axes", when=_has_few_axes)
def _product_with_a_batch(b: Builder, node: Node) -> Value:
    """Insert a first batch axis of size 1: the kernel takes the first of up to four axes for the batch."""
    roles = ops.DotRoles.of(node)
    lhs, rhs = (reshape(b, v, (1, *v.shape), v) for v in (node.operand(0), node.operand(1)))
    axes = {
        "lhs_batching_dimensions": (0, *(a + 1 for a in roles.lhs_batch)),
        "rhs_batching_dimensions": (0, *(a + 1 for a in roles.rhs_batch)),
        "lhs_contracting_dimensions": tuple(a + 1 for a in roles.lhs_contract),
        "rhs_contracting_dimensions": tuple(a + 1 for a in roles.rhs_contract),
    }
    return reshape(b, b(ops.DotGeneral, lhs, rhs, **axes), node.result.shape, lhs, rhs)


for _product in (ops.DotGeneral, ops.DotGeneralBias):
    decompose(_product, "tfl", when=has_weights_of_few_bits, benefit=2)(with_weights_in_bytes)


@decompose(ops.DotGeneralBias)
def _apart(b: Builder, node: Node) -> Value:
    """Split the bias into an Add along the last axis (before `output_permutation`)."""
    lhs, rhs, bias = (node.operand(i) for i in range(3))
    attributes = {k: v for k, v in node.attributes.items() if k != "output_permutation"}
    total = b(ops.Add, b(ops.DotGeneral, lhs, rhs, **attributes), bias)
    return transposed(b, total, node.attr("output_permutation") or range(total.rank))


def _multiplies_stored_rows(node: Node) -> bool:
    """Whether quantized [free..., k], of several free axes, is multiplied by a matrix."""
    lhs, rhs = node.operand(0), node.operand(1)
    return lhs.is_quantized and rhs.rank == 2 and (lhs.tensor_type.rank or 0) > 2 and _filter_order(node) is not None


@decompose(ops.DotGeneralBias, "tfl", when=_multiplies_stored_rows, benefit=1)
@decompose(ops.DotGeneralBias, "onnx", when=_multiplies_stored_rows, benefit=1)
def _rows_of_one_matrix(b: Builder, node: Node) -> Value:
    """Merge the free axes: with a scale for each feature, kernels of 2.14 keep no axes; Gemm has two."""
    lhs, roles = node.operand(0), ops.DotRoles.of(node)
    rows = transpose_and_merge(b, lhs, [roles.lhs_free, roles.lhs_contract])
    product = b(node.op, rows, *node.operands[1:], **{**node.attributes, "lhs_contracting_dimensions": (1,)})
    product.type = product.tensor_type.stored_as(node.result.tensor_type.quantization)
    return reshape(b, product, node.result.shape, product, lhs)


def _ones(node: Node) -> int | None:
    """The index of an operand of ones of integers that the other one is summed with; None if there is none."""
    roles = ops.DotRoles.of(node)
    for i, free, batch in ((0, roles.lhs_free, roles.lhs_batch), (1, roles.rhs_free, roles.rhs_batch)):
        x = node.operand(i)
        if x.dtype.is_integer and x.data is not None and all(x.shape[a] == 1 for a in (*free, *batch)):
            return i if bool((x.numpy() == 1).all()) else None
    return None


@decompose(ops.DotGeneral, "tfl", when=lambda node: _ones(node) is not None, benefit=1)
def _sum_of_integers(b: Builder, node: Node) -> Value | None:
    """Reduce(lhs) for a product of integers by ones."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    x, axes = (lhs, roles.lhs_contract) if _ones(node) == 1 else (rhs, roles.rhs_contract)
    order = (*roles.lhs_batch, *roles.lhs_free) if x is lhs else (*roles.rhs_batch, *roles.rhs_free)
    if list(order) != sorted(order):
        return None
    shape = _natural(node)
    total = b(ops.Reduce, x, axes, kind="sum", keepdims=len(shape) == x.rank)
    return transposed(b, reshape(b, total, shape, x), node.attr("output_permutation") or range(len(shape)))


@decompose(ops.DotGeneral, "tfl")
def _dot_for_tfl(b: Builder, node: Node) -> Value | None:
    """Rewrite for the kernels: group axes, a weight as [n, k], else batched matrices; integers as sums of products."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    if is_weight(rhs) and not roles.lhs_batch and _filter_order(node) is None:
        product = _weighted(b, lhs, rhs, roles)
    elif lhs.dtype.is_float and (len(roles.lhs_batch) > 3 or not _is_plain(node)):
        product = _grouped(b, lhs, rhs, roles)
    elif not lhs.dtype.is_float:
        product = _products(b, lhs, rhs, roles)
    else:
        return None
    shape = _natural(node)
    result = reshape(b, product, shape, product, lhs, rhs)
    return transposed(b, result, node.attr("output_permutation") or range(len(shape)))


def _is_plain(node: Node) -> bool:
    """Whether this is [batch..., m, k] times [batch..., two axes], which needs no `adj_x`.

    With `adj_x`, kernels of 2.14 compute wrong results for broadcasts of more than three axes.
    """
    last = node.operand(0).rank - 1
    return _batched_order(node) == tuple(range(last + 1)) and ops.DotRoles.of(node).lhs_contract == (last,)


def _weighted(b: Builder, lhs: Value, rhs: Value, roles: ops.DotRoles) -> Value:
    free: list[Sequence[int]] = [[a] for a in roles.lhs_free] or [[]]
    rows = transpose_and_merge(b, lhs, [*free, roles.lhs_contract])
    weights = transpose_and_merge(b, rhs, [roles.rhs_free, roles.rhs_contract])
    return b(
        ops.DotGeneral, rows, weights, lhs_contracting_dimensions=(rows.rank - 1,), rhs_contracting_dimensions=(1,)
    )


def _grouped(b: Builder, lhs: Value, rhs: Value, roles: ops.DotRoles) -> Value:
    lhs_batch: list[Sequence[int]] = [[a] for a in roles.lhs_batch]
    rhs_batch: list[Sequence[int]] = [[a] for a in roles.rhs_batch]
    if len(lhs_batch) > 3:
        lhs, rhs = _same_batch(b, lhs, rhs, roles)
        lhs_batch, rhs_batch = [roles.lhs_batch], [roles.rhs_batch]
    rows = transpose_and_merge(b, lhs, [*lhs_batch, roles.lhs_free, roles.lhs_contract])
    return batched(b, rows, transpose_and_merge(b, rhs, [*rhs_batch, roles.rhs_contract, roles.rhs_free]))


def _same_batch(b: Builder, lhs: Value, rhs: Value, roles: ops.DotRoles) -> list[Value]:
    """Broadcast the batch axes of both operands, so that they can be merged."""
    pairs = list(zip(roles.lhs_batch, roles.rhs_batch, strict=True))
    batch = [broadcast_dim(lhs.shape[i], rhs.shape[j]) for i, j in pairs]
    result = []
    for value, axes in ((lhs, roles.lhs_batch), (rhs, roles.rhs_batch)):
        sizes = list(value.shape)
        for axis, size in zip(axes, batch, strict=True):
            sizes[axis] = size
        result.append(broadcast(b, value, sizes, lhs, rhs))
    return result


def _natural(node: Node) -> list[Dim]:
    """Return the shape of the result before `output_permutation`."""
    order, shape = list(node.attr("output_permutation")), node.result.shape
    return [shape[order.index(i)] for i in range(len(shape))] if order else list(shape)


def _products(b: Builder, lhs: Value, rhs: Value, roles: ops.DotRoles) -> Value:
    """Multiply integer matrices, for which no kernel exists: in float32 if exact, else as sums of products."""
    terms, depths = exact_terms(lhs, rhs), known_sizes(lhs.shape[a] for a in roles.lhs_contract)
    if terms and len(depths) == 1:
        (i,), (j,) = roles.lhs_contract, roles.rhs_contract
        multiply = partial(b, ops.DotGeneral, **roles.attributes)
        return summed_in_float(b, [(lhs, i), (rhs, j)], terms, multiply, None)
    rows = transpose_and_merge(b, lhs, [*([a] for a in roles.lhs_batch), roles.lhs_free, [], roles.lhs_contract])
    columns = transpose_and_merge(b, rhs, [*([a] for a in roles.rhs_batch), [], roles.rhs_free, roles.rhs_contract])
    parts = [slice_axes(b, rows, {rows.rank - 3: part}) for part in _row_blocks(rows, columns)]
    sums = [b(ops.Reduce, b(ops.Mul, part, columns), [rows.rank - 1], kind="sum", keepdims=False) for part in parts]
    return concatenated(b, sums, rows.rank - 3)


_MOST_PRODUCTS = 1 << 27
"""The most elements of a tensor of products; LiteRT aborts if it cannot allocate one."""
_MOST_BLOCKS = 1 << 9


def _row_blocks(rows: Value, columns: Value) -> list[slice]:
    """Split the rows [batch..., m, 1, k] into blocks whose products with the columns [batch..., 1, n, k] fit in memory.

    One block for dynamic sizes. UnsupportedError if there would be too many.
    """
    count, total = rows.shape[-3], product(broadcast_dim(x, y) for x, y in zip(rows.shape, columns.shape, strict=True))
    if not isinstance(count, int) or not isinstance(total, int) or total <= _MOST_PRODUCTS:
        return [slice(None)]
    blocks = -(-total // _MOST_PRODUCTS)
    if blocks > min(count, _MOST_BLOCKS):
        raise UnsupportedError(
            f"a product of integer matrices with {total} multiplications", hint="compute it in float"
        )
    length = -(-count // blocks)
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _is_dequantized(value: Value, bits: Container[int], constant: bool = False) -> bool:
    """Whether `value` has moved elements of a dequantized tensor of `bits` bits (`constant`: of a constant)."""
    node = value.producer
    while node is not None and node.op is not ops.Convert and node.op.moves == slice(0, 1):
        node = node.operand(0).producer
    source = node.operand(0) if node is not None and node.op is ops.Convert else None
    if source is None or (constant and not source.is_constant):
        return False
    quantization = source.tensor_type.quantization
    return quantization is not None and quantization.dtype.bits in bits


def _has_stored_weights(node: Node) -> bool:
    """Whether a float or int16 matrix is multiplied by a dequantized constant matrix.

    ONNX Runtime fuses such a MatMul, or Gemm without transB (int16 since 1.32), to MatMulNBits, which quantizes the
    left matrix to int8 (default of ``session.qdq_matmulnbits_accuracy_level``), and fails in a Loop (1.31).
    """
    lhs, rhs = node.operand(0), node.operand(1)
    stored = rhs.tensor_type.rank == 2 and _is_dequantized(rhs, range(1, 9), constant=True)
    return stored and not _is_dequantized(lhs, range(1, 9))


@lift_tfl("STABLEHLO_DOT_GENERAL")
def _stablehlo_dot_general(b: Builder, node: Node) -> Value:
    """A sum of products in the type of the result; of bools, whether any product is true."""
    names = [f"{side}_{kind}_dimensions" for side in ("lhs", "rhs") for kind in ("batching", "contracting")]
    dimensions = {name: tuple(int_list(node, name)) for name in names}
    dtype = node.result.dtype
    lhs, rhs = (Term(b, node.operand(i)) for i in (0, 1))
    if dtype.is_complex:
        return _complex_product(lhs, rhs, dimensions).value
    total = lhs.to(summing_type(dtype)).apply(ops.DotGeneral, rhs.to(summing_type(dtype)), **dimensions)
    return (total.differs(0) if dtype is DType.BOOL else total.to(dtype)).value


def _complex_product(lhs: Term, rhs: Term, dimensions: dict[str, tuple[int, ...]]) -> Term:
    """(A + B i) (C + D i) = (A C - B D) + (A D + B C) i."""
    left, right = ((z.apply(ops.Real), z.apply(ops.Imag)) for z in (lhs, rhs))
    (ac, ad), (bc, bd) = ([x.apply(ops.DotGeneral, y, **dimensions) for y in right] for x in left)
    return (ac - bd).apply(ops.Complex, ad + bc)


@lower_onnx(ops.DotGeneral)
def _onnx_matmul(node: Node, opset: int) -> Form | None:
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    if node.attr("output_permutation") or _has_stored_weights(node):
        return None
    weights = not roles.lhs_batch and rhs.rank in (1, 2) and roles.lhs_contract == (lhs.rank - 1,) and lhs.rank > 1
    vector = not roles.lhs_batch and lhs.rank == 1 and roles.rhs_contract == (rhs.rank - 2,)
    if vector or (weights and roles.rhs_contract == (0,)):
        return Form("MatMul", (lhs, rhs))
    count = len(roles.lhs_batch)
    plain = roles.is_batch_matmul and roles.lhs_contract == (count + 1,) and roles.rhs_contract == (count,)
    return Form("MatMul", (lhs, rhs)) if plain else None


@lower_onnx(ops.DotGeneral, rank=1)
@lower_onnx(ops.DotGeneralBias)
def _onnx_gemm(node: Node, opset: int) -> Form | None:
    """Gemm's flags transpose matrices; its C is a bias along the last axis."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    if node.attr("output_permutation") or roles.lhs_batch or lhs.rank != 2 or rhs.rank != 2 or len(roles.lhs_free) != 1:
        return None
    flags = {"transA": int(roles.lhs_contract == (0,)), "transB": int(roles.rhs_contract == (1,))}
    if not flags["transB"] and _has_stored_weights(node):
        return None
    bias = node.optional(2)
    return Form("Gemm", (lhs, rhs) if bias is None else (lhs, rhs, bias), {"alpha": 1.0, "beta": 1.0, **flags})


def _flattens(node: Node) -> bool:
    """Whether a constant matrix contracts all axes of lhs but the first; the layout pass chooses their order."""
    lhs, rhs = node.operand(0), node.operand(1)
    if lhs.tensor_type.rank is None or node.attr("output_permutation") or not rhs.is_constant:
        return False
    roles = ops.DotRoles.of(node)
    flattened = (
        len(roles.lhs_contract) > 1 and roles.lhs_contract == tuple(range(1, lhs.rank)) and len(roles.rhs_free) == 1
    )
    return flattened and roles.rhs_contract == tuple(sorted(roles.rhs_contract))


@decompose_late(ops.DotGeneral, "onnx", when=_flattens)
@decompose_late(ops.DotGeneralBias, "onnx", when=_flattens)
def _flatten_and_multiply(b: Builder, node: Node) -> Value:
    """Return Gemm(Flatten(lhs))."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    rows = b(ops.Reshape, lhs, [size_or(lhs.shape[0], -1), _size(lhs.shape[1:])])
    matrix = transpose_and_merge(b, rhs, [roles.rhs_free, roles.rhs_contract])
    contract = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
    return b(node.op, rows, matrix, *node.operands[2:], **contract)


def _size(shape: Sequence[object]) -> int:
    return math.prod(int(d) for d in shape)  # type: ignore[call-overload]


@decompose(ops.DotGeneral, "onnx")
def _dot_for_onnx(b: Builder, node: Node) -> Value:
    """Group axes for MatMul, with broadcast batch axes and weights [k, n]."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    if _has_stored_weights(node):
        product = _rows_times_weights(b, lhs, rhs, roles)
    elif not roles.lhs_batch and len(roles.lhs_contract) == 1 and roles.lhs_free:
        rows = transposed(b, lhs, (*roles.lhs_free, *roles.lhs_contract))
        columns = transpose_and_merge(b, rhs, [roles.rhs_contract, roles.rhs_free])
        product = contracted(b, rows, columns, rows.rank - 1, 0)
    else:
        product = _grouped(b, lhs, rhs, roles)
    shape = _natural(node)
    result = reshape(b, product, shape, product, lhs, rhs)
    return transposed(b, result, node.attr("output_permutation") or range(len(shape)))


def _rows_times_weights(b: Builder, lhs: Value, rhs: Value, roles: ops.DotRoles) -> Value:
    """Return Gemm with transB, for a second matrix [n, k]."""
    rows = transpose_and_merge(b, lhs, [roles.lhs_free, roles.lhs_contract])
    return contracted(b, rows, transpose_and_merge(b, rhs, [roles.rhs_free, roles.rhs_contract]), 1, 1)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@lower_onnx(ops.Contraction)
def _as_einsum(node: Node, opset: int) -> Form | None:
    lhs, rhs = node.operand(0), node.operand(1)
    if lhs.tensor_type.shape is None or rhs.tensor_type.shape is None:
        return None
    roles = ops.DotRoles.of(node)
    pairs = [
        *zip(roles.lhs_batch, roles.rhs_batch, strict=True),
        *zip(roles.lhs_contract, roles.rhs_contract, strict=True),
    ]
    if lhs.rank + rhs.rank > len(_LETTERS) or any(lhs.shape[i] != rhs.shape[j] for i, j in pairs):
        return None
    letters = iter(_LETTERS)
    left = [next(letters) for _ in range(lhs.rank)]
    shared = {j: left[i] for i, j in pairs}
    right = [shared[j] if j in shared else next(letters) for j in range(rhs.rank)]
    result = [left[i] for i in (*roles.lhs_batch, *roles.lhs_free)] + [right[j] for j in roles.rhs_free]
    order = node.attr("output_permutation") or range(len(result))
    matrix: Value | TensorData = rhs
    if rhs.data is not None:  # contracted axes first, as ONNX Runtime multiplies
        stored = (*roles.rhs_batch, *roles.rhs_contract, *roles.rhs_free)
        matrix, right = rhs.data.transpose(stored), [right[j] for j in stored]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(result[p] for p in order)}"
    return Form("Einsum", (lhs, matrix), {"equation": equation})


@decompose(ops.Contraction)
def _as_products(b: Builder, node: Node) -> Value:
    return b(ops.DotGeneral, *node.operands, **node.attributes)
