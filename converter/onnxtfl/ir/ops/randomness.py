"""Random numbers: each evaluation draws others, so they are never folded or compared.

`seed`: 0 for another sequence each time. Each runtime draws other numbers from a seed; `evaluate` draws those of
NumPy's RandomState, like onnx.reference.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.attributes import ElementType, Integer
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, Effect, Op, Operand
from onnxtfl.ir.shapes import dims_from, known_dims
from onnxtfl.ir.types import DType


def _generator(seed: int) -> np.random.RandomState:
    """The generator of the bits of `seed`; for 0 another one each time."""
    return np.random.RandomState(seed & 0xFFFFFFFF if seed else None)


class _Distribution(Op, register=False):
    attributes = {"seed": Integer(None)}
    core = True
    widens = True
    effect = Effect.RANDOM

    @staticmethod
    def shape(a: Value, b: Value, shape: Value) -> Dims | None:
        return dims_from(shape)


class RngNormal(_Distribution):
    """Samples of the normal distribution N(mu, sigma) in the shape given.

    `seed`: None for another sequence each time. Source: neutral-ops 3.102.
    """

    operands = (Operand("mu", FLOATS), Operand("sigma", FLOATS), Operand("shape", INDICES))

    @staticmethod
    def compute(mu: Array, sigma: Array, shape: Array, *, seed: int) -> Array:
        return np.asarray(_generator(seed).standard_normal(shape.tolist()) * sigma + mu)


class RngUniform(_Distribution):
    """Samples of the uniform distribution on [a, b) in the shape given; integers are rounded down.

    `seed`: None for another sequence each time. Source: neutral-ops 3.103.
    """

    operands = (Operand("a", NUMERIC), Operand("b", NUMERIC), Operand("shape", INDICES))

    @staticmethod
    def compute(a: Array, b: Array, shape: Array, *, seed: int) -> Array:
        drawn = _generator(seed).random_sample(shape.tolist()) * (b - a) + a
        return np.asarray(np.floor(drawn) if a.dtype.kind in "iu" else drawn)


class Multinomial(Op):
    """For each row of unnormalized log-probabilities, `count` classes drawn with replacement.

    `seed`: 0 for another sequence each time. Source: ONNX Multinomial, TFLite MULTINOMIAL (added).
    """

    operands = (Operand("logits", FLOATS), Operand("count", INDICES))
    results = (Operand("output", like="dtype"),)
    attributes = {"seed": Integer(None), "dtype": ElementType(DType.INT32)}
    core = True
    widens = True
    effect = Effect.RANDOM

    @staticmethod
    def shape(logits: Value, count: Value) -> Dims | None:
        known = known_dims(count)
        if known is not None and logits.rank != 2:
            raise ValueError(f"log-probabilities of rank {logits.rank}, not 2")
        return None if known is None else (logits.shape[0], known[0])

    @staticmethod
    def compute(logits: Array, count: Array, *, seed: int) -> Array:
        weights = np.cumsum(np.exp(logits - logits.max(1, keepdims=True)), axis=1)
        drawn = _generator(seed).random_sample((len(logits), int(count.reshape(())))) * weights[:, -1:]
        return np.asarray((weights[:, None, :-1] <= drawn[..., None]).sum(-1))
