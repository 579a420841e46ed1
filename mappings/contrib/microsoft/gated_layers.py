"""Gates and norms of com.microsoft around linear attention, mixed streams (hyper-connections) and engrams.

==============  =============================================================================================
com.microsoft   GatedAdd, ScaledSiLU, GatedRMSNorm, BranchwiseRMSNorm, LinearAttentionGate,
                HyperConnectionPreMix, HyperConnectionPostMix, EngramGate
==============  =============================================================================================

Source of all formulas: the schemas of ONNX Runtime's contrib ops. A branch is one of the C groups of H features that
the last axis, or the last two axes, consist of."""

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
    x, y, gate = (Term(b, node.operand(i)) for i in range(3))
    return (x + y * gate).value


@lift_onnx("ScaledSiLU", since=(1,), domain=MICROSOFT)
def _scaled_silu(b: Builder, node: Node) -> Value:
    """z * sigmoid(z) with z = x * scale; the operand, if present, replaces the attribute."""
    x, scale = Term(b, node.operand(0)), node.optional(1)
    z = x * float(node.attr("alpha", 1.0)) if scale is None else x * Term(b, reshape(b, scale, ())).to(x.dtype)
    return (z * z.sigmoid()).value


@lift_onnx("GatedRMSNorm", since=(1,), domain=MICROSOFT)
def _gated_norm(b: Builder, node: Node) -> Value:
    """Each group of features, of the size of `scale`, is normalized, then multiplied by the activated gate."""
    x, scale, gate = node.operand(0), node.operand(1), Term(b, node.operand(2))
    activation, features = node.attr("activation", "silu"), scale.shape[0]
    if activation not in ("silu", "swish", "sigmoid"):
        raise ValueError(f"the activation {activation!r}")
    features = known_size(features, "the size of a scale")
    normal = _normalized(Term(b, _branches(b, x, x.shape[-1] // features, features)), node)
    scaled = Term(b, reshape(b, normal.apply(ops.Mul, scale).value, x.shape, x))
    return (scaled * gate.sigmoid() * (1.0 if activation == "sigmoid" else gate)).value


@lift_onnx("BranchwiseRMSNorm", since=(1,), domain=MICROSOFT)
def _branchwise_norm(b: Builder, node: Node) -> Value:
    """Each branch is normalized; the scale is [H], [C, H] or [C * H]."""
    x, scale = node.operand(0), node.optional(1)
    grouped = _grouped(b, node, x)
    normal = _normalized(Term(b, grouped), node)
    if scale is not None:
        whole = scale.rank == 1 and not _same(scale.shape[0], grouped.shape[-1])
        normal = normal * Term(b, reshape(b, scale, grouped.shape[-2:]) if whole else scale).to(normal.dtype)
    return reshape(b, normal.value, x.shape, x)


@lift_onnx("LinearAttentionGate", since=(1,), domain=MICROSOFT)
def _attention_gate(b: Builder, node: Node) -> list[Value]:
    """The decay, decay_scale * softplus(a + dt_bias), and the update rate, sigmoid(b)."""
    a, bias, scale = (Term(b, node.operand(i)) for i in range(3))
    decay, rate = (a + bias.to(a.dtype)).apply(ops.Softplus) * scale.to(a.dtype), node.optional(3)
    return [decay.value, *([] if rate is None else [Term(b, rate).sigmoid().value])][: len(node.results)]


@lift_onnx("HyperConnectionPreMix", since=(1,), domain=MICROSOFT)
def _pre_mix(b: Builder, node: Node) -> Value:
    """The sum of the streams, each times its gate."""
    streams = _grouped(b, node, node.operand(0))
    gates = _gates(b, node.operand(1), streams).to(streams.dtype)
    total = (Term(b, streams) * gates).reduce("sum", [streams.rank - 2], keepdims=False)
    return (total * float(node.attr("reduction_scale", 1.0))).value


@lift_onnx("HyperConnectionPostMix", since=(1,), domain=MICROSOFT)
def _post_mix(b: Builder, node: Node) -> Value:
    """The streams mixed with each other, plus the block's output times a gate for each stream."""
    given, mix = node.operand(0), node.optional(3)
    streams = _grouped(b, node, given)
    block = Term(b, unsqueezed(b, node.operand(1), [streams.rank - 2]))
    added = _gates(b, node.operand(2), streams).to(streams.dtype) * block
    mixed = Term(b, streams)
    if mix is not None:
        order = [*range(mix.rank - 2), mix.rank - 1, mix.rank - 2]
        mixed = Term(b, matmul(b, Term(b, transposed(b, mix, order)).to(streams.dtype).value, streams))
    return reshape(b, (mixed + added).value, given.shape, given)


@lift_onnx("EngramGate", since=(1,), domain=MICROSOFT)
def _engram_gate(b: Builder, node: Node) -> list[Value]:
    """The value [n, s, H], which all branches share, times a gate for each branch: how well keys match queries."""
    key, query = (_normalized(Term(b, node.operand(i)), node).apply(ops.Mul, node.operand(3 + i)) for i in (0, 1))
    size = key.value.shape[-1]
    size = known_size(size, "the number of features")
    match = (key * query).reduce("sum", [3]) * (1 / math.sqrt(size))
    gate = (match.sign() * match.abs().max(1e-6).sqrt()).sigmoid()
    gated = gate * Term(b, unsqueezed(b, node.operand(2), [2]))
    if len(node.results) == 1:
        return [gated.value]
    return [gated.value, _normalized(gated, node).apply(ops.Mul, node.operand(5)).value]


def _normalized(x: Term, node: Node) -> Term:
    """x / sqrt(mean of squares over the last axis + epsilon)."""
    wide = x.to(DType.FLOAT32) if x.dtype.bits < 32 else x
    squares = (wide * wide).mean([wide.value.rank - 1])
    return (wide * (squares + float(node.attr("epsilon", 1e-5))).rsqrt()).to(x.dtype)


def _grouped(b: Builder, node: Node, x: Value) -> Value:
    """[..., C * H] as [..., C, H] if the attribute num_branches is C."""
    count = int(node.attr("num_branches", 0))
    return _branches(b, x, count, x.shape[-1] // count) if count > 0 else x


def _branches(b: Builder, x: Value, count: Dim, features: Dim) -> Value:
    if is_static((x.shape[-1],)) and count * features != x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} features in {count} branches")
    return reshape(b, x, (*x.shape[:-1], count, features), x)


def _same(size: Dim, other: Dim) -> bool:
    """Whether two sizes are equal, which determines the form of an operand."""
    if size != other and not is_static((size, other)):
        raise UnsupportedError("operands whose last sizes are not known", code="E-SHAPE-001")
    return size == other


def _gates(b: Builder, gates: Value, streams: Value) -> Term:
    """Gates [..., C], [..., C, 1], [..., C, H] or [..., C * H] with the axes of streams [..., C, H]."""
    if gates.rank == streams.rank:
        return Term(b, gates)
    if _same(gates.shape[-1], streams.shape[-2]):
        return Term(b, unsqueezed(b, gates, [gates.rank]))
    return Term(b, reshape(b, gates, (*gates.shape[:-1], *streams.shape[-2:]), gates, streams))
