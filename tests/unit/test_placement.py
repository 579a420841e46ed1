"""Where ops run on the CPU: LiteRT says what its delegate computes, and where there is no LiteRT, the table says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import placement
from tests.unit.micro_models import cnn, recurrent
from tests.unit.test_cli import onnxtfl as run
from tests.unit.test_reporting import Elements
from tests.unit.tiny_models import onnx_model, tflite_model


@pytest.mark.parametrize("model", ["float", "quantized", "recurrent"])
def test_the_table_says_what_the_delegate_computes(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = recurrent("LSTM") if model == "recurrent" else cnn(quantized=model == "quantized")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(source, path, check=False)
    asked = placement.place(path, placement.CPU)
    monkeypatch.setattr(placement, "profile", lambda *_, **__: {"note": "LiteRT is not installed"})
    known = placement.place(path, placement.CPU)
    assert (asked.note, known.note) == ("", "LiteRT is not installed")
    assert (places(known), known.partitions) == (
        places(asked),
        asked.partitions,
    ) and "schemas/targets/xnnpack.toml" in known.by
    assert known.rows()[0].text == "not checked on cpu: LiteRT is not installed"


@pytest.mark.parametrize(("sizes", "type_"), [([1, 2**30], "FLOAT32"), ([4], "RESOURCE")])
def test_a_model_whose_input_cannot_be_made_is_placed_by_the_table(
    sizes: list[int], type_: str, tmp_path: Path
) -> None:
    """A file of some bytes can have inputs of gigabytes, or a resource as its input."""
    model = tflite_model("RELU", [("x", sizes, None)], ("y", sizes), type_=type_)
    (tmp_path / "m.tflite").write_bytes(model)
    found = placement.place(tmp_path / "m.tflite", placement.CPU)
    assert "'x'" in found.note
    assert [op.op for op in found.ops] == ["RELU"] and "schemas/" in found.by


def places(found: placement.Placement) -> list[tuple[str, str]]:
    return [(op.op, op.where) for op in found.ops]


@pytest.mark.parametrize("litert", [True, False])
def test_ops_elsewhere_cut_the_others_into_partitions(
    litert: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that follows from the first inputs only is no cut: the others wait for it, or it runs before them."""
    if not litert:
        monkeypatch.setattr(placement, "profile", lambda *_, **__: {})
    nodes = [("Relu", "x", "r"), ("Sign", "r", "s"), ("Sigmoid", "s", "t"), ("Sign", "x", "u")]
    found = placement.place(written([*nodes, ("Tanh", "u", "v"), ("Tanh", "x", "w")], "tvw", tmp_path), placement.CPU)
    assert found.partitions == 2
    assert found.counts == "4 on XNNPACK, 2 on builtin kernels; 2 partitions"


def test_zeros_between_elements_are_padded_as_one_sample(tmp_path: Path) -> None:
    """A GPU takes no PAD of another first axis than one of size 1."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=8, strides=[2, 2], kernel_shape=[4, 4])
    sizes = [("x", TensorProto.FLOAT, [1, 8, 9, 7])], [("y", TensorProto.FLOAT, [1, 8, 20, 16])]
    model = onnx_model([node], *sizes, {"w": np.ones((8, 1, 4, 4), np.float32)})
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False)
    assert {op.where for op in placement.place(tmp_path / "m.tflite", "gpu").ops} == {"LiteRT's GPU accelerator"}


def test_a_gpu_shares_a_model_with_the_cpu_and_a_microcontroller_does_not(tmp_path: Path) -> None:
    path = written([("Relu", "x", "r"), ("LogSoftmax", "r", "y")], "y", tmp_path)
    gpu, micro = (placement.place(path, target) for target in ("gpu", "micro"))
    assert [op.where for op in gpu.ops] == ["LiteRT's GPU accelerator", "the CPU"] and gpu.partitions == 1
    assert [op.rewrite for op in gpu.ops] == ["", ""]  # it has no integer arithmetic to quantize for
    assert micro.partitions is None and "partition" not in micro.counts


def test_a_conversion_with_a_fallback_says_how_many_partitions_result() -> None:
    """An accelerator has no random values."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("RandomUniformLike", ["r"], ["s"])]
    nodes += [helper.make_node("Add", ["r", "s"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    ends = [("x", TensorProto.FLOAT, (2, 3))], [("y", TensorProto.FLOAT, None)]
    report = onnxtfl.onnx_to_tflite(
        onnx_model(nodes, *ends, {}, opset=18), target="gpu", fallback="cpu", check=False
    ).report
    assert report.placement is not None
    assert [op.op for op in report.placement.elsewhere] == ["RANDOM_UNIFORM"]
    assert report.placement.partitions == 2 and "2 partitions (by" in " ".join(str(report).split())


def written(ops: list[tuple[str, str, str]], outputs: str, folder: Path) -> Path:
    """A .tflite of ops of one operand."""
    nodes = [helper.make_node(op, [x], [y]) for op, x, y in ops]
    ends = [(name, TensorProto.FLOAT, None) for name in outputs]
    onnxtfl.onnx_to_tflite(
        onnx_model(nodes, [("x", TensorProto.FLOAT, (2, 3))], ends, {}, opset=18), folder / "m.tflite", check=False
    )
    return folder / "m.tflite"


def test_the_page_of_a_conversion_and_of_an_inspection_say_where_ops_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = written([("Relu", "x", "<b>r"), ("LogSoftmax", "<b>r", "y")], "y", tmp_path), tmp_path / "r.html"
    assert run("inspect", str(path), "--summary", "--placement", "cpu", "--report", str(page)) == 0
    assert "1 on XNNPACK, 1 on builtin kernels; 1 partition" in capsys.readouterr().out
    shown = Elements(page.read_text())
    for wanted in ("Where the ops run", "XNNPACK has no kernel for it", "<b>r", "builtin kernels", "1 of 2 ops"):
        assert wanted in shown.text
    assert shown.active == []  # nothing is loaded
    source = onnx_model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, (2, 3))],
        [("y", TensorProto.FLOAT, None)],
        {},
        opset=18,
    )
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    assert run("onnx2tfl", str(tmp_path / "m.onnx"), "-o", str(path), "--report", str(page)) == 0
    assert "cpu: 1 on XNNPACK; 1 partition (by LiteRT)" in Elements(page.read_text()).text


def test_an_inspection_is_written_as_json_but_not_as_junit(tmp_path: Path) -> None:
    found = onnxtfl.inspect(written([("Relu", "x", "y")], "y", tmp_path), placement="gpu")
    written_ = json.loads(onnxtfl.write_report(found, tmp_path / "r.json").read_text())
    assert written_["placement"]["partitions"] == 1
    with pytest.raises(onnxtfl.UsageError, match="JUnit is for checks"):
        onnxtfl.write_report(found, tmp_path / "r.xml")


def test_an_op_that_is_left_to_other_kernels_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("LogSoftmax", ["r"], ["y"])]
    source = onnx_model(nodes, [("x", TensorProto.FLOAT, (2, 3))], [("y", TensorProto.FLOAT, None)], {}, opset=18)
    onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", check=False)
    monkeypatch.setattr(placement, "profile", lambda *_, **__: {})
    found: Any = placement.place(tmp_path / "m.tflite", placement.CPU)
    assert [(op.op, op.where, op.reason) for op in found.ops] == [
        ("RELU", "XNNPACK", ""),
        (
            "LOG_SOFTMAX",
            "builtin kernels",
            "no form of LOG_SOFTMAX computes correct values in XNNPACK",
        ),
    ]


@pytest.mark.parametrize(("count", "split", "joined"), [(4, ["SPLIT"], 1), (26, ["SLICE"] * 26, 10)])
def test_more_parts_than_the_delegate_takes(
    count: int, split: list[str], joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More parts than it makes are slices; more operands than it takes are joined in groups."""
    parts = [f"p{i}" for i in range(count)]
    nodes = [
        helper.make_node("Split", ["x"], parts, axis=1, num_outputs=count),
        helper.make_node("Concat", parts[::-1], ["y"], axis=1),
    ]
    x = ("x", TensorProto.FLOAT, (2, 3 * count))
    source = onnx_model(nodes, [x], [("y", TensorProto.FLOAT, None)], {}, opset=18)
    onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", check=False)
    asked = placement.place(tmp_path / "m.tflite", placement.CPU)
    monkeypatch.setattr(placement, "profile", lambda *_, **__: {})
    known = placement.place(tmp_path / "m.tflite", placement.CPU)
    assert places(known) == places(asked) == [(op, "XNNPACK") for op in [*split, *["CONCATENATION"] * joined]]
