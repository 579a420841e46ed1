"""TFLite models with state, converted to ONNX and run several times in both runtimes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnxtfl
from onnxtfl.cli.commands import tfl2onnx
from onnxtfl.errors import CheckFailedError, UnsupportedError, UsageError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.model import Model, Signature
from onnxtfl.ir.text import parse_graph
from tests.harness.litert import run_onnx
from tests.unit import tfl_states as texts

X = np.asarray([1, 2], np.float32)


def tflite(*graphs: str, signatures: bool = False) -> bytes:
    """A file whose first graph is the main one, with a signature for each graph: "first", "second"."""
    main, *others = parsed = [parse_graph(text) for text in graphs]
    for graph in parsed:
        graph.output_names = [v.name or "" for v in graph.outputs]
    keys = zip(("first", "second"), parsed, strict=False) if signatures else ()
    named = [Signature(key, g, *(_names(side) for side in (g.inputs, g.outputs))) for key, g in keys]
    out = io.BytesIO()
    writer.write(Model(main, "tflite", subgraphs=others, signatures=named), out)
    return out.getvalue()


def _names(values: list) -> tuple[tuple[str, int], ...]:
    return tuple((value.name or "", i) for i, value in enumerate(values))


def names(data: bytes | None) -> tuple[list[str], list[str]]:
    graph = onnx.load_from_string(data or b"").graph
    return [v.name for v in graph.input], [v.name for v in graph.output]


TEXTS = {name: text for name, text in vars(texts).items() if isinstance(text, str) and text.startswith("graph main(")}


STATELESS = {"ASSIGNED_FIRST", "RNN_IN_A_BRANCH", "RNN_IN_A_LOOP"}


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "TABLE"])
@pytest.mark.parametrize("state", ["io", "reset"])
def test_runs_agree(name: str, state: str) -> None:
    conversion = onnxtfl.tflite_to_onnx(tflite(TEXTS[name]), state=state, check="require")
    assert conversion.check is not None
    assert conversion.check.runs == (3 if conversion.report.states else 2 if state == "io" else 1)
    assert bool(conversion.report.states) == (state == "io" and name not in STATELESS)


def test_a_state_is_an_input_and_an_output() -> None:
    conversion = onnxtfl.tflite_to_onnx(tflite(texts.COUNTER), check=False)
    assert names(conversion.data) == (["x", "n"], ["y", "n_next"])
    (state,) = conversion.report.states
    assert (state.input, state.output, state.initial.tolist()) == ("n", "n_next", [3, 4])
    found = run_onnx(conversion.data or b"", {"x": X, "n": X})
    assert found["y"].tolist() == found["n_next"].tolist() == [2, 4]


def test_the_metadata_have_the_initial_value() -> None:
    model = onnx.load_from_string(onnxtfl.tflite_to_onnx(tflite(texts.COUNTER), check=False).data or b"")
    (entry,) = (entry for entry in model.metadata_props if entry.key == "onnxtfl.states")
    assert json.loads(entry.value) == [{"input": "n", "output": "n_next", "initial": [3.0, 4.0]}]


def test_with_reset_each_run_begins_with_the_initial_value() -> None:
    conversion = onnxtfl.tflite_to_onnx(tflite(texts.COUNTER), check=False, state="reset")
    assert names(conversion.data) == (["x"], ["y"])
    assert run_onnx(conversion.data or b"", {"x": X})["y"].tolist() == [4, 6]


def test_explicit_states_stay_inputs_and_outputs_of_tflite() -> None:
    there = onnxtfl.tflite_to_onnx(tflite(texts.RNN), check=False).data or b""
    back = onnxtfl.onnx_to_tflite(there, check="require")
    assert [spec.name for spec in back.report.inputs] == ["x", "h"]
    assert [spec.name for spec in back.report.outputs] == ["y", "h_next"]
    assert onnxtfl.check(tflite(texts.RNN), back.data or b"").ok  # the metadata name the states


def test_a_model_that_keeps_state_where_the_other_does_not_fails() -> None:
    stateless = onnxtfl.tflite_to_onnx(tflite(texts.COUNTER), check=False, state="reset").data or b""
    for a, b in ((stateless, tflite(texts.COUNTER)), (tflite(texts.COUNTER), stateless)):
        report = onnxtfl.check(a, b)
        assert report.status == "failed"
        assert report.reason.startswith("output 'y': in run 2:")
        assert onnxtfl.check(a, b, runs=1).ok


def test_a_state_that_is_fed_back_wrongly_is_found() -> None:
    model = onnx.load_from_string(onnxtfl.tflite_to_onnx(tflite(texts.COUNTER), check=False).data or b"")
    model.metadata_props[0].value = model.metadata_props[0].value.replace("4.0", "5.0")
    assert not onnxtfl.check(tflite(texts.COUNTER), model).ok


TWO = (texts.COUNTER, texts.COUNTER.replace("tfl.ADD", "tfl.MUL").replace(texts.INIT, ""))


def test_the_first_subgraph_is_converted_and_the_other_signatures_are_named() -> None:
    data = tflite(*TWO, signatures=True)
    assert onnxtfl.signatures(data) == ("first", "second")
    report = onnxtfl.tflite_to_onnx(data, check=False).report
    assert report.other_signatures == ("second",)
    assert "Add" in report.ops_after


def test_a_signature_is_converted_and_checked() -> None:
    simple = texts.ASSIGNED_FIRST.replace("tfl.ADD", "tfl.MUL")
    conversion = onnxtfl.tflite_to_onnx(
        tflite(texts.COUNTER, simple, signatures=True), signature="second", check="require"
    )
    assert conversion.report.other_signatures == ("first",)
    assert names(conversion.data) == (["x"], ["y", "n_next"])


def test_an_unknown_signature_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="its signatures are: 'first', 'second'"):
        onnxtfl.tflite_to_onnx(tflite(*TWO, signatures=True), signature="third")


def test_all_signatures_are_written_to_a_directory(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(tflite(*TWO, signatures=True))
    arguments = [str(tmp_path / "m.tflite"), "--signature", "all", "--no-check", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(tfl2onnx, arguments, catch_exceptions=False, standalone_mode=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["first.onnx", "second.onnx"]
    assert "feed n: the value in the metadata in the first run, then n_next of the run before" in " ".join(
        result.output.split()
    )


def test_a_state_without_an_initial_value_cannot_be_reset() -> None:
    with pytest.raises(UnsupportedError, match="no initial value"):
        onnxtfl.tflite_to_onnx(tflite(texts.COUNTER.replace(texts.INIT, "")), state="reset", check=False)


def test_results_of_a_variable_without_a_value_are_not_checked() -> None:
    """LiteRT returns what is in the memory of a variable that only another entry point writes."""
    unwritten = texts.COUNTER.replace(texts.INIT, "")
    other = onnxtfl.tflite_to_onnx(tflite(unwritten.replace("tfl.ADD", "tfl.SUB")), check=False)
    report = onnxtfl.check(tflite(unwritten), other.data or b"")
    assert report.status == "not checked"
    assert "the variable 'n' has no value until another entry point writes one" in report.reason


def test_a_failed_check_of_one_signature_comes_after_all_conversions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def fail(*_: object, signature: str, **__: object) -> None:
        done.append(signature)
        raise CheckFailedError(signature)

    monkeypatch.setattr("onnxtfl.signature_conversion.tflite_to_onnx", fail)
    with pytest.raises(CheckFailedError, match="first"):
        onnxtfl.signatures_to_onnx(tflite(*TWO, signatures=True), tmp_path)
    assert done == ["first", "second"]


@pytest.mark.parametrize("state", ["0.004:5", "0.006:-9"], ids=["the same", "another"])
def test_an_integer_lstm_may_read_its_state_in_another_type_than_it_stores_it(state: str) -> None:
    """As where the outputs of both directions were given one type."""
    conversion = onnxtfl.tflite_to_onnx(tflite(texts.int8_lstm("0.004:5", state)), check="require")
    assert conversion.check is not None
    assert [out.steps for out in conversion.check.outputs] == [pytest.approx(0, abs=1)]


def test_an_integer_lstm_with_a_small_cell_takes_the_input_gate_instead_of_its_tanh() -> None:
    """As the kernel does, for scales below 2^-15."""
    onnxtfl.tflite_to_onnx(tflite(texts.int8_lstm("0.004:5", "0.004:5", "1.52587890625e-05")), check="require")


@pytest.mark.parametrize(("name", "states"), [("y", ["n"]), ("a", ["n"]), ("z", [])])
def test_a_part_has_the_states_that_it_depends_on(name: str, states: list[str]) -> None:
    text = texts.COUNTER.replace("%y = ", "%z = tfl.ABS@1(%x) : tensor<2xfloat32>\n %y = ").replace(
        "-> (%y)", "-> (%y, %z)"
    )
    conversion = onnxtfl.tflite_to_onnx(tflite(text), outputs=[name], check="require")
    assert [state.input for state in conversion.report.states] == states
    assert names(conversion.data)[1][0] == name


def keras_lstm(steps: int, *absent: str, bound: float = 0.7) -> bytes:
    """An LSTM as Keras is exported, whose cell is bounded. `absent`: "i" for a coupled layer, "p" for no peepholes."""
    random, given = np.random.default_rng(1), []
    for kind, shape in (("w", (6, 4)), ("r", (6, 6)), ("p", (6,)), ("b", (6,))):
        for gate in "ifo" if kind == "p" else "ifco":
            numbers = ", ".join(str(n) for n in random.normal(size=shape).astype(np.float32).reshape(-1).tolist())
            sizes = "x".join(map(str, shape))
            given.append((f"{kind}{gate}", f"%{kind}{gate} = constant tensor<{sizes}xfloat32> [{numbers}]"))
    kept = {name: text for name, text in given if not set(name) & set(absent)}
    operands = ", ".join(f"%{name}" if name in kept else "_" for name, _ in given)
    options = f'cell_clip = {bound}, proj_clip = 0.0, fused_activation_function = "TANH", time_major = false'
    lines = "\n".join(kept.values())
    return tflite(
        f"""graph main(%x: tensor<1x{steps}x4xfloat32>) -> (%y) {{
      state %h: tensor<1x6xfloat32> -> %h
      state %c: tensor<1x6xfloat32> -> %c
      {lines}
      %y = tfl.UNIDIRECTIONAL_SEQUENCE_LSTM@1(%x, {operands}, _, _, %h, %c, _, _, _, _) {{{options}}}
        : tensor<1x{steps}x6xfloat32>
    }}"""
    )


@pytest.mark.parametrize("state", ["io", "reset"])
@pytest.mark.parametrize("absent", ["p", "ip", ""], ids=["plain", "coupled", "with peepholes"])
def test_an_lstm_whose_cell_is_bounded_comes_back_as_the_kernel(absent: str, state: str) -> None:
    """ONNX's LSTM has no such bound: the layer is a Scan there."""
    there = onnxtfl.tflite_to_onnx(keras_lstm(150, *absent), state=state, check="require").data
    back = onnxtfl.onnx_to_tflite(there, check="require")
    ops = dict(back.report.ops_after)
    assert ops.pop("UNIDIRECTIONAL_SEQUENCE_LSTM") == 1
    assert sum(ops.values()) <= 12, ops


@pytest.mark.parametrize("returned", ["%b, %a", "%sum, %a", "%sum, %b", "%sum, %sum"])
@pytest.mark.parametrize("steps", [3.0, 4.0])
def test_a_loop_that_moves_its_values_overwrites_them_one_by_one(returned: str, steps: float) -> None:
    kind = "tensor<2xfloat32>"
    cond = f"graph c(%i: tensor<float32>, %a: {kind}, %b: {kind}) -> (%go)"
    body = f"graph b(%i: tensor<float32>, %a: {kind}, %b: {kind}) -> (%j, {returned})"
    text = f"""graph main(%x: {kind}, %y: {kind}) -> (%p, %q) {{
     %zero = constant tensor<float32> [0.0]
     %n, %p, %q = tfl.WHILE@1(%zero, %x, %y) {{cond_subgraph_index = {cond} {{
      %k = constant tensor<float32> [{steps}]
      %go = tfl.LESS@1(%i, %k) : tensor<bool>
     }}, body_subgraph_index = {body} {{
      %one = constant tensor<float32> [1.0]
      %j = tfl.ADD@1(%i, %one) {{fused_activation_function = "NONE"}} : tensor<float32>
      %sum = {texts.ADD.format("%a", "%b")}
     }}}} : tensor<float32>, {kind}, {kind}
    }}"""
    made = onnxtfl.tflite_to_onnx(tflite(text), check="require")
    overwritten = "overwrites 'p' before it copies it to 'q'" in " ".join(str(made.report).split())
    assert overwritten is returned.endswith("%a")
