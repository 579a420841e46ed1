"""The ops of the family shape: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import parse_dim
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import tensor


def test_shape_arithmetic_is_followed() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", "n", 8, "2*w"))
    sizes = b(ops.Shape, x)
    assert b(ops.Gather, sizes, np.asarray(1), axis=0).numpy() == 8
    batch = b(ops.Slice, sizes, [0], [1], [1])
    y = b(ops.Reshape, x, b(ops.Concatenate, batch, [-1], axis=0))
    assert y.shape == (parse_dim("n"), parse_dim("16*w"))
