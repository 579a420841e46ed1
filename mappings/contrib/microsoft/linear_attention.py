"""Linear attention: a recurrence over the positions with a state of fixed size instead of a cache of keys and values.

com.microsoft: LinearAttention, GatedDeltaNet

For each position, with the state S [K, V], key k, value v and query q:

    S = exp(decay) * S                         rules with a decay ("gated", "gated_delta")
    v = rate * (v - k^T S)                     delta rules ("delta", "gated_delta")
    S = S + k v^T
    y = scale * q^T S

Source: the schemas of ONNX Runtime's contrib ops, contrib_ops/cpu/bert/linear_attention.cc.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import dot

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.ops.loops import scan_attributes
from onnxtfl.ir.reshape import dim_vector, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


class _Steps(NamedTuple):
    """The operands of the recurrence over t positions, for H heads with keys of size K and values of size V.

    q, k: [b, t, H, K]; v: [b, t, H, V]; decay (the logarithm of a factor): [b, t, H, K or 1]; rate: [b, t, H, 1].
    """

    q: Value
    k: Value
    v: Value
    decay: Value | None
    rate: Value | None


_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""By `update_rule`: whether the state decays, and whether it is a delta rule (see above)."""


def _rule(node: Node) -> tuple[bool, bool]:
    """The entry of `_RULES` for the node."""
    name = node.attr("update_rule", "gated_delta")
    if name not in _RULES:
        raise ValueError(f"update_rule is {name!r}, not one of {', '.join(_RULES)}")
    return _RULES[name]


@lift_onnx("LinearAttention", since=(1,), domain=MICROSOFT)
def _linear_attention(b: Builder, node: Node) -> list[Value]:
    """The result [b, t, heads * V], and the state [b, value heads, K, V] after the last position."""
    if node.attr("state_window", 0):
        raise UnsupportedError(
            "LinearAttention with state_window is not supported",
            hint="export the model for ONNX Runtime's CPU provider",
        )
    q, k, v = (node.operand(i) for i in range(3))
    query_heads, heads = int(node.attributes["q_num_heads"]), int(node.attributes["kv_num_heads"])
    size = _head_size(q.shape[2], query_heads)
    key_heads = _head_size(k.shape[2], size)
    parts = [_split_heads(b, x, count) for x, count in ((q, query_heads), (k, key_heads), (v, heads))]
    has_decay, is_delta = _rule(node)
    decay = _split_heads(b, node.operand(4), heads) if has_decay else None
    rate = unsqueezed(b, node.operand(5), [3]) if is_delta else None
    steps = _Steps(parts[0], _repeat_heads(b, parts[1], heads), parts[2], decay, rate)
    scale = float(node.attr("scale", 0.0)) or size**-0.5
    result, state = _scan_positions(b, steps, node.optional(3), scale)
    merged = [*q.shape[:2], max(query_heads, heads) * _head_size(v.shape[2], heads)]
    return [reshape(b, result, merged, q), state][: len(node.results)]


@lift_onnx("GatedDeltaNet", since=(1,), domain=MICROSOFT)
def _gated_delta_net(b: Builder, node: Node) -> list[Value]:
    """The result, in the shape of the operands [b, t, heads, size] or [tokens, heads, size], and the last state.

    The state [b, value heads, V, K] and the recurrence are float32.
    """
    state, q = node.optional(6), node.operand(0)
    if node.optional(3) is not None or node.attr("state_update_capacity", 0) or len(node.results) > 2:
        raise UnsupportedError(
            "GatedDeltaNet with packed sequences of several lengths, or with state updates as result, is not supported"
        )
    if node.optional(1) is None or (state is None and q.rank == 3):
        raise UnsupportedError(
            "GatedDeltaNet needs separate query, key and value, and a state if tokens are packed in one axis"
        )
    parts = [_in_batches(b, node, node.operand(i), 4) for i in range(3)]
    heads = known_size(_known(parts[2].shape[2]))
    if node.attr("qk_l2_norm", 0):
        parts[:2] = [_l2_normalize(b, x) for x in parts[:2]]
    has_decay, is_delta = _rule(node)
    decay = _decay(b, node, heads) if has_decay else None
    rate = None
    if is_delta:
        beta = Term(b, _in_batches(b, node, node.operand(5), 3))
        rate = unsqueezed(b, (beta.sigmoid() if node.attr("beta_activation", "none") == "sigmoid" else beta).value, [3])
    as_float32 = [None if v is None else Term(b, v).to(DType.FLOAT32).value for v in (*parts, decay, rate)]
    steps = _Steps(*as_float32)  # type: ignore[arg-type]
    steps = steps._replace(k=_repeat_heads(b, steps.k, heads))
    scale = float(node.attr("scale", 0.0)) or float(str(_known(q.shape[-1]))) ** -0.5
    initial_state = None if state is None else transposed(b, state, (0, 1, 3, 2))
    result, after = _scan_positions(b, steps, initial_state, scale)
    shaped_result = reshape(b, result, [*q.shape[:-2], heads, parts[2].shape[3]], q)
    return [Term(b, shaped_result).to(q.dtype).value, transposed(b, after, (0, 1, 3, 2))][: len(node.results)]


def _in_batches(b: Builder, node: Node, x: Value, rank: int) -> Value:
    """An operand of packed tokens [tokens, ...] as [b, t, ...], with the batch size b of the state.

    An operand that already has rank `rank` is unchanged.
    """
    if x.rank == rank:
        return x
    count = node.operand(6).shape[0]
    tokens = x.shape[0]
    length = tokens // count if count != 1 else tokens
    return reshape(b, x, [count, length, *x.shape[1:]], x, node.operand(6))


def _l2_normalize(b: Builder, x: Value) -> Value:
    """x / sqrt(sum(x ** 2) + 1e-6) over the last axis, as float32."""
    as_float32 = Term(b, x).to(DType.FLOAT32)
    return (as_float32 * ((as_float32 * as_float32).reduce("sum", [3]) + 1e-6).rsqrt()).value


def _decay(b: Builder, node: Node, heads: int) -> Value:
    """The logarithm of the decay factor at each position [b, t, heads, 1 or K].

    With a fused gate (`gate_activation`), it is computed from x = the decay operand + bias:

        softplus, qwen    -softplus(x) * exp(A)
        sigmoid, kda      gate_lower_bound * sigmoid(x * exp(A))
    """
    raw_decay = node.operand(4)
    rank = 4 if raw_decay.rank == node.operand(0).rank else 3
    decay = Term(b, _in_batches(b, node, raw_decay, rank))
    decay = Term(b, unsqueezed(b, decay.value, [3])) if rank == 3 else decay
    gate = node.attr("gate_activation", "none")
    if gate == "none":
        return decay.value
    if gate not in ("softplus", "qwen", "sigmoid", "kda"):
        raise ValueError(f"gate_activation is {gate!r}, not one of none, softplus, qwen, sigmoid, kda")
    bias = reshape(b, node.operand(8), [heads, product(node.operand(8).shape) // heads])
    biased = decay.to(DType.FLOAT32).apply(ops.Add, bias)
    factor = Term(b, reshape(b, node.operand(7), [heads, 1])).exp()
    if gate in ("softplus", "qwen"):
        return (-(biased.apply(ops.Softplus, threshold=math.inf) * factor)).value
    return ((biased * factor).sigmoid() * float(node.attr("gate_lower_bound", -5.0))).value


def _known(size: Dim) -> int:
    """`size` as an int. Raises UnsupportedError if it is dynamic."""
    return known_size(size, "the number or size of heads")


def _head_size(hidden: Dim, heads: int) -> int:
    """The size of each head: hidden / heads. Raises ValueError if it is not an integer."""
    hidden = _known(hidden)
    if hidden % heads:
        raise ValueError(f"{hidden} features cannot be split into {heads} heads of equal size")
    return hidden // heads


def _split_heads(b: Builder, x: Value, heads: int) -> Value:
    """x [b, t, heads * size] as [b, t, heads, size]."""
    return reshape(b, x, [*x.shape[:2], heads, _head_size(x.shape[2], heads)], x)


def _repeat_heads(b: Builder, x: Value, heads: int) -> Value:
    """Repeat each head of x [b, t, h, size] heads / h times: [b, t, heads, size]."""
    present_heads = _known(x.shape[2])
    if heads % present_heads:
        raise ValueError(f"{heads} heads cannot be repeated from {present_heads} heads")
    return x if present_heads == heads else b(ops.Gather, x, np.arange(heads) // (heads // present_heads), axis=2)


def _scan_positions(b: Builder, steps: _Steps, state: Value | None, scale: float) -> tuple[Value, Value]:
    """The result of each position [b, t, heads, V], and the last state [b, H, K, V], by a Scan.

    If there are more query heads than value heads, several query heads read the same state; if there are fewer, each
    query head is repeated.
    """
    heads, query_heads = _known(steps.v.shape[2]), _known(steps.q.shape[2])
    q = Term(b, steps.q if query_heads > heads else _repeat_heads(b, steps.q, heads)) * scale
    batch = steps.q.shape[0]
    sizes = [batch, heads, steps.k.shape[3], steps.v.shape[3]]
    if state is None:
        state = b(ops.BroadcastTo, b.scalar(0.0, steps.v), dim_vector(b, sizes, steps.q))
    scanned = [q.value, steps.k, steps.v, *(v for v in (steps.decay, steps.rate) if v is not None)]
    region = Graph("position")
    inner = [region.add_input(state.type)]
    inner += [region.add_input(v.tensor_type.with_shape((v.shape[0], *v.shape[2:]))) for v in scanned]
    slices = inner[4:]
    decay = slices.pop(0) if steps.decay is not None else None
    rate = slices.pop(0) if steps.rate is not None else None
    after, result = _step(Builder(region), inner[0], inner[1:4], decay, rate)
    region.outputs = [after, result]
    flags = scan_attributes(1, (1,) * len(scanned), (1,))
    last, results = b.many(ops.Scan, None, state, *scanned, body=region, **flags)
    return results, last


def _step(b: Builder, state: Value, parts: list[Value], decay: Value | None, rate: Value | None) -> tuple[Value, Value]:
    """The state [b, H, K, V] after one position, and the result of its queries [b, heads, V]."""
    q, k, v = parts
    decayed = Term(b, state)
    if decay is not None:
        decayed = decayed * Term(b, unsqueezed(b, Term(b, decay).exp().value, [3]))
    key_column = Term(b, unsqueezed(b, k, [3]))
    update = Term(b, unsqueezed(b, v, [2]))
    if rate is not None:
        prediction = (decayed * key_column).reduce("sum", [2])
        update = (update - prediction) * Term(b, unsqueezed(b, rate, [3]))
    after = decayed + key_column * update
    heads, query_heads = _known(v.shape[1]), _known(q.shape[1])
    grouped = reshape(b, q, [q.shape[0], heads, query_heads // heads, q.shape[2]], q)
    result = dot(b, grouped, after.value, [0, 1], 3, 2)
    return after.value, reshape(b, result.value, [q.shape[0], query_heads, v.shape[2]], q)
