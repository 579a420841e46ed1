"""Groups of few features are merged, with zeros between them, and read as more groups."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import Assumption, assumption_scope
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import tensor
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical import growth
from onnxtfl.passes.canonical.growth import Growth
from onnxtfl.passes.canonical.merged_groups import merge_groups
from onnxtfl.passes.recognize.blocks_of_groups import BLOCKS_OF_GROUPS


def convolution(groups: int, read: int, made: int) -> Graph:
    """A convolution with a bias, 3 x 2 taps, of groups from `read` features to `made`, for images of any size."""
    random, graph = np.random.default_rng(0), Graph()
    x = graph.add_input(tensor("float32", 1, groups * read, "h", 5), "x")
    kernel, bias = (random.standard_normal(s).astype(np.float32) for s in ((groups * made, read, 3, 2), groups * made))
    spatial = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    window = {"window_strides": (1, 1), "padding": (1, 0, 1, 1), "rhs_dilation": (1, 1), "feature_group_count": groups}
    graph.outputs = [Builder(graph)(ops.Conv, x, kernel, bias, **spatial, **window)]
    return graph


def kernel_of(graph: Graph) -> tuple[int, tuple[int, ...]]:
    """The number of groups of the only convolution, and the features of its kernel."""
    (node,) = graph.nodes
    return node.attr("feature_group_count"), node.operand(1).shape[:2]


@pytest.mark.parametrize(
    ("groups", "read", "made", "found"),
    [
        (8, 4, 4, 4),
        (8, 2, 2, 2),
        (6, 2, 2, 2),  # 4 do not divide 6
        (8, 1, 2, 2),
        (8, 2, 1, 1),
        (3, 3, 2, 1),
        (8, 4, 8, 8),
        (8, 1, 1, 8),  # a depthwise convolution
        (8, 1, 3, 8),  # the GPU computes no groups from 2 features to 6
        (8, 32, 4, 8),  # takes as long
    ],
)
def test_merged_and_read_back(groups: int, read: int, made: int, found: int) -> None:
    graph, source = convolution(groups, read, made), convolution(groups, read, made)
    x = [np.random.default_rng(1).standard_normal((1, groups * read, 4, 5)).astype(np.float32)]
    assert merge_groups(graph) == (found < groups)
    verify(graph, "merged")
    assert kernel_of(graph) == (found, (groups * made, read * groups // found))
    np.testing.assert_allclose(run(graph, x)[0], run(source, x)[0], rtol=1e-5, atol=1e-5)
    BLOCKS_OF_GROUPS.apply(graph)
    verify(graph, "read back")
    assert kernel_of(graph) == kernel_of(source)
    assert np.array_equal(*(next(iter(g.nodes)).operand(1).numpy() for g in (graph, source)))


@pytest.mark.parametrize(("storage", "zero"), [("int8", 0), ("uint8", 100)])
def test_quantized_groups(storage: str, zero: int) -> None:
    graph = convolution(8, 4, 4)
    (node,) = graph.nodes
    scales = tuple(0.25 + i / 8 for i in range(32)) if storage == "int8" else (0.25,)
    of_kernel = Quantization(storage, scales, (zero,) * len(scales), 0 if storage == "int8" else None)
    stored = np.random.default_rng(2).integers(-100 + zero, 100 + zero, (32, 4, 3, 2)).astype(storage)
    kernel = constant(ArrayData(stored), type_=tensor("float32", *stored.shape).stored_as(of_kernel))
    node.set_operand(1, kernel)
    node.set_operand(2, None)
    for value, scale in ((graph.inputs[0], 0.5), (node.result, 40.0)):
        value.type = value.tensor_type.stored_as(Quantization(storage, (scale,), (7,)))
    x = [np.random.default_rng(1).integers(0, 100, (1, 32, 4, 5)).astype(storage)]
    wanted, found = run(graph, x)[0], list[Assumption]()
    with assumption_scope(found):
        assert merge_groups(graph)
    verify(graph, "merged")
    assert kernel_of(graph) == (4, (32, 8)) and not found
    assert np.array_equal(run(graph, x)[0], wanted)
    BLOCKS_OF_GROUPS.apply(graph)
    verify(graph, "read back")
    assert kernel_of(graph) == (8, (32, 4))
    assert np.array_equal(next(iter(graph.nodes)).operand(1).stored(), stored)


@pytest.mark.parametrize("change", ["another element", "an empty block"])
def test_other_kernels_stay(change: str) -> None:
    graph = convolution(4, 4, 4)
    merge_groups(graph)
    (node,) = graph.nodes
    kernel = node.operand(1).numpy().copy()
    kernel[0, :4] = 0
    if change == "another element":
        kernel[0, 7] = 1
    else:
        kernel[:4] = 0
    graph.replace(node, Builder(graph, node).remade(node, node.operand(0), kernel, node.operand(2)))
    BLOCKS_OF_GROUPS.apply(graph)
    assert kernel_of(graph) == (2, (16, 8))


def test_each_kernel_is_looked_at() -> None:
    graph = convolution(2, 8, 8)
    (other,) = graph.nodes
    merged = convolution(4, 4, 4)
    merge_groups(merged)
    (node,) = merged.nodes
    kernel = node.operand(1).numpy()
    graph.outputs += Builder(graph).remade(other, other.operand(0), kernel, other.operand(2))
    BLOCKS_OF_GROUPS.apply(graph)
    assert [n.attr("feature_group_count") for n in graph.nodes] == [2, 4]


def test_constants_grow_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SMALL_GROWTH", 4 * 32 * 4 * 6)
    shared, graphs = Growth(), [convolution(8, 4, 4) for _ in range(2)]
    assert [merge_groups(graph, shared) for graph in graphs] == [True, True]
    assert not shared.take(graphs[0], 1)
    monkeypatch.setattr(growth, "SMALL_GROWTH", 4 * 32 * 4 * 6 - 1)
    assert not merge_groups(convolution(8, 4, 4))


def test_elements_are_assumed_to_be_finite() -> None:
    found = list[Assumption]()
    with assumption_scope(found):
        merge_groups(convolution(8, 8, 8))
        assert not found
        merge_groups(convolution(8, 4, 4))
    assert [one.is_minor for one in found] == [True]
