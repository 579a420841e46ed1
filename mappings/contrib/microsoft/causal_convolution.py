"""com.microsoft CausalConvWithState: a causal depthwise convolution whose past positions are a state.

    padded  = concat(state, x)                 state [n, c, (k - 1) * dilation], zeros if absent; x [n, c, length]
    y       = Conv(padded, weight)
    state'  = the last (k - 1) * dilation positions of padded

Source: the schema of ONNX Runtime's contrib op."""

from __future__ import annotations

from onnxtfl.build.qlinear import MICROSOFT, lift_op
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import dim_vector, transposed
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx


@lift_onnx("CausalConvWithState", since=(1,), domain=MICROSOFT)
def _causal_conv(b: Builder, node: Node) -> list[Value]:
    """The activated result, in the layout of x, and the new state."""
    if node.attr("ndim", 1) != 1 or node.attr("state_window", 0):
        raise UnsupportedError(
            "CausalConvWithState with several spatial axes (ndim > 1) or with state_window is not supported",
            hint="export it as Concat, Conv and Slice",
        )
    x, weight, past = node.operand(0), node.operand(1), node.optional(3)
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}, not none, silu or swish")
    if not is_static(weight.shape) or ((is_channels_last := node.attr("channels_last", 0)) and x.rank != 3):
        raise UnsupportedError(
            "a kernel of unknown size, or channels_last for an operand of rank other than 3, is not supported",
            code="E-SHAPE-001",
        )
    dilation = int(node.attr("dilation", 1))
    length = (weight.size(-1) - 1) * dilation
    channels_second = [None if v is None else transposed(b, v, [0, 2, 1]) if is_channels_last else v for v in (x, past)]
    padded = _with_past(b, channels_second[0] or x, channels_second[1], length)
    attributes = {"group": weight.shape[0], "dilations": [dilation]}
    y = Term(b, lift_op(b, "Conv", 11, [padded, weight, node.optional(2)], attributes))
    y = y if activation == "none" else y * y.sigmoid()
    results = [y.value, _last_positions(b, padded, length)]
    return [transposed(b, v, [0, 2, 1]) if is_channels_last else v for v in results][: len(node.results)]


def _last_positions(b: Builder, x: Value, count: int) -> Value:
    """The last `count` positions along axis 2."""
    if count:
        return b(ops.Slice, x, [0, 0, -count], [1 << 30] * 3, [1, 1, 1])
    return b(ops.BroadcastTo, b.scalar(0, x), dim_vector(b, [*x.shape[:2], 0], x))


def _with_past(b: Builder, x: Value, past: Value | None, length: int) -> Value:
    """`x` after the past positions along axis 2; without past, after `length` zeros."""
    if past is None:
        return pad_axes(b, x, [2], [length, 0])
    return b(ops.Concatenate, past, x, axis=2) if length else x


refuse_onnx(
    "VarlenCausalConvWithState",
    why="it processes the tokens of many requests at once, with a paged cache",
    hint="export the model for one request, with GroupQueryAttention or CausalConvWithState",
    domain=MICROSOFT,
)
