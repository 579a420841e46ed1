"""Ops that one format has, and that are several ops of the core.

Those of ONNX are recognised on the way there; those of TFLite are lifted, for what they are part of to be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh, product
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops import numeric
from onnxtfl.ir.ops.activations import Parametric
from onnxtfl.ir.ops.contraction import DotGeneral
from onnxtfl.ir.ops.reductions import Reduce, reduced_shape
from onnxtfl.ir.ops.spatial import computing, renumbered, unless_identity
from onnxtfl.ir.shapes import known_dims, normalize_axes, same_type
from onnxtfl.ir.types import TensorType, Type

__all__ = [
    "BatchToSpace",
    "Celu",
    "Contraction",
    "Diagonal",
    "FunctionReduce",
    "InstanceNorm",
    "Selu",
    "SpaceToBatch",
    "ThresholdedRelu",
]

Attributes = Mapping[str, Any]


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


class FunctionReduce(Op):
    """The sum along `axes` of a function of each number, and a function of that.

    `kind`: l1 (sizes), l2 (root of the sum of squares), sum_square, log_sum (logarithm of the sum), log_sum_exp.
    Axes and `keepdims` as in Reduce. Source: ONNX ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum, ReduceLogSumExp
    (added).
    """

    operands = (Operand("input", NUMERIC), Operand("axes", INDICES, optional=True))
    defaults: ClassVar[Attributes] = {"kind": REQUIRED, "keepdims": False}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x: TensorType = node.operand(0).tensor_type
        if node.attr("kind") not in ("l1", "l2", "sum_square", "log_sum", "log_sum_exp"):
            raise ValueError(f"no reduction is called {node.attr('kind')!r}")
        return [same_type(x, reduced_shape(x.shape, node.optional(1), node.attr("keepdims")))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, axes = (*operands, None)[:2]
        assert x is not None
        along = tuple(range(x.ndim)) if axes is None else normalize_axes([int(a) for a in axes.reshape(-1)], x.ndim)
        return numeric.computed(lambda wide: _reduced(wide, along, attributes["kind"], attributes["keepdims"]), x)

    relabel = Reduce.relabel


def _reduced(x: Array, along: tuple[int, ...], kind: str, keepdims: bool) -> Array:
    if kind in ("l2", "sum_square"):
        total = np.sum(x * x, along, keepdims=keepdims)
        return np.asarray(np.sqrt(total) if kind == "l2" else total)
    if kind == "l1":
        return np.asarray(np.sum(np.abs(x), along, keepdims=keepdims))
    if kind == "log_sum_exp":
        top = np.max(x, along, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        shift = top if keepdims else np.squeeze(top, along)
        return np.asarray(np.log(np.sum(np.exp(x - top), along, keepdims=keepdims)) + shift)
    return np.asarray(np.log(np.sum(x, along, keepdims=keepdims)))


class Contraction(DotGeneral):
    """A DotGeneral that is written as one Einsum, over more axes than a matmul has. Source: ONNX Einsum-12 (added)."""

    core = False

    @classmethod
    def offers(cls, node: Node) -> Iterator[Relabeled]:
        """None: an Einsum takes its operands, and gives its result, in any order."""
        return iter(())


class Diagonal(Op):
    """The diagonals of the square matrices that the last two axes hold. Source: XLA, matrix diagonal part (added)."""

    operands = (Operand("input"),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        return [same_type(x, None if x.shape is None else x.shape[:-1])]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.ascontiguousarray(np.diagonal(operands[0], axis1=-2, axis2=-1))


class _BlocksInBatch(Op, register=False):
    """What moves blocks of the axes behind the batch into the batch, or out of it; `blocks`: sizes, axis by axis."""

    operands = (Operand("input"), Operand("amounts", INDICES))
    defaults: ClassVar[Attributes] = {"blocks": REQUIRED}

    @classmethod
    def amounts(cls, node: Node) -> list[tuple[Dim, Dim]]:
        """What is added or cut at both ends of each axis; fresh symbols where that is not known."""
        known = known_dims(node.operand(1))
        count = 2 * len(node.attr("blocks"))
        dims = known if known is not None and len(known) == count else [fresh() for _ in range(count)]
        return list(zip(dims[::2], dims[1::2], strict=True))


class SpaceToBatch(_BlocksInBatch):
    """The axes behind the batch padded with zeros, then each cut into blocks, whose places go in front of the batch.

    Source: TFLite SPACE_TO_BATCH_ND (added); into the core: Pad, Reshape, Transpose.
    """

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, blocks = node.operand(0).tensor_type, node.attr("blocks")
        if x.shape is None:
            return [same_type(x, None)]
        sizes = list(x.shape)
        for i, (block, (before, after)) in enumerate(zip(blocks, cls.amounts(node), strict=True), 1):
            total = sizes[i] + before + after
            if isinstance(total, int) and total % block:
                raise ValueError(f"{total} does not divide into blocks of {block}")
            sizes[i] = total // block
        return [same_type(x, (sizes[0] * product(blocks), *sizes[1:]))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, amounts = operands
        assert x is not None and amounts is not None
        blocks, n = attributes["blocks"], len(attributes["blocks"])
        rows = [(0, 0), *((int(a), int(z)) for a, z in amounts.reshape(-1, 2)), *[(0, 0)] * (x.ndim - 1 - n)]
        padded = np.pad(x, rows)
        split = [padded.shape[0]]
        for size, block in zip(padded.shape[1 : n + 1], blocks, strict=True):
            split += [size // block, block]
        order = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n, 2), *range(2 * n + 1, x.ndim + n)]
        moved = padded.reshape(*split, *padded.shape[n + 1 :]).transpose(order)
        return moved.reshape(-1, *moved.shape[n + 1 :])


class BatchToSpace(_BlocksInBatch):
    """What SpaceToBatch does, undone; then the ends of the axes are cut off.

    Source: TFLite BATCH_TO_SPACE_ND (added); into the core: Reshape, Transpose, Slice.
    """

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, blocks = node.operand(0).tensor_type, node.attr("blocks")
        if x.shape is None:
            return [same_type(x, None)]
        sizes = list(x.shape)
        for i, (block, (before, after)) in enumerate(zip(blocks, cls.amounts(node), strict=True), 1):
            sizes[i] = sizes[i] * block - before - after
        return [same_type(x, (sizes[0] // product(blocks), *sizes[1:]))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, crops = operands
        assert x is not None and crops is not None
        blocks, n = attributes["blocks"], len(attributes["blocks"])
        split = x.reshape(*blocks, -1, *x.shape[1:])
        order = [n, *(axis for i in range(n) for axis in (n + 1 + i, i)), *range(2 * n + 1, x.ndim + n)]
        sizes = [size * block for size, block in zip(x.shape[1 : n + 1], blocks, strict=True)]
        whole = split.transpose(order).reshape(-1, *sizes, *x.shape[n + 1 :])
        ends = zip(crops.reshape(-1, 2).tolist(), sizes, strict=True)
        return whole[(slice(None), *(slice(int(a), size - int(z)) for (a, z), size in ends))]
