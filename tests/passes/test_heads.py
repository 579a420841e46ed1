"""Heads of attention: columns of a product as a batch of products, without a Transpose."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onnxtfl.options import Options
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.heads import split_heads
from onnxtfl.rewriting.pass_manager import Group
from onnxtfl.stages import delegate_forms
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed

HEAD = "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]"


def product(columns: int, moves: str, outputs: str, x: str = "1x3x2") -> Mapping[str, int]:
    """The ops after the pass of a product with a bias and its moves."""
    weights, bias = ([((7 * i) % 13 - 6) / 8 for i in range(n)] for n in (2 * columns, columns))
    text = f"""graph main(%x: tensor<{x}xfloat32>) -> ({outputs}) {{
      %w = constant tensor<2x{columns}xfloat32> {weights}
      %b = constant tensor<{columns}xfloat32> {bias}
      %p = DotGeneralBias(%x, %w, %b) {{{HEAD}}}
      {moves}
    }}"""
    return op_counts(transformed(text, lambda graph: (split_heads(graph), remove_dead(graph))))


def moves(shape: str, permutation: str = "0, 2, 1, 3") -> str:
    return f"""%s = constant tensor<4xint64> [{shape}]
      %r = Reshape(%p, %s)
      %h = Transpose(%r) {{permutation = [{permutation}]}}"""


@pytest.mark.parametrize(
    ("x", "shape"), [("1x3x2", "1, 3, 2, 32"), ("2x32x2", "2, 32, 2, 32"), ("1x64x2", "2, 32, 2, 32")]
)
def test_heads_are_batches(x: str, shape: str) -> None:
    counts = product(64, moves(shape), "%h", x)
    assert (counts["DotGeneral"], counts["Add"], counts["Transpose"]) == (1, 1, 0)


def test_keys_are_turned_next_to_the_product_that_reads_them() -> None:
    counts = product(64, moves("1, 3, 2, 32", "0, 2, 3, 1"), "%h")
    assert (counts["DotGeneral"], counts["Transpose"]) == (1, 1)


def test_queries_and_values_that_are_parts_of_one_product() -> None:
    parts = """%s = constant tensor<5xint64> [1, 3, 2, 2, 32]
      %r = Reshape(%p, %s)
      %h = Transpose(%r) {permutation = [2, 0, 3, 1, 4]}
      %i = constant tensor<int64> [0]
      %j = constant tensor<int64> [1]
      %q = Gather(%h, %i) {axis = 0}
      %v = Gather(%h, %j) {axis = 0}
      %y = Neg(%q)"""
    counts = product(128, parts, "%y, %v")
    assert (counts["DotGeneral"], counts["DotGeneralBias"], counts["Transpose"], counts["Gather"]) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("columns", "moved", "outputs", "x"),
    [
        (32, moves("1, 3, 2, 16"), "%h", "1x3x2"),  # few columns
        (64, moves("2, 3, 2, 32"), "%h", "2x3x2"),  # few rows of several batches
        (64, moves("1, 3, 2, 32"), "%h, %p", "1x3x2"),  # others read the product
        (64, moves("1, 3, 2, 32", "0, 1, 2, 3"), "%h", "1x3x2"),  # no Transpose is saved
        (64, moves("1, 3, 2, 32", "0, 1, 3, 2"), "%h", "1x3x2"),  # no matrices of rows and columns
    ],
)
def test_others_stay(columns: int, moved: str, outputs: str, x: str) -> None:
    counts = product(columns, moved, outputs, x)
    assert (counts["DotGeneral"], counts["DotGeneralBias"]) == (0, 1)


@pytest.mark.parametrize(("options", "is_run"), [(Options(), True), (Options(shares_weights=True), False)])
def test_several_entry_points_keep_one_form_of_their_weights(options: Options, is_run: bool) -> None:
    """With one row, as in the decode step of a decoder, heads need no batch."""
    (group, *_) = delegate_forms(TfliteTarget(), options)
    assert isinstance(group, Group) and ("heads" in [step.name for step in group.passes]) == is_run
