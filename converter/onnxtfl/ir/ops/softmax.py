"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import FLOATS, Op, Operand, Permutation, Permuted
from onnxtfl.ir.permutations import everywhere, moved
from onnxtfl.ir.shapes import normalize_axis


class _Normalizing(Op, register=False):
    operands = (Operand("input", FLOATS),)
    defaults = {"axis": -1}
    core = True
    widens = True

    @staticmethod
    def shape(x: Value, *, axis: int) -> Shape:
        normalize_axis(axis, x.rank)
        return x.shape

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        return everywhere(node, permutation, axis=moved(node.attr("axis"), permutation))


class Softmax(_Normalizing):
    """exp(input) over its sum along `axis`. Source: neutral-ops 3.124, ONNX Softmax-13."""

    @staticmethod
    def compute(x: Array, *, axis: int) -> Array:
        powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis, keepdims=True))


class LogSoftmax(_Normalizing):
    """The logarithm of Softmax. Source: neutral-ops 3.124 (`logarithmic`), ONNX LogSoftmax-13."""

    @staticmethod
    def compute(x: Array, *, axis: int) -> Array:
        shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))
