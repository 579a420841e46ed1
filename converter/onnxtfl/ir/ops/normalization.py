"""Normalization by given statistics (BatchNormInference) or computed ones (layer, instance, group, LRN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.derived import Derived
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import FLOATS, REQUIRED, Attributes, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops.arithmetic import Add, Div, Mul, Sub
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.elementwise import Sqrt
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.spatial import LARGEST_WINDOW, computing, renumbered, unless_identity
from onnxtfl.ir.types import TensorType, Type


class BatchNormInference(Op):
    """output = (input - mean) / sqrt(variance + epsilon) * scale + bias, each a vector along `feature_index`.

    The vectors may be of another float type than the input (ONNX BatchNormalization-15). Source: neutral-ops 3.14.
    """

    core = True
    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias", "mean", "variance"))
    defaults: ClassVar[Attributes] = {"epsilon": 1e-5, "feature_index": REQUIRED}

    @classmethod
    def infer(cls, node: Node) -> Sequence[TensorType]:
        x, axis = node.operand(0).tensor_type, node.attr("feature_index")
        if x.shape is not None and not 0 <= axis < len(x.shape):
            raise ValueError(f"feature axis {axis} of a tensor of rank {len(x.shape)}")
        for i in range(1, 5):
            vector = node.operand(i).tensor_type.shape
            if vector is not None and len(vector) != 1:
                raise ValueError(f"{cls.operands[i].name} of shape {vector}")
            if vector and x.shape and isinstance(vector[0], int) and isinstance(x.shape[axis], int):
                _same(vector[0], x.shape[axis], cls.operands[i].name)
        return [TensorType(x.dtype, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        given = [computing(v) for v in operands if v is not None]
        x = given[0]
        shape = [-1 if a == attributes["feature_index"] else 1 for a in range(x.ndim)]
        scale, bias, mean, variance = (v.reshape(shape) for v in given[1:])
        result = (x - mean) / np.sqrt(variance + np.asarray(attributes["epsilon"], variance.dtype)) * scale + bias
        assert operands[0] is not None
        return np.asarray(result, operands[0].dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        """The input and the result move together; the vectors have one axis."""
        if index > 0:
            return None
        moved = unless_identity(permutation)
        attributes = {"feature_index": renumbered(node.attr("feature_index"), permutation)}
        return Relabeled((moved, None, None, None, None), (moved,), attributes)


def _same(a: int, b: int, name: str) -> None:
    if a != b:
        raise ValueError(f"{name} of {a} for {b} features")


class LRN(Op):
    """x / (bias + alpha / size * sum of squares) ^ beta, the sum over `size` neighbours along `axis`.

    The window begins (size - 1) // 2 in front; what is outside counts as zeros. Source: ONNX LRN-13 (added).
    """

    core = True
    operands = (Operand("input", FLOATS),)
    defaults: ClassVar[Attributes] = {"axis": REQUIRED, "size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}

    @classmethod
    def infer(cls, node: Node) -> Sequence[TensorType]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axis(node.attr("axis"), len(x.shape))
        if not 1 <= node.attr("size") < LARGEST_WINDOW:
            raise ValueError(f"size {node.attr('size')}")
        return [x]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        assert operands[0] is not None
        x, size = np.moveaxis(computing(operands[0]), attributes["axis"], -1), attributes["size"]
        low = (size - 1) // 2
        square = np.pad(x * x, [(0, 0)] * (x.ndim - 1) + [(low, size - 1 - low)])
        total = np.lib.stride_tricks.sliding_window_view(square, size, axis=-1).sum(axis=-1)
        result = x / (attributes["bias"] + attributes["alpha"] / size * total) ** attributes["beta"]
        return np.asarray(np.moveaxis(result, -1, attributes["axis"]), operands[0].dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        """The axis is renumbered."""
        moved = unless_identity(permutation)
        return Relabeled((moved,), (moved,), {"axis": renumbered(node.attr("axis"), permutation)})


class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over the axes from `axis` on.

    Source: neutral-ops 3.71. Not core: recognised for targets that have it.
    """

    operands = (Operand("input", FLOATS), Operand("scale", FLOATS), Operand("bias", FLOATS, optional=True))
    defaults: ClassVar[Attributes] = {"axis": -1, "epsilon": 1e-5}

    @classmethod
    def infer(cls, node: Node) -> Sequence[TensorType]:
        return [node.operand(0).tensor_type]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, scale, bias = (*(v if v is None else computing(v) for v in operands), None)[:3]
        assert x is not None and scale is not None and operands[0] is not None
        axes = tuple(range(attributes["axis"] % x.ndim, x.ndim))
        apart = x - x.mean(axis=axes, keepdims=True)
        result = apart / np.sqrt((apart * apart).mean(axis=axes, keepdims=True) + attributes["epsilon"]) * scale
        return np.asarray(result if bias is None else result + bias, operands[0].dtype)


class InstanceNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over all axes but batch and features.

    `scale` and `bias` have an entry for each feature. Source: neutral-ops 3.68; ONNX InstanceNormalization-6.
    """

    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))
    defaults: ClassVar[Attributes] = {"epsilon": 1e-5, "batch_index": 0, "feature_index": 1}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [node.operand(0).tensor_type]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, scale, bias = (computing(v) for v in operands if v is not None)
        kept = (attributes["batch_index"], attributes["feature_index"])
        axes = tuple(a for a in range(x.ndim) if a not in kept)
        shape = [-1 if a == attributes["feature_index"] else 1 for a in range(x.ndim)]
        apart = x - x.mean(axis=axes, keepdims=True)
        deviation = np.sqrt((apart * apart).mean(axis=axes, keepdims=True) + attributes["epsilon"])
        result = apart / deviation * scale.reshape(shape) + bias.reshape(shape)
        assert operands[0] is not None
        return np.asarray(result, operands[0].dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        moved = unless_identity(permutation)
        changed = {n: renumbered(node.attr(n), permutation) for n in ("batch_index", "feature_index")}
        return Relabeled((moved, None, None), (moved,), changed)


class GroupNorm(Derived):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over each of `num_groups` groups of features.

    Axis 0 is the batch; scale and bias have an entry for each feature. Source: neutral-ops 3.62; ONNX
    GroupNormalization-21.
    """

    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))
    defaults: ClassVar[Attributes] = {"num_groups": REQUIRED, "epsilon": 1e-5, "feature_index": 1}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, groups = node.operand(0), node.attr("num_groups")
        axis = normalize_axis(node.attr("feature_index"), x.rank)
        features = x.shape[axis]
        if not isinstance(features, int) or features % groups:
            raise ValueError(f"{features} features in {groups} groups")
        sizes = b(Shape, x)
        before, behind = _part(b, sizes, 0, axis), _part(b, sizes, axis + 1, END)
        grouped = b(Concatenate, before, [groups, features // groups], behind, axis=0)
        apart = b(Reshape, x, grouped)
        others = [a for a in range(1, x.rank + 1) if a != axis]
        apart = b(Sub, apart, b(Reduce, apart, others, kind="mean", keepdims=True))
        variance = b(Reduce, b(Mul, apart, apart), others, kind="mean", keepdims=True)
        deviation = b(Sqrt, b(Add, variance, b.scalar(node.attr("epsilon"), x)))
        result = b(Reshape, b(Div, apart, deviation), sizes)
        along = [1] * axis + [features] + [1] * (x.rank - axis - 1)
        scale, bias = (b(Reshape, node.operand(i), along) for i in (1, 2))
        return [b(Add, b(Mul, result, scale), bias)]


def _part(b: Builder, vector: Value, start: int, limit: int) -> Value:
    return b(Slice, vector, [start], [limit], [1])
