"""Gates and norms of com.microsoft for linear attention, hyper-connections (mixed residual streams) and engrams.

==============  =============================================================================================
com.microsoft   GatedAdd, GatedRMSNorm, BranchwiseRMSNorm, LinearAttentionGate,
                HyperConnectionPreMix, HyperConnectionPostMix, EngramGate
==============  =============================================================================================

A branch is one of C groups of H features; the trailing axes are [C * H] or [C, H]. Source of all formulas: the schemas
of ONNX Runtime's contrib ops."""

from __future__ import annotations

import math

from onnxtfl.mappings.math.contraction import matmul

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, is_static, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("GatedAdd", since=(1,), domain=MICROSOFT)
def _gated_add(b: Builder, node: Node) -> Value:
    """x + y * gate."""
    x, y, gate = (Term(b, node.operand(i)) for i in range(3))
    return (x + y * gate).value


@lift_onnx("GatedRMSNorm", since=(1,), domain=MICROSOFT)
def _gated_norm(b: Builder, node: Node) -> Value:
    """RMSNorm(x) * scale * activation(gate); each group of as many features as `scale` has is normalized separately."""
    x, scale, gate = node.operand(0), node.operand(1), Term(b, node.operand(2))
    activation, features = node.attr("activation", "silu"), scale.shape[0]
    if activation not in ("silu", "swish", "sigmoid"):
        raise ValueError(f"activation is {activation!r}, not silu, swish or sigmoid")
    features = known_size(features, "the size of a scale")
    normalized = _rms_normalize(Term(b, _split_features(b, x, x.shape[-1] // features, features)), node)
    scaled = Term(b, reshape(b, normalized.apply(ops.Mul, scale).value, x.shape, x))
    return (scaled * gate.sigmoid() * (1.0 if activation == "sigmoid" else gate)).value


@lift_onnx("BranchwiseRMSNorm", since=(1,), domain=MICROSOFT)
def _branchwise_norm(b: Builder, node: Node) -> Value:
    """RMSNorm of each branch, times the scale [H], [C, H] or [C * H] if present."""
    x, scale = node.operand(0), node.optional(1)
    grouped = _with_branch_axis(b, node, x)
    normalized = _rms_normalize(Term(b, grouped), node)
    if scale is not None:
        is_flat = scale.rank == 1 and not _is_same_size(scale.shape[0], grouped.shape[-1])
        normalized = normalized * Term(b, reshape(b, scale, grouped.shape[-2:]) if is_flat else scale).to(
            normalized.dtype
        )
    return reshape(b, normalized.value, x.shape, x)


@lift_onnx("LinearAttentionGate", since=(1,), domain=MICROSOFT)
def _attention_gate(b: Builder, node: Node) -> list[Value]:
    """The decay, decay_scale * softplus(a + dt_bias), and the update rate, sigmoid(b) (if `b` is present)."""
    a, bias, scale = (Term(b, node.operand(i)) for i in range(3))
    decay, rate = (a + bias.to(a.dtype)).apply(ops.Softplus, threshold=math.inf) * scale.to(a.dtype), node.optional(3)
    return [decay.value, *([] if rate is None else [Term(b, rate).sigmoid().value])][: len(node.results)]


@lift_onnx("HyperConnectionPreMix", since=(1,), domain=MICROSOFT)
def _pre_mix(b: Builder, node: Node) -> Value:
    """reduction_scale * sum over the branches of stream * gate."""
    streams = _with_branch_axis(b, node, node.operand(0))
    gates = _broadcast_gates(b, node.operand(1), streams).to(streams.dtype)
    total = (Term(b, streams) * gates).reduce("sum", [streams.rank - 2], keepdims=False)
    return (total * float(node.attr("reduction_scale", 1.0))).value


@lift_onnx("HyperConnectionPostMix", since=(1,), domain=MICROSOFT)
def _post_mix(b: Builder, node: Node) -> Value:
    """mix^T @ streams + gates * block: each stream gets the block's output times its gate; `mix` may be absent."""
    flat_streams, mix = node.operand(0), node.optional(3)
    streams = _with_branch_axis(b, node, flat_streams)
    block = Term(b, unsqueezed(b, node.operand(1), [streams.rank - 2]))
    added = _broadcast_gates(b, node.operand(2), streams).to(streams.dtype) * block
    mixed = Term(b, streams)
    if mix is not None:
        order = [*range(mix.rank - 2), mix.rank - 1, mix.rank - 2]
        mixed = Term(b, matmul(b, Term(b, transposed(b, mix, order)).to(streams.dtype).value, streams))
    return reshape(b, (mixed + added).value, flat_streams.shape, flat_streams)


@lift_onnx("EngramGate", since=(1,), domain=MICROSOFT)
def _engram_gate(b: Builder, node: Node) -> list[Value]:
    """value * gate for each branch, and its RMSNorm if the node has this result; the value [n, s, H] has no branches.

    match = sum(RMSNorm(key) * RMSNorm(query)) / sqrt(H)
    gate  = sigmoid(sign(match) * sqrt(max(|match|, 1e-6)))
    """
    key, query = (_rms_normalize(Term(b, node.operand(i)), node).apply(ops.Mul, node.operand(3 + i)) for i in (0, 1))
    size = known_size(key.value.shape[-1], "the number of features")
    match = (key * query).reduce("sum", [3]) * (1 / math.sqrt(size))
    gate = (match.sign() * match.abs().max(1e-6).sqrt()).sigmoid()
    gated = gate * Term(b, unsqueezed(b, node.operand(2), [2]))
    if len(node.results) == 1:
        return [gated.value]
    return [gated.value, _rms_normalize(gated, node).apply(ops.Mul, node.operand(5)).value]


def _rms_normalize(x: Term, node: Node) -> Term:
    """x / sqrt(mean(x ** 2) + epsilon) over the last axis, computed in at least float32."""
    at_least_float32 = x.to(DType.FLOAT32) if x.dtype.bits < 32 else x
    squares = (at_least_float32 * at_least_float32).mean([at_least_float32.value.rank - 1])
    return (at_least_float32 * (squares + float(node.attr("epsilon", 1e-5))).rsqrt()).to(x.dtype)


def _with_branch_axis(b: Builder, node: Node, x: Value) -> Value:
    """x [..., C * H] as [..., C, H], if the attribute num_branches is C > 0; else `x`."""
    count = int(node.attr("num_branches", 0))
    return _split_features(b, x, count, x.shape[-1] // count) if count > 0 else x


def _split_features(b: Builder, x: Value, count: Dim, features: Dim) -> Value:
    """x [..., count * features] as [..., count, features]."""
    if is_static((x.shape[-1],)) and count * features != x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} features cannot be split into {count} branches of equal size")
    return reshape(b, x, (*x.shape[:-1], count, features), x)


def _is_same_size(size: Dim, other: Dim) -> bool:
    """Whether two sizes are equal. Raises UnsupportedError if this depends on dynamic sizes."""
    if size != other and not is_static((size, other)):
        raise UnsupportedError(
            "the shape of an operand cannot be interpreted: the sizes of its last axes have to be known",
            code="E-SHAPE-001",
        )
    return size == other


def _broadcast_gates(b: Builder, gates: Value, streams: Value) -> Term:
    """Gates [..., C], [..., C, 1], [..., C, H] or [..., C * H], reshaped to broadcast with streams [..., C, H]."""
    if gates.rank == streams.rank:
        return Term(b, gates)
    if _is_same_size(gates.shape[-1], streams.shape[-2]):
        return Term(b, unsqueezed(b, gates, [gates.rank]))
    return Term(b, reshape(b, gates, (*gates.shape[:-1], *streams.shape[-2:]), gates, streams))
