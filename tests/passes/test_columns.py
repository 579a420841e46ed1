"""Columns of a matrix are rows of the transposed one."""

from __future__ import annotations

from functools import partial

import pytest

from onnxtfl.passes.canonical.columns import transpose_columns
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed

STEP = partial(transpose_columns, target=TfliteTarget())


def columns(shape: str, *starts: int) -> str:
    """The text of slices of one column each, from the last axis."""
    rank = shape.count("x") + 1
    sizes, lines = [int(n) if n.isdigit() else 99 for n in shape.split("x")], []
    for i, start in enumerate(starts):
        begin, end = [*[0] * (rank - 1), start], [*sizes[:-1], start + 1]
        lines += [f" %b{i} = constant tensor<{rank}xint64> {begin}", f" %e{i} = constant tensor<{rank}xint64> {end}"]
        lines.append(f" %y{i} = Slice(%x, %b{i}, %e{i}, %s)")
    outputs = ", ".join(f"%y{i}" for i in range(len(starts)))
    lines.insert(0, f" %s = constant tensor<{rank}xint64> {[1] * rank}")
    return "\n".join([f"graph main(%x: tensor<{shape}xfloat32>) -> ({outputs}) {{", *lines, "}"])


@pytest.mark.parametrize(("shape", "starts"), [("1x300x4", (0, 1, 3, 2)), ("300x2", (1, 0)), ("2x20x20x4", (0, 3))])
def test_slices_of_columns(shape: str, starts: tuple[int, ...]) -> None:
    counts = op_counts(transformed(columns(shape, *starts), STEP))
    assert counts == {"Transpose": 1, "Slice": len(starts), "Reshape": len(starts)}


def test_parts_of_a_split() -> None:
    text = (
        "graph main(%x: tensor<1x3000x3xfloat32>) -> (%a, %b, %c) {\n %a, %b, %c = Split(%x) {axis = -1, count = 3}\n}"
    )
    assert op_counts(transformed(text, STEP)) == {"Transpose": 1, "Slice": 3, "Reshape": 3}


@pytest.mark.parametrize(
    ("shape", "starts"),
    [
        ("1x20x4", (0, 1, 2, 3)),  # few rows
        ("1x300x4", (2,)),  # one column
        ("1x300x85", (0, 1)),  # of many
        ("1x300x[n + 2]", (0, 1)),  # of a number that only the run knows
    ],
)
def test_others_stay(shape: str, starts: tuple[int, ...]) -> None:
    counts = op_counts(transformed(columns(shape, *starts), STEP))
    assert counts == {"Slice": len(starts)}
