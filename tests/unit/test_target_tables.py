"""The tables of targets: what they have from their parent, what is no table, and targets two below TFLite."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from onnxtfl.schemas import sections, target_tables

from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import tensor
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets import table
from onnxtfl.targets.terms import _of_tensors, reads_producers
from onnxtfl.targets.tflite import TfliteTarget, _forms

KEYS = {one.name for one in fields(table.Narrowed)} - {"activations"}
CACHES = (sections.texts, sections.names, target_tables.target_tables, table.narrowed, _forms)
HEAD = '[target]\ntitle = "NPU"\nhelp = "an NPU"\n'


@pytest.mark.parametrize("name", target_tables.target_tables())
def test_the_tables_are_about_ops_and_what_targets_say_of_them(name: str) -> None:
    text = sections.folder().joinpath(target_tables.target_tables()[name].file).read_text(encoding="utf-8")
    whole = tomllib.loads(text)
    assert whole.keys() <= {"target", *table.op_names()}
    assert [op for op, said in whole.items() if op != "target" and not said.keys() <= KEYS] == []


@pytest.mark.parametrize("name", target_tables.target_tables())
def test_conditions_about_neighbors_name_operands_and_results(name: str) -> None:
    for op in table.op_names():
        known = {parameter.name for side in (table.entry(op).operands, table.entry(op).results) for parameter in side}
        target = table.narrowed(name, op)
        said = [c for c in (*target.limits, *target.correct, *target.safe) if reads_producers(c)]
        assert {condition.split()[0] for condition in said} <= known, op


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for tables, beside those that there are."""
    there = Path(str(sections.folder()))
    for path in [*there.glob("*.toml"), *there.glob("targets/*.toml")]:
        (tmp_path / "targets").mkdir(exist_ok=True)
        (tmp_path / path.relative_to(there)).symlink_to(path)
    monkeypatch.setattr(sections, "folder", lambda: tmp_path)
    for cached in CACHES:
        cached.cache_clear()
    yield tmp_path / "targets"
    for cached in CACHES:
        cached.cache_clear()


def test_a_target_of_a_target(folder: Path) -> None:
    own = 'parent = "micro"\nlacks = "float16"\nruntime = "litert"\n[RELU.kernels]\nnpu = [{ T = "qint8", rank = 4 }]\n'
    (folder / "npu.toml").write_text(HEAD + own, encoding="utf-8")
    found, micro = target_tables.target_tables()["npu"], target_tables.target_tables()["micro"]
    assert [one.name for one in found.chain] == ["npu", "micro", "tflite"]
    assert found.lacks == micro.lacks and found.weights == micro.weights and found.loops == "small"
    assert (found.runtime, micro.runtime) == ("litert", "micro")
    target = TfliteTarget(table="npu")
    assert target.chain == ("npu", "micro", "tfl") and target.runtimes == ("2.14", "litert", "micro", "npu")
    x = Value(tensor("float32", 2))
    refused = {op: target.refusal(Form(op, (x,)), [x]) for op in ("RELU", "GELU", "ABS")}
    assert [one and one.kind for one in refused.values()] == ["dtype", "op", None]
    gelu = refused["GELU"]
    assert gelu is not None and gelu.message == "TFLite Micro has no op GELU"


def test_what_a_target_does_not_accept_runs_on_its_fallback(folder: Path) -> None:
    own = 'fallback = "micro"\nhas_other_ops = false\n[RELU]\nlimits = ["x size 0 < 4"]\nsafe = ["x size 0 < 6"]\n'
    kernels = '[RELU.kernels]\nnpu = [{ T = "float32", rank = 4 }]\n'
    (folder / "npu.toml").write_text(HEAD + own + kernels, encoding="utf-8")
    target = TfliteTarget(table="npu")
    assert (target.own_chain, target.chain) == (("npu",), ("npu", "micro", "tfl"))
    found = {}
    for size in (3, 5, 7):
        x = Value(tensor("float32", size))
        form = Form("RELU", (x,))
        found[size] = target.own_refusal(form, [x]) is None, target.refusal(form, [x]) is None
    assert found == {3: (True, True), 5: (False, True), 7: (False, False)}
    x = Value(tensor("float32", 2))
    assert target.own_refusal(Form("ABS", (x,)), [x]) is not None
    assert target.refusal(Form("ABS", (x,)), [x]) is None
    assert target.refusal(Form("GELU", (x,)), [x]) is not None


def test_a_delegate_is_no_target_of_conversions() -> None:
    assert set(target_tables.target_tables()) - set(target_tables.chosen_targets()) == {"xnnpack"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('parent = "tpu"', "npu: there is no such parent"),
        ('parent = "npu"', "npu: there is no such parent, or each is one of these"),
        ('lacks = "int65"', r"npu.toml: \[target\] has no int65"),
        ('runtme = "micro"', r"npu.toml: \[target\] has no runtme"),
        ('delegate = "nnpack"', "npu.toml: there is no delegate nnpack"),
        ('fallback = "mirco"', "npu.toml: there is no target mirco to fall back to"),
    ],
)
def test_what_is_no_table(folder: Path, text: str, said: str) -> None:
    (folder / "npu.toml").write_text(f"{HEAD}{text}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        target_tables.target_tables()


def test_an_unknown_word_in_a_condition_is_an_error() -> None:
    """It was an element type that no tensor has."""
    value = Value(tensor("int16", 2))
    assert not _of_tensors([value], ["int8"], None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such term: 'plain'"):
        _of_tensors([value], ["plain"], None)  # type: ignore[arg-type]
