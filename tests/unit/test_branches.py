"""If whose branches return tensors of different ranks, or of which one does not fit the sizes."""

from __future__ import annotations

import io

import numpy as np
import pytest

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.options import Options
from onnxtfl.pipeline import onnx_to_tflite
from tests.harness.rounds import floats, parsed, there_and_back

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


RATES = """
main (bool is_fast, float[1,N] x, float[8,2] fast, float[6,2] slow) => (float[1,2] y) {
  y = If (is_fast) <
    then_branch = at_16_khz () => (float[1,2] a) { a = MatMul(x, fast) },
    else_branch = at_8_khz () => (float[1,2] b) { b = MatMul(x, slow) }
  >
}
"""


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_branch_that_fits_the_sizes_replaces_the_if(is_fast: bool) -> None:
    """Silero VAD has a branch for each sample rate; TFLite would prepare both for the sizes of the input."""
    size = 8 if is_fast else 6
    options = Options(debug=True, input_shapes={"x": (1, size)})
    feed = {"is_fast": np.asarray(is_fast), "x": floats(1, size), "fast": floats(8, 2), "slow": floats(6, 2)}
    there, back = there_and_back(RATES, feed, options=options)
    assert there["IF"] == back["If"] == 0
    report = onnx_to_tflite(parsed(RATES), io.BytesIO(), options)
    (assumed,) = (a.text for a in report.assumptions if "branch" in a.text)
    assert ("first" if is_fast else "second") in assumed
    with pytest.raises(UsageError, match="do not fit"):
        onnx_to_tflite(parsed(RATES), io.BytesIO(), Options(input_shapes={"x": (1, 7)}))


def test_one_element_has_the_same_rank_in_both_branches() -> None:
    """Paddle's exporter adds a vector of one element to a scalar, which it declares as the result."""
    text = """main (bool p, float[2] x) => (float[1] y) <float[1] one = {1}, int64[1] any = {-1}> {
      s = ReduceSum <keepdims = 0> (x)
      r = If (p) <then_branch = a () => (float q) { q = Identity(s) },
                  else_branch = b () => (float w) { w = Add(s, one) }>
      t = Add(r, one)
      y = Reshape(t, any)
    }"""
    there_and_back(text, *({"p": np.asarray(p), "x": floats(2)} for p in (True, False)))
