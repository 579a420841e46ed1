"""Scores of heads that share keys: no reshape before and after the softmax."""

from __future__ import annotations

import pytest

from onnxtfl.passes.canonical.fuse.rows_of_scores import ROWS_OF_SCORES
from tests.passes.helpers import op_counts, transformed


def scores(mask: str, body: str = "%a = Add(%s, %m)\n %z = Softmax(%a) {axis = 3}", rows: str = "1x2x6x5") -> str:
    """A graph that masks the scores [1, 4, 3, 5] of products with the shape `rows`, and reshapes them back."""
    return f"""graph main(%p: tensor<{rows}xfloat32>, %m: tensor<{mask}xfloat32>) -> (%y) {{
 %a4 = constant tensor<4xint64> [1, 4, 3, 5]
 %a2 = constant tensor<4xint64> [{rows.replace("x", ", ")}]
 %q = Neg(%p)
 %s = Reshape(%q, %a4)
 {body}
 %y = Reshape(%z, %a2)
}}"""


@pytest.mark.parametrize("mask, reshapes", [("1x1x3x5", 2), ("3x5", 2), ("1x1x1x5", 0), ("5", 0), ("1x4x3x1", 1)])
def test_masks_are_written_for_all_rows(mask: str, reshapes: int) -> None:
    """Only the mask is reshaped: before and after it repeats, or to the rows of all heads."""
    counts = op_counts(transformed(scores(mask), ROWS_OF_SCORES.apply))
    assert (counts["Reshape"], counts["Softmax"]) == (reshapes, 1)


@pytest.mark.parametrize(
    "body",
    [
        "%z = Softmax(%s) {axis = 2}\n %u = Neg(%m)",  # over rows
        "%t = Transpose(%s) {permutation = [0, 2, 1, 3]}\n %z = Add(%t, %m)",
        "%a = Add(%s, %m)\n %z = Softmax(%a) {axis = 3}\n %y2 = Neg(%a)",  # read elsewhere
    ],
)
def test_other_scores_are_reshaped(body: str) -> None:
    text = scores("1x1x3x5" if "Transpose" not in body else "1x3x4x5", body)
    text = text.replace("(%y)", "(%y, %y2)") if "%y2" in body else text
    assert op_counts(transformed(text, ROWS_OF_SCORES.apply))["Reshape"] == 2


@pytest.mark.parametrize("rows, mask", [("1x4x3x5", "3x5"), ("1x1x12x5", "3x5"), ("1x6x2x5", "5"), ("4x1x3x5", "5")])
def test_other_shapes_stay(rows: str, mask: str) -> None:
    """Of a mask for all rows of one group nothing would be saved."""
    before = op_counts(transformed(scores(mask, rows=rows), lambda graph: None))
    assert op_counts(transformed(scores(mask, rows=rows), ROWS_OF_SCORES.apply)) == before
