"""Mixtures of experts: each token goes through the few of many dense blocks that a router ranks highest.

com.microsoft: MoE, QMoE, MoEGroupRouter

Source: ONNX Runtime, contrib_ops/cpu/moe, and its schemas. All experts are computed for all tokens, as two products
with the weights of all of them; what a token did not choose is replaced by zero before the second one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.math.contraction import contracted

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import is_static, known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.packed import FieldData
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


class _Experts(NamedTuple):
    """Weights [experts, rows, columns] of one of the two layers, as real values, and their bias [experts, rows]."""

    weights: Value
    bias: Value | None


@lift_onnx("MoE", since=(1,), domain=MICROSOFT)
def _mixture(b: Builder, node: Node) -> Value:
    """The router's softmax is over all experts; `normalize_routing_weights` divides by the sum over the chosen ones."""
    _check(node, 6, 7)
    first, second = (_Experts(node.operand(i), node.optional(i + 1)) for i in (2, 4))
    if not is_static((*first.weights.shape, *second.weights.shape)):
        raise UnsupportedError("experts of unknown size", type_=first.weights.type, code="E-SHAPE-001")
    chances = b(ops.Softmax, _scores(b, node, first), axis=1)
    values, chosen = _highest(b, node, chances)
    if node.attr("normalize_routing_weights", 0) == 1:
        values = values / values.reduce("sum", [1])
    return _mixed(b, node, first, second, _gates(b, values, chosen, chances))


@lift_onnx("QMoE", since=(1,), domain=MICROSOFT)
def _quantized_mixture(b: Builder, node: Node) -> Value:
    """The router's softmax is over the chosen experts; `router_weights`, if present, are used unchanged.

    ONNX Runtime's kernel rounds each block of the tokens to int8 where weights of 8 bits are in blocks (1.31, measured:
    about 1 % of the result); here they are not.
    """
    _check(node, 8, 9, 10, 13, *range(15, 21))
    kind = node.attr("quant_type", "int")
    if kind != "int":
        raise UnsupportedError(f"weights of quant_type {kind!r}", hint="quantize the experts to integers")
    hidden = node.operand(0).shape[-1]
    rows = node.operand(5).shape[1]
    if rows != hidden:
        raise UnsupportedError("packed experts in another order than [experts, rows, columns]")
    first, second = (_unpacked(b, node, i, f"fc{number}") for number, i in ((1, 2), (2, 5)))
    logits, given = _scores(b, node, first), node.optional(14)
    values, chosen = _highest(b, node, logits)
    if given is None:
        values = values.apply(ops.Softmax, axis=1)
    else:
        values = Term(b, b(ops.GatherElements, given, chosen.value, axis=1))
        if node.attr("normalize_routing_weights", 0) == 1:
            total = values.reduce("sum", [1])
            values = total.equals(0).choose(values * 0, values / total)
    gates = _gates(b, values, chosen, logits)
    return _mixed(b, node, first, second, (gates > 1e-8).choose(gates, 0.0))


def _check(node: Node, *absent: int) -> None:
    """Refuse attributes that ONNX Runtime's CPU kernels refuse."""
    if any(node.optional(i) is not None for i in absent):
        raise UnsupportedError("a third product of the experts, or scales of activations", hint=_HINT)
    if node.attr("activation_type", "relu") == "swiglu" and node.attr("swiglu_fusion", 0) != 1:
        raise UnsupportedError("gates that are not interleaved with what they gate (swiglu_fusion = 1)", hint=_HINT)
    if node.attr("swiglu_limit_after_activation", 0):
        raise UnsupportedError("swiglu_limit_after_activation = 1", hint=_HINT)


_HINT = "export the model for ONNX Runtime's CPU provider"


def _scores(b: Builder, node: Node, layer: _Experts) -> Value:
    """The router's scores [tokens, experts], for the experts with weights."""
    scores = node.operand(1)
    return reshape(b, scores, [scores.shape[0], layer.weights.shape[0]], scores)


def _highest(b: Builder, node: Node, scores: Value) -> tuple[Term, Term]:
    """The `k` highest scores [tokens, k] and their experts; of equal scores, those of the last experts come first."""
    count = scores.size(1)
    k = int(node.attr("k", 1))
    if not 0 < k <= count:
        raise InvalidModelError(f"each token takes {k} of {count} experts", code="E-FILE-009")
    backwards = b(ops.Reverse, scores, dimensions=[1])
    values, places = b.many(ops.TopK, backwards, np.array([k]), axis=1, dtype=DType.INT32)
    return Term(b, values), Term(b, places).apply(ops.Neg) + (count - 1)


def _gates(b: Builder, values: Term, chosen: Term, scores: Value) -> Term:
    """[tokens, experts]: the value for chosen experts, 0 for the others."""
    experts = np.arange(scores.size(1), dtype=np.int32)
    mine = Term(b, unsqueezed(b, chosen.value, [2])).apply(
        ops.Compare, constant(experts.reshape(1, 1, -1)), comparison_direction="EQ"
    )
    spread = Term(b, unsqueezed(b, values.value, [2]))
    return mine.choose(spread, 0.0).reduce("sum", [1], keepdims=False)


def _mixed(b: Builder, node: Node, first: _Experts, second: _Experts, gates: Term) -> Value:
    """The sum over the experts of gate * (second @ activation(first @ x))."""
    x = node.operand(0)
    experts, rows, hidden = (known_size(d) for d in first.weights.shape)
    inner = second.weights.size(2)
    if second.weights.shape[1] != hidden or rows not in (inner, 2 * inner):
        raise UnsupportedError("experts in another order than [experts, rows, columns]")
    tokens = gates.value.shape[0]
    flat = reshape(b, x, [tokens, hidden], gates.value)
    products = contracted(b, flat, reshape(b, first.weights, [experts * rows, hidden]), 1, 1)
    inside = Term(b, reshape(b, products, [tokens, experts, rows], gates.value))
    inside = inside if first.bias is None else inside.apply(ops.Add, first.bias)
    active = _activated(b, node, inside)
    each = Term(b, unsqueezed(b, gates.value, [2]))
    weighted = each.differs(0).choose(active * each, 0.0)
    columns = reshape(b, weighted.value, [tokens, experts * inner], gates.value)
    outward = reshape(b, transposed(b, second.weights, (1, 0, 2)), [hidden, experts * inner])
    result = Term(b, contracted(b, columns, outward, 1, 1))
    if second.bias is not None:
        result = result + Term(b, contracted(b, gates.value, second.bias, 1, 0))
    return reshape(b, result.value, x.shape, x)


def _activated(b: Builder, node: Node, x: Term) -> Term:
    """The activation of [tokens, experts, rows]; of "swiglu" the even rows are gates of the odd ones."""
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
        raise UnsupportedError(f"the activation {kind!r}", hint=_HINT)
    tokens, experts, rows = x.value.shape
    pairs = Term(b, reshape(b, x.value, [tokens, experts, known_size(rows) // 2, 2], x.value))
    gate, linear = pairs.at(0, 3), pairs.at(1, 3)
    limit = float(node.attr("swiglu_limit", np.inf))
    if np.isfinite(limit):
        gate, linear = gate.min(limit), linear.clamp(-limit, limit)
    alpha, beta = float(node.attr("activation_alpha", 1.0)), float(node.attr("activation_beta", 0.0))
    return gate * (gate * alpha).sigmoid() * (linear + beta)


# --- weights of few bits ----------------------------------------------------------------------------------------------

_OF_BITS = {2: DType.UINT2, 4: DType.UINT4, 8: DType.UINT8}


def _unpacked(b: Builder, node: Node, index: int, name: str) -> _Experts:
    """The real weights [experts, rows, columns] from packed ones, with a scale for each row or each block of its
    columns."""
    bits = int(node.attr(f"{name}_expert_weight_bits", 0) or node.attr("expert_weight_bits", 4))
    packed, scales = node.operand(index), node.operand(index + 1)
    if packed.data is None or scales.data is None or bits not in _OF_BITS:
        raise UnsupportedError(f"experts of {bits} bits that are not constants of 2, 4 or 8 bits")
    dtype = _OF_BITS[bits]
    experts, rows, width = packed.data.shape
    columns = width * 8 // bits
    size = scales.data.size // (experts * rows)
    block = int(node.attr("block_size", 0)) if size > 1 else columns
    if block < 1 or size != -(-columns // block):
        raise InvalidModelError(f"scales {scales.type} for blocks of {block}", code="E-FILE-009")
    weights = FieldData(packed.data, dtype, (experts * rows, columns))
    zero = _zeros(node.optional({2: 11, 5: 12}[index]), dtype, (experts, rows, size))
    scale = reshape(b, scales, [experts * rows, size])
    if size == 1:
        flat, point = reshape(b, scale, [experts * rows]), reshape(b, zero, [experts * rows])
        real = b(ops.DequantizeLinear, constant(weights), flat, point, axis=0)
    else:
        real = b(ops.DequantizeLinear, constant(weights), scale, zero, axis=1, block_size=block)
    return _Experts(reshape(b, real, [experts, rows, columns]), node.optional(index + 2))


def _zeros(given: Value | None, dtype: DType, shape: tuple[int, int, int]) -> Value:
    """Zero points [experts * rows, blocks], from whole bytes for each row, or for each expert."""
    experts, rows, count = shape
    if given is None:
        return constant(ArrayData(np.full((experts * rows, count), 1 << (dtype.bits - 1)).astype(dtype.numpy), dtype))
    if given.data is None:
        raise UnsupportedError("zero points that are not constants")
    per = 8 // dtype.bits
    of_rows = given.data.size == experts * rows * -(-count // per)
    lines, entries = (experts * rows, count) if of_rows else (experts, rows)
    fields = FieldData(given.data, dtype, (lines, -(-entries // per) * per)).numpy()[:, :entries]
    return constant(ArrayData(np.ascontiguousarray(fields).reshape(experts * rows, count), dtype))


# --- routers ----------------------------------------------------------------------------------------------------------


@lift_onnx("MoEGroupRouter", since=(1,), domain=MICROSOFT)
def _group_router(b: Builder, node: Node) -> list[Value]:
    """The logarithms of the sigmoids of chosen experts, `router_sentinel` for all others; or all sigmoids.

    Of groups of experts those with the largest sums of their best are taken, of these the best experts. Source: the
    schema of ONNX Runtime's contrib op.
    """
    logits, bias, weights = node.operand(0), node.operand(1), node.optional(2)
    if weights is not None:
        logits = contracted(b, logits, weights, logits.rank - 1, 1)
    count = size_or(bias.shape[0], 0)
    if not count:
        raise UnsupportedError("an unknown number of experts", type_=bias.type, code="E-SHAPE-001")
    flat = reshape(b, logits, [product(logits.shape[:-1]), count], logits)
    scores = Term(b, flat).to(DType.FLOAT32).sigmoid()
    ranked = scores.apply(ops.Add, bias)
    if len(node.results) > 1:
        return [ranked.value, ranked.value, scores.value][: len(node.results)]  # the first one is absent
    chosen = _best(b, _in_best_groups(b, node, ranked, count), int(node.attributes["top_k"]))
    result = chosen.choose(scores.max(1e-20).log(), float(node.attr("router_sentinel", -10000.0)))
    return [result.to(logits.dtype).value]


def _in_best_groups(b: Builder, node: Node, ranked: Term, count: int) -> Term:
    """The scores [tokens, experts], with the lowest number for groups that are not chosen."""
    groups, taken = int(node.attr("n_group", 1)), int(node.attr("topk_group", 1))
    if groups == 1:
        return ranked
    tokens, size = ranked.value.shape[0], count // groups
    grouped = reshape(b, ranked.value, [tokens, groups, size], ranked.value)
    best = b.many(ops.TopK, grouped, np.array([min(int(node.attr("group_topk", 2)), size)]), axis=2)[0]
    sums = Term(b, best).reduce("sum", [2], keepdims=False)
    open_ = Term(b, unsqueezed(b, _best(b, sums, taken).value, [2]))
    return Term(b, reshape(b, open_.choose(Term(b, grouped), _LOWEST).value, [tokens, count], ranked.value))


_LOWEST = float(np.finfo(np.float32).min)


def _best(b: Builder, scores: Term, k: int) -> Term:
    """Whether each element is one of the `k` largest of its row in [tokens, n]; of equal elements, the first ones."""
    count = scores.value.size(1)
    places = b.many(ops.TopK, scores.value, np.array([k]), axis=1, dtype=DType.INT32)[1]
    every = constant(np.arange(count, dtype=np.int32).reshape(1, 1, -1))
    same = Term(b, unsqueezed(b, places, [2])).apply(ops.Compare, every, comparison_direction="EQ")
    return same.to(DType.INT32).reduce("max", [1], keepdims=False) > 0
