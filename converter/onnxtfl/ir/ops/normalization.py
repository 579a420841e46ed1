"""Normalization by given statistics (BatchNormInference) or computed ones (layer, instance, group, LRN)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, REQUIRED, Attributes, Operand, Permutation, Permuted
from onnxtfl.ir.ops.pooling import AveragePool
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.spatial import LARGEST_WINDOW, renumbered, unless_identity
from onnxtfl.ir.types import TensorType, Type


def standardized(x: Term, axes: Iterable[int], epsilon: float) -> tuple[Term, Term, Term]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and 1 / sqrt(variance + epsilon)."""
    axes = list(axes)
    mean = x.mean(axes)
    difference = x - mean
    inverse = ((difference * difference).mean(axes) + epsilon).rsqrt()
    return difference * inverse, mean, inverse


class BatchNormInference(Formula):
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
    def formula(
        cls, x: Term, scale: Term, bias: Term, mean: Term, variance: Term, epsilon: float, feature_index: int
    ) -> Term:
        """x * a + c, where a and c are constant if all vectors are."""
        factor = scale.to(variance.dtype) / (variance + epsilon).sqrt()
        offset = bias.to(variance.dtype) - mean.to(variance.dtype) * factor
        along = (v.to(x.dtype).along(feature_index, x.rank) for v in (factor, offset))
        return x * next(along) + next(along)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """The input and the result move together; the vectors have one axis."""
        if index > 0:
            return None
        moved = unless_identity(permutation)
        attributes = {"feature_index": renumbered(node.attr("feature_index"), permutation)}
        return Permuted((moved, None, None, None, None), (moved,), attributes)


def _same(a: int, b: int, name: str) -> None:
    if a != b:
        raise ValueError(f"{name} of {a} for {b} features")


class LRN(Formula):
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
    def formula(cls, x: Term, axis: int, size: int, alpha: float, beta: float, bias: float) -> Term:
        window = {"kernel_shape": (size,), "strides": (1,), "padding": ((size - 1) // 2, size // 2), "dilations": (1,)}
        mean = (x * x).apply(AveragePool, dims=(axis % x.rank,), **window, count_include_pad=True)
        return x * (mean * alpha + bias).power(-beta)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """The axis is renumbered."""
        moved = unless_identity(permutation)
        return Permuted((moved,), (moved,), {"axis": renumbered(node.attr("axis"), permutation)})


class LayerNorm(Formula):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over the axes from `axis` on.

    Source: neutral-ops 3.71.
    """

    operands = (Operand("input", FLOATS), Operand("scale", FLOATS), Operand("bias", FLOATS, optional=True))
    defaults: ClassVar[Attributes] = {"axis": -1, "epsilon": 1e-5}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [node.operand(0).tensor_type]

    @classmethod
    def formula(cls, x: Term, scale: Term, bias: Term | None, axis: int, epsilon: float) -> Term:
        result = standardized(x, range(normalize_axis(axis, x.rank), x.rank), epsilon)[0] * scale
        return result if bias is None else result + bias


class InstanceNorm(Formula):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over all axes but batch and features.

    `scale` and `bias` have an entry for each feature. Source: neutral-ops 3.68; ONNX InstanceNormalization-6.
    """

    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))
    defaults: ClassVar[Attributes] = {"epsilon": 1e-5, "batch_index": 0, "feature_index": 1}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [node.operand(0).tensor_type]

    @classmethod
    def formula(cls, x: Term, scale: Term, bias: Term, epsilon: float, batch_index: int, feature_index: int) -> Term:
        axes = (a for a in range(x.rank) if a not in (batch_index, feature_index))
        factor, offset = (v.along(feature_index, x.rank) for v in (scale, bias))
        return standardized(x, axes, epsilon)[0] * factor + offset

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        if index > 0:
            return None
        moved = unless_identity(permutation)
        changed = {n: renumbered(node.attr(n), permutation) for n in ("batch_index", "feature_index")}
        return Permuted((moved, None, None), (moved,), changed)


class GroupNorm(Formula):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over each of `num_groups` groups of features.

    Axis 0 is the batch; scale and bias have an entry for each feature. Source: neutral-ops 3.62; ONNX
    GroupNormalization-21.
    """

    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))
    defaults: ClassVar[Attributes] = {"num_groups": REQUIRED, "epsilon": 1e-5, "feature_index": 1}

    @classmethod
    def formula(cls, x: Term, scale: Term, bias: Term, num_groups: int, epsilon: float, feature_index: int) -> Term:
        shape, axis = x.value.shape, normalize_axis(feature_index, x.rank)
        features = shape[axis]
        if not isinstance(features, int) or features % num_groups:
            raise ValueError(f"{features} features in {num_groups} groups")
        parts = (*shape[:axis], num_groups, features // num_groups, product(shape[axis + 1 :]))
        grouped = Term(x.b, reshape(x.b, x.value, parts))
        result, *_ = standardized(grouped, (a for a in range(1, len(parts)) if a != axis), epsilon)
        factor, offset = (v.along(axis, x.rank) for v in (scale, bias))
        return Term(x.b, reshape(x.b, result.value, shape, x.value)) * factor + offset
