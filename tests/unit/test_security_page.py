"""The limits that SECURITY.md promises are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtfl.formats.onnx import tensors, wire
from onnxtfl.inputs import generation
from onnxtfl.ir import budget, facts, types
from onnxtfl.options import Options

PAGE = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
LIMITS = {
    "seconds of a conversion": ("300", Options().time_limit),
    "constants that are computed before run time and held": ("1024 MB", Options().max_memory * 2**20),
    "multiply-adds, or elements": ("2^31", budget.MOST_ELEMENTS),
    "elements of a table that a rule computes": ("2^23", budget.LARGEST_CONSTANT),
    "bytes of an input that the check draws": ("512 MB", generation._MOST_BYTES),
    "terms and factors": ("400", budget.LARGEST_EXPRESSION),
    "values that an analysis": ("500", facts.MOST_VISITS),
    "axes of a tensor": ("32", types.MOST_AXES),
    "bytes of an ONNX file without": ("512 MB", wire.LARGEST),
    "parts of a Split": ("2^20", budget.MOST_LISTED),
    "bytes of a sparse tensor": ("64 MB", tensors._LARGEST_DENSE),
}


@pytest.mark.parametrize("what", LIMITS)
def test_limits(what: str) -> None:
    text, limit = LIMITS[what]
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {what}")]
    assert row.split("|")[2].strip().startswith(text)
    number, _, unit = text.partition(" ")
    base, _, power = number.partition("^")
    assert limit == int(base) ** int(power or 1) * (2**20 if unit == "MB" else 1)


def test_each_limit_of_the_page_is_tested() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| what", "| ---"))]
    assert len(rows) == len(LIMITS) + 1  # elements along an axis: the type that TFLite has for sizes
