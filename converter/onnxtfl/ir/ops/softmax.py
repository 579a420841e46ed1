"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import half
from onnxtfl.ir.attributes import Axis
from onnxtfl.ir.data import Array
from onnxtfl.ir.intervals import FINITE, INF
from onnxtfl.ir.op import FLOATS, Op, Operand, SharedAxes


class _Normalizing(Op, register=False):
    operands = (Operand("input", FLOATS),)
    attributes = {"axis": Axis(-1)}
    core = True
    typed = True
    shared_axes = SharedAxes(attributes=("axis",))
    widens = True


class Softmax(_Normalizing):
    """exp(input) over its sum along `axis`. Source: neutral-ops 3.124, ONNX Softmax-13."""

    bounds = (0.0, 1.0)
    defined = FINITE

    @staticmethod
    def compute(x: Array, *, axis: int) -> Array:
        powers = half.stored(np.exp(_shifted(x, axis)))
        return np.asarray(powers / half.stored(half.total(powers, [axis], keepdims=True)))


class LogSoftmax(_Normalizing):
    """The logarithm of Softmax. Source: neutral-ops 3.124 (`logarithmic`), ONNX LogSoftmax-13."""

    bounds = (-INF, 0.0)
    defined = FINITE

    @staticmethod
    def compute(x: Array, *, axis: int) -> Array:
        shifted = _shifted(x, axis)
        sums = half.stored(half.total(half.stored(np.exp(shifted)), [axis], keepdims=True))
        return np.asarray(shifted - half.stored(np.log(sums)))


def _shifted(x: Array, axis: int) -> Array:
    """The differences from the maximum along `axis`."""
    return half.stored(x - x.max(axis, keepdims=True, initial=-np.inf))
