"""Convolutions of com.microsoft with a fused addition or activation, or with trailing channels.

com.microsoft: FusedConv, NhwcConv, NhwcFusedConv
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.mappings.nn.convolution import convolved

from onnxtfl.build.qlinear import MICROSOFT, channels_second, channels_trailing, lift_op
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx

_ACTIVATIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid"), (13, ())),
    "HardSwish": (14, ()),
    **dict.fromkeys(("Softplus", "Softsign"), (1, ())),
    "LeakyRelu": (16, ("alpha",)),
    "Elu": (6, ("alpha",)),
    "ThresholdedRelu": (10, ("alpha",)),
    "HardSigmoid": (6, ("alpha", "beta")),
    "Selu": (6, ("alpha", "gamma")),
}
"""The ONNX op of each activation: its since-version and its attributes, in the order of the parameters. Source: ONNX
Runtime, core/optimizer/gemm_activation_fusion.cc and conv_activation_fusion.cc.
"""


@lift_onnx("FusedConv", since=(1,), domain=MICROSOFT)
def _fused_conv(b: Builder, node: Node) -> Value:
    """activation(Conv(x, w, bias) + Z); bias and Z may be absent."""
    return add_and_activate(b, node, convolved(b, node, node.operand(0), node.operand(1), node.optional(2)))


@lift_onnx("NhwcConv", since=(1,), domain=MICROSOFT)
def _channels_last_conv(b: Builder, node: Node) -> Value:
    """Conv of x [n, spatial..., c] with w [m, c / group, spatial...]. Source: ONNX Runtime's schema of NhwcConv."""
    return _convolved_channels_last(b, node)


@lift_onnx("NhwcFusedConv", since=(1,), domain=MICROSOFT)
def _channels_last_fused_conv(b: Builder, node: Node) -> Value:
    """activation(NhwcConv(x, w, bias) + Z); Z has the shape of the result."""
    return add_and_activate(b, node, _convolved_channels_last(b, node))


def _convolved_channels_last(b: Builder, node: Node) -> Value:
    x = channels_second(b, node.operand(0))
    return channels_trailing(b, convolved(b, node, x, node.operand(1), node.optional(2)))


def add_and_activate(b: Builder, node: Node, x: Value) -> Value:
    """activation(x + Z), with Z operand 3, which may be absent, and the activation of the attributes of `node`."""
    summand = node.optional(3)
    total = x if summand is None else b(ops.Add, x, summand)
    return apply_activation(b, node, total, [float(p) for p in node.attr("activation_params", ())])


def apply_activation(b: Builder, node: Node, x: Value, parameters: Sequence[float]) -> Value:
    """Apply the activation named by the attribute `activation` to `x`; without one, `x` is unchanged.

    `parameters`: alpha, beta (or gamma) or min, max, in the order of the ONNX op's attributes; missing ones have the
    ONNX default.
    """
    name = str(node.attr("activation", ""))
    if not name:
        return x
    if name in _ACTIVATIONS:
        version, attributes = _ACTIVATIONS[name]
        return lift_op(b, name, version, [x], dict(zip(attributes, parameters, strict=False)))
    if name == "Clip" and len(parameters) >= 2:
        return b(ops.Clamp, x, *(b.scalar(limit, x) for limit in parameters[:2]))
    raise UnsupportedError(f"the activation {name} is not supported")
