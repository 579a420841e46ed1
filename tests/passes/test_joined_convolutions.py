"""Convolutions of one operand to few features are one convolution."""

from __future__ import annotations

from functools import partial

import pytest

from onnxtfl.passes.canonical.joined_convolutions import join_convolutions
from onnxtfl.passes.gains import Gains
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts, transformed

STEP = partial(join_convolutions, pays=partial(Gains(TfliteTarget()).pays, surely=True))


def heads(*features: int, size: str = "16x16", second: str = CONV2D, operands: int = 64) -> str:
    """The text of convolutions of one operand, to so many features; the second one has no bias."""
    lines = []
    for i, count in enumerate(features):
        numbers = [((7 * k) % 13 - 6) / 8 for k in range(count * operands)]
        lines.append(f" %k{i} = constant tensor<{count}x{operands}x1x1xfloat32> {numbers}")
        lines.append(f" %b{i} = constant tensor<{count}xfloat32> {numbers[:count]}" if i != 1 else "")
        lines.append(f" %y{i} = Conv(%x, %k{i}{f', %b{i}' if i != 1 else ''}) {{{second if i == 1 else CONV2D}}}")
    outputs = ", ".join(f"%y{i}" for i in range(len(features)))
    return f"graph main(%x: tensor<2x{operands}x{size}xfloat32>) -> ({outputs}) {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize(
    ("features", "left"), [((4, 8), 1), ((5, 2, 2), 1), ((24, 8), 1), ((24, 24), 1), ((8, 4, 20), 1)]
)
def test_few_features(features: tuple[int, ...], left: int) -> None:
    counts = op_counts(transformed(heads(*features), STEP))
    assert counts["Conv"] == left
    assert counts["Slice"] == len(features) - left + 1


@pytest.mark.parametrize("features", [(32, 32), (24, 12), (16, 48)])
def test_where_the_blocks_take_as_long(features: tuple[int, ...]) -> None:
    assert op_counts(transformed(heads(*features), STEP)) == {"Conv": len(features)}


def test_others_stay() -> None:
    strided = CONV2D.replace("window_strides = [1, 1]", "window_strides = [2, 2]")
    for text in (heads(4, 8, second=strided), heads(4, 8, size="2x2", operands=8), heads(24, 8, operands=8)):
        assert op_counts(transformed(text, STEP)) == {"Conv": 2}
