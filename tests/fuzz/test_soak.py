"""A fixed part of the soak (tools/soak.py): random graphs over all ops, both ways, in both runtimes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import onnxtfl
from onnxtfl.checking.report import CheckReport
from onnxtfl.rewriting.registry import all_rules
from tests.fuzz import (
    damages_trial,
    graphs_control,
    graphs_microsoft,
    graphs_patterns,
    graphs_quantized,
    tflite_trial,
)
from tests.fuzz.drawing import Input, Values
from tests.fuzz.graphs_judge import Arrays, makes_integers_of_nan
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_trial import ELSEWHERE, STEPS
from tests.fuzz.judging import Case, is_excluded, is_excluded_inside
from tests.fuzz.soaking import GOOD, Found, Tally, soak
from tests.harness.litert import Array
from tests.harness.workers import Worker

_COUNT = 300
_TFLITE_COUNT = 40
_DAMAGES = range(12)
"""One of each pair."""
_QUANTIZED_COUNT = 180


def check(kind: str, count: int, share: float) -> None:
    """Run the first seeds of a kind: none may fail, and more than this share has to agree."""
    for module in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    found = list(soak(kind, range(count), 1, time.monotonic() + 300))
    failed = [f"{seed}: {f.kind} {f.message}\n{f.text}" for seed, f in found if f.kind not in GOOD]
    assert not failed, "\n".join(failed)
    assert sum(f.kind == "agree" for _, f in found) > share * count


def test_random_graphs_agree() -> None:
    check("graphs", _COUNT, 0.85)


def test_random_quantized_graphs_agree() -> None:
    check("quantized", _QUANTIZED_COUNT, 0.95)


@pytest.mark.parametrize("name", [*graphs_control.STEPS, *graphs_patterns.STEPS])
def test_each_step_of_several_nodes_is_drawn(name: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    last = []
    for seed in range(10):
        g = Drawing(seed)
        STEPS[name](g)
        last += [g.nodes[-1].op_type] if g.nodes else []
    assert len(last) > 5
    assert name not in graphs_control.STEPS or set(last) == {name}


def test_a_quantized_op_that_is_two_steps_off_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    real = graphs_quantized.compare_each
    assert all(real(*case) for case in map(quantized_case, range(5)))
    monkeypatch.setattr(graphs_quantized, "compare_each", lambda *_: [replace(d, steps=d.steps + 2) for d in real(*_)])
    assert {graphs_quantized.attempt(seed).kind for seed in range(5)} == {"disagree"}


def quantized_case(seed: int) -> tuple[bytes, dict[str, Array]]:
    """A quantized model and its inputs."""
    g = graphs_quantized.drawn(seed)
    return g.model().SerializeToString(), {name: g.array(name) for name in g.inputs if name in set(g.used())}


def test_each_op_that_converts_is_drawn_or_tested_elsewhere() -> None:
    convertible = {name for domain, name in all_rules().lift_onnx if not domain}
    elsewhere = {name for names in ELSEWHERE.values() for name in names.split()}
    assert convertible - elsewhere <= set(STEPS)
    assert not elsewhere & set(STEPS)


def test_each_op_of_microsoft_that_converts_is_drawn_or_tested_elsewhere() -> None:
    convertible = {name for domain, name in all_rules().lift_onnx if domain == "com.microsoft"}
    elsewhere = {name for names in graphs_microsoft.ELSEWHERE.values() for name in names.split()}
    drawn = {name.removeprefix("com.microsoft ") for name in graphs_microsoft.STEPS}
    assert convertible == elsewhere | drawn
    assert not elsewhere & drawn


def test_random_tflite_graphs_agree() -> None:
    check("tflite", _TFLITE_COUNT, 0.7)


def test_each_tflite_op_that_converts_is_drawn_or_tested_elsewhere() -> None:
    elsewhere = {name for names in tflite_trial.ELSEWHERE.values() for name in names.split()}
    drawn = {*tflite_trial.STEPS, *tflite_trial.QUANTIZED}
    assert set(all_rules().lift_tfl) <= elsewhere | drawn
    assert not elsewhere & drawn


def test_each_step_draws_its_tflite_op() -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    with Worker() as worker:
        missing = [n for n in tflite_trial.STEPS if not worker.run("tests.fuzz.tflite_trial:is_drawn", n, 60.0).value]
    assert not missing


def test_a_soak_continues_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    tally = Tally.read(path, 7)
    tally.add(7, Found("agree"))
    tally.add(8, Found("disagree", "Add", "1 not 2"))
    tally.next = 9
    tally.write(path)
    again = Tally.read(path, 0)
    assert again.next == 9
    assert again.failures == [(8, "disagree", "Add", "1 not 2")]
    assert "50.00% disagree" in "\n".join(again.lines(5))


def test_the_shares_of_damages() -> None:
    """Damages that change nothing count for nothing; survivors and wrong names fail below the shares."""
    for counts, passed in (
        ({"named": 200, "survived": 2, "equal": 9}, True),
        ({"named": 200, "survived": 3}, False),
        ({"named": 96, "misnamed": 4}, True),
        ({"named": 94, "misnamed": 6}, False),
        ({"named": 200, "hang": 1}, False),
        ({"agree": 3, "equal": 1, "skipped": 2}, True),
    ):
        assert Tally(counts=Counter(counts)).passed() is passed, counts
    assert "80.0% found (at least 99%)" in "\n".join(Tally(counts=Counter(named=4, survived=1)).lines(5))


def test_damages_without_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of the repository are damaged; one that a check does not find survives; a broken check is no skip."""
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    monkeypatch.setattr(damages_trial, "_paths", lambda: {"onnx": [], "tflite": [], "foreign": []})
    found = {seed: damages_trial.attempt(seed) for seed in _DAMAGES}
    assert {f.kind for f in found.values()} <= {"named", "equal", "skipped"}, found
    seed = next(seed for seed, f in found.items() if f.kind == "named")
    passed = CheckReport("passed", "")
    monkeypatch.setattr(onnxtfl, "check", lambda *_, **__: passed)
    assert damages_trial.attempt(seed).kind == "survived"

    def broken(*_: object, **__: object) -> CheckReport:
        raise AssertionError("a bug of the check")

    monkeypatch.setattr(onnxtfl, "check", broken)
    with pytest.raises(AssertionError, match="a bug of the check"):
        damages_trial.attempt(seed)


def test_integers_of_what_is_no_number_are_not_judged() -> None:
    arrays = {"x": np.asarray([np.nan], np.float32), "i": np.zeros(1, np.int8), "b": np.zeros(1, bool)}
    assert makes_integers_of_nan([(["x"], ["i"])], arrays)
    assert not makes_integers_of_nan([(["x"], ["b"]), (["i"], ["i"])], arrays)


def test_sizes_that_the_report_excludes() -> None:
    g = Values(0)
    g.inputs = {"x": Input("float32", ("N0", "?1", 0), 0, 1)}
    softmax = ["N0 is at least 1: on empty tensors, SOFTMAX ends the process"]
    for shape, named, computed in (((0, 2, 0), True, True), ((2, 0, 0), True, True), ((2, 2, 0), False, False)):
        fed = {"x": np.zeros(shape, np.float32)}
        assert is_excluded(g, fed, softmax) is named
        assert is_excluded(g, fed, ["each size computed at run time is at least 1: on empty tensors, X"]) is computed
        assert not is_excluded(g, fed, ["N0 is not 1"])


def test_one_of_several_sizes_that_the_report_excludes() -> None:
    g = Values(0)
    g.inputs = {"x": Input("float32", ("N0", "N1"), 0, 1)}
    fed = {"x": np.zeros((0, 0), np.float32)}
    assert is_excluded(g, fed, ["N1 is at least 1: on empty tensors, MEAN returns wrong results"])


def test_sizes_inside_that_the_report_excludes() -> None:
    def values(fed: Arrays) -> Arrays:
        return {**fed, "y": fed["x"][:, :0], "z": fed["x"][:, :1]}

    g, fed = Values(0), {"x": np.zeros((2, 3), np.float32)}
    source = Case(g, str, {}, lambda fed, *_: fed, values=values)
    for text, excluded in (
        ("each size computed at run time is at least 1: on empty tensors, MEAN returns wrong results", True),
        ("no other size of [2, u?1] is 1 at Squeeze 'n'", True),
        ("N0 is at least 1: on empty tensors, MEAN returns wrong results", False),
    ):
        assert is_excluded_inside(source, fed, [text]) is excluded
        assert not is_excluded_inside(replace(source, values=dict), fed, [text])
