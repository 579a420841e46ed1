"""Sums of shifted features of one convolution are a convolution with more taps."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical import taps_as_features
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.fold import fold
from onnxtfl.passes.canonical.taps_as_features import TAPS_AS_FEATURES
from onnxtfl.passes.recognize.features_of_taps import FEATURES_OF_TAPS
from tests.passes.helpers import only_node, op_counts, random_inputs
from tests.passes.test_parted_convolutions import convolution


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are rewritten too."""
    monkeypatch.setattr(taps_as_features, "LEAST_PRODUCTS", 1)


def parts(kernel: str, padding: str, dilation: str = "1, 1") -> Graph:
    """A convolution to two features, with its taps as features."""
    graph = parse_graph(convolution(3, "8x7", kernel, padding, dilation=dilation))
    TAPS_AS_FEATURES.apply(graph)
    fold(graph)
    remove_dead(graph)
    assert op_counts(graph)["Add"] > 0
    return graph


def turn(graph: Graph) -> None:
    """Let the convolution write the features last, and transpose its result."""
    node = only_node(graph, "Conv")
    numbers = {"output_spatial_dimensions": (1, 2), "output_feature_dimension": 3}
    b = Builder(graph, node)
    (made,) = b.remade(node, *node.operands, **numbers)
    graph.replace(node, [b(ops.Transpose, made, permutation=(0, 3, 1, 2))])


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("kernel", "padding", "dilation"),
    [
        ("3x3", "[1, 1, 1, 1]", "1, 1"),
        ("3x3", "[0, 0, 0, 0]", "1, 1"),
        ("2x5", "[1, 3, 0, 1]", "1, 1"),
        ("3x3", "[2, 3, 2, 3]", "2, 3"),
        ("1x3", "[0, 1, 0, 1]", "1, 1"),
    ],
)
def test_one_convolution(kernel: str, padding: str, dilation: str, is_turned: bool) -> None:
    whole = parse_graph(convolution(3, "8x7", kernel, padding, dilation=dilation))
    graph, inputs = parts(kernel, padding, dilation), random_inputs(whole)
    if is_turned:
        turn(graph)
    FEATURES_OF_TAPS.apply(graph)
    fold(graph)
    remove_dead(graph)
    verify(graph, "after")
    assert op_counts(graph) == {"Conv": 1}
    kernels = [next(iter(each.nodes)).operand(1).numpy() for each in (graph, whole)]
    assert np.array_equal(*kernels)
    np.testing.assert_allclose(run(graph, inputs)[0], run(whole, inputs)[0], rtol=1e-5, atol=1e-5)


def test_a_column_on_the_other_side_stays() -> None:
    graph = parts("1x3", "[0, 1, 0, 1]")
    pad = next(node for node in graph.nodes if node.op is ops.Pad)
    pad.set_operand(1, constant(pad.operand(1).numpy()[:, ::-1].copy()))
    before = op_counts(graph)
    FEATURES_OF_TAPS.apply(graph)
    assert op_counts(graph) == before


@pytest.mark.parametrize("change", ["a bias at some positions", "another reader"])
def test_other_sums_stay(change: str) -> None:
    graph = parts("1x3", "[0, 1, 0, 1]")
    node = only_node(graph, "Conv")
    if change == "another reader":
        graph.outputs.append(node.result)
    else:
        node.set_operand(2, constant(np.ones(6, np.float32)))
    before = op_counts(graph)
    FEATURES_OF_TAPS.apply(graph)
    assert op_counts(graph) == before
