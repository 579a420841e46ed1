"""Scan and Loop: unrolled, as WHILE, and back; in every kernel set, over several invocations and lengths."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import tensor
from onnxtfl.options import Options
from onnxtfl.pipeline import onnx_to_tflite
from tests.harness.litert import run_tflite
from tests.harness.rounds import floats, invoked, parsed, there_and_back
from tests.unit.onnx_nodes import onnx_file
from tests.unit.tflite_files import assert_converts_alike, tflite_file

SUMS = """
main (float[2] s, float[T,2] x, float[2] k) => (float[2] last, float[T,2] sums, float[T,2] scaled) {
  last, sums, scaled = Scan <num_scan_inputs = 1,
    body = step (float[2] a, float[2] b) => (float[2] c, float[2] d, float[2] e) {
    c = Add(a, b)
    d = Identity(c)
    e = Mul(c, k)
  }> (s, x)
}
"""


def test_a_short_scan_of_known_length_is_unrolled() -> None:
    feeds = {"s": floats(2), "x": floats(5, 2), "k": floats(2)}
    there, _ = there_and_back(SUMS.replace("T,", "5,"), feeds)
    assert there["WHILE"] == 0
    assert there["ADD"] == 5


@pytest.mark.parametrize("directions", ["", "scan_input_directions = [1],", "scan_output_directions = [1, 0],"])
@pytest.mark.parametrize("length", [1008, 1003])
def test_a_long_scan_of_known_length_takes_several_rounds_at_a_time(directions: str, length: int) -> None:
    text = SUMS.replace("T,", f"{length},").replace("num_scan_inputs = 1,", f"num_scan_inputs = 1, {directions}")
    feeds = {"s": floats(2), "x": floats(length, 2) / 100, "k": floats(2)}
    there, _ = there_and_back(text, feeds)
    assert there["WHILE"] == 1
    assert 1 < there["MUL"] < 64


def test_a_scan_of_unknown_length_is_a_while() -> None:
    feeds = [{"s": floats(2), "x": floats(n, 2), "k": floats(2)} for n in (5, 1, 12)]
    there, back = there_and_back(SUMS, *feeds)
    assert there["WHILE"] == 1
    assert there["DYNAMIC_UPDATE_SLICE"] == 2
    assert back == {"Scan": 1, "Add": 1, "Mul": 1, "Identity": 1}


def test_a_scan_over_nothing() -> None:
    """ONNX Runtime refuses it."""
    there = io.BytesIO()
    onnx_to_tflite(parsed(SUMS), there, Options(debug=True))
    feeds = [{"s": floats(2), "x": floats(n, 2), "k": floats(2)} for n in (0, 3, 0)]
    for kernels in ("AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"):
        for last, sums, scaled in invoked(there.getvalue(), feeds, kernels)[::2]:
            np.testing.assert_array_equal(last, floats(2))
            assert sums.shape == scaled.shape == (0, 2)


AXES = """
main (float[N,3] s, float[N,T,3] x, float[3,N,T] z) => (float[N,3] last, float[N,3,T] y, float[T,N,3] r) {
  last, y, r = Scan <num_scan_inputs = 2, scan_input_axes = [1, -1], scan_input_directions = [0, 1],
                     scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
    body = step (float[N,3] a, float[N,3] b, float[3,N] c) => (float[N,3] d, float[N,3] e, float[N,3] f) {
      t = Transpose(c)
      u = Mul(b, t)
      d = Add(a, u)
      e = Tanh(d)
      f = Sub(d, b)
    }> (s, x, z)
}
"""


@pytest.mark.parametrize("sizes", [(2, 4), ("N", 4), (2, "T"), ("N", "T")])
def test_axes_and_directions(sizes: tuple[int | str, int | str]) -> None:
    text = (
        AXES.replace("T", str(sizes[1]))
        .replace(str(sizes[1]) + "anh", "Tanh")
        .replace(str(sizes[1]) + "ranspose", "Transpose")
    )
    text = text.replace("N", str(sizes[0]))
    batches = [2, 5] if sizes[0] == "N" else [2]
    lengths = [4, 1, 7] if sizes[1] == "T" else [4]
    feeds = [{"s": floats(n, 3), "x": floats(n, t, 3), "z": floats(3, n, t)} for n in batches for t in lengths]
    there_and_back(text, *feeds)


SCAN_8 = """
main (int64[B] n, float[B,2] s, float[B,T,2] x) => (float[B,2] last, float[B,T,2] y) {
  last, y = Scan <num_scan_inputs = 1, directions = [%d],
    body = step (float[2] a, float[2] b) => (float[2] c, float[2] d) {
    half = Constant <value = float {0.5}> ()
    h = Mul(a, half)
    c = Add(h, b)
    d = Tanh(c)
  }> (%s, s, x)
}
"""


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("lengths", ["n", ""])
@pytest.mark.parametrize("sizes", [(3, 4), ("B", "T")])
def test_scan_of_opset_8(back: int, lengths: str, sizes: tuple[int | str, int | str]) -> None:
    text = SCAN_8 % (back, lengths)
    text = text.replace("[B", f"[{sizes[0]}").replace(",T,", f",{sizes[1]},")
    text = text if lengths else text.replace("int64[3] n, ", "").replace("int64[B] n, ", "")
    feeds = [{"n": np.asarray([2, 4, 1]), "s": floats(3, 2), "x": floats(3, 4, 2)}]
    if sizes[0] == "B":
        feeds.append({"n": np.asarray([3, 1]), "s": floats(2, 2), "x": floats(2, 5, 2)})
    if not lengths:
        feeds = [{k: v for k, v in each.items() if k != "n"} for each in feeds]
    there_and_back(text, *feeds, opset=8)


NESTED = """
main (float[3] s, float[T,U,3] x) => (float[3] last, float[T,U,3] y) {
  last, y = Scan <num_scan_inputs = 1, body = outer (float[3] a, float[U,3] b) => (float[3] c, float[U,3] d) {
    c, d = Scan <num_scan_inputs = 1, body = inner (float[3] e, float[3] f) => (float[3] g, float[3] h) {
      m = ReduceMax <axes = [0], keepdims = 1> (b)
      k = Squeeze(m)
      p = Add(e, f)
      g = Mul(p, k)
      h = Sin(g)
    }> (a, b)
  }> (s, x)
}
"""


@pytest.mark.parametrize("sizes", [(2, 4), ("T", 4), (2, "U"), ("T", "U")])
def test_scans_in_scans(sizes: tuple[int | str, int | str]) -> None:
    text = NESTED.replace("T,", f"{sizes[0]},").replace("U,", f"{sizes[1]},")
    feeds = [{"s": floats(3), "x": floats(2, 4, 3)}]
    if sizes == ("T", "U"):
        feeds += [{"s": floats(3), "x": floats(4, 2, 3)}, {"s": floats(3), "x": floats(1, 1, 3)}]
    there_and_back(text, *feeds)


COLLECTS = """
main (int64 n, float[2] x) => (float[2] y, float[K,2] z, %(type)s[K] w) <bool yes = {1}> {
  y, z, w = Loop (n, %(cond)s, x) <
    body = one (int64 i, bool c, float[2] v) => (bool d, float[2] o, float[2] e, %(type)s q) {
      o = Add(v, x)
      e = Neg(o)
      d = Identity(c)
      f = Mul(i, i)
      q = Cast <to = %(to)d> (f)
    }>
}
"""


@pytest.mark.parametrize("condition", ["yes", ""])
def test_a_loop_with_a_trip_count_is_a_scan(condition: str) -> None:
    text = COLLECTS % {"type": "float", "to": 1, "cond": condition}
    feeds = [{"n": np.asarray(n), "x": floats(2)} for n in (3, 0, 6)]
    there, _ = there_and_back(text, *feeds)
    assert there["WHILE"] == 1


def test_a_loop_whose_trip_count_is_known_is_unrolled() -> None:
    text = (
        (COLLECTS % {"type": "float", "to": 1, "cond": "yes"})
        .replace("int64 n, ", "")
        .replace("<bool", "<int64 n = {4}, bool")
    )
    there, _ = there_and_back(text, {"x": floats(2)})
    assert there["WHILE"] == 0
    assert there["ADD"] == 4
    assert there["CAST"] == 0


def test_a_condition_of_two_elements_is_refused() -> None:
    text = """main (bool[2] c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = a () => (float[2] p) { p = Neg (x) },
                  else_branch = b () => (float[2] q) { q = Abs (x) }>
    }"""
    with pytest.raises(InvalidModelError, match="condition is"):
        onnx_to_tflite(parsed(text), io.BytesIO(), Options())


@pytest.mark.parametrize("condition", ["yes", "again"])
def test_the_number_of_a_round_as_a_vector(condition: str) -> None:
    """ONNX Runtime gives a scalar, or one element where the body declares that (old exporters of TensorFlow)."""
    text = f"""main (int64 n, float[5,2] x) => (float[n,2] y) <bool yes = {{1}}, int64[1] zero = {{0}}> {{
      y = Loop (n, yes) <body = round (int64[1] i, bool c) => (bool again, float[2] row) {{
        a = Squeeze (i, zero)
        four = Constant <value_int = 4> ()
        below = Less (a, four)
        again = Identity ({"c" if condition == "yes" else "below"})
        row = Gather (x, a)
      }}>
    }}"""
    there_and_back(text, *({"n": np.asarray(n), "x": floats(5, 2)} for n in (3, 1, 5)))


def test_a_carried_value_that_no_round_reads_may_begin_with_another_rank() -> None:
    """Paddle's exporter begins with one element where the first round defines a tensor."""
    text = """main (float[2,3] x, int64 most) => (float[2,3] y) <bool yes = {1}, int64 n = {9}, float[1] none = {0}> {
      y = Loop (n, yes, none) <body = round (int64 i, bool c, float[K] unread) => (bool again, float[2,3] new) {
        again = Less (i, most)
        f = Cast <to = 1> (i)
        new = Add (x, f)
      }>
    }"""
    there, _ = there_and_back(text, *({"x": floats(2, 3), "most": np.asarray(n)} for n in (4, 0, 20)))
    assert there["WHILE"] == 1


def test_a_value_that_no_round_reads_may_have_sizes_that_only_the_body_knows() -> None:
    text = """main (float[6] x) => (float[k] y) <bool yes = {1}, int64 n = {3}, float none = {0}, int64[1] any = {-1}> {
      last = Loop (n, yes, none) <body = round (int64 i, bool c, float[j] unread) => (bool again, float[m] new) {
        again = Identity (c)
        positive = Greater (x, none)
        new = Compress <axis = 0> (x, positive)
      }>
      y = Reshape (last, any)
    }"""
    there_and_back(text, {"x": floats(6)})


def test_a_carried_element_keeps_its_rank() -> None:
    """The body adds a vector of one element to a scalar, which it declares as the result."""
    text = """main (float s, int64 n) => (float[1] y) <float[1] one = {1}, int64[1] any = {-1}, bool yes = {1}> {
      last = Loop (n, yes, s) <body = round (int64 i, bool c, float a) => (bool again, float b) {
        again = Identity (c)
        b = Add (a, one)
      }>
      y = Reshape (last, any)
    }"""
    there_and_back(text, *({"s": np.asarray(2.5, np.float32), "n": np.asarray(n)} for n in (3, 0)))


def test_a_loop_that_may_not_begin() -> None:
    text = (COLLECTS % {"type": "float", "to": 1, "cond": "b"}).replace("(int64 n,", "(int64 n, bool b,")
    there_and_back(text, *({"n": np.asarray(3), "b": np.asarray(b), "x": floats(2)} for b in (True, False)))


@pytest.mark.parametrize(
    ("type_", "number"),
    [
        ("float16", 10),
        ("double", 11),
        ("int8", 3),
        ("uint8", 2),
        ("int16", 5),
        ("int32", 6),
        ("int64", 7),
        ("bool", 9),
        ("uint32", 12),
    ],
)
def test_collected_results_of_every_type(type_: str, number: int) -> None:
    text = COLLECTS % {"type": type_, "to": number, "cond": "yes"}
    there_and_back(text, *({"n": np.asarray(n), "x": floats(2)} for n in (3, 0)))


ENDS = """
main (float[2] x, float limit, int64 n) => (float[2] y, float[K,2] z, int64 m) <bool yes = {1}, int64 zero = {0}%s> {
  y, m, z = Loop (%s, yes, x, zero) <
    body = one (int64 i, bool c, float[2] v, int64 j) => (bool d, float[2] o, int64 p, float[2] e) {
      o = Add(v, v)
      e = Neg(v)
      t = ReduceMax <keepdims = 0> (o)
      p = Identity(i)
      d = Less(t, limit)
    }>
}
"""


@pytest.mark.parametrize("count", ["most", "few", "n", ""])
def test_a_loop_that_ends_by_its_condition_collects(count: str) -> None:
    known = {"most": ", int64 most = {9223372036854775807}", "few": ", int64 few = {5}"}.get(count, "")
    text = ENDS % (known, count)
    text = text if count == "n" else text.replace(", int64 n)", ")")
    x = np.asarray([1, 0.5], np.float32)
    feeds = [{"x": x, "limit": np.asarray(v, np.float32), "n": np.asarray(4)} for v in (10, 1, 1000, 3)]
    if count != "n":
        feeds = [{k: v for k, v in f.items() if k != "n"} for f in feeds]
    there, _ = there_and_back(text, *feeds)
    assert there["WHILE"] == 1


@pytest.mark.parametrize("count", [0, -3])
def test_a_loop_without_a_round_collects_nothing(count: int) -> None:
    """The last axis has to have a size: no element of what is collected is computed."""
    text = (ENDS % (f", int64 few = {{{count}}}", "few")).replace(", int64 n)", ")")
    feed = {"x": np.float32([1, 0.5]), "limit": np.float32(9)}
    data = onnxtfl.onnx_to_tflite(parsed(text), check=False).data
    shapes = {array.shape for _, array in run_tflite(data or b"", {k: np.asarray(v) for k, v in feed.items()})}
    assert (0, 2) in shapes


GROWS = """
main (int64 n, float[2] x) => (float[P] y, float[K] z) <bool yes = {1}, int64[1] zero = {0}> {
  y, z = Loop (n, yes, x) <
    body = one (int64 i, bool c, float[Q] v) => (bool d, float[R] o, float e) {
      k = Slice(v, zero, one)
      o = Concat <axis = 0> (v, k, k)
      e = ReduceSum <keepdims = 0> (v)
      d = Identity(c)
    }>
}
""".replace("zero = {0}", "zero = {0}, int64[1] one = {1}")


def test_a_carried_value_may_grow() -> None:
    there_and_back(GROWS, *({"n": np.asarray(n), "x": floats(2)} for n in (3, 0, 5)))
    known = GROWS.replace("int64 n, ", "").replace("<bool", "<int64 n = {3}, bool")
    there, _ = there_and_back(known, {"x": floats(2)})
    assert there["WHILE"] == 0


def test_elements_of_a_size_that_is_known_in_the_body_only() -> None:
    text = """
    main (int64 n, float[6] x) => (float[K,L] z) <bool yes = {1}, int64[1] zero = {0}> {
      z = Loop (n, yes) <
        body = one (int64 i, bool c) => (bool d, float[M] e) {
          p = NonZero(x)
          q = Squeeze(p, zero)
          e = Gather(x, q)
          d = Identity(c)
        }>
    }
    """
    x = np.asarray([1, 0, 2, 0, 3, 4], np.float32)
    there_and_back(text, *({"n": np.asarray(n), "x": x} for n in (3, 1)))


SWAPS = """
main (int64 n, float[2] x, float[2] y) => (float[2] a, float[2] b, float[2] c) <bool yes = {1}> {
  a, b, c = Loop (n, yes, x, y, x) <
    body = one (int64 i, bool t, float[2] p, float[2] q, float[2] r) => (bool u, float[2] o, float[2] s, float[2] v) {
      u = Identity(t)
      o = Identity(q)
      s = Identity(r)
      v = Add(p, q)
    }>
}
"""


def test_carried_values_may_change_places() -> None:
    there_and_back(SWAPS, *({"n": np.asarray(n), "x": floats(2), "y": floats(2) + 1} for n in (0, 1, 2, 5)))


def test_a_loop_within_a_branch_within_a_loop() -> None:
    text = """
    main (int64 n, float[3] x) => (float[3] y, float[K] z) <bool yes = {1}, int64 two = {2}, int64 zero = {0}> {
      y, z = Loop (n, yes, x) <
        body = one (int64 i, bool c, float[3] v) => (bool d, float[3] o, float e) {
          r = Mod(i, two)
          even = Equal(r, zero)
          o = If (even) <
            then_branch = yes_ () => (float[3] p) {
              p = Loop (i, yes, v) <body = inner (int64 j, bool f, float[3] w) => (bool g, float[3] h) {
                g = Identity(f)
                s = Sin(x)
                h = Add(w, s)
              }>
            },
            else_branch = no_ () => (float[3] q) { q = Sub(v, x) }>
          e = ReduceSum <keepdims = 0> (o)
          d = Identity(c)
        }>
    }
    """
    there_and_back(text, *({"n": np.asarray(n), "x": floats(3)} for n in (4, 0, 1)))
    known = text.replace("int64 n, ", "").replace("<bool", "<int64 n = {4}, bool")
    there, _ = there_and_back(known, {"x": floats(3)})
    assert there["WHILE"] + there["IF"] == 0


def test_a_loop_without_end_is_refused() -> None:
    text = """
    main (float[2] x) => (float[2] y) <bool yes = {1}> {
      y = Loop (, yes, x) <body = one (int64 i, bool c, float[2] v) => (bool d, float[2] o) {
        o = Neg(v)
        d = Identity(c)
      }>
    }
    """
    with pytest.raises(UnsupportedError, match="always true"):
        there_and_back(text, {"x": floats(2)})


EVERY = """
main (int64 n, bool b, float[2] x, float[N,2] r) => (float[2] y, float[K,2] z, float[2] last, float[N,2] rows)
<bool yes = {1}> {
  y, z = Loop (n, yes, x) <
    body = one (int64 i, bool c, float[2] v) => (bool d, float[2] o, float[2] e) {
      o = If (b) <
        then_branch = added () => (float[2] p) { p = Add(v, x) },
        else_branch = scaled () => (float[2] q) { q = Mul(v, x) }>
      e = Neg(o)
      d = Identity(c)
    }>
  last, rows = Scan <num_scan_inputs = 1, %s body = step (float[2] s, float[2] t) => (float[2] u, float[2] w) {
    u = Add(s, t)
    w = Neg(u)
  }> (x, r)
}
"""


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 19, 21, 23, 24, 25])
@pytest.mark.parametrize("condition", [False, True])
def test_every_version(opset: int, condition: bool) -> None:
    """If, Loop and Scan; opset 9 has If-1 and Loop-1."""
    text = EVERY % "scan_input_directions = [1],"
    feeds = {"b": np.asarray(condition), "x": floats(2), "r": floats(3, 2)}
    there_and_back(text, *({**feeds, "n": np.asarray(n)} for n in (3, 0)), opset=opset)


def test_a_loop_over_a_constant_number_of_rows_reads_and_writes_them() -> None:
    """As exporters write a loop over time: rows are read and written at the iteration number."""
    text = """
    main (float[T,2] x, float[2] h) => (float[T,2] y) <bool yes = {1}, int64 zero = {0}, int64[1] front = {0}> {
      s = Shape(x)
      n = Gather(s, zero)
      start = ConstantOfShape(s)
      a, y = Loop (n, yes, h, start) <
        body = one (int64 i, bool c, float[2] v, float[T,2] w) => (bool d, float[2] o, float[T,2] u) {
          r = Gather(x, i)
          p = Add(r, v)
          o = Tanh(p)
          k = Unsqueeze(i, front)
          j = Unsqueeze(k, front)
          e = Unsqueeze(o, front)
          u = ScatterND(w, j, e)
          d = Identity(c)
        }>
    }
    """
    there_and_back(text, *({"x": floats(n, 2), "h": floats(2)} for n in (4, 1, 7)))


def test_a_list_that_grows_from_nothing() -> None:
    """As scripted code collects results: an empty tensor, and a concatenation in each round."""
    text = """
    main (int64 n, float[1,3] x) => (float[K,3] y) <bool yes = {1}, int64[2] none = {0, 3}> {
      start = ConstantOfShape(none)
      y = Loop (n, yes, start) <
        body = one (int64 i, bool c, float[A,3] v) => (bool d, float[B,3] o) {
          f = Cast <to = 1> (i)
          e = Mul(x, f)
          o = Concat <axis = 0> (v, e)
          d = Identity(c)
        }>
    }
    """
    there_and_back(text, *({"n": np.asarray(n), "x": floats(1, 3)} for n in (1, 4, 0, 2)))


def test_branches_of_other_shapes() -> None:
    text = """
    main (bool b, float[2,3] x) => (float[M,N] y) {
      y = If (b) <
        then_branch = one () => (float[A,B] p) { p = Transpose(x) },
        else_branch = two () => (float[C,D] q) { q = Concat <axis = 1> (x, x) }>
    }
    """
    there_and_back(text, *({"b": np.asarray(b), "x": floats(2, 3)} for b in (True, False)))


BAD = """
main (float[2] s, float[3,2] x, float[4,2] z) => (float[2] a) {
  a = Scan <%s, body = step (float[2] p, float[2] q) => (float[2] r) { r = Add(p, q) }> (%s)
}
"""


@pytest.mark.parametrize(
    ("attributes", "operands", "message"),
    [
        ("num_scan_inputs = 0", "s, x", "num_scan_inputs is 0"),
        ("num_scan_inputs = 3", "s, x", "num_scan_inputs is 3"),
        ("num_scan_inputs = 1, scan_input_axes = [2]", "s, x", "axis 2"),
        ("num_scan_inputs = 1, scan_input_axes = [0, 0]", "s, x", "2 entries"),
        ("num_scan_inputs = 2", "x, z", "sizes"),
        ("num_scan_inputs = 1", "x", "takes 2 values"),
    ],
)
def test_an_invalid_scan_is_refused(attributes: str, operands: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        onnx_to_tflite(parsed(BAD % (attributes, operands)), io.BytesIO(), Options())


def nested(depth: int, size: str, innermost: str) -> str:
    """Loops within each other, each carrying one value."""
    text = f"o{depth} = {innermost}".replace("v", f"v{depth}")
    for k in range(depth, 0, -1):
        body = f"b (int64 i{k}, bool d{k}, float[{size}] v{k}) => (bool e{k}, float[{size}] o{k})"
        text = f"o{k - 1} = Loop (n, c, v{k - 1}) <body = {body} {{ e{k} = Identity(d{k}) {text} }}>"
    return f"main (int64 n, float[2] v0) => (float[{size}] o0) <bool c = {{1}}> {{ {text} }}"


def test_deeply_nested_loops() -> None:
    feeds = {"n": np.asarray(1), "v0": floats(2)}
    there_and_back(nested(12, "2", "Neg(v)"), feeds)
    there_and_back(nested(4, "K", "Concat <axis = 0> (v, v)"), feeds)
    with pytest.raises(UnsupportedError, match="sizes change"):
        onnx_to_tflite(parsed(nested(16, "K", "Concat <axis = 0> (v, v)")), io.BytesIO(), Options())


def test_a_negative_trip_count_is_none() -> None:
    text = (COLLECTS % {"type": "float", "to": 1, "cond": "yes"}).replace("int64 n, ", "")
    there_and_back(text.replace("<bool", "<int64 n = {-3}, bool"), {"x": floats(2)})


F = np.float32


def test_a_scan_of_more_rounds_than_int32() -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("s", "e", "t")]
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"])], "b", value[:2], value[2:])
    scan = helper.make_node("Scan", ["a", "x"], ["y"], name="n", body=body, num_scan_inputs=1)
    with pytest.raises(onnxtfl.UnsupportedError, match="a loop of 1099511627776 iterations"):
        onnxtfl.onnx_to_tflite(onnx_file([scan], [2**40, 2], {"a": np.ones(2, F)}), check=False)


def test_loops_in_loops_with_many_rounds() -> None:
    """A chunk of rounds is a long chain of nodes in a region."""
    kinds = {"i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "v": (TensorProto.FLOAT, [2])}

    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, *kinds[name[0]])

    nodes = [helper.make_node("Add", ["v0", "v0"], ["v1"])]
    for d in (1, 2):
        nodes.append(helper.make_node("Identity", [f"c{d}"], [f"cc{d}"]))
        body = helper.make_graph(
            nodes, "b", [info(f"i{d}"), info(f"c{d}"), info(f"v{2 * d - 2}")], [info(f"cc{d}"), info(f"v{2 * d - 1}")]
        )
        nodes = [helper.make_node("Loop", ["t", "k", f"v{2 * d}"], [f"v{2 * d + 1}"], name="n", body=body)]
    nodes.insert(0, helper.make_node("Identity", ["x"], ["v4"]))
    model = onnx_file(nodes, [2], {"t": np.int64(1000), "k": np.bool_(True)})
    assert onnxtfl.onnx_to_tflite(model, check=False, load=False).data


def test_a_loop_of_real_values_with_a_quantized_result_is_refused() -> None:
    """The kernel returns what its body does, whatever the file declares."""
    real = tensor("float32", 2)
    condition, body = Graph("condition"), Graph("body")
    x = condition.add_input(real, "x")
    b = Builder(condition)
    (axis, limit) = (np.asarray([0], np.int32), np.asarray(9, np.float32))
    (total,) = b.foreign("tfl", "SUM", [x, axis], [tensor("float32")])
    condition.outputs = b.foreign("tfl", "LESS", [total, limit], [tensor("bool")])
    x = body.add_input(real, "x")
    body.outputs = Builder(body).foreign("tfl", "ADD", [x, x], [real])
    options = {"cond_subgraph_index": condition, "body_subgraph_index": body}
    data = tflite_file("WHILE", [real], real, **options)
    assert_converts_alike(data, np.asarray([1, 2], np.float32))
    quantized = real.stored_as(Quantization("int8", (0.1,), (0,)))
    with pytest.raises(onnxtfl.InvalidModelError, match="declared as int8, and stored as float32"):
        onnxtfl.tflite_to_onnx(tflite_file("WHILE", [real], quantized, **options), check=False)


@pytest.mark.parametrize("new", ["longer", "of another rank"])
def test_a_carried_value_changes_its_shape_in_a_loop_over_rows(new: str) -> None:
    """ONNX's Scan takes values of one shape only; the file declares the shape of the first iteration for all."""
    number, rows, real = tensor("int32"), tensor("float32", fresh_symbol(), 3), tensor("float32", 3)
    condition, body = Graph("condition"), Graph("body")
    for region in (condition, body):
        for type_, name in ((number, "i"), (real, "a"), (rows, "x")):
            region.add_input(type_, name)
    b, (i, _, x) = Builder(condition), condition.inputs
    first, one = np.asarray([0], np.int32), np.asarray([1], np.int32)
    (shape,) = b.foreign("tfl", "SHAPE", [x], [tensor("int32", 2)], out_type="INT32")
    (length,) = b.foreign("tfl", "STRIDED_SLICE", [shape, first, one, one], [number], shrink_axis_mask=1)
    condition.outputs = b.foreign("tfl", "LESS", [i, length], [tensor("bool")])
    b, (i, a, x) = Builder(body), body.inputs
    (row,) = b.foreign("tfl", "GATHER", [x, i], [real])
    (half,) = b.foreign("tfl", "MUL", [a, np.asarray(0.5, np.float32)], [real])
    if new == "longer":
        (taken,) = b.foreign("tfl", "CONCATENATION", [half, row], [real], axis=0)
    else:
        (wide,) = b.foreign("tfl", "EXPAND_DIMS", [row, first], [tensor("float32", 1, 3)])
        (taken,) = b.foreign("tfl", "ADD", [half, wide], [real])
    body.outputs = [*b.foreign("tfl", "ADD", [i, np.asarray(1, np.int32)], [number]), taken, x]
    options = {"cond_subgraph_index": condition, "body_subgraph_index": body}
    start = [np.asarray(0, np.int32), np.zeros(3, np.float32), rows]
    data = tflite_file("WHILE", start, number, real, rows, **options)
    for count in (3, 1):
        assert_converts_alike(data, floats(count, 3))
