"""Parts of tensors with open sizes: equal splits, which XNNPACK computes, in place of slices."""

from __future__ import annotations

import pytest

import onnxtfl
from tests.harness.rounds import floats, parsed, there_and_back

QUANTIZED = """g (float[n, 8] x) => (float[n, m] y)
  <float s = {0.02}, int8 z = {3}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {4}> {
  q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  c = Slice (d, zero, end, one)
  e = QuantizeLinear (c, s, z)  y = DequantizeLinear (e, s, z) }"""


def slices(size: int, *bounds: tuple[int, int]) -> str:
    """Slices of the last axis, of `size`."""
    results = ", ".join(f"float[n, {last - first}] y{first}" for first, last in bounds)
    numbers = sorted({bound for each in bounds for bound in each})
    constants = ", ".join(f"int64[1] i{n} = {{{n}}}" for n in (*numbers, *([1] if 1 not in numbers else [])))
    nodes = " ".join(f"y{first} = Slice (a, i{first}, i{last}, i1)" for first, last in bounds)
    return f"g (float[n, {size}] x) => ({results}) <{constants}> {{ a = Abs (x) {nodes} }}"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (slices(8, (0, 2), (2, 4), (4, 6), (6, 8)), {"SPLIT": 1}),
        (slices(8, (0, 2), (2, 8)), {"SPLIT": 1, "CONCATENATION": 1}),
        (slices(8, (4, 8)), {"SPLIT": 1}),
        (slices(16, *((k, k + 2) for k in range(0, 16, 2))), {"SPLIT": 5}),  # four parts, each of two
    ],
    ids=["gates", "unequal", "half", "eight"],
)
def test_slices_are_splits(model: str, expected: dict[str, int]) -> None:
    size = int(model.partition("n, ")[2].partition("]")[0])
    there, _ = there_and_back(model, {"x": floats(1, size)}, {"x": floats(3, size)}, tolerance=0)
    assert {op: count for op, count in there.items() if op != "ABS"} == expected


def test_uneven_parts() -> None:
    model = """g (float[n, 6, k] x) => (float[n, 2, k] y, float[n, 4, k] z) <int64[2] sizes = {2, 4}> {
      a = Abs (x)  y, z = Split <axis = 1> (a, sizes) }"""
    there, _ = there_and_back(model, {"x": floats(1, 6, 2)}, {"x": floats(3, 6, 5)}, tolerance=0)
    assert there["SPLIT"] == 1 == there["CONCATENATION"] and "SPLIT_V" not in there


@pytest.mark.parametrize(
    "model",
    [
        slices(10, (0, 2), (2, 4)),  # five parts
        slices(64, (1, 63)),
        slices(8, (0, 4)).replace("float[n, 8]", "float[3, 8]"),
    ],
    ids=["five", "many", "no open sizes"],
)
def test_slices_stay(model: str) -> None:
    ops = onnxtfl.onnx_to_tflite(parsed(model, 18), check=False).report.ops_after
    assert "SLICE" in ops and "SPLIT" not in ops


def test_quantized_slices() -> None:
    there, _ = there_and_back(QUANTIZED, {"x": floats(1, 8)}, {"x": floats(3, 8)}, opset=18)
    assert there["SPLIT"] == 1 and "SLICE" not in there
