"""Activations, including those of com.microsoft and the experimental ops of old opsets."""

from __future__ import annotations

import math

from onnxtfl.mappings.math.approximations import log1p_of_small

from onnxtfl.build.operands import finite_on_integers, formula, on_terms
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import Spelled, row
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import uniform_scalar
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.kernels.gelu_int16 import gelu_table
from onnxtfl.kernels.logistic_tanh_int16 import sigmoid_table
from onnxtfl.kernels.lookup_int16 import by_table
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl, upgrade

row(ops.Relu, onnx="Relu", since=(1, 6, 13, 14), tfl="RELU")
row(ops.Sigmoid, onnx="Sigmoid", since=(1, 6, 13))
row(ops.Sigmoid, tfl="LOGISTIC", lifts=False)
row(ops.Sigmoid, tfl="STABLEHLO_LOGISTIC", lowers=False)
row(ops.Elu, onnx="Elu", since=(1, 6, 22), attributes="alpha")
row(ops.Elu, tfl="ELU", fixed={"alpha": 1.0})
row(ops.LeakyRelu, onnx="LeakyRelu", since=(1, 6, 16), attributes="alpha")
row(ops.LeakyRelu, tfl="LEAKY_RELU", attributes="alpha", lifts=False)
row(ops.Gelu, onnx="Gelu", since=(20,), attributes="approximate")
row(
    ops.Gelu,
    tfl="GELU",
    tfl_options={"approximate": Spelled("approximate", {"none": False, "tanh": True})},
    lifts=False,
)
row(ops.Gelu, onnx="Gelu", since=(1,), domain=MICROSOFT, lowers=False)
row(ops.HardSwish, onnx="HardSwish", since=(14, 22), tfl="HARD_SWISH")
row(ops.HardSigmoid, onnx="HardSigmoid", since=(1, 6, 22), onnx_attributes={"slope": "alpha", "offset": "beta"})
row(ops.Softplus, onnx="Softplus", since=(1, 22), fixed={"beta": 1.0, "threshold": math.inf})
row(ops.Mish, onnx="Mish", since=(18, 22))
row(ops.Swish, onnx="Swish", since=(24,), attributes="alpha")
_QUICK = {"alpha": Spelled("alpha", default=1.702)}
row(ops.Swish, onnx="QuickGelu", since=(1,), domain=MICROSOFT, onnx_attributes=_QUICK, lowers=False)
row(ops.Selu, onnx="Selu", since=(6, 22), attributes="alpha gamma")
row(ops.Celu, onnx="Celu", since=(12, 28), attributes="alpha")

# Experimental ops (before opset 10) have no since-version: in files they have the version of their opset.
_EXPERIMENTAL = tuple(range(1, 10))
row(ops.ThresholdedRelu, onnx="ThresholdedRelu", since=(*_EXPERIMENTAL, 10, 22), attributes="alpha")


# --- ops that are formulas of neutral ops -----------------------------------------------------------------------------


@lift_tfl("LOGISTIC")
def _logistic(b: Builder, node: Node) -> Value:
    """Int16 results are looked up in a table, since the kernel differs from the function by several steps."""
    return by_table(b, node, sigmoid_table) or b(ops.Sigmoid, node.operand(0))


@lift_tfl("LEAKY_RELU")
def _leaky_relu(b: Builder, node: Node) -> Value:
    return b(ops.LeakyRelu, node.operand(0), alpha=finite_on_integers(node, "alpha"))


@lift_tfl("GELU")
def _gelu(b: Builder, node: Node) -> Value:
    """Int16 results are looked up in a table, since the kernel differs from the function by several steps."""
    of_tanh = bool(node.attr("approximate", False))
    found = by_table(b, node, gelu_table(of_tanh))
    return found or b(ops.Gelu, node.operand(0), approximate="tanh" if of_tanh else "none")


@upgrade("Selu", since=(1,))
def _selu_1(b: Builder, node: Node) -> None:
    """Selu-1 has the defaults of Selu-6, with fewer digits."""
    node.attributes = {"alpha": 1.6732, "gamma": 1.0507, **node.attributes}


lift_onnx("Softsign", since=(1, 22))(on_terms(lambda x: x / (x.abs() + 1.0)))


@lift_onnx("Shrink", since=(9,))
@on_terms
def _shrink(x: Term, *, bias: float = 0.0, lambd: float = 0.5) -> Term:
    """Return x + bias for x < -lambd, x - bias for x > lambd, else 0.

    Integers are computed in float32 and truncated, as in ONNX Runtime (ONNX's text truncates the attributes first).
    """
    wide = x.to(DType.FLOAT32) if x.dtype.is_integer else x
    return (wide < -lambd).choose(wide + bias, (wide > lambd).choose(wide - bias, 0.0)).to(x.dtype)


_BOUNDS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@lift_tfl(*_BOUNDS)
def _bounded(b: Builder, node: Node) -> Value:
    return Term(b, node.operand(0)).clamp(*_BOUNDS[node.op.name_in_file]).value


@lift_onnx("FastGelu", since=(1,), domain=MICROSOFT)
@on_terms
def _fast_gelu(x: Term, bias: Term | None) -> Term:
    return (x if bias is None else x + bias).apply(ops.Gelu, approximate="tanh")


@lift_onnx("ScaledSiLU", since=(1,), domain=MICROSOFT)
def _scaled_silu(b: Builder, node: Node) -> Value:
    """z * sigmoid(z), with z = x * scale; without a scale operand, the attribute `alpha` is the scale."""
    x, scale = Term(b, node.operand(0)), node.optional(1)
    z = x * float(node.attr("alpha", 1.0)) if scale is None else x * Term(b, reshape(b, scale, ())).to(x.dtype)
    return (z * z.sigmoid()).value


# --- formulas of kernels that TFLite has ------------------------------------------------------------------------------


@formula(ops.Softplus, "tfl")
def _softplus(x: Term, *, beta: float, threshold: float) -> Term:
    """Return max(z, 0) + log1p(e**-|z|), log1p by a polynomial on [0, 1]."""
    z = x * beta
    result = (z.relu() + log1p_of_small((-z.abs()).exp())) / beta
    return result if threshold == math.inf else (z > threshold).choose(x, result)


@formula(ops.HardSigmoid, "tfl")
def _hard_sigmoid(x: Term, *, slope: float, offset: float) -> Term | None:
    """RELU6(x + 6 offset) / 6 for the slope 1 / 6: RELU6 fuses into ADD; no kernel fuses RELU_0_TO_1."""
    return (x + offset * 6.0).clamp(0.0, 6.0) * (1 / 6) if math.isclose(slope, 1 / 6, rel_tol=1e-7) else None


@formula(ops.Mish, "tfl")
def _mish(x: Term) -> Term:
    """x n / (n + 2) with n = e**x (e**x + 2); from 20 on the quotient is 1."""
    power = x.min(20.0).exp()
    n = power * (power + 2.0)
    return x * (n / (n + 2.0))


@formula(ops.Relu)
def _relu(x: Term) -> Term | None:
    """Decompose integer Relu, which has no kernel."""
    return x.max(0) if x.dtype.is_integer else None


@formula(ops.Elu, "tfl")
def _elu(x: Term, *, alpha: float) -> Term | None:
    """Return max(x, 0) + alpha * elu(min(x, 0)): the kernel has alpha = 1 only."""
    return None if alpha == 1.0 else (x.relu() + x.min(0.0).apply(ops.Elu) * alpha)


@upgrade("PRelu", since=(1, 6))
def _slope_by_channel(b: Builder, node: Node) -> None:
    """Return a vector of slopes in a shape that broadcasts along axis 1."""
    x, slope = node.operand(0), node.operand(1)
    if slope.tensor_type.rank == 1 and slope.shape != (1,) and x.rank > 2:
        node.set_operand(1, unsqueezed(b, slope, range(1, x.rank - 1)))


def _prelu(b: Builder, node: Node) -> Value:
    """A single slope becomes LeakyRelu: XNNPACK of tflite-runtime 2.14 reads past the end of such a constant."""
    x, slope = node.operand(0), node.operand(1)
    number = uniform_scalar(x, slope)
    if number is not None and x.dtype.is_float:
        return b(ops.LeakyRelu, x, alpha=number)
    return b(ops.PRelu, x, slope)


lift_onnx("PRelu", since=(7, 9, 16))(_prelu)


@lift_tfl("PRELU")
def _tfl_prelu(b: Builder, node: Node) -> Value:
    """The int16 kernel reads slopes as 8-bit values, whatever their dtype (LiteRT kernels/activations.cc)."""
    x, slope = (quantization_of(node.operand(i)) for i in (0, 1))
    if x is not None and slope is not None and x.storage == "int16" and slope.storage != "int8":
        message = f"LiteRT's kernel reads {slope.storage} slopes of int16 as int8"
        raise UnsupportedError(message, type_=node.operand(1).type, code="E-OP-001")
    return _prelu(b, node)


def _slope_fits(node: Node) -> bool:
    """Whether the slopes broadcast to the operand, and this is no integer without a scale."""
    x = node.operand(0).tensor_type
    return node.result.tensor_type.shape == x.shape and x.dtype.is_float


row(ops.PRelu, onnx="PRelu", tfl="PRELU", when=_slope_fits, lifts=False)
