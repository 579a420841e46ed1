"""Masks and squares in the range of float16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.passes.types.masks import saturate_masks
from onnxtfl.passes.types.squares import scale_squares
from tests.passes.helpers import op_counts, transformed

_NORMALIZED = """graph main(%x: tensor<2x4xfloat32>) -> (%y) {
  %s = Mul(%x, %x)
  %a = constant tensor<1xint64> [1]
  %m = Reduce(%s, %a) {kind = "mean", keepdims = true}
  %r = Rsqrt(%m)
  %y = Mul(%x, %r)
}"""
_MASKED = """graph main(%x: tensor<2x4xfloat32>, %m: tensor<2x4xbool>) -> (%y) {
  %c = constant tensor<1x1xfloat32> [-1e+30]
  %s = Select(%m, %x, %c)
  %y = Softmax(%s) {axis = 1}
}"""


def _scaled(factor: float) -> dict[str, int]:
    def inputs(graph: Graph) -> Sequence[Mapping[Value, Array]]:
        return [{graph.inputs[0]: np.full((2, 4), factor, np.float32)}]

    def run(graph: Graph) -> None:
        scale_squares(graph, inputs)

    return op_counts(transformed(_NORMALIZED, run))


def test_large_and_small_elements_are_scaled_before_they_are_squared() -> None:
    assert _scaled(1) == {"Mul": 2, "Reduce": 1, "Rsqrt": 1}
    assert _scaled(1000) == _scaled(1e-4)
    assert _scaled(1000)["Abs"] == 1


def test_constants_of_masks_are_saturated() -> None:
    assert op_counts(transformed(_MASKED, saturate_masks))["Max"] == 1
