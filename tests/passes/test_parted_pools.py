"""Maxima of large windows are computed one axis after the other, where that takes fewer steps of the kernel."""

from __future__ import annotations

import pytest

from onnxtfl.passes.canonical import parted_pools
from onnxtfl.passes.canonical.parted_pools import PARTED_POOLS
from onnxtfl.passes.recognize.delegate_forms import DELEGATE_FORMS
from tests.passes.helpers import transformed


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pools are rewritten too."""
    monkeypatch.setattr(parted_pools, "LEAST_STEPS", 1)


def pool(window: str, strides: str, padding: str, dilations: str = "1, 1", x: str = "2x9x11x3") -> str:
    return (
        f"graph main(%x: tensor<{x}xfloat32>) -> (%y) {{\n"
        f" %y = MaxPool(%x) {{dims = [1, 2], kernel_shape = [{window}], strides = [{strides}], "
        f"dilations = [{dilations}], padding = {padding}}}\n}}"
    )


@pytest.mark.parametrize(
    ("window", "strides", "padding", "dilations", "found"),
    [
        ("5, 5", "1, 1", "[2, 2, 2, 2]", "1, 1", [[5], [5]]),
        ("5, 5", "1, 1", "[0, 1, 4, 2]", "1, 2", [[5], [5]]),
        ("7, 7", "1, 2", "[3, 3, 3, 3]", "1, 1", [[7], [7]]),
        ("7, 7", "2, 1", "[3, 3, 3, 3]", "1, 1", [[7], [7]]),
        ("7, 7", "2, 2", '"SAME"', "1, 1", [[7], [7]]),
        ("3, 3", "1, 1", "[1, 1, 1, 1]", "1, 1", [[3, 3]]),
        ("5, 5", "2, 2", "[2, 2, 2, 2]", "1, 1", [[5, 5]]),
        ("1, 9", "1, 1", "[0, 4, 0, 4]", "1, 1", [[1, 9]]),
        ("8, 8", "1, 1", "[0, 0, 0, 0]", "1, 1", [[8], [8]]),
    ],
)
def test_windows_that_pay(window: str, strides: str, padding: str, dilations: str, found: list[list[int]]) -> None:
    graph = transformed(pool(window, strides, padding, dilations), PARTED_POOLS.apply)
    assert [list(node.attr("kernel_shape")) for node in graph.nodes] == found


def test_the_axis_that_leaves_fewer_elements_is_first() -> None:
    graph = transformed(pool("7, 7", "1, 3", "[3, 3, 3, 3]"), PARTED_POOLS.apply)
    assert [node.attr("dims") for node in graph.nodes] == [(2,), (1,)]


@pytest.mark.parametrize("x", ["[N]x9x11x3", "2x[H]x[W]x3"])
def test_open_sizes(x: str) -> None:
    graph = transformed(pool("5, 5", "1, 1", '"SAME"', x=x), PARTED_POOLS.apply)
    assert [list(node.attr("kernel_shape")) for node in graph.nodes] == [[5], [5]]


def test_empty_pools_stay() -> None:
    assert transformed(pool("5, 5", "1, 1", "[2, 0, 2, 0]", x="2x9x4x3"), PARTED_POOLS.apply).size == 1


def test_small_pools_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted_pools, "LEAST_STEPS", 1 << 14)
    assert transformed(pool("5, 5", "1, 1", "[2, 2, 2, 2]"), PARTED_POOLS.apply).size == 1


@pytest.mark.parametrize(
    ("inner", "outer", "found"),
    [
        ("5, 1", "1, 3", ["[5, 3]"]),
        ("1, 3", "5, 1", ["[5, 3]"]),
        ("5, 1", "3, 1", ["[5, 1]", "[3, 1]"]),
        ("2, 2", "1, 3", ["[2, 2]", "[1, 3]"]),
    ],
)
def test_pools_over_one_axis_each_are_read_as_one(inner: str, outer: str, found: list[str]) -> None:
    rest = "dims = [1, 2], strides = [1, 1], dilations = [1, 1], padding = [0, 0, 0, 0]"
    text = (
        "graph main(%x: tensor<2x9x11x3xfloat32>) -> (%y) {\n"
        f" %t = MaxPool(%x) {{kernel_shape = [{inner}], {rest}}}\n"
        f" %y = MaxPool(%t) {{kernel_shape = [{outer}], {rest}}}\n}}"
    )
    graph = transformed(text, DELEGATE_FORMS.apply)
    assert [str(list(node.attr("kernel_shape"))) for node in graph.nodes] == found
