"""Weights that int8 cannot store with zero point 0, as sums: the input features that they multiply are repeated.

::

    %y = Conv(%x, %w: uint8 0.5:120)                       -120 to 135 with zero point 0
      ->
    %y = Conv(Concatenate(%x, %x[3]), %v: int8 0.5:0)      the weight 135 of feature 3 as 127, and 8 of its repetition

This is exact. A quantizer that takes zero points from the range of the weights leaves one or two of them outside int8,
at one end. XNNPACK's kernels for int8 take a third of the time of those for uint8, which have a zero point (x86, one
thread: a ResNet-18 of 32 to 256 features 3.0 instead of 9.7 ms; without AVX-512, 4.9 instead of 13.4 ms).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.passes.quantize.weights import LARGEST, with_zeros, zero_points_along

MOST_GROWTH = Fraction(1, 16)
"""The most by which the weights of a graph grow if other kernels can compute with them."""
_LOWEST, _HIGHEST = -128, 127


@dataclass(frozen=True)
class WideWeights:
    """Weights in int8 with zero point 0, of all input features and again of `repeated`.

    `axes`: those of the features, of the first operand and of the weights.
    """

    node: Node
    weights: Value
    repeated: tuple[int, ...]
    axes: tuple[int, int]

    @property
    def growth(self) -> int:
        """The number of elements that are added."""
        others = (int(size) for i, size in enumerate(self.weights.shape) if i != self.axes[1])
        return len(self.repeated) * math.prod(others)

    def apply(self, graph: Graph) -> None:
        """Let the node read the repeated features."""
        b = Builder(graph, self.node, cause=self.node, maker="int8 storage")
        x, axis = self.node.operand(0), self.axes[0]
        again = [slice_axes(b, x, {axis: slice(first, last)}) for first, last in _runs(self.repeated)]
        self.node.set_operand(0, b(ops.Concatenate, x, *again, axis=axis))
        self.node.set_operand(1, self.weights)


def wide_weights(node: Node, weights: Value) -> WideWeights | None:
    """The weights of a convolution or a product as sums of int8; None if it does not add up all input features."""
    axes = _feature_axes(node)
    data, quantization = weights.data, weights.tensor_type.quantization
    is_small = data is not None and data.nbytes <= LARGEST and quantization is not None and quantization.block is None
    if not is_small or axes is None or not node.operand(0).is_quantized:
        return None
    assert data is not None and quantization is not None
    axis = axes[1]
    rest = data.numpy().astype(np.int16) - zero_points_along(quantization, len(data.shape))
    parts, repeated, features = list[Array](), list[int](), np.arange(rest.shape[axis])
    while features.size:
        parts.append(np.clip(rest, _LOWEST, _HIGHEST))
        rest = rest - parts[-1]
        used = np.flatnonzero(rest.any(axis=tuple(i for i in range(rest.ndim) if i != axis)))
        rest, features = rest.take(used, axis), features[used]
        repeated += features.tolist()
    stored = ArrayData(np.concatenate(parts, axis).astype(np.int8))
    type_ = weights.tensor_type.with_shape(stored.shape).stored_as(with_zeros(quantization))
    return WideWeights(node, constant(stored, type_=type_), tuple(repeated), axes)


def _feature_axes(node: Node) -> tuple[int, int] | None:
    """The axes of the features that are added up; None if there are several, or groups."""
    if issubclass(node.op, ops.Convolution):
        is_whole = node.attr("feature_group_count") == 1
        return (node.attr("input_feature_dimension"), node.attr("kernel_input_feature_dimension")) if is_whole else None
    roles = ops.DotRoles.of(node)
    return (roles.lhs_contract[0], roles.rhs_contract[0]) if len(roles.lhs_contract) == 1 else None


def _runs(features: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The ranges of consecutive features."""
    first = 0
    for i in range(1, len(features) + 1):
        if i == len(features) or features[i] != features[i - 1] + 1:
            yield features[first], features[i - 1] + 1
            first = i
