"""Products whose operand repeats along a batch axis, or is scaled."""

from __future__ import annotations

import pytest

from onnxtfl.passes.canonical.fuse.repeated_batches import REPEATED_BATCHES
from tests.passes.helpers import op_counts, transformed

BATCH = ", ".join(
    f"{s}_{k}_dimensions = [{i}]" for s in ("lhs", "rhs") for i, k in ((0, "batching"), (2, "contracting"))
)
BATCHES = "lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [3]"


def heads(small: str, wide: str, merged: str, q: str, product: str) -> str:
    """A graph that multiplies %q by what %k repeats."""
    sizes = [s.replace("x", ", ") for s in (wide, merged)]
    ranks = [s.count("x") + 1 for s in (wide, merged)]
    return f"""graph main(%q: tensor<{q}xfloat32>, %k: tensor<{small}xfloat32>) -> (%y) {{
 %a = constant tensor<{ranks[0]}xint64> [{sizes[0]}]
 %b = constant tensor<{ranks[1]}xint64> [{sizes[1]}]
 %w = BroadcastTo(%k, %a)
 %r = Reshape(%w, %b)
 {product}
}}"""


KEYS = f"%y = DotGeneral(%q, %r) {{{BATCHES}, rhs_contracting_dimensions = [3]}}"
TURNED = f"""%t = Transpose(%r) {{permutation = [0, 1, 3, 2]}}
 %y = DotGeneral(%q, %t) {{{BATCHES}, rhs_contracting_dimensions = [2]}}"""


@pytest.mark.parametrize("product", [KEYS, TURNED])
def test_heads_that_read_the_same_keys_are_rows(product: str) -> None:
    text = heads("1x2x1x5x8", "1x2x2x5x8", "1x4x5x8", "1x4x3x8", product)
    assert op_counts(transformed(text, REPEATED_BATCHES.apply)) == {"Reshape": 3, "DotGeneral": 1}


@pytest.mark.parametrize(
    "shapes",
    [
        ("1x1x2x5x8", "1x2x2x5x8", "1x4x5x8", "1x4x3x8"),  # all heads repeat, one after the other
        ("1x2x5x1x8", "1x2x5x3x8", "1x2x15x8", "1x2x3x8"),  # the rows repeat
    ],
)
def test_other_repetitions_stay(shapes: tuple[str, str, str, str]) -> None:
    assert op_counts(transformed(heads(*shapes, KEYS), REPEATED_BATCHES.apply))["BroadcastTo"] == 1


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("large", [0, 1])
def test_a_scalar_multiplies_the_smaller_operand(place: int, large: int) -> None:
    """It moves only from the larger operand."""
    shapes = ["1x7x3", "1x2x3"] if large == 0 else ["1x2x3", "1x7x3"]
    names = ["%a", "%b"]
    names[place] = "%s"
    text = f"""graph main(%a: tensor<{shapes[0]}xfloat32>, %b: tensor<{shapes[1]}xfloat32>) -> (%y) {{
 %c = constant tensor<float32> [0.5]
 %s = Mul(%{"ab"[place]}, %c)
 %y = DotGeneral({", ".join(names)}) {{{BATCH}}}
}}"""
    (scaled,) = (node for node in transformed(text, REPEATED_BATCHES.apply).nodes if node.op.name == "Mul")
    assert scaled.result.shape == (1, 2, 3)


@pytest.mark.parametrize("scalar", ["float32", "1x1x1xfloat32"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_scalar_multiplies_an_operand_that_is_smaller_than_the_product(scalar: str, place: int) -> None:
    shapes = ["1x2x3", "1x7x3"] if place == 0 else ["1x7x3", "1x2x3"]
    text = f"""graph main(%a: tensor<{shapes[0]}xfloat32>, %b: tensor<{shapes[1]}xfloat32>) -> (%y) {{
 %c = constant tensor<{scalar}> [0.5]
 %p = DotGeneral(%a, %b) {{{BATCH}}}
 %y = Mul(%p, %c)
}}"""
    (scaled,) = (node for node in transformed(text, REPEATED_BATCHES.apply).nodes if node.op.name == "Mul")
    assert scaled.result.shape == (1, 2, 3)


def test_a_small_product_is_scaled_itself() -> None:
    text = f"""graph main(%a: tensor<1x2x9xfloat32>, %b: tensor<1x2x9xfloat32>) -> (%y) {{
 %c = constant tensor<float32> [0.5]
 %p = DotGeneral(%a, %b) {{{BATCH}}}
 %y = Mul(%p, %c)
}}"""
    (scaled,) = (node for node in transformed(text, REPEATED_BATCHES.apply).nodes if node.op.name == "Mul")
    assert scaled.result.shape == (1, 2, 2)
