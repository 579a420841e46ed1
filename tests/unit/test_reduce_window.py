"""The ops of the family reduce_window: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import tensor


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 6, "w"))
    b = Builder(graph)
    window = b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1, 3))
    assert str(window.type) == "tensor<[n]x6x[w - 2]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1))
