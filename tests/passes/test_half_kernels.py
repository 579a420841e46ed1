"""Kernels of convolutions that are stored as float16 are constants while convolutions are rewritten."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import DType, tensor
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical import growth
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.fold import fold
from onnxtfl.passes.canonical.growth import Growth
from onnxtfl.passes.canonical.half_kernels import narrow_kernels, widen_kernels
from onnxtfl.passes.canonical.row_pairs import compute_pairs_of_rows
from onnxtfl.passes.canonical.taps_as_features import TAPS_AS_FEATURES


def convolution(read: int, made: int, size: int, stored: DType = DType.FLOAT16) -> Graph:
    """A convolution of 3 x 3 taps whose kernel is `stored`."""
    random, graph = np.random.default_rng(0), Graph()
    b, x = Builder(graph), graph.add_input(tensor("float32", 1, read, size, size), "x")
    kernel = random.standard_normal((made, read, 3, 3)).astype(np.float16)
    wide = b(ops.Convert, kernel, dtype=DType.FLOAT32) if stored is DType.FLOAT16 else kernel.astype(np.float32)
    spatial = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    window = {"window_strides": (1, 1), "padding": (1, 1, 1, 1), "rhs_dilation": (1, 1), "feature_group_count": 1}
    graph.outputs = [b(ops.Conv, x, wide, **spatial, **window)]
    return graph


def kernels(graph: Graph) -> list[Node | None]:
    """The nodes that make the kernels of convolutions of one group; None for constants."""
    found = [n for n in graph.nodes if n.op is ops.Conv and n.attr("feature_group_count") == 1]
    return [node.operand(1).producer for node in found]


@pytest.mark.parametrize("stored", [DType.FLOAT16, DType.FLOAT32])
def test_moved_elements_stay_float16(stored: DType) -> None:
    graph = convolution(256, 3, 16, stored)
    x = [np.random.default_rng(1).standard_normal((1, 256, 16, 16)).astype(np.float32)]
    wanted = run(graph, x)[0]
    assert widen_kernels(graph) == (stored is DType.FLOAT16)
    TAPS_AS_FEATURES.apply(graph)
    narrow_kernels(graph)
    fold(graph)
    remove_dead(graph)
    verify(graph, "after")
    (made,) = kernels(graph)
    assert (made is not None and made.operand(0).shape == (27, 256, 1, 1)) == (stored is DType.FLOAT16)
    np.testing.assert_allclose(run(graph, x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_sums_of_taps_are_float32() -> None:
    graph = convolution(40, 40, 28)
    x = [np.random.default_rng(1).standard_normal((1, 40, 28, 28)).astype(np.float32)]
    wanted, shared = run(graph, x)[0], Growth()
    widen_kernels(graph)
    assert compute_pairs_of_rows(graph, shared)
    stored = 40 * 40 * 3 * 3 * 2
    left = growth.SMALL_GROWTH - (2 * stored * 4 // 3 - stored)
    fold(graph)
    narrow_kernels(graph)
    remove_dead(graph)
    verify(graph, "after")
    assert sorted(node is None for node in kernels(graph)) == [False, False, True, True]
    np.testing.assert_allclose(run(graph, x)[0], wanted, rtol=1e-4, atol=1e-3)
    assert not shared.take(graph, left + 1)
    assert shared.take(graph, left)


def test_other_graphs_stay() -> None:
    graph = convolution(64, 64, 4, DType.FLOAT32)  # its elements are float16 too
    assert not narrow_kernels(graph)
    assert kernels(graph) == [None]
