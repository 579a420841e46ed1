"""Slices with strides read runs of a reshaped tensor."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxtfl.ir.shapes import static_ints
from onnxtfl.passes.canonical.strided_slices import slice_runs
from tests.passes.helpers import only_node, op_counts, transformed

ALL = 1 << 30


def text(type_: str, *bounds: Sequence[int]) -> str:
    """The text of a slice: starts, limits and strides."""
    rank = len(bounds[0])
    lines = [f" %v{i} = constant tensor<{rank}xint64> {list(vector)}" for i, vector in enumerate(bounds)]
    return "\n".join([f"graph main(%x: {type_}) -> (%y) {{", *lines, " %y = Slice(%x, %v0, %v1, %v2)\n}"])


@pytest.mark.parametrize(
    ("shape", "bounds", "runs"),
    [
        ("1x6x8x3", ((0, 1, 0, 0), (1, ALL, ALL, ALL), (1, 2, 2, 1)), (3, 8, 6)),
        ("6x8x3", ((1, 1, 0), (ALL, ALL, ALL), (2, 2, 1)), (3, 8, 6)),
        ("2x6x8", ((0, 0, 3), (ALL, ALL, ALL), (1, 1, 4)), (24, 4)),
        ("9x4", ((2, 1), (9, 3), (3, 1)), (3, 3, 4)),
        ("4x5", ((-1, 0), (ALL, ALL), (4, 1)), (20,)),
    ],
)
def test_whole_strides(shape: str, bounds: Sequence[Sequence[int]], runs: tuple[int, ...]) -> None:
    graph = transformed(text(f"tensor<{shape}xfloat32>", *bounds), slice_runs)
    sliced = only_node(graph, "Slice")
    assert sliced.operand(0).shape == runs
    assert set(static_ints(sliced.operand(3)) or ()) == {1}


def test_quantized_elements() -> None:
    graph = transformed(text("tensor<6x4xfloat32, quant<int8 0.5:3>>", (1, 0), (ALL, ALL), (2, 1)), slice_runs)
    assert op_counts(graph) == {"Reshape": 1, "Slice": 1}


@pytest.mark.parametrize(
    ("type_", "bounds"),
    [
        ("tensor<7x4xfloat32>", ((0, 0), (ALL, ALL), (2, 1))),  # an odd position is left
        ("tensor<6x4xfloat32>", ((3, 0), (ALL, ALL), (2, 1))),  # not each pair is read
        ("tensor<6x4xfloat32>", ((5, 0), (-ALL, ALL), (-2, 1))),
        ("tensor<6x4xfloat32>", ((1, 0), (5, ALL), (1, 1))),
        ("tensor<6x4x6x4x6x4xfloat32>", ((1, 0) * 3, (ALL,) * 6, (2, 2) * 3)),
        ("tensor<6xint64>", ((1,), (ALL,), (2,))),
    ],
)
def test_other_slices_stay(type_: str, bounds: Sequence[Sequence[int]]) -> None:
    assert op_counts(transformed(text(type_, *bounds), slice_runs)) == {"Slice": 1}
