"""The ops of the family padding: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad_crops_first(mode: str) -> None:
    x = np.arange(12).reshape(3, 4)
    padded = ops.Pad.evaluate({"mode": mode}, x, np.asarray([[0, 0], [-1, 2]]), None)
    keyword = {} if mode != "constant" else {"constant_values": 0}
    assert (padded == np.pad(x[:, 1:], [(0, 0), (0, 2)], mode, **keyword)).all()  # type: ignore[call-overload]


def test_padding_of_a_scalar() -> None:
    none = np.zeros((0, 2), np.int32)
    assert_same_as_litert(lambda g: g.op("PADV2", [g.given(2, "int32"), g.constant(none), g.constant(1, "int32")]))
    assert_same_as_litert(lambda g: g.op("MIRROR_PAD", [g.given(2.0), g.constant(none)]))


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (3, -4), (-1, -1)])
def test_stablehlo_pad_cuts_off_more_than_there_is(low: int, high: int) -> None:
    options = {"edge_padding_low": [low, 1], "edge_padding_high": [high, 0], "interior_padding": [0, 1]}
    assert_same_as_litert(
        lambda g: g.op("STABLEHLO_PAD", [g.given([[1.0, 2.0]]), g.constant(5.0, "float32")], **options)
    )


def test_an_empty_result_whose_sizes_are_an_operand() -> None:
    """Dilations known only at run time are in the shape that the empty result is written with."""

    def build(g: TfliteGraph) -> Any:
        x = g.constant(np.zeros([2, 3, 4, 0]), "int64")
        return g.op("DILATE", [x, g.given([3, 2, 3, 1], "int32"), g.constant(3, "int64")])

    assert_same_as_litert(build)
