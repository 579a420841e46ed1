"""Ethos-U as a target: quantized ops in forms that Vela puts on the NPU, and what the report says of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxtfl.schemas.target_tables import target_tables

import onnxtfl
from onnxtfl.conversion_check import NO_LOAD
from onnxtfl.errors import UsageError
from onnxtfl.formats.tflite.outline import file_ops
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.types import tensor
from onnxtfl.runtimes import vela
from onnxtfl.targets.instance import OpInstance
from onnxtfl.targets.table import entry, narrowed, op_names
from onnxtfl.targets.terms import within
from tests.unit.micro_models import cnn, recurrent
from tests.unit.test_cli import onnx2tfl
from tests.unit.test_cli import onnxtfl as run
from tests.unit.tiny_models import onnx_model, saved

needs_vela = pytest.mark.skipif(vela.command() is None, reason="needs Vela (pip install 'onnxtfl[ethos-u]')")
F = TensorProto.FLOAT
NPUS = [name for name, table in target_tables().items() if table.accelerator is not None]


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load results without a check too: where ops run is a part of that."""
    monkeypatch.delenv(NO_LOAD, raising=False)


def quantized(op: str, *shapes: Sequence[int], scale: float = 0.05, **how: Any) -> onnx.ModelProto:
    """An op between DequantizeLinear and QuantizeLinear, on int8; `how`: its constants and its attributes."""
    constants = {f"c{i}": np.asarray(c) for i, c in enumerate(how.pop("constants", ()))}
    known = {"s": np.float32(0.05), "z": np.int8(3), "t": np.float32(scale), **constants}
    nodes = []
    for i in range(len(shapes)):
        nodes.append(helper.make_node("QuantizeLinear", [f"x{i}", "s", "z"], [f"q{i}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]))
    absent = [""] if op == "Resize" else []
    operands = [*(f"d{i}" for i in range(len(shapes))), *absent, *constants]
    nodes.append(helper.make_node(op, operands, ["r"], **how))
    nodes.append(helper.make_node("QuantizeLinear", ["r", "t", "z"], ["p"]))
    nodes.append(helper.make_node("DequantizeLinear", ["p", "t", "z"], ["y"]))
    inputs = [(f"x{i}", F, shape) for i, shape in enumerate(shapes)]
    return onnx_model(nodes, inputs, [("y", F, None)], known, opset=18)


IMAGE = (1, 8, 6, 6)
FORMS: Mapping[str, onnx.ModelProto] = {
    "a mean of several images": quantized("GlobalAveragePool", (2, 8, 5, 5)),
    "a mean of the last axis": quantized("ReduceMean", (3, 7, 9), constants=[np.array([2])]),
    "rows of a table": quantized("Gather", (1, 10, 8), constants=[np.array([3, 1])], axis=1),
    "blocks": quantized("DepthToSpace", IMAGE, blocksize=2),
    "blocks of a large image": quantized("DepthToSpace", (1, 9, 260, 260), blocksize=3),
    "a repeated axis": quantized("Expand", (1, 8, 1, 1), constants=[np.array([1, 8, 4, 4])]),
    "a fine scale": quantized("Sigmoid", IMAGE, scale=0.001),
    "a constant divisor": quantized("Div", IMAGE, constants=[np.float32(4)]),
    "a constant offset": quantized("Sub", IMAGE, constants=[np.float32(1.5)]),
    "different scales": quantized("Concat", IMAGE, IMAGE, axis=1, scale=0.07),
    "a long stride": quantized("AveragePool", (1, 8, 9, 9), scale=0.04, kernel_shape=[5, 4], strides=[4, 5]),
    "half pixels": quantized("Resize", IMAGE, constants=[np.array([1, 1, 4, 3], np.float32)], mode="linear"),
    "a smaller image": quantized("Resize", IMAGE, constants=[np.array([1, 1, 0.5, 2 / 3], np.float32)], mode="linear"),
    "many repetitions": quantized("Resize", IMAGE, constants=[np.array([1, 1, 16, 16], np.float32)], mode="nearest"),
    "an error function": quantized("Erf", IMAGE, scale=0.01),
    "a divisor": quantized("Div", IMAGE, IMAGE, scale=0.02),
    "a square root": quantized("Sqrt", IMAGE, scale=0.01),
    "a larger image": quantized("Resize", IMAGE, constants=[np.array([1, 1, 2, 2], np.float32)], mode="linear"),
}


@pytest.mark.parametrize("name", FORMS)
def test_quantized_ops_run_on_the_npu(name: str) -> None:
    conversion = onnxtfl.onnx_to_tflite(FORMS[name], target="ethos-u55", quantized_io="int8")
    assert conversion.check is not None and conversion.check.ok
    placement = conversion.report.placement
    assert placement is not None
    assert [(op.op, op.reason) for op in placement.elsewhere] == []
    assert (placement.compiled is not None) == (vela.command() is not None)


def test_forms_that_vela_fails_on_are_not_written() -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)]
    top = onnx_model(nodes, [("x", F, (2, 5))], [("y", TensorProto.INT64, None)])
    placement = onnxtfl.onnx_to_tflite(top, target="ethos-u55").report.placement
    assert placement is not None and (vela.command() is None or not placement.note)
    two = quantized("Resize", (2, 8, 5, 5), constants=[np.array([1, 1, 2, 2], np.float32)], mode="nearest")
    for model in (two, recurrent("LSTM")):
        report = onnxtfl.onnx_to_tflite(model, target="ethos-u55", check=False).report
        assert not {"RESIZE_NEAREST_NEIGHBOR", "UNIDIRECTIONAL_SEQUENCE_LSTM"} & report.ops_after.keys()
        assert report.placement is not None and (vela.command() is None or not report.placement.note)


@pytest.mark.parametrize("npu", NPUS)
def test_ops_elsewhere_have_a_reason_and_a_remedy(npu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table says the same as Vela, where Vela is not installed."""
    model = cnn(quantized=True)
    asked = onnxtfl.onnx_to_tflite(model, target=npu, check=False).report.placement
    monkeypatch.setattr(vela, "command", lambda: None)
    report = onnxtfl.onnx_to_tflite(model, target=npu, check=False).report
    known = report.placement
    assert asked is not None and known is not None
    assert f"not checked on {npu}: Vela is not installed; pip install 'onnxtfl[ethos-u]'" in report.table(width=200)
    assert [bool(op.reason) for op in asked.ops] == [bool(op.reason) for op in known.ops]
    places = {op.op: op for op in known.ops}
    assert places["CONV_2D"].where == target_tables()[npu].title and places["CONV_2D"].sources
    assert places["QUANTIZE"].where == "the CPU"
    assert places["QUANTIZE"].rewrite == "`quantized_io=int8` leaves it out"
    assert "float" in places["SOFTMAX"].rewrite


@pytest.mark.parametrize("target", ["ethos-u55", "micro", "cpu"])
def test_the_placement_of_a_file(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cnn.tflite"
    onnxtfl.onnx_to_tflite(cnn(quantized=True), path, target="micro", check=False)
    assert run("inspect", str(path), "--placement", target, "--json", "--summary") == 0
    found = json.loads(capsys.readouterr().out)["placement"]
    assert found["target"] == target and len(found["ops"]) == len(file_ops(path))
    on_npu = {op["op"] for op in found["ops"] if op["where"] == "Ethos-U55"}
    assert ("CONV_2D" in on_npu, "DEQUANTIZE" in on_npu) == (target == "ethos-u55", False)
    assert run("inspect", str(path), "--placement", target, "--summary") == 0
    assert f"placement    {target}: " in capsys.readouterr().out


def test_the_report_says_what_to_quantize_in_the_source() -> None:
    norm = quantized("LayerNormalization", IMAGE, constants=[np.ones(6, np.float32)])
    report = onnxtfl.onnx_to_tflite(norm, target="ethos-u55", check=False).report.table(width=200)
    assert "1 node is float in the source" in report and "op_types_to_quantize" in report
    assert "advice" not in onnxtfl.onnx_to_tflite(norm, target="micro", check=False).report.table()
    whole = onnxtfl.onnx_to_tflite(FORMS["blocks"], target="ethos-u55", quantized_io="int8", check=False).report
    assert "advice" not in whole.table()


def test_only_files_of_tflite_are_placed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"only \.tflite files"):
        onnxtfl.inspect(saved(cnn(), tmp_path / "m.onnx"), placement="micro")


@needs_vela
def test_the_compiled_model_is_written_too(tmp_path: Path) -> None:
    source = saved(quantized("Sigmoid", IMAGE), tmp_path / "m.onnx")
    for output in ("a.tflite", "b_vela.tflite"):
        options = ["--target", "ethos-u55", "--quantized-io", "int8", "--compile", "-q"]
        assert onnx2tfl(str(source), "-o", str(tmp_path / output), *options) == 0
    for name in ("a", "b"):
        assert {op.op for op in file_ops(tmp_path / f"{name}_vela.tflite")} == {"ethos-u"}
        assert "LOGISTIC" in {op.op for op in file_ops(tmp_path / f"{name}.tflite")}


def test_other_targets_have_no_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(cnn(), tmp_path / "m.onnx")
    assert onnx2tfl(str(source), "--target", "micro", "--compile") == 2
    assert "use --target ethos-u55" in capsys.readouterr().err


def _instance(op: str, result: tuple[int, ...], *operands: Any, **options: Any) -> OpInstance:
    """An op on tensors of these shapes, or constants (arrays)."""
    values = [constant(v) if isinstance(v, np.ndarray) else Value(tensor("int8", *v)) for v in operands]
    return OpInstance(entry(op), values, [Value(tensor("int8", *result))], options)


SIZE = np.array([8, 10], np.int32)


@pytest.mark.parametrize(
    ("condition", "op", "holds"),
    [
        ("scaled 2 4", _instance("RESIZE_BILINEAR", (1, 8, 10, 3), (1, 4, 5, 3), SIZE), True),
        ("scaled 4 8", _instance("RESIZE_BILINEAR", (1, 8, 10, 3), (1, 4, 5, 3), SIZE), False),
        ("scaled 2", _instance("RESIZE_BILINEAR", (1, 8, 10, 3), (1, 4, 5, 3), SIZE, align_corners=True), False),
        ("scaled 2", _instance("RESIZE_BILINEAR", (1, 7, 9, 3), (1, 4, 5, 3), SIZE, align_corners=True), True),
        ("scaled 2 4", _instance("RESIZE_BILINEAR", (1, 8, 20, 3), (1, 4, 5, 3), SIZE), False),
        ("scaled each 2 4", _instance("RESIZE_BILINEAR", (1, 8, 20, 3), (1, 4, 5, 3), SIZE), True),
        ("input batch < 2", _instance("MEAN", (2, 3), (2, 4, 5, 3), np.array([1, 2])), False),
        ("axes inner or input line < 2", _instance("MEAN", (1, 4, 5), (1, 4, 5, 3), np.array([3])), False),
        ("axes inner or input line < 2", _instance("MEAN", (1, 1, 5), (1, 1, 5, 3), np.array([3])), True),
        ("axes sizes < 5", _instance("MEAN", (1, 3), (1, 4, 5, 3), np.array([1, 2])), False),
        ("input turned < 61", _instance("TRANSPOSE", (3, 2, 4, 5), (2, 4, 5, 3), np.array([3, 0, 1, 2])), True),
        ("input turned < 20", _instance("TRANSPOSE", (3, 2, 4, 5), (2, 4, 5, 3), np.array([3, 0, 1, 2])), False),
        ("input turned < 241", _instance("TRANSPOSE", (1, 3, 2, 4, 5, 1), (1, 2, 3, 4, 5, 1), np.array([0])), True),
        ("input turned < 120", _instance("TRANSPOSE", (1, 3, 2, 4, 5, 1), (1, 2, 3, 4, 5, 1), np.array([0])), False),
        ("dim last", _instance("ARG_MAX", (4, 5), (4, 5, 3), np.array([-1])), True),
        ("dim last", _instance("ARG_MAX", (4, 3), (4, 5, 3), np.array([1])), False),
    ],
)
def test_limits(condition: str, op: OpInstance, holds: bool) -> None:
    assert within(condition, op) == holds


@pytest.mark.parametrize("npu", ["ethos-u55", "ethos-u85"])
def test_limits_are_about_operands_and_options_of_the_op(npu: str) -> None:
    words = {"scaled", "strides", "axes", "whole", "ungrouped", "not", "rescales"}
    for op in op_names():
        known = entry(op)
        names = {p.name for p in (*known.operands, *known.results)}
        terms = [term.split() for c in (*narrowed(npu, op).limits, *narrowed(npu, op).safe) for term in c.split(" or ")]
        about = {term[0] for term in terms} - words - names
        assert not {name for name in about if "_" not in name} - {"padding", "axis"}, (op, about)
