"""A wrong model does not pass because the first inputs say little about it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from onnxtfl.checking.criteria.pre_activation import is_saturated
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.checking.varied_runs import VariedRuns
from onnxtfl.inputs.scaling import hardly_changes, varied
from onnxtfl.runtimes import RunOptions
from tests.unit.tiny_models import onnx_model, saved

FLOAT = TensorProto.FLOAT


def compared(tmp_path: Path, a: ModelProto, b: ModelProto) -> CheckReport:
    return check_models(saved(a, tmp_path / "a.onnx"), saved(b, tmp_path / "b.onnx"), Settings())


def chain(nodes, shape=(4, 8), **constants) -> ModelProto:
    """A model of ``nodes`` from x to y."""
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    made = [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes]
    return onnx_model(made, [("x", FLOAT, shape)], [("y", FLOAT, None)], arrays)


def sigmoid(bias: float) -> ModelProto:
    return chain([("Add", ["x", "c"], ["a"]), ("Sigmoid", ["a"], ["y"])], c=bias)


def test_a_saturated_sigmoid_is_compared_before_it(tmp_path: Path) -> None:
    """All outputs are near 1e-8, where float32 computes a Sigmoid with an error of 6e-8."""
    assert compared(tmp_path, sigmoid(-20), sigmoid(-20)).outputs[0].was_accepted_by("pre-activation")
    report = compared(tmp_path, sigmoid(-20), sigmoid(-20.1))
    assert report.status == "failed"
    assert "before its Sigmoid" in report.reason


def dead(factor: float) -> ModelProto:
    """``max(x - 8, 0) * factor``, which is 0 for most inputs."""
    nodes = [("Sub", ["x", "c"], ["a"]), ("Relu", ["a"], ["b"]), ("Mul", ["b", "f"], ["y"])]
    return chain(nodes, c=8, f=factor)


def test_a_net_that_the_inputs_do_not_excite(tmp_path: Path) -> None:
    report = compared(tmp_path, dead(2), dead(2))
    assert report.ok
    assert "hardly depends on the inputs" in report.notes[0]
    report = compared(tmp_path, dead(2), dead(3))
    assert report.status == "failed"
    assert "another magnitude" in report.reason


def over_rows(kind: str) -> ModelProto:
    """A reduction over the last axis, of open size."""
    return chain([(kind, ["x"], ["y"], {"axes": [1]})], ("b", "n"))


def test_a_size_that_was_built_in(tmp_path: Path) -> None:
    """The second model is correct for one length only."""
    report = compared(tmp_path, over_rows("ReduceMean"), over_rows("ReduceMean"))
    assert report.ok
    assert any(note.startswith("also compared at x:[2,") for note in report.notes)
    nodes = [("ReduceL1", ["x"], ["a"], {"axes": [1]}), ("Div", ["a", "c"], ["y"])]
    right = chain([("Abs", ["x"], ["a"]), ("ReduceMean", ["a"], ["y"], {"axes": [1]})], ("b", "n"))
    report = compared(tmp_path, right, chain(nodes, ("b", "n"), c=480))
    assert report.status == "failed"
    assert report.reason.startswith("at x:[2,1024]")


def test_a_difference_says_at_which_size(tmp_path: Path) -> None:
    report = compared(tmp_path, over_rows("ReduceMean"), over_rows("ReduceMax"))
    differ, meant = report.notes
    assert differ == "the models differ at x:[2,480]; at x:[2,1024] they differ too"
    assert meant.endswith("the models differ: both runtimes compute it")


def test_outputs_that_say_little() -> None:
    assert hardly_changes(np.array([1.0, 2.0]), np.array([1.0, 2.0005]))
    assert not hardly_changes(np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    assert is_saturated(np.array([1e-5, 0.9999], np.float32))
    assert not is_saturated(np.array([1e-5, 0.5], np.float32))


def test_only_values_without_a_meaning_are_scaled() -> None:
    x = np.ones(3, np.float32)
    choices = ["normal", "index in [0, 5)", "integers in [1, 8)"]
    made = list(varied(lambda number: ([x, x * number, x * number], choices), [x, x, x], 1, 3))
    assert [values[0][0] for values in made] == [4, -1, 16]
    assert [values[1][0] for values in made] == [1, 2, 3]
    assert all((values[2] == 1).all() for values in made)


def test_offsets_of_quiet_sound_are_small_too() -> None:
    """An offset of 64 would leave few bits of it: a mean over its steps is then all rounding."""
    sound = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * np.float32(0.03)
    sets = list(varied(lambda number: ([sound], ["quiet sound"]), [sound], 1, 12))
    offsets = [abs(values[0].mean()) / values[0].std() for values in sets]
    assert 20 < max(offsets) < 400


def without_axes_of_1(shape: tuple[str | int, ...]) -> ModelProto:
    return chain([("Squeeze", ["x"], ["y"])], shape)


def without_last_axis(shape: tuple[str | int, ...]) -> ModelProto:
    return chain([("ReduceMax", ["x"], ["y"], {"axes": [2], "keepdims": 0})], shape)


def test_a_batch_of_1(tmp_path: Path) -> None:
    """The second model agrees for all batches but the one that most people run."""
    shape = ("batch", 3, 1)
    assert compared(tmp_path, without_axes_of_1(shape), without_axes_of_1(shape)).ok
    report = compared(tmp_path, without_axes_of_1(shape), without_last_axis(shape))
    assert report.status == "failed"
    assert report.reason == "at x:[1,3,1]: output 'y': shape [3] became [1,3]"


def test_other_sizes_of_1_are_excluded_from_the_verdict(tmp_path: Path) -> None:
    shape = (3, "length", 1)
    report = compared(tmp_path, without_axes_of_1(shape), without_last_axis(shape))
    assert report.ok
    assert report.excluded == "at x:[3,1,1]"
    assert (
        "excluded from the verdict: the models differ at x:[3,1,1]: output 'y': shape [3] became [3,1]" in report.notes
    )
    assert report.table().split("\n")[0].startswith("check  passed except at x:[3,1,1] (")
    assert report.to_json()["excluded"] == report.excluded


def test_an_output_that_is_listed_twice(tmp_path: Path) -> None:
    """Also the one after it is compared."""
    models = [chain([("Abs", ["x"], ["a"]), (last, ["x"], ["b"])]) for last in ("Neg", "Ceil")]
    for model in models:
        del model.graph.output[:]
        model.graph.output.extend(helper.make_tensor_value_info(name, FLOAT, [4, 8]) for name in "aab")
    report = compared(tmp_path, models[0], models[0])
    assert report.ok
    assert [out.name for out in report.outputs] == ["a", "a", "b"]
    assert compared(tmp_path, *models).reason.startswith("output 'b'")


def test_varied_runs_that_say_nothing_are_not_compared() -> None:
    """Outputs of the first model that overflow, and those of another rank; errors below those of ordinary values."""
    ordinary, tiny = np.float32([1, 2]), np.float32([1e-20, 2e-20])
    sets = [[np.float32([k])] for k in range(5)]
    a = [ordinary, np.float32([np.inf, 1]), ordinary, tiny, ordinary]
    b = [ordinary, ordinary, ordinary[None], 2 * tiny, 2 * ordinary]

    def side(outputs: list[Any]) -> Any:
        runs = SimpleNamespace(result=lambda: [[out] for out in outputs])
        return SimpleNamespace(begin=lambda batch, options: runs)

    tolerance: Any = SimpleNamespace(
        a=side(a),
        b=side(b),
        settings=SimpleNamespace(atol=1e-4),
        compare=lambda pair, x, y, moved: compare("y", x, y, Expectation()),
    )
    pairs: Any = [SimpleNamespace(a=0, b=0)]
    runs = VariedRuns(tolerance, pairs, RunOptions(), [ordinary], False)
    found = [(int(run.values[0][0]), run.is_missed) for run in runs.compared(sets, list, float("inf"))]
    assert found == [(0, False), (3, False), (4, True)]


def test_a_logarithm_of_a_softmax_is_a_log_softmax_where_float32_has_its_values(tmp_path: Path) -> None:
    """Beyond, exp is 0 and its logarithm infinite; usual inputs have no such values. A wrong one is still found."""
    both = [("Mul", ["x", "f"], ["a"]), ("Softmax", ["a"], ["s"], {"axis": 1}), ("Log", ["s"], ["y"])]
    one = [both[0], ("LogSoftmax", ["a"], ["y"], {"axis": 1})]
    report = compared(tmp_path, chain(one, f=9.0), chain(both, f=9.0))
    assert report.ok, report
    assert compared(tmp_path, chain(one, f=9.0), chain(both, f=9.1)).status == "failed"
