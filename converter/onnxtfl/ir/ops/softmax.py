"""Softmax and its logarithm along one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, Op, Operand, Permutation, Permuted
from onnxtfl.ir.permutations import everywhere, moved
from onnxtfl.ir.shapes import normalize_axis, same_type
from onnxtfl.ir.types import Type


class _Normalizing(Op, register=False):
    operands = (Operand("input", FLOATS),)
    defaults = {"axis": -1}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axis(node.attr("axis"), len(x.shape))
        return [same_type(x, x.shape)]

    @classmethod
    def normalize(cls, x: Array, axis: int) -> Array:
        """The result for `x`."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return numeric.computed(lambda wide: cls.normalize(wide, attributes["axis"]), x) if x.size else x

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        return everywhere(node, permutation, axis=moved(node.attr("axis"), permutation))


class Softmax(_Normalizing):
    """exp(input) over its sum along `axis`. Source: neutral-ops 3.124, ONNX Softmax-13."""

    @classmethod
    def normalize(cls, x: Array, axis: int) -> Array:
        powers = np.exp(x - x.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))


class LogSoftmax(_Normalizing):
    """The logarithm of Softmax. Source: neutral-ops 3.124 (`logarithmic`), ONNX LogSoftmax-13."""

    @classmethod
    def normalize(cls, x: Array, axis: int) -> Array:
        shifted = x - x.max(axis, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))
