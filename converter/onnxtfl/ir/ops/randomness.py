"""Random numbers. None of them has an `evaluate`: two runs differ, so nothing can be folded or compared."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, Effect, Op, Operand
from onnxtfl.ir.shapes import dims_from, known_dims
from onnxtfl.ir.types import DType, TensorType, Type


class RngNormal(Op):
    """Numbers of the normal distribution N(mu, sigma) in the shape given; no `evaluate`, since runs differ.

    `seed`: 0 for another sequence each time. Source: neutral-ops 3.102.
    """

    operands = (Operand("mu", FLOATS), Operand("sigma", FLOATS), Operand("shape", INDICES))
    defaults = {"seed": 0}
    core = True
    effect = Effect.RANDOM

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.operand(0).dtype, dims_from(node.operand(2)))]


class RngUniform(Op):
    """Numbers spread evenly over [a, b) in the shape given; no `evaluate`, since runs differ.

    `seed`: 0 for another sequence each time. Source: neutral-ops 3.103.
    """

    operands = (Operand("a", NUMERIC), Operand("b", NUMERIC), Operand("shape", INDICES))
    defaults = {"seed": 0}
    core = True
    effect = Effect.RANDOM

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.operand(0).dtype, dims_from(node.operand(2)))]


class Multinomial(Op):
    """For each row of unnormalized log-probabilities, `count` class numbers drawn; no `evaluate`, since runs differ.

    Source: ONNX Multinomial, TFLite MULTINOMIAL (added).
    """

    operands = (Operand("logits", FLOATS), Operand("count", INDICES))
    defaults = {"seed": 0, "dtype": DType.INT32}
    core = True
    effect = Effect.RANDOM

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        shape, count = node.operand(0).tensor_type.shape, known_dims(node.operand(1))
        if shape is None or count is None:
            return [TensorType(node.attr("dtype"), None)]
        if len(shape) != 2:
            raise ValueError(f"log-probabilities of rank {len(shape)}, not 2")
        return [TensorType(node.attr("dtype"), (shape[0], count[0]))]
