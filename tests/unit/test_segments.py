"""Sums and products of segments."""

from __future__ import annotations

import numpy as np

from tests.unit.tflite_graphs import SAMPLE, assert_same_as_litert


def test_sums_of_no_segments() -> None:
    ids = np.zeros(2, np.int32)
    assert_same_as_litert(
        lambda g: g.op("SEGMENT_SUM", [g.given(SAMPLE, open_axes=[0]), g.given(ids, "int32", open_axes=[0])]),
        [(0, 3, 4), (0,)],
    )
