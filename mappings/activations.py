"""Activations, those of com.microsoft and the experimental ones of old opsets among them."""

from __future__ import annotations

import math

from onnxtfl.rules import *

row(ops.Relu, onnx="Relu", since=(1, 6, 13, 14), tfl="RELU")
row(ops.Sigmoid, onnx="Sigmoid", since=(1, 6, 13), tfl="LOGISTIC")
row(ops.Elu, onnx="Elu", since=(1, 6, 22), onnx_attributes={"alpha": "alpha"})
row(ops.Elu, tfl="ELU", fixed={"alpha": 1.0})
row(
    ops.LeakyRelu,
    onnx="LeakyRelu",
    since=(1, 6, 16),
    tfl="LEAKY_RELU",
    onnx_attributes={"alpha": "alpha"},
    tfl_options={"alpha": "alpha"},
)
row(ops.Gelu, onnx="Gelu", since=(20,), onnx_attributes={"approximate": "approximate"})
row(ops.HardSwish, onnx="HardSwish", since=(14, 22), tfl="HARD_SWISH")
row(ops.Relu6, tfl="RELU6", lifts=False)
row(ops.ReluN1To1, tfl="RELU_N1_TO_1", lifts=False)


# --- what one format lacks, lifted ------------------------------------------------------------------------------------


def _number(node: Node, name: str, default: float) -> float:
    return float(node.attributes.get(name, default))


@lift_onnx("HardSigmoid", since=(1, 6, 22))
def _hard_sigmoid_onnx(b: Builder, node: Node) -> Value:
    slope, offset = _number(node, "alpha", 0.2), _number(node, "beta", 0.5)
    return hard_sigmoid(Term(b, node.operand(0)), slope, offset).value


@lift_onnx("Softplus", since=(1, 22))
def _softplus_onnx(b: Builder, node: Node) -> Value:
    return softplus(Term(b, node.operand(0))).value


@lift_onnx("Mish", since=(18, 22))
def _mish_onnx(b: Builder, node: Node) -> Value:
    return mish(Term(b, node.operand(0))).value


@lift_onnx("Softsign", since=(1, 22))
def _softsign(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x / (x.abs() + 1.0)).value


@lift_onnx("Swish", since=(24,))
def _swish_onnx(b: Builder, node: Node) -> Value:
    return swish(Term(b, node.operand(0)), _number(node, "alpha", 1.0)).value


@lift_onnx("Selu", since=(1, 6, 22))
def _selu(b: Builder, node: Node) -> Value:
    """The defaults of Selu-1 are those of Selu-6, less exactly."""
    alpha, gamma = (1.6732, 1.0507) if node.op.version == 1 else (1.6732631921768188, 1.0507010221481323)
    inner = b(ops.Elu, node.operand(0), alpha=_number(node, "alpha", alpha))
    return (Term(b, inner) * _number(node, "gamma", gamma)).value


@lift_onnx("Celu", since=(12, 28))
def _celu(b: Builder, node: Node) -> Value:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    x, alpha = Term(b, node.operand(0)), _number(node, "alpha", 1.0)
    if alpha == 1.0:
        return x.apply(ops.Elu).value
    if alpha > 0:
        return ((x / alpha).apply(ops.Elu) * alpha).value
    return (x.max(0.0) + (((x / alpha).exp() - 1.0) * alpha).min(0.0)).value


# Ops that were experimental before opset 10 had no since-version of their own: files give that of their opset.
_EXPERIMENTAL = tuple(range(1, 10))


@lift_onnx("ScaledTanh", since=_EXPERIMENTAL)
def _scaled_tanh(b: Builder, node: Node) -> Value:
    inner = Term(b, node.operand(0)) * _number(node, "beta", 1.0)
    return (inner.apply(ops.Tanh) * _number(node, "alpha", 1.0)).value


@lift_onnx("ParametricSoftplus", since=_EXPERIMENTAL)
def _parametric_softplus(b: Builder, node: Node) -> Value:
    inner = Term(b, node.operand(0)) * _number(node, "beta", 1.0)
    return (softplus(inner) * _number(node, "alpha", 1.0)).value


@lift_onnx("ThresholdedRelu", since=(*_EXPERIMENTAL, 10, 22))
def _thresholded(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x > _number(node, "alpha", 1.0)).choose(x, 0.0).value


@lift_onnx("Shrink", since=(9,))
def _shrink(b: Builder, node: Node) -> Value:
    """Towards 0 by `bias` outside [-lambd, lambd], 0 inside."""
    x = Term(b, node.operand(0))
    bias, lambd = _number(node, "bias", 0.0), _number(node, "lambd", 0.5)
    if x.dtype.is_integer:
        return _shrink_integers(x, bias, lambd).value
    inner = (x > lambd).choose(x - bias, 0.0)
    return (x < -lambd).choose(x + bias, inner).value


def _shrink_integers(x: Term, bias: float, lambd: float) -> Term:
    """The threshold is compared as the float it is, the bias is cut off to an integer."""
    above, below = x > math.floor(lambd), x < math.ceil(-lambd)
    if not x.dtype.is_signed and lambd >= 0:
        return above.choose(x - int(bias), 0)
    return below.choose(x + int(bias), above.choose(x - int(bias), 0))


@lift_tfl("GELU")
def _gelu_tfl(b: Builder, node: Node) -> Value:
    return b(ops.Gelu, node.operand(0), approximate="tanh" if node.attr("approximate", False) else "none")


@lower_tfl(ops.Gelu)
def _gelu(node: Node) -> Form:
    return Form("GELU", tuple(node.operands), {"approximate": node.attr("approximate") == "tanh"})


@lift_tfl("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def _bounded(b: Builder, node: Node) -> Value:
    low, high = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}[
        node.op.name.partition(".")[2]
    ]
    x = node.operand(0)
    return b(ops.Clamp, x, b.scalar(low, x), b.scalar(high, x))


# --- com.microsoft ----------------------------------------------------------------------------------------------------

_MICROSOFT = "com.microsoft"


@lift_onnx("Gelu", since=(1,), domain=_MICROSOFT)
def _ms_gelu(b: Builder, node: Node) -> Value:
    return b(ops.Gelu, node.operand(0), approximate="none")


@lift_onnx("FastGelu", since=(1,), domain=_MICROSOFT)
def _fast_gelu(b: Builder, node: Node) -> Value:
    x, bias = node.operand(0), node.optional(1)
    return b(ops.Gelu, x if bias is None else b(ops.Add, x, bias), approximate="tanh")


@lift_onnx("BiasGelu", since=(1,), domain=_MICROSOFT)
def _bias_gelu(b: Builder, node: Node) -> Value:
    return b(ops.Gelu, b(ops.Add, node.operand(0), node.operand(1)), approximate="none")


@lift_onnx("QuickGelu", since=(1,), domain=_MICROSOFT)
def _quick_gelu(b: Builder, node: Node) -> Value:
    return swish(Term(b, node.operand(0)), _number(node, "alpha", 1.702)).value


# --- into the core ----------------------------------------------------------------------------------------------------


def hard_sigmoid(x: Term, slope: float, offset: float) -> Term:
    """min(max(slope * x + offset, 0), 1)."""
    line = x * slope + offset
    return line.apply(ops.Clamp, 0.0, 1.0)


def softplus(x: Term) -> Term:
    """log(1 + e**x) as max(x, 0) + log1p(e**-|x|), which neither overflows nor cancels."""
    return x.apply(ops.Relu) + log1p_of_small((-x.abs()).exp())


def mish(x: Term) -> Term:
    """x tanh(softplus(x)) as x n / (n + 2) with n = e**x (e**x + 2); from 20 on the quotient is 1."""
    power = x.min(20.0).exp()
    n = power * (power + 2.0)
    return x * (n / (n + 2.0))


def swish(x: Term, alpha: float = 1.0) -> Term:
    """x sigmoid(alpha x)."""
    return x * (x if alpha == 1.0 else x * alpha).apply(ops.Sigmoid)


@decompose(ops.HardSigmoid)
def _hard_sigmoid(b: Builder, node: Node) -> Value:
    return hard_sigmoid(Term(b, node.operand(0)), node.attr("slope"), node.attr("offset")).value


@decompose(ops.Softplus)
def _softplus(b: Builder, node: Node) -> Value:
    x, beta = Term(b, node.operand(0)), node.attr("beta")
    return (softplus(x) if beta == 1.0 else softplus(x * beta) / beta).value


@decompose(ops.Mish)
def _mish(b: Builder, node: Node) -> Value:
    return mish(Term(b, node.operand(0))).value


@decompose(ops.Silu)
def _silu(b: Builder, node: Node) -> Value:
    return swish(Term(b, node.operand(0))).value


@decompose(ops.Swish)
def _swish(b: Builder, node: Node) -> Value:
    return swish(Term(b, node.operand(0)), node.attr("alpha")).value


@decompose(ops.Relu)
def _relu(b: Builder, node: Node) -> Value | None:
    """Integers, for which no kernel is."""
    x = Term(b, node.operand(0))
    return x.max(0).value if x.dtype.is_integer else None


@decompose(ops.Relu6)
def _relu6(b: Builder, node: Node) -> Value:
    return Term(b, node.operand(0)).apply(ops.Clamp, 0, 6).value


@decompose(ops.ReluN1To1)
def _relu_n1_to_1(b: Builder, node: Node) -> Value:
    return Term(b, node.operand(0)).apply(ops.Clamp, -1, 1).value


@decompose(ops.Elu, "tfl")
def _elu(b: Builder, node: Node) -> Value | None:
    """The kernel knows alpha = 1 only: max(x, 0) + alpha * elu(min(x, 0))."""
    x, alpha = Term(b, node.operand(0)), float(node.attr("alpha"))
    if alpha == 1.0:
        return None
    return (x.apply(ops.Relu) + x.min(0.0).apply(ops.Elu) * alpha).value


@decompose(ops.LeakyRelu)
def _leaky_relu(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x < 0).choose(x * node.attr("alpha"), x).value


@decompose(ops.Gelu)
def _gelu_formula(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    if node.attr("approximate") == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return (x * 0.5 * (inner.apply(ops.Tanh) + 1.0)).value
    return (x * 0.5 * ((x * math.sqrt(0.5)).apply(ops.Erf) + 1.0)).value


@decompose(ops.HardSwish)
def _hard_swish(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x * hard_sigmoid(x, 1 / 6, 0.5)).value


def _halves(b: Builder, node: Node) -> tuple[Term, Term]:
    first, second = b.many(ops.Split, node.operand(0), None, axis=node.attr("dim"), count=2)
    return Term(b, first), Term(b, second)


@decompose(ops.Glu)
def _glu(b: Builder, node: Node) -> Value:
    first, second = _halves(b, node)
    return (first * second.apply(ops.Sigmoid)).value


@decompose(ops.GeGlu)
def _geglu(b: Builder, node: Node) -> Value:
    first, second = _halves(b, node)
    return (first * second.apply(ops.Gelu, approximate=node.attr("approximate"))).value


@decompose(ops.Gtu)
def _gtu(b: Builder, node: Node) -> Value:
    first, second = _halves(b, node)
    return (first.apply(ops.Tanh) * second.apply(ops.Sigmoid)).value


@lower_onnx(ops.HardSigmoid)
def _hard_sigmoid_form(node: Node, opset: int) -> Form:
    return Form("HardSigmoid", tuple(node.operands), {"alpha": node.attr("slope"), "beta": node.attr("offset")})


@lower_onnx(ops.Softplus)
def _softplus_form(node: Node, opset: int) -> Form | None:
    return Form("Softplus", tuple(node.operands)) if node.attr("beta") == 1.0 else None


@lower_onnx(ops.Mish)
def _mish_form(node: Node, opset: int) -> Form:
    return Form("Mish", tuple(node.operands))


@lower_onnx(ops.Swish)
def _swish_form(node: Node, opset: int) -> Form:
    return Form("Swish", tuple(node.operands), {"alpha": node.attr("alpha")})


@upgrade("PRelu", since=(1, 6))
def _slope_by_channel(b: Builder, node: Node) -> None:
    """A vector of slopes runs along axis 1."""
    x, slope = node.operand(0), node.operand(1)
    if slope.tensor_type.rank == 1 and slope.shape != (1,) and x.rank > 2:
        node.set_operand(1, unsqueezed(b, slope, range(1, x.rank - 1)))


@lift_onnx("PRelu", since=(7, 9, 16))
@lift_tfl("PRELU")
def _prelu(b: Builder, node: Node) -> Value:
    """One slope for all is LeakyRelu. (XNNPACK of tflite-runtime 2.14 reads past the end of such a constant.)"""
    x, slope = node.operand(0), node.operand(1)
    number = number_for_all(x, slope)
    if number is not None and x.dtype.is_float:
        return b(ops.LeakyRelu, x, alpha=number)
    return b(ops.PRelu, x, slope)


@lower_onnx(ops.PRelu)
def _prelu_onnx(node: Node, opset: int) -> Form | None:
    return Form("PRelu", tuple(node.operands)) if _slope_fits(node) else None


@lower_tfl(ops.PRelu)
def _prelu_tfl(node: Node) -> Form | None:
    return Form("PRELU", tuple(node.operands)) if _slope_fits(node) else None


def _slope_fits(node: Node) -> bool:
    return node.result.tensor_type.shape == node.operand(0).tensor_type.shape


@decompose(ops.PRelu)
def _prelu_formula(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x < 0).choose(x.apply(ops.Mul, node.operand(1)), x).value


@lower_onnx(ops.Selu)
def _selu_form(node: Node, opset: int) -> Form:
    return Form("Selu", tuple(node.operands), {"alpha": node.attr("alpha"), "gamma": node.attr("gamma")})


@lower_onnx(ops.Celu)
def _celu_form(node: Node, opset: int) -> Form:
    return Form("Celu", tuple(node.operands), {"alpha": node.attr("alpha")})


@lower_onnx(ops.ThresholdedRelu)
def _thresholded_relu(node: Node, opset: int) -> Form:
    return Form("ThresholdedRelu", tuple(node.operands), {"alpha": node.attr("alpha")})


@decompose(ops.Selu)
def _selu_apart(b: Builder, node: Node) -> Value:
    return (Term(b, node.operand(0)).apply(ops.Elu, alpha=node.attr("alpha")) * float(node.attr("gamma"))).value


@decompose(ops.Celu)
def _celu_apart(b: Builder, node: Node) -> Value:
    alpha = float(node.attr("alpha"))
    return ((Term(b, node.operand(0)) / alpha).apply(ops.Elu) * alpha).value


@decompose(ops.ThresholdedRelu)
def _thresholded_relu_apart(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x > float(node.attr("alpha"))).choose(x, 0.0).value
