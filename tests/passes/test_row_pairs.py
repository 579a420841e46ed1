"""Convolutions over three rows are computed for pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import tensor
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical import growth, row_pairs
from onnxtfl.passes.canonical.row_pairs import compute_pairs_of_rows
from tests.passes.helpers import op_counts


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are rewritten too."""
    monkeypatch.setattr(row_pairs, "LEAST_PRODUCTS", (1, 1))


def convolution(
    shape: tuple[int | str, ...] = (1, 64, 6, 5),
    kernel: tuple[int, ...] = (64, 64, 3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    groups: int = 1,
    others: int = 3_000_000,
) -> Graph:
    """A convolution with a bias, in a graph with `others` elements of other constants."""
    random, graph = np.random.default_rng(0), Graph()
    b, x = Builder(graph), graph.add_input(tensor("float32", *shape), "x")
    spatial = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    window = {"window_strides": strides, "padding": padding, "rhs_dilation": (1, 1), "feature_group_count": groups}
    weights = (random.standard_normal(size).astype(np.float32) for size in (kernel, kernel[:1]))
    y = b(ops.Conv, x, *weights, **{**spatial, **window})
    table = np.zeros((others // 2, 2), np.float32)
    graph.outputs = [y, b(ops.Gather, table, b(ops.ArgMax, x, axis=1), axis=0)]
    return graph


@pytest.mark.parametrize(
    ("shape", "strides", "padding", "axes"),
    [
        ((2, 64, 6, 4), (1, 1), (1, 1, 1, 1), 2),
        ((2, 64, 7, 6), (1, 1), (1, 1, 1, 1), 2),
        ((2, 64, 7, 5), (1, 1), (1, 1, 1, 1), 2),
        (("n", 64, 7, 4), (1, 1), (1, 1, 1, 1), 2),
        ((2, 64, 6, 2), (1, 1), (1, 1, 1, 1), 1),
        ((2, 64, 7, 2), (1, 1), (1, 1, 1, 1), 1),
        ((2, 64, 4, 7), (1, 2), (1, 0, 1, 2), 1),
        ((2, 64, 9, 4), (2, 1), (0, 1, 0, 1), 1),
        ((2, 64, 5, 3), (2, 1), (0, 1, 0, 1), 1),
    ],
)
def test_pairs_have_two_thirds_of_the_products(
    shape: tuple[int | str, ...], strides: tuple[int, int], padding: tuple[int, int, int, int], axes: int
) -> None:
    graph = convolution(shape, strides=strides, padding=padding)
    x = np.random.default_rng(1).standard_normal((2, *shape[1:])).astype(np.float32)
    wanted = run(graph, [x])
    assert compute_pairs_of_rows(graph)
    verify(graph, "after")
    got = run(graph, [x])
    assert np.abs(got[0] - wanted[0]).max() <= 1e-6 * np.abs(wanted[0]).max()
    dense = [n for n in graph.nodes if n.op is ops.Conv and n.attr("feature_group_count") == 1]
    assert len(dense) == 4**axes
    assert {np.prod(n.operand(1).shape[2:]) for n in dense} == {3 ** (2 - axes)}
    assert not compute_pairs_of_rows(graph)


def test_groups() -> None:
    graph = convolution((1, 128, 6, 3), groups=2)
    x = np.random.default_rng(1).standard_normal((1, 128, 6, 3)).astype(np.float32)
    wanted = run(graph, [x])[0]
    assert compute_pairs_of_rows(graph)
    verify(graph, "after")
    assert np.abs(run(graph, [x])[0] - wanted).max() <= 2e-6 * np.abs(wanted).max()
    groups = [n.attr("feature_group_count") for n in graph.nodes if n.op is ops.Conv]
    assert groups.count(2) == 4 and set(groups) == {2, 128}


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": (64, 64, 5, 5), "padding": (2, 2, 2, 2)},
        {"kernel": (8, 64, 3, 3)},
        {"kernel": (32, 32, 3, 3), "shape": (1, 32, 128, 128)},
        {"strides": (2, 2)},
        {"padding": (0, 0, 0, 0)},
        {"shape": (1, 64, 2, 2)},
        {"kernel": (64, 16, 3, 3), "groups": 4},
        {"others": 100, "kernel": (512, 64, 3, 3)},
    ],
    ids=[
        "five taps",
        "few features",
        "few features of a large image",
        "strides",
        "no padding",
        "one pair",
        "few features of a group",
        "constants grow too much",
    ],
)
def test_others_stay(changed: dict[str, object]) -> None:
    graph = convolution(**changed)  # type: ignore[arg-type]
    before = op_counts(graph)
    assert not compute_pairs_of_rows(graph)
    assert op_counts(graph) == before


def test_constants_grow_for_the_largest_images_first() -> None:
    random, graph = np.random.default_rng(0), Graph()
    b = Builder(graph)
    spatial = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    window = {"window_strides": (1, 1), "padding": (1, 1, 1, 1), "rhs_dilation": (1, 1), "feature_group_count": 1}
    for size in (8, 16):
        x = graph.add_input(tensor("float32", 1, 64, size, size), f"x{size}")
        kernel = random.standard_normal((64, 64, 3, 3)).astype(np.float32)
        graph.outputs.append(b(ops.Conv, x, kernel, **{**spatial, **window}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "SMALL_GROWTH", 4 * 64 * 64 * 3)
        assert compute_pairs_of_rows(graph)
    small, large = (output.producer for output in graph.outputs)
    assert small is not None and small.op is ops.Conv
    assert large is not None and large.op is ops.Reshape


@pytest.mark.parametrize(
    ("features", "size", "products"),
    [(24, 28, 4), (24, 112, 1), (32, 28, 4), (48, 28, 16), (48, 112, 4), (32, 6, 1), (48, 8, 4)],
)
def test_few_features(features: int, size: int, products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer features, and fewer products, save less time, and those of pairs less again."""
    monkeypatch.undo()
    graph = convolution((1, features, size, size), (features, features, 3, 3))
    assert compute_pairs_of_rows(graph) == (products > 1)
    dense = [n for n in graph.nodes if n.op is ops.Conv and n.attr("feature_group_count") == 1]
    assert len(dense) == products


def test_a_kernel_that_grows_too_much_leaves_the_others() -> None:
    graph = convolution((1, 64, 8, 8), (384, 64, 3, 3), others=3_000_000)  # 2 % are less than the kernel grows
    assert not compute_pairs_of_rows(graph)
    b, y = Builder(graph), graph.outputs[0]
    small = np.random.default_rng(2).standard_normal((16, 64, 1, 3)).astype(np.float32)
    spatial = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    window = {"window_strides": (1, 1), "padding": (0, 1, 0, 1), "rhs_dilation": (1, 1), "feature_group_count": 1}
    graph.outputs = [
        b(ops.Conv, b(ops.Add, y, y), np.tile(small, (2, 6, 1, 1)), **{**spatial, **window}),
        graph.outputs[1],
    ]
    assert compute_pairs_of_rows(graph)
