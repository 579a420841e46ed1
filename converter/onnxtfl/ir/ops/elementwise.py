"""Unary mathematics: one operand, a result of its type and shape; IsNaN, IsInf and IsFinite return bools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, NUMERIC, Elementwise, Operand
from onnxtfl.ir.shapes import same_type
from onnxtfl.ir.types import DType, TensorType, Type

_COMPLEX = frozenset({DType.COMPLEX64, DType.COMPLEX128})


class Unary(Elementwise, register=False):
    """One operand, one result of its type and shape; `function` computes it."""

    operands = (Operand("input", FLOATS),)
    core = True
    function: ClassVar[Callable[..., Any]]

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_ = node.operand(0).tensor_type
        return [same_type(type_, type_.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return numeric.computed(cls.function, x)


class UnaryFormula(Formula, Unary, register=False):
    """A unary op that is a formula over others."""

    core = False
    infer = Unary.infer


class Test(Unary, register=False):
    """A unary op that gives bools."""

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(DType.BOOL, node.operand(0).tensor_type.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.asarray(cls.function(numeric.widened(x)), bool)


class Abs(Unary):
    """output = |input|; the modulus, as a real number, of complex ones. Source: neutral-ops 3.1, TFLite COMPLEX_ABS."""

    operands = (Operand("input", NUMERIC | _COMPLEX),)
    function = np.abs

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_ = node.operand(0).tensor_type
        real = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
        return [TensorType(real.get(type_.dtype, type_.dtype), type_.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.abs(x) if x.dtype.kind == "c" else numeric.computed(np.abs, x)


class Neg(Unary):
    """output = -input; integers wrap. Source: neutral-ops 3.81."""

    operands = (Operand("input", NUMERIC | _COMPLEX),)
    function = np.negative
    follows_values = True


class Sign(Unary):
    """-1, 0 or 1; NaN stays. Source: neutral-ops 3.117."""

    operands = (Operand("input", NUMERIC),)
    function = np.sign


class Ceil(Unary):
    """The least integer at or above. Source: neutral-ops 3.21."""

    function = np.ceil


class Floor(Unary):
    """The greatest integer at or below. Source: neutral-ops 3.51."""

    function = np.floor


class Round(UnaryFormula):
    """To the nearest integer, halves away from zero. Source: neutral-ops 3.105."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        size = x.abs()
        whole = size.floor()
        return x.sign() * (size - whole >= 0.5).choose(whole + 1.0, whole)


class RoundNearestEven(Unary):
    """To the nearest integer, halves to the even one (ONNX Round, TFLite ROUND). Source: neutral-ops 3.106."""

    function = np.rint


class Exp(Unary):
    """e to the input. Source: neutral-ops 3.49."""

    function = np.exp


class Expm1(Unary):
    """exp(input) - 1, exact near 0. Source: neutral-ops 3.50; into the core: Elu and Exp."""

    core = False
    function = np.expm1


class Log(Unary):
    """The natural logarithm. Source: neutral-ops 3.73."""

    function = np.log


class Log1p(Unary):
    """log(1 + input), exact near 0. Source: neutral-ops 3.74; into the core: Log with a correction."""

    core = False
    function = np.log1p


class Sqrt(Unary):
    """The square root. Source: neutral-ops 3.128."""

    function = np.sqrt


class Rsqrt(UnaryFormula):
    """1 / sqrt(input). Source: neutral-ops 3.107 (0 gives infinity, as in TFLite)."""

    core = True

    @classmethod
    def formula(cls, x: Term) -> Term:
        return 1 / x.sqrt()


class Cbrt(UnaryFormula):
    """The real cube root. Source: neutral-ops 3.20 (float operands)."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.sign() * x.abs().power(1 / 3)


class Sin(Unary):
    """The sine. Source: neutral-ops 3.118."""

    function = np.sin


class Cos(Unary):
    """The cosine. Source: neutral-ops 3.32."""

    function = np.cos


class Tan(Unary):
    """The tangent. Source: neutral-ops 3.132."""

    function = np.tan


class Asin(Unary):
    """The inverse sine, NaN outside [-1, 1]. Source: neutral-ops 3.7."""

    function = np.arcsin


class Acos(Unary):
    """The inverse cosine, NaN outside [-1, 1]. Source: neutral-ops 3.2."""

    function = np.arccos


class Atan(Unary):
    """The inverse tangent. Source: neutral-ops 3.9."""

    function = np.arctan


class Sinh(Unary):
    """The hyperbolic sine. Source: neutral-ops 3.119."""

    function = np.sinh


class Cosh(Unary):
    """The hyperbolic cosine. Source: ONNX Cosh (added)."""

    function = np.cosh


class Tanh(Unary):
    """The hyperbolic tangent. Source: neutral-ops 3.133."""

    function = np.tanh


class Asinh(Unary):
    """The inverse hyperbolic sine. Source: neutral-ops 3.8."""

    function = np.arcsinh


class Acosh(Unary):
    """The inverse hyperbolic cosine, NaN below 1. Source: ONNX Acosh (added)."""

    function = np.arccosh


class Atanh(Unary):
    """The inverse hyperbolic tangent. Source: neutral-ops 3.11."""

    function = np.arctanh


class Erf(Unary):
    """The error function. Source: neutral-ops 3.48 (ONNX Erf)."""

    function = numeric.erf


class IsNaN(Test):
    """Whether not a number. Source: ONNX IsNaN (added)."""

    function = np.isnan


class IsInf(Test):
    """Whether infinite, of a sign that is looked for. Source: ONNX IsInf (added)."""

    defaults = {"detect_positive": True, "detect_negative": True}

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        wide = numeric.widened(x)
        up = np.isposinf(wide) & attributes["detect_positive"]
        return np.asarray(up | (np.isneginf(wide) & attributes["detect_negative"]))


class IsFinite(Formula, Test):
    """Whether neither infinite nor NaN. Source: neutral-ops 3.70 (bool results)."""

    core = False
    infer = Test.infer

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.abs() < np.inf
