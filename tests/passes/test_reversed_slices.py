"""Slices that go backward are forward slices and reversals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.reversed_slices import reverse_slices
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed
from tests.passes.test_strided_slices import ALL, text

STEP = partial(reverse_slices, target=TfliteTarget())


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        (((-1, 0), (-ALL, ALL), (-1, 1)), {"Reverse": 1}),
        (((-1, -1), (-ALL, -ALL), (-1, -1)), {"Reverse": 2}),
        (((30, 0), (5, ALL), (-1, 1)), {"Slice": 1, "Reverse": 1}),
    ],
)
def test_backward(bounds: Sequence[Sequence[int]], counts: dict[str, int]) -> None:
    written = text("tensor<40x50xfloat32>", *bounds)
    x = np.random.default_rng(0).standard_normal((40, 50), np.float32)
    graph = transformed(written, STEP)
    assert op_counts(graph) == counts
    np.testing.assert_array_equal(run(graph, [x])[0], run(parse_graph(written), [x])[0])


@pytest.mark.parametrize(
    ("shape", "bounds"),
    [
        ("40x50", ((0, 0), (30, ALL), (1, 1))),
        ("40x50", ((-1, 0), (-ALL, ALL), (-2, 1))),
        ("40x50", ((30, 0), (5, ALL), (-1, 2))),  # the other axis takes the time
        ("40x50", ((3, 0), (10, ALL), (-1, 1))),  # no element
        ("[n]x50", ((0, -1), (ALL, -ALL), (1, -1))),
    ],
)
def test_others_stay(shape: str, bounds: Sequence[Sequence[int]]) -> None:
    assert op_counts(transformed(text(f"tensor<{shape}xfloat32>", *bounds), STEP)) == {"Slice": 1}
