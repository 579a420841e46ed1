"""Activations: unary ops between layers, PRelu, and those that split their operand in two."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.formula import Formula, Number, Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, NUMERIC, REQUIRED, Attributes, Operand, SharedAxes
from onnxtfl.ir.ops.arithmetic import Binary
from onnxtfl.ir.ops.elementwise import Log1p, Unary, UnaryFormula
from onnxtfl.ir.ops.splitting import Split
from onnxtfl.ir.shapes import normalize_axis


class Relu(Unary):
    """max(input, 0). Source: neutral-ops 3.95."""

    operands = (Operand("input", NUMERIC),)

    @staticmethod
    def compute(x: Array) -> Array:
        return np.asarray(np.maximum(x, np.zeros((), x.dtype)))


class Relu6(UnaryFormula):
    """min(max(input, 0), 6). Source: neutral-ops 3.96."""

    operands = (Operand("input", NUMERIC),)

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.clamp(0, 6)


class ReluN1To1(UnaryFormula):
    """min(max(input, -1), 1). Source: TFLite RELU_N1_TO_1 (added)."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.clamp(-1, 1)


class Elu(Unary):
    """input where positive, else alpha * (exp(input) - 1). Source: neutral-ops 3.47."""

    defaults = {"alpha": 1.0}

    @staticmethod
    def compute(x: Array, *, alpha: float) -> Array:
        return np.where(x > 0, x, alpha * np.expm1(x))


class LeakyRelu(UnaryFormula):
    """input where not negative, else alpha * input. Source: neutral-ops 3.72."""

    operands = (Operand("input", NUMERIC),)
    defaults = {"alpha": 0.01}
    core = True

    @classmethod
    def formula(cls, x: Term, alpha: float) -> Term:
        return (x < 0).choose(x * alpha, x)


class Gelu(UnaryFormula):
    """input times the normal distribution's share below it. `approximate`: "none", or "tanh" for the approximation.

    In the core since both formats have it as one op. Source: neutral-ops 3.54, ONNX Gelu, TFLite GELU.
    """

    defaults = {"approximate": "none"}
    core = True

    @classmethod
    def formula(cls, x: Term, approximate: str) -> Term:
        if approximate == "tanh":
            return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1.0)
        return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1.0)


class HardSigmoid(UnaryFormula):
    """max(0, min(1, slope * input + offset)). Source: neutral-ops 3.64."""

    defaults = {"slope": 0.2, "offset": 0.5}

    @classmethod
    def formula(cls, x: Term, slope: float, offset: float) -> Term:
        return (x * slope + offset).clamp(0.0, 1.0)


class HardSwish(UnaryFormula):
    """input * max(0, min(1, input / 6 + 0.5)). In the core since both formats have it. Source: neutral-ops 3.65."""

    core = True

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x * x.apply(HardSigmoid, slope=1 / 6, offset=0.5)


class Sigmoid(Unary):
    """1 / (1 + exp(-input)). Source: neutral-ops 3.116."""

    compute = numeric.sigmoid


class Silu(UnaryFormula):
    """input * sigmoid(input). Source: neutral-ops 3.120."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x * x.sigmoid()


class Swish(UnaryFormula):
    """input * sigmoid(alpha * input). Source: neutral-ops 3.131, ONNX Swish."""

    defaults = {"alpha": 1.0}

    @classmethod
    def formula(cls, x: Term, alpha: float) -> Term:
        return x * (x * alpha).sigmoid()


class Softplus(UnaryFormula):
    """log(1 + exp(beta * input)) / beta, as relu(z) + log1p(exp(-|z|)), which does not overflow.

    Source: neutral-ops 3.125 (exact, so without threshold).
    """

    defaults = {"beta": 1.0}

    @classmethod
    def formula(cls, x: Term, beta: float) -> Term:
        z = x * beta
        return (z.relu() + (-z.abs()).exp().apply(Log1p)) / beta


class Mish(UnaryFormula):
    """input * tanh(softplus(input)). Source: neutral-ops 3.80."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x * x.apply(Softplus).tanh()


class Gated(Formula, register=False):
    """The operand split along `dim` into halves a and b, a (or a function of it) times a function of b."""

    operands = (Operand("input", FLOATS),)
    defaults = {"dim": REQUIRED}
    shared_axes = SharedAxes(attributes=("dim",))

    @staticmethod
    def shape(x: Value, *, dim: int) -> Shape:
        axis = normalize_axis(dim, x.rank)
        size = x.shape[axis]
        if isinstance(size, int) and size % 2:
            raise ValueError(f"axis {axis} of {size} does not halve")
        return (*x.shape[:axis], size // 2, *x.shape[axis + 1 :])

    @classmethod
    def gate(cls, a: Term, b: Term, approximate: str) -> Term:
        """The result for the halves."""
        raise NotImplementedError

    @classmethod
    def formula(cls, x: Term, dim: int, approximate: str = "") -> Term:
        a, b = (Term(x.b, half) for half in x.b.many(Split, x.value, None, axis=dim, count=2))
        return cls.gate(a, b, approximate)


class Glu(Gated):
    """a * sigmoid(b). Source: neutral-ops 3.60."""

    @classmethod
    def gate(cls, a: Term, b: Term, approximate: str) -> Term:
        return a * b.sigmoid()


class GeGlu(Gated):
    """a * gelu(b). Source: neutral-ops 3.53."""

    defaults = {"dim": REQUIRED, "approximate": "none"}

    @classmethod
    def gate(cls, a: Term, b: Term, approximate: str) -> Term:
        return a * b.apply(Gelu, approximate=approximate)


class Gtu(Gated):
    """tanh(a) * sigmoid(b). Source: neutral-ops 3.63."""

    @classmethod
    def gate(cls, a: Term, b: Term, approximate: str) -> Term:
        return a.tanh() * b.sigmoid()


class PRelu(Binary, Formula):
    """input where not negative, else slope * input; the slope broadcasts. Source: neutral-ops 3.90."""

    operands = (Operand("input", NUMERIC), Operand("slope", NUMERIC, like="input"))

    @classmethod
    def formula(cls, x: Term, slope: Term) -> Term:
        return (x < 0).choose(x * slope, x)


class Selu(UnaryFormula):
    """gamma * input where positive, else gamma * alpha * (exp(input) - 1). Source: ONNX Selu-6 (added)."""

    defaults = {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323}

    @classmethod
    def formula(cls, x: Term, alpha: float, gamma: float) -> Term:
        return x.apply(Elu, alpha=alpha) * gamma

    @classmethod
    def check(cls, attributes: Attributes) -> bool:
        return bool(attributes["alpha"] != 1.0 and attributes["gamma"] > 0)


class Celu(UnaryFormula):
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1)). Source: ONNX Celu-12 (added)."""

    defaults = {"alpha": 1.0}

    @classmethod
    def formula(cls, x: Term, alpha: Number | Term) -> Term:
        if isinstance(alpha, Number) and alpha < 0:
            return x.relu() + (((x / alpha).exp() - 1.0) * alpha).min(0.0)
        return (x / alpha).apply(Elu) * alpha

    @classmethod
    def check(cls, attributes: Attributes) -> bool:
        return bool(attributes["alpha"] > 0)


class ThresholdedRelu(UnaryFormula):
    """The input where it is over `alpha`, else 0. Source: ONNX ThresholdedRelu-10 (added)."""

    defaults = {"alpha": 1.0}

    @classmethod
    def formula(cls, x: Term, alpha: float) -> Term:
        return (x > alpha).choose(x, 0.0)
