"""What is evidence: of a fault, of nothing, and which criteria a user allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, parser

from onnxtfl import build_model, check, tflite_to_onnx
from onnxtfl.checking.criteria.distribution import distribution_distance
from onnxtfl.checking.criteria.emulation_distance import EmulationDistance
from onnxtfl.checking.evidence import CRITERION_NAMES, Judgment, Verdict
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.metrics.distances import Three, measure
from onnxtfl.metrics.quality import METRIC_NAMES
from onnxtfl.option_table import CRITERIA, METRICS
from tests.unit.tiny_models import saved

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


def model(text: str) -> ModelProto:
    return parser.parse_model(HEAD + text)


def compared(tmp_path: Path, a: str, b: str, **options: object) -> CheckReport:
    return check(saved(model(a), tmp_path / "a.onnx"), saved(model(b), tmp_path / "b.onnx"), **options)


def test_the_table_of_options_names_all_criteria_and_metrics() -> None:
    assert CRITERIA == CRITERION_NAMES and METRICS == METRIC_NAMES


def test_a_rejection_is_final() -> None:
    out = OutputCheck("y", False, "float32", (2,), message="off")
    rejected = out.judged(Judgment("op-by-op", Verdict.REJECT, "CONV_2D differs"))
    assert not rejected.judged(Judgment("emulation-distance", Verdict.ACCEPT)).ok
    accepted = out.judged(Judgment("op-by-op", Verdict.ACCEPT))
    assert accepted.ok and accepted.accepted_by == "op-by-op"
    again = accepted.judged(Judgment("emulation-distance", Verdict.ACCEPT))
    assert again.accepted_by == "op-by-op" and again.was_accepted_by("emulation-distance")
    late = again.judged(Judgment("emulation-distance", Verdict.REJECT, "far"))
    assert not late.ok and late.message == "far" and not late.accepted_by


def noisy(factor: str, kind: str, scale: str) -> str:
    return (
        f"(float[4, 8] x) => (float[4, 8] y) <float k = {{{factor}}}, float s = {{{scale}}}>"
        f"{{ r = {kind} (x)  n = Mul (r, s)  z = Mul (x, k)  y = Add (z, n) }}"
    )


@pytest.mark.parametrize(
    ("other", "status"),
    [
        (noisy("1.0", "RandomNormalLike", "0.001"), "passed"),
        (noisy("-3.0", "RandomNormalLike", "0.001"), "failed"),
        (noisy("1.0", "RandomNormalLike", "5.0"), "failed"),
        (noisy("1.0", "RandomUniformLike", "0.5"), "failed"),
    ],
)
def test_random_outputs_are_compared_by_distribution(tmp_path: Path, other: str, status: str) -> None:
    report = compared(tmp_path, noisy("1.0", "RandomNormalLike", "0.001"), other)
    assert report.status == status, report
    assert any(judgment.criterion == "distribution" for judgment in report.outputs[0].judgments)


def test_draws_of_a_seed_are_not_repeated() -> None:
    """LiteRT loads a model again for each set of runs, which then repeats its draws: 25 of them, eight times."""
    text = """graph main(%m: tensor<float32>) -> (%y) {
      %s = constant tensor<float32> [1]
      %n = constant tensor<1xint64> [40]
      %y = RngNormal(%m, %s, %n) {seed = 5}
    }"""
    model = build_model(text.encode(), to="tflite", check=False).data
    assert model is not None
    report = tflite_to_onnx(model).check
    assert report is not None and report.status == "passed"


def test_equal_distributions_are_near_and_others_far() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 200))
    assert distribution_distance(a, b, 0.0) < 0.2 < distribution_distance(a, b + 1, 0.0)
    assert distribution_distance(a, a + 1e-7, 1e-6) == 0.0


def test_what_was_not_compared_is_not_checked(tmp_path: Path) -> None:
    nan = "(float[2, 3] x) => (float[2, 3] y) <float z = {%s}> { a = Mul (x, z)  y = Div (a, a) }"
    report = compared(tmp_path, nan % "0.0", nan % "0.0")
    assert report.status == "not checked" and "'y'" in report.reason
    empty = "(float[2, 3] x) => (int64[2, n] y) { b = Not (c)  d = And (b, c)  y = NonZero (d) }"
    empty = empty.replace("{ b", "<float z = {0.0}> { c = Greater (x, z)  b")
    report = compared(tmp_path, empty, empty)
    assert report.status == "not checked" and "empty" in report.reason


def test_outputs_in_another_order_differ(tmp_path: Path) -> None:
    two = "(float[3] x) => (%s) { p = Neg (x)  q = Abs (x) }"
    report = compared(tmp_path, two % "float[3] p, float[3] q", two % "float[3] q, float[3] p")
    assert report.status == "failed" and "order" in report.reason


def test_equal_elements_excuse_no_other_position(tmp_path: Path) -> None:
    last = "(float[4] x) => (int64[1] y) <float z = {0.0}> { t = Mul (x, z)"
    last += "  y = ArgMax <axis = 0, select_last_index = %d> (t) }"
    report = compared(tmp_path, last % 0, last % 1)
    assert report.status == "failed"
    assert [j.verdict for j in report.outputs[0].judgments if j.criterion == "near-ties"] == [Verdict.REJECT]


@pytest.mark.parametrize(
    "wrong",
    [
        "y = Relu (x)",
        "c = Greater (t, big)  y = If (c) <then_branch = p () => (float[4, 8] u) { u = Mul (x, five) },"
        " else_branch = q () => (float[4, 8] v) { v = Clip (x, zero, six) }>",
    ],
)
def test_inputs_of_other_magnitudes_reach_limits_and_branches(tmp_path: Path, wrong: str) -> None:
    """Clip(x, 0, 6) of values that seldom exceed 3."""
    names = "<float zero = {0.0}, float six = {6.0}, float big = {1000.0}, float five = {5.0}>"
    source = f"(float[4, 8] x) => (float[4, 8] y) {names} {{ t = ReduceSum <keepdims = 0> (x)  "
    report = compared(tmp_path, source + "y = Clip (x, zero, six) }", source + wrong + " }")
    assert report.status == "failed", report


LINEAR = "(float[2, 4] x) => (float[2, 4] y, float[2, 4] z) <float k = {%s}> { y = Mul (x, k)  z = Neg (x) }"


def test_tolerances_of_an_output(tmp_path: Path) -> None:
    pair = LINEAR % "1.0", LINEAR % "1.01"
    assert compared(tmp_path, *pair, rtol={"y": 0.1}).ok
    assert not compared(tmp_path, *pair, rtol={"z": 0.1}).ok
    assert not compared(tmp_path, *pair, atol="1e-3abs").ok
    assert compared(tmp_path, *pair, atol={"y": "100abs"}, accept=["tolerance"]).ok


def test_accept_says_which_criteria_may_accept(tmp_path: Path) -> None:
    sigmoid = "(float[4, 8] x) => (float[4, 8] y) <float c = {-20.0}> { a = Add (x, c)  y = Sigmoid (a) }"
    exact = sigmoid.replace("y = Sigmoid (a)", "n = Neg (a)  e = Exp (n)  o = Add (e, one)  y = Reciprocal (o)")
    exact = exact.replace("float c", "float one = {1.0}, float c")
    report = compared(tmp_path, sigmoid, exact, accept=["tolerance"], rtol=1e-7, atol=0.0)
    assert report.status == "failed"
    assert {judgment.criterion for judgment in report.outputs[0].judgments} == {"tolerance"}


def test_metrics_and_outputs_are_reported(tmp_path: Path) -> None:
    def shifted(a: np.ndarray, b: np.ndarray) -> float:
        return float((b - a).mean())

    pair = LINEAR % "1.0", LINEAR % "2.0"
    report = compared(tmp_path, *pair, metrics=["cosine", "snr", "top-1", shifted], save_outputs=tmp_path / "out")
    found = report.outputs[0].metrics
    assert found["cosine"] == pytest.approx(1) and found["snr"] == pytest.approx(0) and found["top-1"] == 1
    with np.load(tmp_path / "out" / "outputs-a-0.npz") as a, np.load(tmp_path / "out" / "outputs-b-0.npz") as b:
        np.testing.assert_allclose(2 * a["y"], b["y"])
        assert found["shifted"] == pytest.approx(float((b["y"] - a["y"]).mean()), rel=1e-4)
    assert report.to_json()["outputs"][0]["metrics"]["cosine"] == pytest.approx(1)
    assert report.to_json()["outputs"][0]["judgments"][0]["criterion"] == "tolerance"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("y = Clip (x, zero, huge)", "the upper limit of Clamp 'y'"),
        ("a = Clip (x, zero, huge)  y = Clip (x, least, zero)", "the lower limit of Clamp 'y'"),
        (
            "c = Greater (t, huge)  y = If (c) <then_branch = p () => (float[4, 8] u) { u = Neg (x) },"
            " else_branch = q () => (float[4, 8] v) { v = Abs (x) }>",
            "the then branch of If 'y'",
        ),
        ("y = Clip (x, least, six)", "the lower limit of Clamp 'y'"),
    ],
)
def test_what_no_input_reaches_is_said(tmp_path: Path, nodes: str, said: str) -> None:
    names = "<float zero = {0.0}, float six = {6.0}, float huge = {1e9}, float least = {-1e9}>"
    text = f"(float[4, 8] x) => (float[4, 8] y) {names} {{ t = ReduceSum <keepdims = 0> (x)  {nodes} }}"
    report = compared(tmp_path, text, text)
    assert report.ok and report.unreached
    assert any(note.startswith("never reached: ") and said in note for note in report.notes), report.notes


def test_what_values_exclude_is_no_goal(tmp_path: Path) -> None:
    limits = "<float zero = {0.0}, float six = {6.0}>"
    text = f"(float[4, 8] x) => (float[4, 8] y) {limits} {{ a = Abs (x)  y = Clip (a, zero, six) }}"
    report = compared(tmp_path, text, text)
    assert report.ok and not report.unreached and not report.notes


@pytest.mark.parametrize(
    ("fused", "other", "verdict"),
    [(1, 60, Verdict.REJECT), (1, 3, Verdict.INCONCLUSIVE), (2, 2, Verdict.ACCEPT)],
)
def test_a_distance_of_several_times_the_kernels_own_is_a_fault(fused: int, other: int, verdict: Verdict) -> None:
    values = (np.float64([400, 2, d]) for d in (0, fused, other))
    three = Three(*values, step=1.0)
    (found,) = measure(["y"], lambda _: [three], 0)
    assert EmulationDistance()._judgment(found).verdict is verdict
