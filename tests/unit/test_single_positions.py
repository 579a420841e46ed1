"""Pools over windows of a single position: parts of blocks where XNNPACK runs."""

from __future__ import annotations

import numpy as np
import pytest

import onnxtfl
from tests.harness.rounds import floats, parsed, there_and_back

UNUSUAL = (np.nan, np.inf, -np.inf, -0.0, 1e-42)


def pool(op: str, batch: str, strides: str, size: int = 12) -> str:
    return f"""g (float[{batch}, 3, {size}, 8] x) => (float[a, 3, b, c] y) {{
      y = {op} <kernel_shape = [1, 1], strides = [{strides}]> (x) }}"""


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("strides", ["2, 2", "3, 4", "1, 2", "4, 1"])
@pytest.mark.parametrize("batch", ["2", "n"])
def test_first_positions(op: str, strides: str, batch: str) -> None:
    x = floats(2, 3, 12, 8)
    x.reshape(-1)[1 : 1 + len(UNUSUAL)] = UNUSUAL[: len(UNUSUAL)]
    feeds = [{"x": x}, *([{"x": floats(1, 3, 12, 8)}] if batch == "n" else [])]
    there, _ = there_and_back(pool(op, batch, strides), *feeds, tolerance=0)
    assert not there.keys() & {"MAX_POOL_2D", "AVERAGE_POOL_2D"}


def test_blocks_that_are_not_whole() -> None:
    ops = onnxtfl.onnx_to_tflite(parsed(pool("MaxPool", "2", "2, 2", 11)), check=False).report.ops_after
    assert ops["MAX_POOL_2D"] == 1


def test_other_targets() -> None:
    report = onnxtfl.onnx_to_tflite(parsed(pool("MaxPool", "2", "2, 2")), check=False, target="micro").report
    assert report.ops_after["MAX_POOL_2D"] == 1
