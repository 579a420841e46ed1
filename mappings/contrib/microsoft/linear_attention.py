"""Attention with a state of fixed size instead of a cache: each position updates it, then reads it.

com.microsoft: LinearAttention, GatedDeltaNet

Source: the schemas of ONNX Runtime's contrib ops, contrib_ops/cpu/bert/linear_attention.cc.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import dot

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.reshape import dim_vector, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


class _Steps(NamedTuple):
    """Operands of the recurrence, of H heads with keys of size K and values of size V.

    q, k: [b, t, H, K]; v: [b, t, H, V]; decay: [b, t, H, K or 1], the state is multiplied by its exp; rate: [b, t, H,
    1].
    """

    q: Value
    k: Value
    v: Value
    decay: Value | None
    rate: Value | None


_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Whether the state decays, and whether only what differs from its own answer is added; by `update_rule`."""


def _rule(node: Node) -> tuple[bool, bool]:
    name = node.attr("update_rule", "gated_delta")
    if name not in _RULES:
        raise ValueError(f"the update rule {name!r}")
    return _RULES[name]


@lift_onnx("LinearAttention", since=(1,), domain=MICROSOFT)
def _linear_attention(b: Builder, node: Node) -> list[Value]:
    """[b, t, heads * V], and the state [b, heads of values, K, V] after the last position."""
    if node.attr("state_window", 0):
        raise UnsupportedError("a window of states", hint="export the model for ONNX Runtime's CPU provider")
    q, k, v = (node.operand(i) for i in range(3))
    readers, heads = int(node.attributes["q_num_heads"]), int(node.attributes["kv_num_heads"])
    size = _whole(q.shape[2], readers)
    owners = _whole(k.shape[2], size)
    parts = [_heads(b, x, count) for x, count in ((q, readers), (k, owners), (v, heads))]
    decays, corrects = _rule(node)
    decay = _heads(b, node.operand(4), heads) if decays else None
    rate = unsqueezed(b, node.operand(5), [3]) if corrects else None
    steps = _Steps(parts[0], _repeated(b, parts[1], heads), parts[2], decay, rate)
    scale = float(node.attr("scale", 0.0)) or size**-0.5
    result, state = _run(b, steps, node.optional(3), scale)
    merged = [*q.shape[:2], max(readers, heads) * _whole(v.shape[2], heads)]
    return [reshape(b, result, merged, q), state][: len(node.results)]


@lift_onnx("GatedDeltaNet", since=(1,), domain=MICROSOFT)
def _gated_delta_net(b: Builder, node: Node) -> list[Value]:
    """Operands [b, t, heads, size]; the state [b, heads of values, V, K] and the recurrence are float32."""
    state, q = node.optional(6), node.operand(0)
    if node.optional(3) is not None or node.attr("state_update_capacity", 0) or len(node.results) > 2:
        raise UnsupportedError("sequences of several lengths in one axis, or updates of the state as a result")
    if node.optional(1) is None or (state is None and q.rank == 3):
        raise UnsupportedError("query, key and value in one operand, or a batch of unknown size")
    parts = [_in_batches(b, node, node.operand(i), 4) for i in range(3)]
    heads = known_size(_known(parts[2].shape[2]))
    if node.attr("qk_l2_norm", 0):
        parts[:2] = [_unit(b, x) for x in parts[:2]]
    decays, corrects = _rule(node)
    decay = _decay(b, node, heads) if decays else None
    rate = None
    if corrects:
        beta = Term(b, _in_batches(b, node, node.operand(5), 3))
        rate = unsqueezed(b, (beta.sigmoid() if node.attr("beta_activation", "none") == "sigmoid" else beta).value, [3])
    wide = [None if v is None else Term(b, v).to(DType.FLOAT32).value for v in (*parts, decay, rate)]
    steps = _Steps(*wide)  # type: ignore[arg-type]
    steps = steps._replace(k=_repeated(b, steps.k, heads))
    scale = float(node.attr("scale", 0.0)) or float(str(_known(q.shape[-1]))) ** -0.5
    before = None if state is None else transposed(b, state, (0, 1, 3, 2))
    result, after = _run(b, steps, before, scale)
    shaped = reshape(b, result, [*q.shape[:-2], heads, parts[2].shape[3]], q)
    return [Term(b, shaped).to(q.dtype).value, transposed(b, after, (0, 1, 3, 2))][: len(node.results)]


def _in_batches(b: Builder, node: Node, x: Value, rank: int) -> Value:
    """An operand of packed tokens with an axis of sequences, whose number is that of the state."""
    if x.rank == rank:
        return x
    count = node.operand(6).shape[0]
    tokens = x.shape[0]
    each = tokens // count if count != 1 else tokens
    return reshape(b, x, [count, each, *x.shape[1:]], x, node.operand(6))


def _unit(b: Builder, x: Value) -> Value:
    """Each row of the last axis divided by its length."""
    wide = Term(b, x).to(DType.FLOAT32)
    return (wide * ((wide * wide).reduce("sum", [3]) + 1e-6).rsqrt()).value


def _decay(b: Builder, node: Node, heads: int) -> Value:
    """The logarithm of the decay in each step [b, t, heads, 1 or K], from its projection if a gate is fused."""
    given = node.operand(4)
    rank = 4 if given.rank == node.operand(0).rank else 3
    decay = Term(b, _in_batches(b, node, given, rank))
    decay = Term(b, unsqueezed(b, decay.value, [3])) if rank == 3 else decay
    gate = node.attr("gate_activation", "none")
    if gate == "none":
        return decay.value
    if gate not in ("softplus", "qwen", "sigmoid", "kda"):
        raise ValueError(f"the gate {gate!r}")
    bias = reshape(b, node.operand(8), [heads, product(node.operand(8).shape) // heads])
    shifted_ = decay.to(DType.FLOAT32).apply(ops.Add, bias)
    factor = Term(b, reshape(b, node.operand(7), [heads, 1])).exp()
    if gate in ("softplus", "qwen"):
        return (-(shifted_.apply(ops.Softplus) * factor)).value
    return ((shifted_ * factor).sigmoid() * float(node.attr("gate_lower_bound", -5.0))).value


def _known(size: Dim) -> int:
    size = known_size(size, "the size of heads")
    return size


def _whole(hidden: Dim, heads: int) -> int:
    """The size of each of the heads."""
    hidden = _known(hidden)
    if hidden % heads:
        raise InvalidModelError(f"{heads} heads of {hidden} features", code="E-FILE-009")
    return hidden // heads


def _heads(b: Builder, x: Value, heads: int) -> Value:
    """[b, t, heads * size] as [b, t, heads, size]."""
    return reshape(b, x, [*x.shape[:2], heads, _whole(x.shape[2], heads)], x)


def _repeated(b: Builder, x: Value, heads: int) -> Value:
    """`x` with `heads` heads, each repeated for adjacent ones."""
    own = _known(x.shape[2])
    if heads % own:
        raise InvalidModelError(f"{own} heads for {heads}", code="E-FILE-009")
    return x if own == heads else b(ops.Gather, x, np.arange(heads) // (heads // own), axis=2)


def _run(b: Builder, steps: _Steps, state: Value | None, scale: float) -> tuple[Value, Value]:
    """The result of each position [b, t, heads, V], and the last state [b, H, K, V].

    Heads of queries share a state, or states share a head of queries.
    """
    heads, readers = _known(steps.v.shape[2]), _known(steps.q.shape[2])
    q = Term(b, steps.q if readers > heads else _repeated(b, steps.q, heads)) * scale
    batch = steps.q.shape[0]
    sizes = [batch, heads, steps.k.shape[3], steps.v.shape[3]]
    if state is None:
        state = b(ops.BroadcastTo, b.scalar(0.0, steps.v), dim_vector(b, sizes, steps.q))
    given = [q.value, steps.k, steps.v, *(v for v in (steps.decay, steps.rate) if v is not None)]
    region = Graph("position")
    inner = [region.add_input(state.type)]
    inner += [region.add_input(v.tensor_type.with_shape((v.shape[0], *v.shape[2:]))) for v in given]
    slices = inner[4:]
    decay = slices.pop(0) if steps.decay is not None else None
    rate = slices.pop(0) if steps.rate is not None else None
    after, read = _step(Builder(region), inner[0], inner[1:4], decay, rate)
    region.outputs = [after, read]
    count = len(given)
    flags = {"carried": 1, "axes": (1,) * count, "reversed": (False,) * count}
    collected = {"result_axes": (1,), "result_reversed": (False,)}
    last, results = b.many(ops.Scan, None, state, *given, body=region, **flags, **collected)
    return results, last


def _step(b: Builder, state: Value, parts: list[Value], decay: Value | None, rate: Value | None) -> tuple[Value, Value]:
    """The state [b, H, K, V] after a position, and the result of its queries [b, heads, K]."""
    q, k, v = parts
    kept = Term(b, state)
    if decay is not None:
        kept = kept * Term(b, unsqueezed(b, Term(b, decay).exp().value, [3]))
    column = Term(b, unsqueezed(b, k, [3]))
    new = Term(b, unsqueezed(b, v, [2]))
    if rate is not None:
        answer = (kept * column).reduce("sum", [2])
        new = (new - answer) * Term(b, unsqueezed(b, rate, [3]))
    after = kept + column * new
    heads, readers = _known(v.shape[1]), _known(q.shape[1])
    grouped = reshape(b, q, [q.shape[0], heads, readers // heads, q.shape[2]], q)
    read = dot(b, grouped, after.value, [0, 1], 3, 2)
    return after.value, reshape(b, read.value, [q.shape[0], readers, v.shape[2]], q)
