"""Inputs that reach the model: limits, branches, comparisons and rows that usual inputs do not reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from onnxtfl import check
from onnxtfl.checking.inputs.coverage import in_words
from onnxtfl.checking.report import CheckReport
from onnxtfl.formats import files
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import make_input
from onnxtfl.inputs.goals import Goal, goals_of, of_second_only
from onnxtfl.inputs.ranges import Range
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.quantization import Quantization, dequantize
from onnxtfl.ir.types import tensor
from onnxtfl.metrics.changes import Changes
from onnxtfl.pipeline import lifted_where_possible
from tests.unit.tiny_models import onnx_model, saved

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 8] x) => (float[4, 8] y) '
NAMES = (
    "<float zero = {0.0}, float six = {6.0}, float s = {1e-5}, float two = {2.0}, float limit = {7.5}, float t = {8.5}>"
)
RARE = (
    f"{HEAD}{NAMES} {{ a = Mul (x, s)  m = ReduceMax <keepdims = 0> (a)  c = Greater (m, limit)"
    " y = If (c) <then_branch = p () => (float[4, 8] u) { u = %s (x, two) },"
    " else_branch = q () => (float[4, 8] v) { v = Add (x, two) }> }"
)
WHERE = f"{HEAD}{NAMES} {{ a = Mul (x, s)  c = Greater (a, %s)  n = Neg (x)  y = Where (c, n, x) }}"
CLIP = f"{HEAD}{NAMES} {{ a = Mul (x, s)  y = %s }}"


def compared(tmp_path: Path, a: str, b: str) -> CheckReport:
    files = [saved(parser.parse_model(text), tmp_path / f"{name}.onnx") for text, name in ((a, "a"), (b, "b"))]
    return check(*files)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (CLIP % "Clip (a, zero, six)", CLIP % "Relu (a)"),
        (CLIP % "Relu (a)", CLIP % "Clip (a, zero, six)"),
        (RARE % "Mul", RARE % "Sub"),
        (WHERE % "limit", WHERE % "t"),
    ],
    ids=["limit", "limit of the second", "branch", "comparison"],
)
def test_inputs_are_made_that_reach_more(tmp_path: Path, right: str, wrong: str) -> None:
    """Values times 1e-5, which inputs of other magnitudes (to 1,024 times) do not bring to 6."""
    report = compared(tmp_path, right, wrong)
    assert report.status == "failed" and report.reason.startswith("on inputs made to reach more"), report
    report = compared(tmp_path, right, right)
    assert report.ok and not report.unreached, report.unreached


def looked_up(table: np.ndarray) -> object:
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    return onnx_model([node], [("ids", TensorProto.INT64, (4, 5))], [("y", TensorProto.FLOAT, None)], {"table": table})


@pytest.mark.parametrize("row", [17, 211, 299])
def test_a_wrong_row_of_a_table_is_read(tmp_path: Path, row: int) -> None:
    table = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    wrong = table.copy()
    wrong[row] *= 2
    a, b = (saved(looked_up(t), tmp_path / name) for t, name in ((table, "a.onnx"), (wrong, "b.onnx")))
    assert check(a, a).ok
    assert check(a, b).status == "failed"


def test_the_first_two_runs_read_different_rows(tmp_path: Path) -> None:
    """20 rows each, of 40: no further inputs are needed."""
    table = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    for row in range(0, 40, 5):
        wrong = table.copy()
        wrong[row] *= 2
        a, b = (saved(looked_up(t), tmp_path / name) for t, name in ((table, "a.onnx"), (wrong, "b.onnx")))
        assert check(a, b).reason.startswith("output 'y'"), row


def test_runs_together_read_all_rows() -> None:
    info = TensorInfo("ids", "int64", (20,))
    runs = [make_input(info, (20,), Range("index", 0, 300), (turn, 0), turn=turn)[0] for turn in range(15)]
    assert sorted(np.concatenate(runs).tolist()) == list(range(300))


def test_rows_that_no_run_reads_are_counted() -> None:
    goal = Goal("rows of", "Gather", "'g'", "ids", rows=(0, 1, 2, 3))
    left = goal.after(np.array([[3, 1], [1, 1]]))
    assert left is not None and in_words([left]) == "never reached: 2 rows of Gather 'g'"
    assert left.after(np.array([0, 2])) is None


def test_channels_that_never_change_are_named(tmp_path: Path) -> None:
    """Of eight channels 0, 2, 3 and 5 are multiplied by 0, and 1 is changed by large inputs only."""
    factors = "<float[8] f = {0, 1, 0, 0, 1, 0, 1, 1}, float[8] low = {-9, 900, -9, -9, -9, -9, -9, -9}>"
    model = f"{HEAD}{factors} {{ a = Mul (x, f)  y = Max (a, low) }}"
    notes = compared(tmp_path, model, model).notes
    (note,) = (note for note in notes if note.startswith("never changed in "))
    assert note.endswith(" runs: 4 of 8 channels (0, 2, 3, ... of axis 1) of 'y'"), note


def test_channels_that_change_are_not_named(tmp_path: Path) -> None:
    notes = compared(tmp_path, CLIP % "Relu (a)", CLIP % "Relu (a)").notes
    assert not any("never changed" in note for note in notes), notes


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.bfloat16, object, "S1", np.complex64, np.int64])
def test_elements_that_are_not_compared_are_left_out(dtype: Any) -> None:
    seen = Changes()
    for _ in range(2):
        seen.add(np.ones((2, 3)).astype(dtype))
    assert not seen.runs and not seen.constant()


def test_what_was_not_reached_is_grouped() -> None:
    goals = [Goal("the upper limit of", "Clamp", f"'{name}'", name, above=6) for name in "abcd"]
    goals.append(Goal("a selected element of", "NonMaxSuppression", "'n'", "n"))
    said = "never reached: the upper limit of 4 Clamps ('a', 'b', 'c', ...); NonMaxSuppression 'n' selected nothing"
    assert in_words(goals) == said


def test_limits_that_both_models_have_are_goals_once() -> None:
    first = [Goal("the upper limit of", "Clamp", "'a'", "a", above=6.0)]
    second = [Goal("the upper limit of", "Relu6", "'b'", "b", above=float(np.nextafter(np.float32(6), 0)))]
    assert of_second_only(first, second) == ()
    assert of_second_only([], second) == tuple(second)


@pytest.mark.parametrize(
    ("nodes", "goals"),
    [
        ("q, s, z = DynamicQuantizeLinear (x)  f = DequantizeLinear (q, s, z)  y = Identity (f)", set()),
        ("y = Clip (x, zero, six)", {"the lower limit of", "the upper limit of"}),
        ("i = Cast <to = 7> (k)  y = Gather (table, i)", {"rows of"}),
        ("n = Shape <start = 0, end = 1> (x)  e = Squeeze (n)  i = Range (a, e, o)  y = Gather (table, i)", set()),
    ],
    ids=["integers are saturated", "a limit", "rows by an input", "rows by a shape"],
)
def test_goals_are_what_inputs_decide(nodes: str, goals: set[str]) -> None:
    constants = (
        "<float zero = {0.0}, float six = {6.0}, int64 a = {0}, int64 o = {1}, float[3, 2] table = {1, 2, 3, 4, 5, 6}>"
    )
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, int32[n] k) => (y) {constants} {{ {nodes} }}'
    graph = lifted_where_possible(files.read(parser.parse_model(text)))
    assert {goal.what for goal in goals_of(graph)} == goals


def test_a_quantized_result_is_at_its_limit_within_half_a_step() -> None:
    """255 steps of 6 / 255 need not be 6 in float32."""
    grid = Quantization("int8", (6 / 255,), (-128,))
    type_ = replace(tensor("float32", 4), quantization=grid)
    graph = Graph()
    made = Builder(graph)(ops.Relu6, graph.add_input(type_, ""))
    made.type, made.name = type_, "y"
    (goal,) = goals_of(graph)
    below, limit = (dequantize(np.array([k], np.int8), grid) for k in (126, 127))
    assert goal.after(below) == goal and goal.after(limit) is None
