"""The ops of the family concatenation: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.types import tensor
from tests.harness.rounds import floats, there_and_back
from tests.unit.lifting import inferred


def test_concatenate_agrees_on_sizes() -> None:
    a, c = tensor("float32", "n", 3), tensor("float32", 4, 5)
    assert inferred(ops.Concatenate, a, c, axis=1) == "tensor<4x8xfloat32>"
    with pytest.raises(InvalidModelError):
        inferred(ops.Concatenate, a, c, axis=0)


@pytest.mark.parametrize(
    ("widths", "count"),
    [((8, 8, 8, 2, 1, 8), 2), ((1, 9, 9, 9, 9, 9, 9), 2), ((1,) * 9, 2), ((2,) * 12, 4), ((4,) * 30, 11)],
    ids=str,
)
def test_many_operands_are_groups(widths: tuple[int, ...], count: int) -> None:
    """XNNPACK takes five at a time; between other ops, more copies are faster than another kernel."""
    names = [f"x{i}" for i in range(len(widths))]
    inputs = ", ".join(f"float[4, {width}] {name}" for name, width in zip(names, widths, strict=True))
    nodes = " ".join(f"a{i} = Abs ({name})" for i, name in enumerate(names))
    joined = ", ".join(f"a{i}" for i in range(len(widths)))
    text = f"g ({inputs}) => (float[4, n] y) {{ {nodes} c = Concat <axis = 1> ({joined}) y = Neg (c) }}"
    feeds = {name: floats(4, width) for name, width in zip(names, widths, strict=True)}
    there, back = there_and_back(text, feeds, tolerance=0)
    assert there["CONCATENATION"] == count
    assert back["Concat"] == 1
