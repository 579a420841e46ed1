"""Tensors whose rank is known only at run time."""

from __future__ import annotations

from tests.harness.rounds import floats, there_and_back


def test_sums_of_unknown_rank() -> None:
    """Squeeze without axes removes an open axis where its size is 1: no equation of shapes holds after it."""
    text = """main (float[n,1] x) => (float[m] y) <float four = {4}, float one = {1}, int64[1] any = {-1}> {
      s = Squeeze (x)
      a = Sigmoid (s)
      b = Mul (a, four)
      c = Add (b, one)
      y = Reshape (c, any)
    }"""
    there_and_back(text, *({"x": floats(n, 1)} for n in (3, 1)))
