"""The ops of the family padding: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.ir import ops
from tests.harness.litert import run_onnx, run_tflite
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


@pytest.mark.parametrize("sizes", [(1, 1), (1, 4), (5, 6)])
def test_computed_padding_that_crops_more_than_there_is(sizes: tuple[int, int], tmp_path: Path) -> None:
    """Of an empty slice: what one side crops is less padding at the other side. The sizes are halves and remainders."""
    model = parser.parse_model("""
    <ir_version: 9, opset_import: ["": 18]>
    halves (float[1,2,h,w] x) => (float[a,b,c,d] y) <int64[1] two={2}, int64[2] zeros={0,0}, int64[2] axes={2,3}> {
        sizes = Shape<start=2, end=4>(x)
        remainder = Mod(sizes, two)
        less = Neg(remainder)
        half = Div(sizes, two)
        pads = Concat<axis=0>(zeros, less, zeros, half)
        cut = Slice(x, less, remainder, axes)
        y = Pad(cut, pads)
    }""")
    x = np.random.default_rng(0).standard_normal((1, 2, *sizes)).astype(np.float32)
    onnxtfl.onnx_to_tflite(model, tmp_path / "y.tflite", check=False)
    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    ((_, found),) = run_tflite((tmp_path / "y.tflite").read_bytes(), [x])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_computed_padding_that_repeats_what_it_crops_to(mode: str, tmp_path: Path) -> None:
    """An odd size loses its first element before the others are repeated."""
    model = parser.parse_model(f"""
    <ir_version: 9, opset_import: ["": 19]>
    odd (float[2,w] x) => (float[a,b] y) <int64[1] two={{2}}, int64[1] zero={{0}}> {{
        size = Shape<start=1>(x)
        remainder = Mod(size, two)
        less = Neg(remainder)
        pads = Concat<axis=0>(zero, less, zero, two)
        y = Pad<mode="{mode}">(x, pads)
    }}""")
    onnxtfl.onnx_to_tflite(model, tmp_path / "y.tflite", check=False)
    for width in (4, 5, 7):
        x = np.arange(2.0 * width).reshape(2, width).astype(np.float32)
        wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
        ((_, found),) = run_tflite((tmp_path / "y.tflite").read_bytes(), [x])
        np.testing.assert_array_equal(found, wanted)
