"""Mixtures of experts: a router selects, for each token, the k dense blocks (experts) with the highest scores.

com.microsoft: MoE, QMoE, MoEGroupRouter

    result = sum over the experts e of gate[e] * W2[e] @ activation(W1[e] @ x)        gate[e] = 0 if not selected

All experts are computed for all tokens, as two matrix products with the weights of all experts; the activations of
experts that a token did not select are replaced by 0 before the second product. Source: ONNX Runtime,
contrib_ops/cpu/moe, and its schemas.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.math.contraction import contracted

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData, FilledData, TensorData
from onnxtfl.ir.dims import is_static, known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.packed import FieldData
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


class _Experts(NamedTuple):
    """Weights and bias [experts, rows] of one of the two layers; `shape`: (experts, rows, columns).

    `matrix`: the float weights of all experts. Those of the first layer are below one another,
    [experts * rows, columns]; those of the second layer side by side, [rows, experts * columns].
    """

    matrix: Value
    bias: Value | None
    shape: tuple[int, int, int]


@lift_onnx("MoE", since=(1,), domain=MICROSOFT)
def _mixture(b: Builder, node: Node) -> Value:
    """A mixture whose gates are the softmax over all experts.

    With `normalize_routing_weights`, they are divided by their sum over the selected experts.
    """
    _refuse_unsupported(node, 6, 7)
    first, second = (_floats(b, node, i) for i in (2, 4))
    probabilities = b(ops.Softmax, _scores(b, node, first), axis=1)
    values, selected = _top_k(b, node, probabilities)
    if node.attr("normalize_routing_weights", 0) == 1:
        values = values / values.reduce("sum", [1])
    return _mixture_sum(b, node, first, second, _gates(b, values, selected, probabilities))


def _floats(b: Builder, node: Node, index: int) -> _Experts:
    """The layer of the float weights [experts, rows, columns] at `index`."""
    weights = node.operand(index)
    if not is_static(weights.shape):
        raise UnsupportedError("experts of unknown size are not supported", type_=weights.type, code="E-SHAPE-001")
    experts, rows, columns = (known_size(d) for d in weights.shape)
    if index == _FIRST:
        matrix = reshape(b, weights, [experts * rows, columns])
    else:
        matrix = reshape(b, transposed(b, weights, (1, 0, 2)), [rows, experts * columns])
    return _Experts(matrix, node.optional(index + 1), (experts, rows, columns))


_FIRST = 2
"""The operand of the first layer's weights."""


@lift_onnx("QMoE", since=(1,), domain=MICROSOFT)
def _quantized_mixture(b: Builder, node: Node) -> Value:
    """A mixture with quantized weights, whose gates are the softmax over the selected experts, or `router_weights`.

    ONNX Runtime's kernel for blockwise 8-bit weights quantizes the tokens to int8, too, which changes the result by
    about 1 % (measured with 1.32; not where the environment variable ORT_QMOE_CPU_QNBIT_GEMM is 0); here the tokens
    stay float.
    """
    _refuse_unsupported(node, 8, 9, 10, 13, *range(15, 21))
    kind = node.attr("quant_type", "int")
    if kind != "int":
        raise UnsupportedError(
            f"expert weights of quant_type {kind!r} are not supported", hint="quantize the experts to integers"
        )
    hidden = node.operand(0).shape[-1]
    rows = node.operand(5).shape[1]
    if rows != hidden:
        raise UnsupportedError("packed expert weights have to be [experts, rows, columns]")
    first, second = (_unpacked(b, node, i, f"fc{layer}") for layer, i in ((1, 2), (2, 5)))
    logits, router_weights = _scores(b, node, first), node.optional(14)
    values, selected = _top_k(b, node, logits)
    if router_weights is None:
        values = values.apply(ops.Softmax, axis=1)
    else:
        values = Term(b, b(ops.GatherElements, router_weights, selected.value, axis=1))
        if node.attr("normalize_routing_weights", 0) == 1:
            total = values.reduce("sum", [1])
            values = total.equals(0).choose(values * 0, values / total)
    gates = _gates(b, values, selected, logits)
    return _mixture_sum(b, node, first, second, (gates > 1e-8).choose(gates, 0.0))


def _refuse_unsupported(node: Node, *absent: int) -> None:
    """Raise UnsupportedError for what ONNX Runtime's CPU kernels refuse: attributes, or operands at `absent`."""
    if any(node.optional(i) is not None for i in absent):
        raise UnsupportedError(
            "experts with a third matrix product (fc3), or with scales of activations, are not supported",
            hint=_USE_CPU_PROVIDER,
        )
    if node.attr("activation_type", "relu") == "swiglu" and node.attr("swiglu_fusion", 0) != 1:
        raise UnsupportedError(
            "swiglu needs interleaved rows of gates and values (swiglu_fusion = 1)", hint=_USE_CPU_PROVIDER
        )
    if node.attr("swiglu_limit_after_activation", 0):
        raise UnsupportedError("swiglu_limit_after_activation = 1 is not supported", hint=_USE_CPU_PROVIDER)


_USE_CPU_PROVIDER = "export the model for ONNX Runtime's CPU provider"


def _scores(b: Builder, node: Node, layer: _Experts) -> Value:
    """The router's scores, with the static number of experts of `layer`: [tokens, experts]."""
    scores = node.operand(1)
    return reshape(b, scores, [scores.shape[0], layer.shape[0]], scores)


def _top_k(b: Builder, node: Node, scores: Value) -> tuple[Term, Term]:
    """The `k` highest scores [tokens, k] and the indices of their experts; among equal ones, the last experts first."""
    count = scores.size(1)
    k = int(node.attr("k", 1))
    if not 0 < k <= count:
        raise ValueError(f"k is {k}: a number from 1 to {count} (experts) expected")
    reversed_scores = b(ops.Reverse, scores, dimensions=[1])
    values, indices = b.many(ops.TopK, reversed_scores, np.array([k]), axis=1, dtype=DType.INT32)
    return Term(b, values), Term(b, indices).apply(ops.Neg) + (count - 1)


def _gates(b: Builder, values: Term, selected: Term, scores: Value) -> Term:
    """Scatter `values` [tokens, k] to their experts: [tokens, experts], 0 for experts that are not selected."""
    experts = np.arange(scores.size(1), dtype=np.int32)
    is_expert = Term(b, unsqueezed(b, selected.value, [2])).apply(
        ops.Compare, constant(experts.reshape(1, 1, -1)), comparison_direction="EQ"
    )
    column = Term(b, unsqueezed(b, values.value, [2]))
    return is_expert.choose(column, 0.0).reduce("sum", [1], keepdims=False)


def _mixture_sum(b: Builder, node: Node, first: _Experts, second: _Experts, gates: Term) -> Value:
    """sum over the experts of gate * (second @ activation(first @ x + bias) + bias), in the shape of x."""
    x = node.operand(0)
    (experts, rows, hidden), inner = first.shape, second.shape[2]
    if second.shape[1] != hidden or rows not in (inner, 2 * inner):
        shapes = " and ".join(str(list(layer.shape)) for layer in (first, second))
        raise UnsupportedError(f"expert weights {shapes}: [experts, rows, columns] expected")
    tokens = gates.value.shape[0]
    flat = reshape(b, x, [tokens, hidden], gates.value)
    products = contracted(b, flat, first.matrix, 1, 1)
    hidden_rows = Term(b, reshape(b, products, [tokens, experts, rows], gates.value))
    hidden_rows = hidden_rows if first.bias is None else hidden_rows.apply(ops.Add, first.bias)
    activated = _activated(b, node, hidden_rows)
    gate_column = Term(b, unsqueezed(b, gates.value, [2]))
    weighted = gate_column.differs(0).choose(activated * gate_column, 0.0)
    columns = reshape(b, weighted.value, [tokens, experts * inner], gates.value)
    result = Term(b, contracted(b, columns, second.matrix, 1, 1))
    if second.bias is not None:
        result = result + Term(b, contracted(b, gates.value, second.bias, 1, 0))
    return reshape(b, result.value, x.shape, x)


def _activated(b: Builder, node: Node, x: Term) -> Term:
    """The activated x [tokens, experts, rows]; "swiglu" halves the number of rows.

    "swiglu" is gate * sigmoid(alpha * gate) * (linear + beta), where gate = min(x[..., 0::2], limit) and
    linear = clamp(x[..., 1::2], -limit, limit).
    """
    kind = node.attr("activation_type", "relu")
    if kind == "relu":
        return x.relu()
    if kind == "gelu":
        return x.apply(ops.Gelu, approximate="tanh")
    if kind == "silu":
        return x * x.sigmoid()
    if kind == "identity":
        return x
    if kind != "swiglu":
        raise UnsupportedError(f"the activation {kind!r} is not supported", hint=_USE_CPU_PROVIDER)
    tokens, experts, rows = x.value.shape
    pairs = Term(b, reshape(b, x.value, [tokens, experts, known_size(rows) // 2, 2], x.value))
    gate, linear = pairs.at(0, 3), pairs.at(1, 3)
    limit = float(node.attr("swiglu_limit", np.inf))
    if np.isfinite(limit):
        gate, linear = gate.min(limit), linear.clamp(-limit, limit)
    alpha, beta = float(node.attr("activation_alpha", 1.0)), float(node.attr("activation_beta", 0.0))
    return gate * (gate * alpha).sigmoid() * (linear + beta)


# --- packed weights --------------------------------------------------------------------------------------------------


def _unpacked(b: Builder, node: Node, index: int, name: str) -> _Experts:
    """The layer of the packed weights at `index`; each scale is for a row, or for a block of a row.

    The matrix is made of the integers as they are stored, whose bytes are reordered for the second layer, so that
    targets may read it with its scales.
    """
    bits = int(node.attr(f"{name}_expert_weight_bits", 0) or node.attr("expert_weight_bits", 4))
    packed, scales = node.operand(index), node.operand(index + 1)
    if packed.data is None or scales.data is None or bits not in (2, 4, 8):
        raise UnsupportedError(f"packed expert weights of {bits} bits: constants of 2, 4 or 8 bits expected")
    dtype = DType(f"uint{bits}")
    experts, rows, width = packed.data.shape
    columns = width * 8 // bits
    size = scales.data.size // (experts * rows)
    block = int(node.attr("block_size", 0)) if size > 1 else columns
    if block < 1 or size != -(-columns // block):
        raise ValueError(f"the scales {scales.type} do not match {columns} columns in blocks of {block}")
    zeros = _zero_points(node.optional({2: 11, 5: 12}[index]), dtype, (experts, rows, size))
    parts = (packed.data, scales.data.reshape((experts, rows, size)), zeros)
    layer = partial(_Experts, bias=node.optional(index + 2), shape=(experts, rows, columns))
    if index == _FIRST:
        return layer(_dequantized(b, parts, dtype, (experts * rows, columns), block))
    if columns % block == 0:
        ordered = tuple(part.transpose((1, 0, 2)) for part in parts)
        return layer(_dequantized(b, ordered, dtype, (rows, experts * columns), block))
    whole = _dequantized(b, parts, dtype, (experts * rows, columns), block)
    turned = transposed(b, reshape(b, whole, [experts, rows, columns]), (1, 0, 2))
    return layer(reshape(b, turned, [rows, experts * columns]))


def _dequantized(b: Builder, parts: tuple[TensorData, ...], dtype: DType, shape: tuple[int, int], block: int) -> Value:
    """The matrix of `shape` of packed integers, scales and zero points, which have its elements in the same order."""
    packed, scales, zeros = parts
    rows, columns = shape
    blocks = (rows, -(-columns // block))
    weights = FieldData(packed.reshape((rows, columns * dtype.bits // 8)), dtype, shape)
    operands = (weights, scales.reshape(blocks), zeros.reshape(blocks))
    return b(ops.DequantizeLinear, *map(constant, operands), axis=1, block_size=block)


def _zero_points(packed_zeros: Value | None, dtype: DType, shape: tuple[int, int, int]) -> TensorData:
    """The zero points; without `packed_zeros`, the middle of the range.

    `shape`: (experts, rows, blocks). Either each row, or each expert, starts at a byte of `packed_zeros`.
    """
    experts, rows, count = shape
    if packed_zeros is None:
        return FilledData(1 << (dtype.bits - 1), dtype, shape)
    if packed_zeros.data is None:
        raise UnsupportedError("zero points of expert weights have to be constants")
    fields_per_byte = 8 // dtype.bits
    is_per_row = packed_zeros.data.size == experts * rows * -(-count // fields_per_byte)
    field_rows, field_columns = (experts * rows, count) if is_per_row else (experts, rows)
    fields = FieldData(
        packed_zeros.data, dtype, (field_rows, -(-field_columns // fields_per_byte) * fields_per_byte)
    ).numpy()[:, :field_columns]
    return ArrayData(np.ascontiguousarray(fields).reshape(shape), dtype)


# --- routers ----------------------------------------------------------------------------------------------------------


@lift_onnx("MoEGroupRouter", since=(1,), domain=MICROSOFT)
def _group_router(b: Builder, node: Node) -> list[Value]:
    """log(sigmoid(logits)) of the selected experts, `router_sentinel` for all others; with more results, all sigmoids.

    The `topk_group` groups with the largest sums of their `group_topk` best experts are selected, then the `top_k` best
    experts of these groups. Source: the schema of ONNX Runtime's contrib op.
    """
    logits, bias, weights = node.operand(0), node.operand(1), node.optional(2)
    if weights is not None:
        logits = contracted(b, logits, weights, logits.rank - 1, 1)
    count = size_or(bias.shape[0], 0)
    if not count:
        raise UnsupportedError("the number of experts has to be known", type_=bias.type, code="E-SHAPE-001")
    flat = reshape(b, logits, [product(logits.shape[:-1]), count], logits)
    scores = Term(b, flat).to(DType.FLOAT32).sigmoid()
    ranked = scores.apply(ops.Add, bias)
    if len(node.results) > 1:
        return [ranked.value, ranked.value, scores.value][: len(node.results)]  # the first one is absent
    selected = _is_in_top_k(b, _mask_other_groups(b, node, ranked, count), int(node.attributes["top_k"]))
    result = selected.choose(scores.max(1e-20).log(), float(node.attr("router_sentinel", -10000.0)))
    return [result.to(logits.dtype).value]


def _mask_other_groups(b: Builder, node: Node, ranked: Term, count: int) -> Term:
    """The scores [tokens, experts], with the lowest float32 for experts of groups that are not selected."""
    groups, group_count = int(node.attr("n_group", 1)), int(node.attr("topk_group", 1))
    if groups == 1:
        return ranked
    if groups < 1 or count % groups:
        raise ValueError(f"{count} experts cannot be split into n_group = {groups}")
    tokens, size = ranked.value.shape[0], count // groups
    grouped = reshape(b, ranked.value, [tokens, groups, size], ranked.value)
    best = b.many(ops.TopK, grouped, np.array([min(int(node.attr("group_topk", 2)), size)]), axis=2)[0]
    sums = Term(b, best).reduce("sum", [2], keepdims=False)
    is_selected = Term(b, unsqueezed(b, _is_in_top_k(b, sums, group_count).value, [2]))
    return Term(b, reshape(b, is_selected.choose(Term(b, grouped), _LOWEST).value, [tokens, count], ranked.value))


_LOWEST = float(np.finfo(np.float32).min)


def _is_in_top_k(b: Builder, scores: Term, k: int) -> Term:
    """Whether each element is one of the `k` largest of its row, as bools [tokens, n]; among equal ones, the first."""
    count = scores.value.size(1)
    indices = b.many(ops.TopK, scores.value, np.array([k]), axis=1, dtype=DType.INT32)[1]
    all_experts = constant(np.arange(count, dtype=np.int32).reshape(1, 1, -1))
    is_same = Term(b, unsqueezed(b, indices, [2])).apply(ops.Compare, all_experts, comparison_direction="EQ")
    return is_same.to(DType.INT32).reduce("max", [1], keepdims=False) > 0
