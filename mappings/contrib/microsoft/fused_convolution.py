"""Convolutions of com.microsoft with a fused addition or activation, or with trailing channels.

com.microsoft: FusedConv, NhwcConv, NhwcFusedConv
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.mappings.nn.convolution import convolved

from onnxtfl.build.qlinear import MICROSOFT, channels_second, channels_trailing
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import OPS
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("FusedConv", since=(1,), domain=MICROSOFT)
def _fused_conv(b: Builder, node: Node) -> Value:
    """activation(Conv(x, w, bias) + Z); bias and Z may be absent."""
    result = convolved(b, node, node.operand(0), node.operand(1), node.optional(2))
    summand = node.optional(3)
    result = result if summand is None else b(ops.Add, result, summand)
    return apply_activation(b, node, result, [float(p) for p in node.attr("activation_params", ())])


@lift_onnx("NhwcConv", since=(1,), domain=MICROSOFT)
def _channels_last_conv(b: Builder, node: Node) -> Value:
    """Conv of x [n, spatial..., c] with w [m, c / group, spatial...]. Source: ONNX Runtime's schema of NhwcConv."""
    return _convolved_channels_last(b, node)


@lift_onnx("NhwcFusedConv", since=(1,), domain=MICROSOFT)
def _channels_last_fused_conv(b: Builder, node: Node) -> Value:
    """activation(NhwcConv(x, w, bias) + Z); Z has the shape of the result."""
    result, summand = _convolved_channels_last(b, node), node.optional(3)
    result = result if summand is None else b(ops.Add, result, summand)
    return apply_activation(b, node, result, [float(p) for p in node.attr("activation_params", ())])


def _convolved_channels_last(b: Builder, node: Node) -> Value:
    x = channels_second(b, node.operand(0))
    return channels_trailing(b, convolved(b, node, x, node.operand(1), node.optional(2)))


def apply_activation(b: Builder, node: Node, x: Value, parameters: Sequence[float]) -> Value:
    """Apply the activation named by the attribute `activation` to `x`; without one, `x` is unchanged.

    `parameters`: alpha, beta or min, max, in the order of the ONNX op's attributes; missing ones have the ONNX default.
    """
    name = str(node.attr("activation", ""))
    if not name:
        return x
    if name in ("Relu", "Tanh", "Sigmoid"):
        return b(OPS[name], x)
    first, second = (*parameters, *(None, None))[:2]
    if name == "LeakyRelu":
        return b(ops.LeakyRelu, x, alpha=0.01 if first is None else first)
    if name == "HardSigmoid":
        return b(ops.HardSigmoid, x, slope=0.2 if first is None else first, offset=0.5 if second is None else second)
    if name == "Clip" and first is not None and second is not None:
        return b(ops.Clamp, x, b.scalar(first, x), b.scalar(second, x))
    raise UnsupportedError(f"the activation {name} is not supported")
