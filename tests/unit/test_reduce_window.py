"""The ops of the family reduce_window: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import tensor


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 6, "w"))
    b = Builder(graph)
    window = b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1, 3))
    assert str(window.type) == "tensor<[n]x6x[w - 2]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1))


def test_base_dilations_insert_the_initial_value() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 3, "n"))
    b = Builder(graph)
    graph.outputs = [b(ops.ReduceWindow, x, kind="sum", window_dimensions=(2, 2), base_dilations=(3, 2))]
    assert str(graph.outputs[0].type) == "tensor<6x[2*n - 2]xfloat32>"
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    dilated = np.zeros((7, 3), np.float32)
    dilated[::3, ::2] = array
    wanted = dilated[:-1, :-1] + dilated[:-1, 1:] + dilated[1:, :-1] + dilated[1:, 1:]
    np.testing.assert_array_equal(run(graph, [array])[0], wanted)
