"""`onnxtfl.inspect` and the command: a summary, the graph after any stage, differences, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.cli.inspect import STAGES
from onnxtfl.options import Options
from onnxtfl.pipeline import stages
from tests.unit.test_cli import onnxtfl as run


def saved(path: Path, *extra: onnx.NodeProto, external: bool = False) -> Path:
    """conv, Relu, and `extra` nodes; weights in a second file where `external`."""
    weight = numpy_helper.from_array(np.ones((2, 3, 3, 3), np.float32), "w")
    small = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "b")
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["y"]), *extra]
    shapes = {"x": ["n", 3, 8, 8], "y": ["n", 2, 6, 6]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "g", [x], [y], [weight, small])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="tester")
    onnx.save(model, path, save_as_external_data=external, location="w.data", size_threshold=0)
    return path


def test_the_summary(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", external=True)
    found = onnxtfl.inspect(path).summary
    assert (found.format, found.producer, found.versions["ai.onnx"]) == ("onnx", "tester", 17)
    assert found.ops == {"Conv": 1, "Relu": 1}
    assert (found.parameters, found.parameter_bytes) == (56, 224)
    assert found.size == path.stat().st_size + (tmp_path / "w.data").stat().st_size
    assert found.inputs == (("x", "tensor<[n]x3x8x8xfloat32>"),)
    assert found.unsupported == ()


def test_ops_without_a_conversion(tmp_path: Path) -> None:
    unknown = helper.make_node("Secret", ["y"], ["s"], domain="mine")
    path = saved(tmp_path / "m.onnx", unknown, unknown, helper.make_node("Abs", ["s"], ["z"]))
    path = saved(tmp_path / "m.onnx", unknown, helper.make_node("Secret", ["c"], ["t"], domain="mine"))
    (one,) = onnxtfl.inspect(path).summary.unsupported
    assert (one.op, one.count) == ("mine::Secret-3", 2)
    assert "no conversion" in one.reason


def test_a_tflite_file(tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(saved(tmp_path / "m.onnx"), tmp_path / "m.tflite", check=False)
    found = onnxtfl.inspect(tmp_path / "m.tflite").summary
    assert (found.format, found.signatures) == ("tflite", ("serving_default(x) -> y",))
    assert found.ops["CONV_2D"] == 1


def test_the_graph_has_types_and_short_constants(tmp_path: Path) -> None:
    text = str(onnxtfl.inspect(saved(tmp_path / "m.onnx")))
    assert "%w = constant tensor<2x3x3x3xfloat32> ..." in text
    assert "%b = constant tensor<2xfloat32> [1.5, 2.5]" in text
    assert ": tensor<[n]x2x6x6xfloat32>" in next(line for line in text.splitlines() if "onnx.Conv@11" in line)
    assert "Conv(" in str(onnxtfl.inspect(tmp_path / "m.onnx", "lifted"))
    assert "CONV_2D@" in str(onnxtfl.inspect(tmp_path / "m.onnx", "prepared outputs"))


def test_bytes_and_protos(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx")
    expected = [*onnxtfl.inspect(path).lines()]
    assert [*onnxtfl.inspect(path.read_bytes()).lines()] == expected
    assert [*onnxtfl.inspect(onnx.load(path)).lines()] == expected


def test_a_diff_has_only_what_differs(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a.onnx"), saved(tmp_path / "b.onnx", helper.make_node("Abs", ["y"], ["z"]))
    assert [*onnxtfl.inspect(one).diff(onnxtfl.inspect(one))] == []
    changed = [line for line in onnxtfl.inspect(one).diff(onnxtfl.inspect(other)) if line[0] in "+-"][2:]
    assert len(changed) == 1
    assert changed[0].startswith("+  %z = onnx.Abs")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "m.onnx")
    assert run("inspect", path) == 0
    summary, _, graph = capsys.readouterr().out.partition("\n\n")
    assert "unsupported  none" in summary
    assert graph.startswith("graph g(")
    assert run("inspect", path, "--summary") == 0
    assert "graph g(" not in capsys.readouterr().out
    assert run("inspect", path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["graphs"][0]["nodes"][0]["op"] == "Conv"
    assert found["inputs"] == [{"name": "x", "type": "tensor<[n]x3x8x8xfloat32>"}]
    assert run("inspect", path, "--stage", "legalize", "--diff-stage", "layout") == 0
    assert "Transpose" in capsys.readouterr().out
    assert run("inspect", path, "--diff", path) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_stage_suggests_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", saved(tmp_path / "m.onnx"), "--stage", "layot") == 2
    assert "did you mean 'layout'?" in capsys.readouterr().err


@pytest.mark.parametrize(("suffix", "format_"), [(".onnx", "onnx"), (".tflite", "tflite")])
def test_the_help_lists_the_stages_of_the_pipeline(suffix: str, format_: str) -> None:
    assert list(STAGES[suffix]) == stages(format_, Options())  # type: ignore[arg-type]


def test_an_op_that_the_target_has_no_kernel_for() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (one,) = onnxtfl.inspect(model).summary.unsupported
    assert "TFLite cannot run this" in one.reason


def test_a_subgraph_that_many_nodes_call_counts_once(tmp_path: Path) -> None:
    steps, size = 25, 256
    weights = {"w": (1, 3 * size, 4), "r": (1, 3 * size, size)}
    constants = [numpy_helper.from_array(np.full(shape, 0.01, np.float32), name) for name, shape in weights.items()]
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=size)
    shapes = {"x": [steps, 1, 4], "y": [steps, 1, 1, size]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], constants))
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False)
    found = onnxtfl.inspect(tmp_path / "m.tflite").summary
    assert found.ops["IF"] == steps
    assert found.ops["TANH"] <= 2
    assert found.parameter_bytes < found.size
