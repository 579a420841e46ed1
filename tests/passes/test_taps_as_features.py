"""Convolutions to few features: their taps become features, which are shifted and added."""

from __future__ import annotations

from functools import partial

import pytest

from onnxtfl.passes.canonical import taps_as_features
from onnxtfl.passes.canonical.taps_as_features import TAPS_AS_FEATURES
from onnxtfl.passes.gains import Gains
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed
from tests.passes.test_parted_convolutions import convolution


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are rewritten too."""
    monkeypatch.setattr(taps_as_features, "LEAST_PRODUCTS", 1)


@pytest.mark.parametrize(
    ("kernel", "padding", "strides", "dilation", "found"),
    [
        ("3x3", "[1, 1, 1, 1]", "1, 1", "1, 1", (18, 3, 1, 1)),
        ("3x3", "[0, 0, 0, 0]", "1, 1", "1, 1", (18, 3, 1, 1)),
        ("2x5", "[1, 3, 0, 1]", "1, 1", "1, 1", (20, 3, 1, 1)),
        ("3x3", "[2, 3, 2, 3]", "1, 1", "2, 3", (18, 3, 1, 1)),
        ("3x3", "[9, 1, 9, 1]", "1, 1", "9, 1", (18, 3, 1, 1)),  # two taps read padding only
        ("3x3", "[1, 1, 1, 1]", "2, 1", "1, 1", (6, 3, 3, 1)),  # elements between the rows would be computed in vain
        ("3x3", "[1, 4, 1, 4]", "1, 1", "1, 1", (6, 3, 1, 3)),  # every tap reads padding along the columns
    ],
)
def test_taps_become_features(kernel: str, padding: str, strides: str, dilation: str, found: tuple[int, ...]) -> None:
    graph = transformed(convolution(3, "8x7", kernel, padding, strides, dilation), TAPS_AS_FEATURES.apply)
    assert [node.operand(1).shape for node in graph.nodes if node.op.name == "Conv"] == [found]


def test_a_batch_of_any_size() -> None:
    text = convolution(3, "8x7", "3x3", "[1, 1, 1, 1]").replace("<1x3x8x7x", "<[n]x3x8x7x")
    graph = transformed(text, TAPS_AS_FEATURES.apply)
    assert [node.operand(1).shape for node in graph.nodes if node.op.name == "Conv"] == [(18, 3, 1, 1)]


def test_strides_stay() -> None:
    text = convolution(3, "8x7", "3x3", "[1, 1, 1, 1]", "2, 2")
    assert op_counts(transformed(text, TAPS_AS_FEATURES.apply)) == {"Conv": 1}


@pytest.mark.parametrize(("results", "found"), [(1, 9), (4, 12), (12, 12), (17, 51), (32, 32)])
def test_where_blocks_take_less_time(results: int, found: int) -> None:
    pays = partial(Gains(TfliteTarget()).pays, surely=True)
    text = convolution(40, "32x32", "3x3", "[1, 1, 1, 1]", results=results)
    graph = transformed(text, partial(TAPS_AS_FEATURES.apply, pays=pays))
    assert [node.operand(1).shape[0] for node in graph.nodes if node.op.name == "Conv"] == [found]
