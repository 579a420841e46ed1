"""Activations: unary ops between layers, PRelu, and those that split their operand in two."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.attributes import Choice, Float
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ
from onnxtfl.ir.formula import Number, Term, by_formula
from onnxtfl.ir.graph import Value
from onnxtfl.ir.intervals import EVERYWHERE
from onnxtfl.ir.op import FLOATS, NUMERIC, Op, Operand, SharedAxes, computed_by
from onnxtfl.ir.ops.arithmetic import Binary
from onnxtfl.ir.ops.elementwise import Log1p, Unary
from onnxtfl.ir.ops.splitting import Split
from onnxtfl.ir.shapes import check_spreads, normalize_axis

_APPROXIMATE = {"approximate": Choice("none", "tanh", default="none")}
_NUMERIC = (Operand("input", NUMERIC),)


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, np.zeros((), x.dtype)))


def _elu(x: Array, *, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(x))


Relu = computed_by(Unary, "Relu", _relu, "max(input, 0). Source: neutral-ops 3.95.", operands=_NUMERIC)
Relu.clamps = (0.0, math.inf)
Sigmoid = computed_by(
    Unary,
    "Sigmoid",
    numeric.sigmoid,
    "1 / (1 + exp(-input)). Source: neutral-ops 3.116.",
    defined=EVERYWHERE,
    monotonic=True,
    bounds=(0.0, 1.0),
)
Elu = computed_by(
    Unary,
    "Elu",
    _elu,
    "input where positive, else alpha * (exp(input) - 1). Source: neutral-ops 3.47.",
    attributes={"alpha": Float(1.0)},
)


@by_formula(Unary, operands=_NUMERIC)
def Relu6(x: Term) -> Term:
    """min(max(input, 0), 6). Source: neutral-ops 3.96."""
    return x.clamp(0, 6)


Relu6.clamps = (0.0, 6.0)


@by_formula(Unary)
def ReluN1To1(x: Term) -> Term:
    """min(max(input, -1), 1). Source: TFLite RELU_N1_TO_1 (added)."""
    return x.clamp(-1, 1)


ReluN1To1.clamps = (-1.0, 1.0)


@by_formula(Unary, operands=_NUMERIC, core=True)
def LeakyRelu(x: Term, alpha: float = 0.01) -> Term:
    """input where not negative, else alpha * input. Source: neutral-ops 3.72."""
    return (x < 0).choose(x * alpha, x)


@by_formula(Unary, core=True, attributes=_APPROXIMATE)
def Gelu(x: Term, approximate: str = "none") -> Term:
    """input * Phi(input), Phi the normal distribution function. `approximate`: "none", or "tanh" for the approximation.

    In the core since both formats have it as one op. Source: neutral-ops 3.54, ONNX Gelu, TFLite GELU.
    """
    if approximate == "tanh":
        return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1.0)


@by_formula(Unary, bounds=(0.0, 1.0))
def HardSigmoid(x: Term, slope: float = 0.2, offset: float = 0.5) -> Term:
    """max(0, min(1, slope * input + offset)). Source: neutral-ops 3.64."""
    return (x * slope + offset).clamp(0.0, 1.0)


@by_formula(Unary, core=True)
def HardSwish(x: Term) -> Term:
    """input * max(0, min(1, input / 6 + 0.5)). In the core since both formats have it. Source: neutral-ops 3.65."""
    return x * x.apply(HardSigmoid, slope=1 / 6, offset=0.5)


@by_formula(Unary)
def Silu(x: Term) -> Term:
    """input * sigmoid(input). Source: neutral-ops 3.120."""
    return x * x.sigmoid()


@by_formula(Unary)
def Swish(x: Term, alpha: float = 1.0) -> Term:
    """input * sigmoid(alpha * input). Source: neutral-ops 3.131, ONNX Swish."""
    return x * (x * alpha).sigmoid()


@by_formula(Unary)
def Softplus(x: Term, beta: float = 1.0, threshold: float = 20.0) -> Term:
    """log(1 + exp(beta * input)) / beta, as relu(z) + log1p(exp(-|z|)), which does not overflow.

    Where beta * input is above `threshold`, the result is the input. Source: neutral-ops 3.125; torch.nn.Softplus.
    """
    z = x * beta
    result = (z.relu() + (-z.abs()).exp().apply(Log1p)) / beta
    return result if threshold == math.inf else (z > threshold).choose(x, result)


@by_formula(Unary)
def Mish(x: Term) -> Term:
    """input * tanh(softplus(input)). Source: neutral-ops 3.80."""
    return x * x.apply(Softplus, threshold=math.inf).tanh()


class Gated(Op, register=False):
    """Base of gated units: the operand is split along `dim` into halves a and b, the result is f(a) * g(b)."""

    operands = (Operand("input", FLOATS),)
    shared_axes = SharedAxes(attributes=("dim",))

    @staticmethod
    def shape(x: Value, *, dim: int) -> Dims:
        axis = normalize_axis(dim, x.rank)
        size = x.shape[axis]
        if differ(size % 2, 0):
            raise ValueError(f"axis {axis} of {size} is not even")
        return (*x.shape[:axis], size // 2, *x.shape[axis + 1 :])


def _halves(x: Term, dim: int) -> tuple[Term, Term]:
    a, b = x.b.many(Split, x.value, axis=dim, count=2)
    return Term(x.b, a), Term(x.b, b)


@by_formula(Gated)
def Glu(x: Term, dim: int) -> Term:
    """a * sigmoid(b). Source: neutral-ops 3.60."""
    a, b = _halves(x, dim)
    return a * b.sigmoid()


@by_formula(Gated, attributes=_APPROXIMATE)
def GeGlu(x: Term, dim: int, approximate: str = "none") -> Term:
    """a * gelu(b). Source: neutral-ops 3.53."""
    a, b = _halves(x, dim)
    return a * b.apply(Gelu, approximate=approximate)


@by_formula(Gated)
def Gtu(x: Term, dim: int) -> Term:
    """tanh(a) * sigmoid(b). Source: neutral-ops 3.63."""
    a, b = _halves(x, dim)
    return a.tanh() * b.sigmoid()


def _like_the_input(x: Value, slope: Value) -> Dims | None:
    check_spreads(x, slope)
    return Binary.shape(x, slope)


@by_formula(
    Binary,
    operands=(*_NUMERIC, Operand("slope", NUMERIC, like="input")),
    core=True,
    shape=staticmethod(_like_the_input),
)
def PRelu(x: Term, slope: Term) -> Term:
    """input where not negative, else slope * input; the slope broadcasts. Source: neutral-ops 3.90."""
    return (x < 0).choose(x * slope, x)


@by_formula(Unary, check=lambda attributes: attributes["alpha"] != 1.0 and attributes["gamma"] > 0)
def Selu(x: Term, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Term:
    """gamma * input where positive, else gamma * alpha * (exp(input) - 1). Source: ONNX Selu-6 (added)."""
    return x.apply(Elu, alpha=alpha) * gamma


@by_formula(Unary, check=lambda attributes: attributes["alpha"] > 0)
def Celu(x: Term, alpha: Number | Term = 1.0) -> Term:
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1)). Source: ONNX Celu-12 (added)."""
    if isinstance(alpha, Number) and alpha < 0:
        return x.relu() + (((x / alpha).exp() - 1.0) * alpha).min(0.0)
    return (x / alpha).apply(Elu) * alpha


@by_formula(Unary)
def ThresholdedRelu(x: Term, alpha: float = 1.0) -> Term:
    """The input where it is over `alpha`, else 0. Source: ONNX ThresholdedRelu-10 (added)."""
    return (x > alpha).choose(x, 0.0)
