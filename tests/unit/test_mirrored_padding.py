"""Pads that mirror or repeat the ends of axes: concatenations in TFLite, and one Pad in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from tests.harness.rounds import floats, parsed, there_and_back

UNUSUAL = (np.nan, np.inf, -np.inf, -0.0)


def padding(mode: str, *pads: int, shape: tuple[int, ...] = (1, 8, 12, 10)) -> str:
    """A Pad between two Relus."""
    sizes, amounts = ", ".join(map(str, shape)), ", ".join(map(str, pads))
    return f"""g (float[{sizes}] x) => (float[{", ".join("abcd"[: len(shape)])}] y)
      <int64[{len(pads)}] pads = {{{amounts}}}> {{ r = Relu (x)  p = Pad <mode = "{mode}"> (r, pads)  y = Relu (p) }}"""


@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize(
    "pads", [(0, 0, 1, 1, 0, 0, 1, 1), (0, 0, 3, 0, 0, 0, 2, 1), (0, 0, 4, 0, 0, 0, 4, 0)], ids=str
)
def test_few_positions_are_slices(mode: str, pads: tuple[int, ...]) -> None:
    x = floats(1, 8, 12, 10)
    x.reshape(-1)[: len(UNUSUAL)] = UNUSUAL
    there, back = there_and_back(padding(mode, *pads), {"x": x}, tolerance=0)
    assert not {"MIRROR_PAD", "GATHER", "GATHER_ND"} & there.keys() and there["SLICE"] > 0
    assert back["Pad"] == 1 and not {"Concat", "Slice", "Gather"} & back.keys()


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_many_positions_along_one_axis_are_gathered(mode: str) -> None:
    there, back = there_and_back(padding(mode, 0, 200, 0, 100, shape=(1, 2000)), {"x": floats(1, 2000)}, tolerance=0)
    assert (there["MIRROR_PAD"], there["GATHER"], there["CONCATENATION"]) == (0, 2, 1)
    assert back["Pad"] == 1 and not {"Concat", "Gather"} & back.keys()


def test_quantized_elements_are_moved() -> None:
    model = """g (float[1, 8, 6, 5] x) => (float[a, b, c, d] y)
      <float s = {0.02}, int8 z = {3}, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 2}> {
        q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
        r = Pad <mode = "reflect"> (d, pads)
        p = QuantizeLinear (r, s, z)  y = DequantizeLinear (p, s, z) }"""
    there, back = there_and_back(model, {"x": floats(1, 8, 6, 5)})
    assert "MIRROR_PAD" not in there
    assert back["Pad"] == 1 and "Concat" not in back


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (padding("reflect", 0, 0, 5, 5, 0, 0, 5, 5), {}),  # 20 slices
        (padding("reflect", 0, 0, 1, 1, 0, 0, 1, 1), {"target": "micro"}),
    ],
    ids=["many positions along two axes", "micro"],
)
def test_where_the_op_stays(model: str, options: dict[str, Any]) -> None:
    report = onnxtfl.onnx_to_tflite(parsed(model), check=False, **options).report
    assert report.ops_after["MIRROR_PAD"] == 1


def test_positions_in_another_order_stay_a_concatenation() -> None:
    text = """g (float[1, 6] x) => (float[1, 8] y) <int64[1] i = {1}, int64[1] j = {2}, int64[1] k = {3}> {
      a = Slice (x, i, j, i)  c = Slice (x, j, k, i)  y = Concat <axis = 1> (a, c, x) }"""
    _, back = there_and_back(text, {"x": floats(1, 6)}, tolerance=0)
    assert back["Concat"] == 1
