"""Rotary position embeddings: both columns of each pair are multiplied at once."""

from __future__ import annotations

import pytest

from onnxtfl.passes.canonical.fuse.rotations import ROTATIONS
from tests.passes.helpers import op_counts, transformed

SLICES = """%lo = constant tensor<3xint64> [0, 0, 0]
 %mid = constant tensor<3xint64> [0, 0, 4]
 %some = constant tensor<3xint64> [2, 5, 4]
 %all = constant tensor<3xint64> [2, 5, 8]
 %one = constant tensor<3xint64> [1, 1, 1]
 %x1 = Slice(%x, %lo, %some, %one)
 %x2 = Slice(%x, %mid, %all, %one)"""
SPLIT = "%x1, %x2 = Split(%x, _) {axis = 2, count = 2}"
PAIRS = """%a = Mul(%x1, %c)
 %b = Mul(%x2, %s)
 %d = Sub(%a, %b)
 %e = Mul({0})
 %f = Mul({1})
 %g = Add({2})
 %y = Concatenate(%d, %g) {{axis = 2}}"""
USUAL = ("%x2, %c", "%x1, %s", "%e, %f")


def graph(parts: str, tables: str, body: str) -> str:
    """A graph that rotates %x [heads, tokens, columns]."""
    arguments = "".join(f", %{name}: tensor<{tables}xfloat32>" for name in ("c", "s"))
    return f"graph main(%x: tensor<2x5x8xfloat32>{arguments}) -> (%y) {{\n {parts}\n {body}\n}}"


@pytest.mark.parametrize("parts", [SPLIT, SLICES])
@pytest.mark.parametrize("rest", [USUAL, ("%c, %x2", "%s, %x1", "%f, %e")])
@pytest.mark.parametrize("tables", ["5x4", "1x5x4"])
def test_pairs_are_rotated_at_once(parts: str, rest: tuple[str, ...], tables: str) -> None:
    counts = op_counts(transformed(graph(parts, tables, PAIRS.format(*rest)), ROTATIONS.apply))
    assert (counts["Mul"], counts["Add"], counts["Sub"]) == (2, 1, 0)


@pytest.mark.parametrize(
    "rest",
    [
        ("%x2, %s", "%x1, %c", "%e, %f"),  # sine and cosine exchanged
        ("%x1, %c", "%x2, %s", "%e, %f"),  # the columns exchanged
        ("%x2, %c", "%x2, %s", "%e, %f"),
    ],
)
def test_other_sums_of_pairs_stay(rest: tuple[str, ...]) -> None:
    assert op_counts(transformed(graph(SPLIT, "5x4", PAIRS.format(*rest)), ROTATIONS.apply))["Sub"] == 1


def test_tables_with_an_axis_of_heads_stay() -> None:
    """They would have to be joined for each layer."""
    assert op_counts(transformed(graph(SPLIT, "2x5x4", PAIRS.format(*USUAL)), ROTATIONS.apply))["Mul"] == 4


def test_halves_in_the_other_order_stay() -> None:
    swapped = PAIRS.format(*USUAL).replace("%x1", "%t").replace("%x2", "%x1").replace("%t", "%x2")
    assert op_counts(transformed(graph(SPLIT, "5x4", swapped), ROTATIONS.apply))["Mul"] == 4


NEGATED = """%n = Neg({0})
 %j = Concatenate(%n, {1}) {{axis = 2}}
 %y = Mul(%j, %s)"""


def test_a_table_takes_the_sign_of_half_of_the_columns() -> None:
    text = graph(SLICES, "5x8", NEGATED.format("%x2", "%x1"))
    assert op_counts(transformed(text, ROTATIONS.apply)) == {"Slice": 2, "Concatenate": 1, "Mul": 2}


@pytest.mark.parametrize("tables", ["2x5x8", "5x1"])
def test_a_sign_stays_where_the_table_has_heads_or_no_columns(tables: str) -> None:
    counts = op_counts(transformed(graph(SLICES, tables, NEGATED.format("%x2", "%x1")), ROTATIONS.apply))
    assert counts["Neg"] == 1
