"""The ops of the family concatenation: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.types import tensor
from tests.unit.lifting import inferred


def test_concatenate_agrees_on_sizes() -> None:
    a, c = tensor("float32", "n", 3), tensor("float32", 4, 5)
    assert inferred(ops.Concatenate, a, c, axis=1) == "tensor<4x8xfloat32>"
    with pytest.raises(InvalidModelError):
        inferred(ops.Concatenate, a, c, axis=0)
