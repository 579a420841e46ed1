"""Activations: unary ops between layers, PRelu, and those that split their operand in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, NUMERIC, REQUIRED, Attributes, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops.arithmetic import Binary
from onnxtfl.ir.ops.elementwise import Unary
from onnxtfl.ir.permutations import everywhere, moved
from onnxtfl.ir.shapes import normalize_axis, same_type
from onnxtfl.ir.types import Type


class Relu(Unary):
    """max(input, 0). Source: neutral-ops 3.95."""

    operands = (Operand("input", NUMERIC),)

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(np.maximum(x, np.zeros((), x.dtype)))


class Relu6(Unary):
    """min(max(input, 0), 6). Source: neutral-ops 3.96; into the core: Clamp."""

    operands = (Operand("input", NUMERIC),)
    core = False

    @staticmethod
    def function(x: Array) -> Array:
        return np.clip(x, 0, 6)


class ReluN1To1(Unary):
    """min(max(input, -1), 1). Source: TFLite RELU_N1_TO_1 (added); into the core: Clamp."""

    core = False

    @staticmethod
    def function(x: Array) -> Array:
        return np.clip(x, -1, 1)


class Parametric(Unary, register=False):
    """A unary op with attributes; `activate` computes it in the wide type."""

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        """The result for `x`."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return numeric.computed(lambda wide: cls.activate(wide, attributes), x)


class Elu(Parametric):
    """input where positive, else alpha * (exp(input) - 1). Source: neutral-ops 3.47."""

    defaults = {"alpha": 1.0}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(np.where(x > 0, x, attributes["alpha"] * np.expm1(x)))


class LeakyRelu(Parametric):
    """input where not negative, else alpha * input. Source: neutral-ops 3.72."""

    operands = (Operand("input", NUMERIC),)
    defaults = {"alpha": 0.01}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(np.where(x < 0, attributes["alpha"] * x, x))


class Gelu(Parametric):
    """input times the normal distribution's share below it. `approximate`: "none", or "tanh" for the approximation.

    In the core since both formats have it as one op. Source: neutral-ops 3.54, ONNX Gelu, TFLite GELU.
    """

    defaults = {"approximate": "none"}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return numeric.gelu(x, attributes["approximate"])


class HardSwish(Unary):
    """input * max(0, min(1, input / 6 + 0.5)). In the core since both formats have it. Source: neutral-ops 3.65."""

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))


class HardSigmoid(Parametric):
    """max(0, min(1, slope * input + offset)). Source: neutral-ops 3.64; into the core: Mul, Add, Clamp."""

    core = False
    defaults = {"slope": 0.2, "offset": 0.5}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(np.clip(attributes["slope"] * x + attributes["offset"], 0, 1))


class Sigmoid(Unary):
    """1 / (1 + exp(-input)). Source: neutral-ops 3.116."""

    function = numeric.sigmoid


class Silu(Unary):
    """input * sigmoid(input). Source: neutral-ops 3.120; into the core: Mul and Sigmoid."""

    core = False

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(x * numeric.sigmoid(x))


class Swish(Parametric):
    """input * sigmoid(alpha * input). Source: neutral-ops 3.131, ONNX Swish; into the core: Mul and Sigmoid."""

    core = False
    defaults = {"alpha": 1.0}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(x * numeric.sigmoid(attributes["alpha"] * x))


class Softplus(Parametric):
    """log(1 + exp(beta * input)) / beta. Source: neutral-ops 3.125 (exact, so without threshold).

    Into the core: Relu, Exp and a polynomial.
    """

    core = False
    defaults = {"beta": 1.0}

    @classmethod
    def activate(cls, x: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(numeric.softplus(attributes["beta"] * x) / attributes["beta"])


class Mish(Unary):
    """input * tanh(softplus(input)). Source: neutral-ops 3.80; into the core: a quotient of polynomials in Exp."""

    core = False

    @staticmethod
    def function(x: Array) -> Array:
        return np.asarray(x * np.tanh(numeric.softplus(x)))


class Gated(Op, register=False):
    """The operand split along `dim` into halves a and b, a (or a function of it) times a function of b."""

    operands = (Operand("input", FLOATS),)
    defaults = {"dim": REQUIRED}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        dim = normalize_axis(node.attr("dim"), len(x.shape))
        size = x.shape[dim]
        if isinstance(size, int) and size % 2:
            raise ValueError(f"axis {dim} of {size} does not halve")
        return [same_type(x, (*x.shape[:dim], size // 2, *x.shape[dim + 1 :]))]

    @classmethod
    def gate(cls, a: Array, b: Array, attributes: Mapping[str, Any]) -> Array:
        """The result for the halves."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        first, second = np.split(numeric.widened(x), 2, attributes["dim"])
        return cls.gate(first, second, attributes).astype(x.dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return everywhere(node, permutation, dim=moved(node.attr("dim"), permutation))


class Glu(Gated):
    """a * sigmoid(b). Source: neutral-ops 3.60; into the core: Split, Sigmoid, Mul."""

    @classmethod
    def gate(cls, a: Array, b: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(a * numeric.sigmoid(b))


class GeGlu(Gated):
    """a * gelu(b). Source: neutral-ops 3.53; into the core: Split, Gelu, Mul."""

    defaults = {"dim": REQUIRED, "approximate": "none"}

    @classmethod
    def gate(cls, a: Array, b: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(a * numeric.gelu(b, attributes["approximate"]))


class Gtu(Gated):
    """tanh(a) * sigmoid(b). Source: neutral-ops 3.63; into the core: Split, Tanh, Sigmoid, Mul."""

    @classmethod
    def gate(cls, a: Array, b: Array, attributes: Mapping[str, Any]) -> Array:
        return np.asarray(np.tanh(a) * numeric.sigmoid(b))


class PRelu(Binary):
    """input where not negative, else slope * input; the slope broadcasts. Source: neutral-ops 3.90."""

    operands = (Operand("input", NUMERIC), Operand("slope", NUMERIC))

    @staticmethod
    def function(x: Array, slope: Array) -> Array:
        return np.asarray(np.where(x < 0, slope * x, x))


class Selu(Parametric):
    """gamma * input where positive, else gamma * alpha * (exp(input) - 1). Source: ONNX Selu-6 (added)."""

    core = False
    defaults = {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323}

    @classmethod
    def activate(cls, x: Array, attributes: Attributes) -> Array:
        return np.asarray(attributes["gamma"] * np.where(x > 0, x, attributes["alpha"] * np.expm1(np.minimum(x, 0))))


class Celu(Parametric):
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1)). Source: ONNX Celu-12 (added)."""

    core = False
    defaults = {"alpha": 1.0}

    @classmethod
    def activate(cls, x: Array, attributes: Attributes) -> Array:
        alpha = attributes["alpha"]
        return np.asarray(np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0))


class ThresholdedRelu(Parametric):
    """The input where it is over `alpha`, else 0. Source: ONNX ThresholdedRelu-10 (added)."""

    core = False
    defaults = {"alpha": 1.0}

    @classmethod
    def activate(cls, x: Array, attributes: Attributes) -> Array:
        return np.where(x > attributes["alpha"], x, np.zeros((), x.dtype))
