"""Random numbers. None of them has a `compute`: two runs differ, so nothing can be folded or compared."""

from __future__ import annotations

from onnxtfl.ir.attributes import ElementType, Integer
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, Effect, Op, Operand
from onnxtfl.ir.shapes import dims_from, known_dims
from onnxtfl.ir.types import DType


class _Distribution(Op, register=False):
    attributes = {"seed": Integer(None)}
    core = True
    effect = Effect.RANDOM

    @staticmethod
    def shape(a: Value, b: Value, shape: Value) -> Dims | None:
        return dims_from(shape)


class RngNormal(_Distribution):
    """Samples of the normal distribution N(mu, sigma) in the shape given; no `compute`, since runs differ.

    `seed`: None for another sequence each time. Source: neutral-ops 3.102.
    """

    operands = (Operand("mu", FLOATS), Operand("sigma", FLOATS), Operand("shape", INDICES))


class RngUniform(_Distribution):
    """Samples of the uniform distribution on [a, b) in the shape given; no `compute`, since runs differ.

    `seed`: None for another sequence each time. Source: neutral-ops 3.103.
    """

    operands = (Operand("a", NUMERIC), Operand("b", NUMERIC), Operand("shape", INDICES))


class Multinomial(Op):
    """For each row of unnormalized log-probabilities, `count` classes drawn; no `compute`, since runs differ.

    Source: ONNX Multinomial, TFLite MULTINOMIAL (added).
    """

    operands = (Operand("logits", FLOATS), Operand("count", INDICES))
    results = (Operand("output", like="dtype"),)
    attributes = {"seed": Integer(None), "dtype": ElementType(DType.INT32)}
    core = True
    effect = Effect.RANDOM

    @staticmethod
    def shape(logits: Value, count: Value) -> Dims | None:
        known = known_dims(count)
        if known is not None and logits.rank != 2:
            raise ValueError(f"log-probabilities of rank {logits.rank}, not 2")
        return None if known is None else (logits.shape[0], known[0])
