"""Sequences and optionals: ops on them become ops on their elements; both runtimes compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError, UsageError
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.onnx_nodes import onnx_file

HEADER = '<ir_version: 8, opset_import: ["" : %d]>\n'
Array = np.ndarray[Any, Any]


def convert(text: str, opset: int = 17, **options: Any) -> onnxtfl.Conversion:
    """The model, converted and compared with ONNX Runtime on both kernel sets."""
    model = onnx.parser.parse_model(HEADER % opset + text)
    conversion = onnxtfl.onnx_to_tflite(model, check="require", **options)
    assert conversion.check is not None and conversion.check.status == "passed"
    return conversion


def outputs_of(conversion: onnxtfl.Conversion) -> list[str]:
    return [f"{spec.name}{list(spec.shape)}" for spec in conversion.report.outputs]


def three(body: str, result: str = "float[A,B] y", constants: str = "") -> str:
    """A model of three inputs of shape [2, 3]."""
    return f"main (float[2,3] a, float[2,3] b, float[2,3] c) => ({result}) {constants} {{ {body} }}"


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "wanted"), [(0, "a"), (2, "c"), (-1, "c"), (-3, "a")])
def test_an_element_at_a_known_position_is_that_value(position: int, wanted: str) -> None:
    body = "s = SequenceConstruct(a, b, c) y = SequenceAt(s, at) "
    conversion = convert(three(body, constants=f"<int64 at = {{{position}}}>"))
    assert dict(conversion.report.ops_after) == {"RESHAPE": 1}


@pytest.mark.parametrize("position", [3, -4])
def test_a_position_outside_of_the_sequence_is_an_error(position: int) -> None:
    with pytest.raises(InvalidModelError, match=f"position {position} in a sequence of 3 elements"):
        convert(three("s = SequenceConstruct(a, b, c) y = SequenceAt(s, at)", constants=f"<int64 at = {{{position}}}>"))


@pytest.mark.parametrize("position", [None, 0, 1, 2, -1, -2])
def test_insertion_before_a_position_or_at_the_end(position: int | None) -> None:
    place, constant = ("", "") if position is None else (", at", f"<int64 at = {{{position}}}>")
    body = f"s = SequenceConstruct(a, b) t = SequenceInsert(s, c{place}) y = ConcatFromSequence<axis = 0>(t)"
    convert(three(body, constants=constant))


@pytest.mark.parametrize("position", [None, 0, 1, -1, -3])
def test_erasure_at_a_position_or_at_the_end(position: int | None) -> None:
    place, constant = ("", "") if position is None else (", at", f"<int32 at = {{{position}}}>")
    body = f"s = SequenceConstruct(a, b, c) t = SequenceErase(s{place}) y = ConcatFromSequence<axis = -1>(t)"
    convert(three(body, constants=constant))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_elements_joined_along_a_new_axis(axis: int) -> None:
    convert(
        three(
            f"s = SequenceConstruct(a, b, c) y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s)", "float[A,B,C] y"
        )
    )


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_an_element_at_a_position_of_run_time_is_gathered(kind: str) -> None:
    text = """
    main (float[2,3] a, float[2,3] b, int64 at) => (float[2,3] y) {
      s = SequenceConstruct(a, b) y = SequenceAt(s, at)
    }
    """
    text = text.replace("int64", kind)
    model = onnx.parser.parse_model(HEADER % 17 + text)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    assert conversion.report.ops_after["GATHER"] == 1
    assert conversion.data is not None
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    for position in (0, 1, -1, -2):
        feeds = {"a": a, "b": b, "at": np.asarray(position, kind)}
        assert onnxtfl.check(model, conversion.data, data=feeds).status == "passed"


@pytest.mark.parametrize("op", ["t = SequenceInsert(s, c, at)", "t = SequenceErase(s, at)"])
@pytest.mark.parametrize("position", [0, 1, 2, -1, -2])
def test_positions_of_run_time_reorder_a_tensor_of_all_elements(op: str, position: int) -> None:
    text = f"""
    main (float[3] a, float[3] b, float[3] c, int64 at) => (float[N,3] y, int64 n) {{
      s = SequenceConstruct(a, b, c)
      {op}
      n = SequenceLength(t)
      y = ConcatFromSequence<axis = 0, new_axis = 1>(t)
    }}
    """
    model = onnx.parser.parse_model(HEADER % 17 + text)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    assert conversion.data is not None
    assert onnxtfl.check(model, conversion.data, data={"at": np.asarray(position)}).status == "passed"


def test_a_position_of_run_time_needs_equal_ranks() -> None:
    text = "main (float[2] a, float[3, 1] b, int64 at) => (y) { s = SequenceConstruct(a, b) y = SequenceAt(s, at) }"
    with pytest.raises(UnsupportedError, match=r"different shapes \[2\] and \[3,1\].*SequenceAt-11"):
        convert(text)


# --- SplitToSequence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 24])
@pytest.mark.parametrize(
    "split", ["int64 split = {2}", "int64 split = {3}", "int64[3] split = {1, 4, 2}", "int32[1] split = {7}"]
)
def test_a_tensor_in_parts(split: str, opset: int) -> None:
    """A scalar is the size of all parts but the last; a vector has the size of each."""
    text = f"main (float[2,7] x) => (seq(float[]) y) <{split}> {{ y = SplitToSequence<axis = -1>(x, split) }}"
    convert(text, opset)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_tensor_in_slices(keepdims: int) -> None:
    conversion = convert(
        f"main (float[2,3] x) => (seq(float[]) y) {{ y = SplitToSequence<axis = 1, keepdims = {keepdims}>(x) }}"
    )
    assert outputs_of(conversion) == [f"y_{i}{[2, 1] if keepdims else [2]}" for i in range(3)]


def test_keepdims_is_for_parts_of_size_one() -> None:
    """PyTorch exports unbind with the scalar 1 and without the axis; a vector of sizes keeps it."""
    text = """
    main (float[2,3] x) => (seq(float[]) y, seq(float[]) z) <int64 one = {1}, int64[2] sizes = {1, 2}> {
      y = SplitToSequence<axis = 1, keepdims = 0>(x, one)
      z = SplitToSequence<axis = 1, keepdims = 0>(x, sizes)
    }
    """
    assert outputs_of(convert(text)) == ["y_0[2]", "y_1[2]", "y_2[2]", "z_0[2, 1]", "z_1[2, 2]"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("use", "rank"), [
    ("y = ConcatFromSequence<axis = 1, new_axis = 1>(s)", 1),
    ("y = ConcatFromSequence<axis = -1>(s)", 0),
    ("y = SequenceAt(s, last)", 0),
    ("t = SequenceInsert(s, v) y = ConcatFromSequence<axis = 0>(t)", 0),
    ("t = SequenceErase(s) y = ConcatFromSequence<axis = 0, new_axis = 1>(t)", 1),
    ("n = SequenceLength(s) f = Cast<to = 1>(n) y = Mul(v, f)", 0),
])  # fmt: skip
def test_slices_whose_number_is_known_only_at_run_time(use: str, rank: int, keepdims: int) -> None:
    """They are one tensor, with the slices along axis 0."""
    text = """
    main (float[2,N,3] x, float[2,%s3] v) => (float[%s] y) <int64 last = {-1}> {
      s = SplitToSequence<axis = 1, keepdims = %d>(x)
      %s
    }
    """
    convert(text % ("1," * keepdims, ",".join("ABCD"[: 2 + keepdims + rank]), keepdims, use))


def test_uneven_parts_of_an_unknown_number_are_an_error() -> None:
    text = "main (float[N] x) => (int64 n) <int64 two = {2}> { s = SplitToSequence(x, two) n = SequenceLength(s) }"
    with pytest.raises(UnsupportedError, match=r"dynamic number of parts.*SplitToSequence-11.*input_shapes"):
        convert(text)
    convert(text, input_shapes={"x": [5]})


def test_parts_of_a_number_known_only_at_run_time_are_an_error() -> None:
    """They were taken for parts of one size."""
    text = "main (float[6] x, int64[N] sizes) => (float[M] y) <int64 z = {0}> { s = SplitToSequence(x, sizes) %s }"
    with pytest.raises(UnsupportedError, match=r"dynamic number of parts.*SplitToSequence-11"):
        convert(text % "y = ConcatFromSequence<axis = 0>(s)")


@pytest.mark.parametrize(
    ("inputs", "split"),
    [("float[N,2] x", "int64 split = {2}"), ("float[6,2] x, int64 split", ""), ("float[6,2] x, int64[M] split", "")],
)
def test_parts_that_are_read_at_known_positions(inputs: str, split: str) -> None:
    """As PyTorch writes `split` along an axis of dynamic size, and `tensor_split` by a tensor."""
    text = f"""
    main ({inputs}) => (float[A,2] y, float[B,2] z) <{split}> {{
      s = SplitToSequence<axis = 0>(x, split)
      second = Constant<value = int64 {{1}}>()
      y = SequenceAt(s, second)
      first = Constant<value_int = 0>()
      z = SequenceAt(s, first)
    }}
    """
    sizes = np.array([1, 3, 2]) if "int64[M]" in inputs else np.array(2)
    data = {"x": np.arange(12, dtype=np.float32).reshape(6, 2)} | ({} if split else {"split": sizes})
    conversion = convert(text, check_data=data)
    assert "SPLIT" not in dict(conversion.report.ops_after)


@pytest.mark.parametrize("use", ["y = SequenceAt(s, last)", "y = SequenceAt(s, i)"])
def test_parts_that_may_be_any_are_an_error(use: str) -> None:
    """Which part is the last one depends on how many there are."""
    constants = "<int64 two = {2}, int64 last = {-1}>"
    text = f"main (float[N] x, int64 i) => (float[M] y) {constants} {{ s = SplitToSequence(x, two) {use} }}"
    with pytest.raises(UnsupportedError, match="dynamic number of parts"):
        convert(text)


@pytest.mark.parametrize(("sizes", "axis"), [("6", 0), ("2,6", 1), ("2,N,3", 1), ("N,4", -1)])
def test_parts_of_a_size_known_only_at_run_time(sizes: str, axis: int) -> None:
    """They are one tensor; where the size does not divide the axis, the run ends with an error."""
    text = (
        f"main (float[{sizes}] x, int64 split) => (seq(float[]) y) {{ y = SplitToSequence<axis = {axis}>(x, split) }}"
    )
    model = onnxtfl.onnx_to_tflite(onnx.parser.parse_model(HEADER % 17 + text), check=False).data or b""
    x = np.random.default_rng(0).random([6 if d == "N" else int(d) for d in sizes.split(",")]).astype(np.float32)
    for split in (1, 2):
        ((_, found),) = run_tflite(model, [x, np.array(split)])
        np.testing.assert_array_equal(found, np.stack(np.split(x, x.shape[axis] // split, axis)))
    with pytest.raises(RuntimeError, match="num_input_elements"):
        run_tflite(model, [x, np.array(5)])


# --- inputs and outputs ----------------------------------------------------------------------------------------------

JOIN = "main (seq(float[N,3]) x) => (float[M,3] y) { y = ConcatFromSequence<axis = 0>(x) }"


def test_an_input_sequence_is_an_input_for_each_element() -> None:
    conversion = convert(JOIN, elements={"x": 3})
    assert [spec.name for spec in conversion.report.inputs] == ["x_0", "x_1", "x_2"]
    assert conversion.report.elements == {"x": ("x_0", "x_1", "x_2")}


def test_the_check_takes_sequences() -> None:
    model = onnx.parser.parse_model(HEADER % 17 + JOIN)
    data = onnxtfl.onnx_to_tflite(model, check=False, elements={"x": 2}).data
    assert data is not None
    rows = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    assert onnxtfl.check(model, data, data={"x": rows}).status == "passed"
    with pytest.raises(UsageError, match="1 elements for 'x', the other model has 2"):
        onnxtfl.check(model, data, data={"x": rows[:1]})


def test_sizes_of_one_element_or_of_all() -> None:
    conversion = convert(JOIN, elements={"x": 2}, input_shapes={"x": [2, 3]})
    assert [spec.shape for spec in conversion.report.inputs] == [(2, 3), (2, 3)]
    conversion = convert(JOIN, elements={"x": 2}, input_shapes={"x_1": [4, 3]})
    assert conversion.report.inputs[1].shape == (4, 3)


def test_other_names_stay_as_they_are() -> None:
    text = """
    main (seq(float[2]) x, float[2] x_0) => (seq(float[2]) y, float[2] y_1) <int64 first = {0}> {
      a = SequenceAt(x, first)
      y = SequenceConstruct(a, x_0)
      y_1 = Sub(a, x_0)
    }
    """
    conversion = convert(text, elements={"x": 2})
    assert [spec.name for spec in conversion.report.inputs] == ["x_0_", "x_1", "x_0"]
    assert [spec.name for spec in conversion.report.outputs] == ["y_0", "y_1_", "y_1"]


def test_the_length_of_an_input_sequence_has_to_be_given() -> None:
    with pytest.raises(UnsupportedError, match=r"input 'x' is a sequence of unknown length.*elements={'x': 3}"):
        convert(JOIN)
    with pytest.raises(UsageError, match="no sequence 'z' among the inputs"):
        convert(JOIN, elements={"x": 1, "z": 1})
    with pytest.raises(UsageError, match="use 0 to 1024"):
        convert(JOIN, elements={"x": -1})


OPTIONAL = """
main (optional(float[2]) x, float[2] d) => (float[2] y, bool has) {
  has = OptionalHasElement(x)
  y = If (has) <
    then_branch = some () => (float[2] p) { p = OptionalGetElement(x) },
    else_branch = none () => (float[2] q) { q = Neg(d) }>
}
"""


@pytest.mark.parametrize("opset", [16, 18])
@pytest.mark.parametrize("elements", [{}, {"x": 1}, {"x": None}, {"x": 0}])
def test_an_optional_input_is_there_unless_said_otherwise(opset: int, elements: dict[str, int | None]) -> None:
    conversion = convert(OPTIONAL, opset, elements=elements)
    there = elements.get("x", 1)
    assert [spec.name for spec in conversion.report.inputs] == (["x", "d"] if there else ["d"])
    assert conversion.report.elements["x"] == (("x",) if there else ())


@pytest.mark.parametrize(("elements", "names"), [({"x": 2}, ["x_0", "x_1"]), ({"x": None}, [])])
def test_an_optional_sequence(elements: dict[str, int | None], names: list[str]) -> None:
    text = """
    main (optional(seq(float[2])) x, float[1] a) => (optional(seq(float[2])) y, float[1] b) {
      y = Identity(x) b = Exp(a)
    }
    """
    conversion = convert(text, elements=elements)
    assert [spec.name for spec in conversion.report.inputs] == [*names, "a"]
    assert [spec.name for spec in conversion.report.outputs] == [*(n.replace("x", "y") for n in names), "b"]


def test_a_model_without_outputs_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="no output: y has no elements"):
        convert("main (float[1] x) => (seq(float) y) { y = SequenceEmpty() }")


def test_an_output_of_unknown_length_is_one_tensor() -> None:
    conversion = convert("main (float[N,2] x) => (seq(float[2]) y) { y = SplitToSequence<keepdims = 0>(x) }")
    assert [spec.name for spec in conversion.report.outputs] == ["y"]


def test_an_output_that_is_no_sequence_although_it_is_declared_as_one() -> None:
    """The check does not pass, and does not raise."""
    text = "main (float[2] x) => (seq(float[2]) y) { y = Exp(x) }"
    model = onnx.parser.parse_model(HEADER % 17 + text)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    assert conversion.data is not None
    assert onnxtfl.check(model, conversion.data).status != "passed"


def test_a_part_of_a_model_that_begins_with_a_sequence() -> None:
    text = three("s = SequenceConstruct(a, b) y = ConcatFromSequence<axis = 0>(s)")
    assert [spec.name for spec in convert(text, inputs=["s"]).report.inputs] == ["s_0", "s_1"]


def test_a_part_of_a_model_that_ends_in_a_sequence() -> None:
    text = three("s = SequenceConstruct(a, b) y = ConcatFromSequence<axis = 0>(s)")
    assert [spec.name for spec in convert(text, outputs=["s"]).report.outputs] == ["s_0", "s_1"]


# --- optionals made in the model -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opset", "made", "there"), [
    (15, "o = Optional(x)", True),
    (15, "o = Optional<type = float[2]>()", False),
    (18, "o = Optional(x)", True),
    (18, "o = Identity(x)", True),
])  # fmt: skip
def test_whether_an_optional_has_a_value_is_known(opset: int, made: str, there: bool) -> None:
    text = f"""main (float[2] x) => (float[2] y) {{
      {made}
      has = OptionalHasElement(o)
      y = If (has) <
        then_branch = some () => (float[2] p) {{ p = Exp(x) }},
        else_branch = none () => (float[2] q) {{ q = Neg(x) }}>
    }}"""
    assert dict(convert(text, opset).report.ops_after) == {"EXP" if there else "NEG": 1}


@pytest.mark.parametrize("opset", [15, 18])
def test_the_value_of_an_optional(opset: int) -> None:
    convert("main (float[2] x) => (float[2] y) { o = Optional(x) v = OptionalGetElement(o) y = Exp(v) }", opset)


def test_an_optional_without_a_value_cannot_be_read() -> None:
    with pytest.raises(InvalidModelError, match=r"the optional has no value.*OptionalGetElement-15"):
        convert("main (float[2] x) => (float[2] y) { o = Optional<type = float[2]>() y = OptionalGetElement(o) }", 15)


# --- SequenceMap -----------------------------------------------------------------------------------------------------


def test_a_map_over_sequences_and_tensors_that_captures() -> None:
    text = """
    main (seq(float[2]) s, seq(float[2]) t, float[2] w, float[2] k) => (seq(float[2]) y, seq(int64[1]) n) {
      y, n = SequenceMap (s, t, w) <body = f (float[2] a, float[2] b, float[2] c) => (float[2] r, int64[1] q) {
        p = Add(a, b)
        v = Mul(p, k)
        r = Sub(v, c)
        q = Shape(r)
      }>
    }
    """
    conversion = convert(text, elements={"s": 2, "t": 2})
    assert outputs_of(conversion) == ["y_0[2]", "y_1[2]", "n_0[1]", "n_1[1]"]
    with pytest.raises(InvalidModelError, match="sequences of different lengths"):
        convert(text, elements={"s": 2, "t": 3})


# --- regions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_branches_that_return_sequences(nested: bool) -> None:
    """The branches of an If return the elements; a captured sequence is captured as its elements."""
    inner = (
        "t = Identity(s)"
        if not nested
        else """
      t = If (d) <
        then_branch = three () => (seq(float[2,3]) m) { m = Identity(s) },
        else_branch = four () => (seq(float[2,3]) n) { n = SequenceConstruct(a, a) }>"""
    )
    text = """
    main (float[2,3] a, float[2,3] b, bool c, bool d) => (float[A,3] y, int64 n) <int64 last = {-1}> {
      s = SequenceConstruct(a, b)
      r = If (c) <
        then_branch = one () => (seq(float[2,3]) p) { {inner} e = SequenceErase(t) p = SequenceInsert(e, b) },
        else_branch = two () => (seq(float[2,3]) q) { v = SequenceAt(s, last) w = Neg(v) q = SequenceConstruct(w, v) }>
      y = ConcatFromSequence<axis = 0>(r)
      n = SequenceLength(r)
    }
    """
    assert convert(text.replace("{inner}", inner)).report.ops_after["IF"] == 1 + nested


def test_branches_that_return_sequences_of_different_lengths() -> None:
    """The elements, of one shape, are one tensor."""
    text = """
    main (bool c, float[3] x) => (float[N,3] y, int64 n) {
      e = Exp(x)
      s = If (c) <
        then_branch = one () => (seq(float[3]) p) { p = SequenceConstruct(x, e, x) },
        else_branch = two () => (seq(float[3]) q) { q = SequenceConstruct(x) }>
      y = ConcatFromSequence<axis = 0, new_axis = 1>(s)
      n = SequenceLength(s)
    }
    """
    convert(text)


LOOP = """
main (float[4] x, seq(float[N]) given) => (seq(float[N]) y, float[R,4] scanned)
<int64 rounds = {%d}, bool yes = {1}, int64 one = {1}, int64[1] zero = {0}> {
  y, scanned = Loop (rounds, yes, given) <
    body = body (int64 i, bool go, seq(float[N]) s) => (bool on, seq(float[N]) t, float[4] u) {
    on = Identity(go)
    end = Add(i, one)
    stop = Unsqueeze(end, zero)
    part = Slice(x, zero, stop)
    t = SequenceInsert(s, part)
    n = SequenceLength(s)
    f = Cast<to = 1>(n)
    u = Mul(x, f)
  }>
}
"""


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("given", [0, 2])
def test_a_loop_over_sequences_of_a_known_number_of_rounds(rounds: int, given: int) -> None:
    """Elements of other sizes each round, and a scan output."""
    conversion = convert(LOOP % rounds, elements={"given": given})
    assert len(conversion.report.outputs) == rounds + given + 1
    assert "WHILE" not in conversion.report.ops_after


def test_the_number_of_a_round_may_be_a_vector() -> None:
    """As PyTorch writes the loop of tensor_split."""
    declared = (
        (LOOP % 3).replace("(int64 i,", "(int64[1] i,").replace("stop = Unsqueeze(end, zero)", "stop = Identity(end)")
    )
    convert(declared, elements={"given": 1})


def test_a_condition_ends_a_loop_over_sequences() -> None:
    text = """
    main (float[4] x) => (seq(float[4]) y) <bool yes = {1}, int64 three = {3}> {
      s = SequenceEmpty()
      y = Loop (, yes, s) <body = body (int64 i, bool go, seq(float[4]) s) => (bool on, seq(float[4]) t) {
        on = Less(i, three)
        t = SequenceInsert(s, x)
      }>
    }
    """
    assert len(convert(text).report.outputs) == 4


def test_a_loop_that_never_ends_is_an_error() -> None:
    text = """
    main (float[4] x) => (seq(float[4]) y) <bool yes = {1}> {
      s = SequenceEmpty()
      y = Loop (, yes, s) <body = body (int64 i, bool go, seq(float[4]) s) => (bool on, seq(float[4]) t) {
        on = Identity(go)
        t = SequenceInsert(s, x)
      }>
    }
    """
    with pytest.raises(OnnxtflError, match="always true, and it has no trip count"):
        convert(text)


def test_an_optional_that_has_a_value_after_the_first_round() -> None:
    text = """
    main (float[2] x) => (seq(float[2]) y) <int64 rounds = {3}, bool yes = {1}> {
      o = Optional<type = seq(float[2])>()
      y = Loop (rounds, yes, o) <
        body = body (int64 i, bool go, optional(seq(float[2])) s) => (bool on, seq(float[2]) t) {
        on = Identity(go)
        has = OptionalHasElement(s)
        r = If (has) <
          then_branch = some () => (seq(float[2]) p) { p = OptionalGetElement(s) },
          else_branch = none () => (seq(float[2]) q) { q = SequenceEmpty() }>
        t = SequenceInsert(r, x)
      }>
    }
    """
    assert len(convert(text, 16).report.outputs) == 3


# --- loops whose rounds are known only at run time -------------------------------------------------------------------


def agrees(text: str, *feeds: dict[str, Array], elements: dict[str, int | None] | None = None) -> onnxtfl.Conversion:
    """The converted model, which agrees with ONNX Runtime on each of `feeds`."""
    model = onnx.parser.parse_model(HEADER % 17 + text)
    conversion = onnxtfl.onnx_to_tflite(model, check=False, elements=elements)
    assert conversion.data is not None
    for given in feeds:
        report = onnxtfl.check(model, conversion.data, data=given)
        assert report.status == "passed", (given, str(report))
    return conversion


COLLECTING = """
main (int64 rounds, bool yes, float[2] x) => (float[N,2] y, int64 n) {
  s = INITIAL
  r = Loop (rounds, yes, s) <
    body = body (int64 i, bool go, seq(float[2]) s) => (bool on, seq(float[2]) t) {
      on = Identity(go)
      f = Cast<to = 1>(i)
      e = Mul(x, f)
      UPDATE
    }>
  n = SequenceLength(r)
  y = ConcatFromSequence<axis = 0, new_axis = 1>(r)
}
"""
ROUNDS = [{"rounds": np.asarray(n), "yes": np.asarray(True)} for n in (1, 4)]


@pytest.mark.parametrize("initial", ["SequenceEmpty()", "SequenceConstruct(x, x)"])
@pytest.mark.parametrize(
    "update",
    [
        "t = SequenceInsert(s, e)",
        "l = SequenceLength(s) g = Cast<to = 1>(l) h = Add(e, g) t = SequenceInsert(s, h)",
        "zero = Constant<value_int = 0>() t = SequenceInsert(s, e, zero)",
    ],
    ids=["appended", "with length", "at front"],
)
def test_a_loop_of_run_time_makes_a_longer_sequence_each_round(initial: str, update: str) -> None:
    """Elements that are only appended are collected; else all are one tensor that grows."""
    agrees(COLLECTING.replace("INITIAL", initial).replace("UPDATE", update), *ROUNDS)


def test_a_loop_of_no_rounds_keeps_the_sequence() -> None:
    text = COLLECTING.replace("INITIAL", "SequenceConstruct(x, x)").replace("UPDATE", "t = SequenceInsert(s, e)")
    agrees(
        text, {"rounds": np.asarray(0), "yes": np.asarray(True)}, {"rounds": np.asarray(3), "yes": np.asarray(False)}
    )


def test_a_loop_of_run_time_over_a_sequence_of_constant_length() -> None:
    """The elements, of other shapes, are carried each for itself."""
    text = """
    main (int64 rounds, float[2] a, float[3] b) => (seq(float[N]) y, float[R,2] c) <bool yes = {1}, int64 first = {0}> {
      s = SequenceConstruct(a, b)
      y, c = Loop (rounds, yes, s) <
        body = body (int64 i, bool go, seq(float[N]) s) => (bool on, seq(float[N]) t, float[2] d) {
          on = Identity(go)
          p = SequenceAt(s, first)
          d = Sin(p)
          q = SequenceErase(s, first)
          t = SequenceInsert(q, d, first)
        }>
    }
    """
    conversion = agrees(text, *({"rounds": np.asarray(n)} for n in (1, 3)))
    assert outputs_of(conversion)[:2] == ["y_0[2]", "y_1[3]"]


def test_a_loop_ends_by_what_it_computes() -> None:
    text = """
    main (float[2] x, float limit) => (float[N,2] y) <bool yes = {1}> {
      s = SequenceEmpty()
      r, z = Loop (, yes, s, x) <
        body = body (int64 i, bool go, seq(float[2]) s, float[2] v) => (bool on, seq(float[2]) t, float[2] w) {
          w = Add(v, v)
          m = ReduceMax<keepdims = 0>(w)
          on = Less(m, limit)
          t = SequenceInsert(s, w)
        }>
      y = ConcatFromSequence<axis = 0, new_axis = 1>(r)
    }
    """
    x = np.asarray([1, -2], np.float32)
    agrees(text, *({"x": x, "limit": np.asarray(n, np.float32)} for n in (1, 9, 100)))


def test_elements_whose_sizes_change_from_round_to_round_need_a_known_number_of_rounds() -> None:
    text = LOOP.replace("<int64 rounds = {%d}, bool yes = {1},", "<bool yes = {1},").replace(
        "main (", "main (int64 rounds, "
    )
    with pytest.raises(UnsupportedError, match=r"elements of .* differ between iterations.*trip count"):
        convert(text, elements={"given": 0})


LENGTHS = """
main (float[T,4] x, int64[T] lengths) => (float[N,4] y, float[2,M] z)
<bool yes = {1}, int64[1] first = {0}, int64[1] width = {4}, int64[1] two = {2}> {
  shape = Shape(lengths)
  rounds = Squeeze(shape)
  none = SequenceEmpty()
  rows, columns, ends = Loop (rounds, yes, none, none) <
    body = f (int64 i, bool go, seq(float[A,4]) s, seq(float[2,B]) c)
        => (bool on, seq(float[A,4]) t, seq(float[2,B]) d, int64 e) {
      on = Identity(go)
      row = Gather<axis = 0>(x, i)
      e = Gather<axis = 0>(lengths, i)
      count = Unsqueeze(e, first)
      whole = Concat<axis = 0>(count, width)
      many = Expand(row, whole)
      t = SequenceInsert(s, many)
      part = Concat<axis = 0>(two, count)
      number = Cast<to = 1>(i)
      wide = Expand(number, part)
      d = SequenceInsert(c, wide)
    }>
  y = ConcatFromSequence<axis = 0>(rows)
  z = ConcatFromSequence<axis = -1>(columns)
}
"""


def test_elements_of_the_sizes_of_rounds_that_are_joined() -> None:
    """The length regulator of FastSpeech 2: each row as often as its length says, of a number of rows at run time."""
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    lengths = ([1, 2, 0, 3, 1], [0, 0, 0, 0, 2], [4, 4, 4, 4, 4])
    agrees(LENGTHS, *({"x": x, "lengths": np.asarray(n)} for n in lengths))


def test_elements_of_the_sizes_of_rounds_of_which_one_is_read_are_refused() -> None:
    text = LENGTHS.replace("y = ConcatFromSequence<axis = 0>(rows)", "zero = Squeeze(first) y = SequenceAt(rows, zero)")
    with pytest.raises(UnsupportedError, match=r"elements of .* differ between iterations.*trip count"):
        convert(text)


CELL = """
main (float[%s,2,3] x, float[2,3] start) => (float[N,2,3] y, float[2,3] last)
<float[3,3] w = {0.5, -0.25, 0.125, 1, 0.5, -1, 0.25, 0.75, -0.5}, bool yes = {1}, int64 first = {0}> {
  all = SplitToSequence<axis = 0, keepdims = 0>(x)
  steps = SequenceLength(all)
  none = SequenceEmpty()
  last, states = Loop (steps, yes, start, none) <
    body = f (int64 i, bool go, float[2,3] h, seq(float[A,3]) done) => (bool on, float[2,3] k, seq(float[A,3]) more) {
      on = Identity(go)
      step = SequenceAt(all, i)
      p = MatMul(h, w)
      q = Add(p, step)
      k = Tanh(q)
      more = SequenceInsert(done, k)
    }>
  y = ConcatFromSequence<axis = 0, new_axis = 1>(states)
}
"""


@pytest.mark.parametrize("length", ["4", "T"])
def test_a_recurrent_cell_over_the_slices_of_a_tensor(length: str) -> None:
    """As scripted models are exported: slices are read by their number, states are appended to a sequence."""
    text = CELL % length
    assert ("WHILE" in convert(text).report.ops_after) == (length == "T")


def test_a_map_over_slices_whose_number_is_known_only_at_run_time() -> None:
    text = """
    main (float[N,2] x, float[2] k) => (float[M,2] y, int64[L,1] n) {
      s = SplitToSequence<axis = 0, keepdims = 0>(x)
      r, l = SequenceMap (s, k) <body = f (float[2] a, float[2] c) => (float[2] p, int64[1] q) {
        t = Mul(a, k)
        p = Sub(t, c)
        q = Shape(a)
      }>
      y = ConcatFromSequence<axis = 0, new_axis = 1>(r)
      n = ConcatFromSequence<axis = 0, new_axis = 1>(l)
    }
    """
    convert(text)


# --- elements of different shapes, at positions known only at run time -----------------------------------------------


@pytest.mark.parametrize("position", [-2, -1, 0, 1])
def test_positions_in_a_sequence_of_different_shapes(position: int) -> None:
    """IFs choose among the elements: insertion, erasure and one element, as ONNX Runtime's."""
    results = "float[K] e, float[L] r0, float[M] r1, float[P] i0, float[Q] i1, float[R] i2"
    nodes = """s = SequenceConstruct (a, b)
      e = SequenceAt (s, at)
      t = SequenceInsert (s, c, at)
      i0 = SequenceAt (t, zero) i1 = SequenceAt (t, one) i2 = SequenceAt (t, two)
      u = SequenceErase (t, at)
      r0 = SequenceAt (u, zero) r1 = SequenceAt (u, one)"""
    constants = "<int64 zero = {0}, int64 one = {1}, int64 two = {2}>"
    text = f"main (float[2] a, float[3] b, float[1] c, int64[1] at) => ({results}) {constants} {{ {nodes} }}"
    model = onnx.parser.parse_model(HEADER % 17 + text).SerializeToString()
    inputs = {"a": np.float32([1, 2]), "b": np.float32([3, 4, 5]), "c": np.float32([6]), "at": np.asarray([position])}
    wanted = run_onnx(model, inputs)
    for name, found in run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", inputs):
        np.testing.assert_array_equal(found, wanted[name], err_msg=name)


def test_a_sequence_of_2_40_elements() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["q"], axis=0),
        helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0),
    ]
    with pytest.raises(onnxtfl.UnsupportedError, match="axis of more than"):
        onnxtfl.onnx_to_tflite(onnx_file(nodes, [2**40], {}), check=False)
