"""Parts of a Split that nothing uses are not made."""

from __future__ import annotations

from onnxtfl.passes.canonical.used_parts import slice_used_parts
from tests.passes.helpers import op_counts, transformed

SPLIT = """graph main(%x: tensor<2x6xfloat32>) -> (%y) {
  %a, %b, %c = Split(%x) {axis = 1, count = 3}
"""


def test_used_parts_are_slices() -> None:
    graph = transformed(f"{SPLIT} %y = Sub(%a, %c)\n}}", slice_used_parts)
    assert op_counts(graph) == {"Slice": 2, "Sub": 1}


def test_a_split_whose_parts_are_all_used_stays() -> None:
    graph = transformed(f"{SPLIT} %d = Sub(%a, %c)\n %y = Mul(%d, %b)\n}}", slice_used_parts)
    assert op_counts(graph)["Split"] == 1
