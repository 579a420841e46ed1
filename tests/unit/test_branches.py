"""If whose branches return tensors of different ranks."""

from __future__ import annotations

import pytest

from onnxtfl.errors import UnsupportedError
from tests.harness.rounds import floats, there_and_back

SQUEEZED = """
main (float[N,H,3] x, float[N,3] k) => (float[K] y) <int64[1] one = {1}, int64 zero = {0}> {
  sizes = Shape(x)
  size = Gather(sizes, one)
  is_one = Equal(size, one)
  squeezed = If (is_one) <
    then_branch = then () => (float[N,3] a) { a = Squeeze(x, one) },
    else_branch = otherwise () => (float[N,H,3] b) { b = Identity(x) }
  >
  REST
}
"""


def test_the_branch_that_later_ops_accept_replaces_the_if() -> None:
    """PyTorch writes `squeeze(1)` like this where it does not know the size."""
    model = SQUEEZED.replace("REST", "t = Transpose <perm = [1, 0]> (squeezed)  y = MatMul(t, k)")
    feeds = [{"x": floats(n, 1, 3), "k": floats(n, 3)} for n in (4, 1)]
    there, back = there_and_back(model.replace("float[K] y", "float[3,3] y"), *feeds)
    assert there["IF"] == back["If"] == 0


def test_the_other_branch_for_other_ops() -> None:
    model = SQUEEZED.replace("REST", "t = Transpose <perm = [1, 0, 2]> (squeezed)  y = Add(t, k)")
    feeds = [{"x": floats(n, 2, 3), "k": floats(n, 3)} for n in (4, 1)]
    there, _ = there_and_back(model.replace("float[K] y", "float[H,N,3] y"), *feeds)
    assert there["IF"] == 0


def test_ops_that_accept_both_branches() -> None:
    model = SQUEEZED.replace("REST", "r = Relu(squeezed)  y = MatMul(k, r)")
    with pytest.raises(UnsupportedError, match="input_shapes"):
        there_and_back(model, {"x": floats(4, 1, 3), "k": floats(4, 3)})
