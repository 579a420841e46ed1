"""Neutral graphs as text files: written, read, built, and evaluated without a runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import parser

import onnxtfl
from onnxtfl.cli.commands import onnxtfl as command
from onnxtfl.evaluation import Evaluator
from onnxtfl.formats import files
from onnxtfl.ir.text import print_graph
from tests.harness.litert import Array, run_onnx, run_tflite

SCALED = """graph scaled(%x: tensor<2x[n]xfloat32>) -> (%y) {
  %c = constant tensor<1xfloat32> [2.0]
  %p = Mul(%x, %c)
  %y = Softmax(%p) {axis = 1}
}
"""
MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 4] y) {
  w = Constant <value = float[3, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
  p = MatMul (x, w)
  y = Relu (p)
}"""
X = np.asarray([[1, -2, 3], [0.5, 0, -1]], np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("to", ["tflite", "onnx"])
def test_a_text_becomes_a_model_that_is_checked_by_its_meaning(to: str, tmp_path: Path) -> None:
    path = tmp_path / "g.ir"
    path.write_text("# a comment\n" + SCALED)
    made = onnxtfl.build_model(path, tmp_path / f"g.{to}")
    assert made.check is not None and made.check.status == "passed"
    assert made.check.runtimes[0].startswith("neutral ")
    data = (tmp_path / f"g.{to}").read_bytes()
    y = run_onnx(data, {"x": X})["y"] if to == "onnx" else run_tflite(data, {"x": X})[0][1]
    np.testing.assert_allclose(y, softmax(2 * X), rtol=1e-5)


def test_the_target_is_that_of_the_keyword_without_a_path() -> None:
    made = onnxtfl.build_model(SCALED.encode(), to="onnx", check=False)
    assert made.data is not None and files.sniff(made.data) == "onnx"
    with pytest.raises(onnxtfl.UsageError, match="opset"):
        onnxtfl.build_model(SCALED.encode(), to="tflite", opset=17)


def test_a_lifted_graph_is_written_whole_and_comes_back(tmp_path: Path) -> None:
    model = parser.parse_model(MODEL)
    weights = np.random.default_rng(0).standard_normal((3, 400)).astype(np.float32)
    model.graph.node[0].attribute[0].t.CopyFrom(__import__("onnx").numpy_helper.from_array(weights, "w"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 400
    text = onnxtfl.inspect(model, "lifted").text()
    assert "base64" in text and "..." not in text
    again = files.read(text.encode())
    assert print_graph(again.main, 10_000) == print_graph(files.read(text.encode()).main, 10_000)
    np.testing.assert_allclose(onnxtfl.run(text.encode(), [X])["y"], np.maximum(X @ weights, 0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int4", "bfloat16", "float16", "int64", "bool", "complex64", "uint8"])
def test_packed_constants_come_back(dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype in ("int4", "bfloat16") else np.dtype(dtype)
    wanted = (np.arange(101) % 7 - 3).astype(kind)
    listed = ", ".join(["true" if v else "false" for v in wanted] if dtype == "bool" else map(str, wanted.tolist()))
    if dtype == "complex64":
        pytest.skip("complex constants are written in base64 only")
    text = f"graph g() -> (%c) {{\n  %c = constant tensor<101x{dtype}> [{listed}]\n}}\n"
    graph = files.read(text.encode()).main
    again = onnxtfl.inspect(text.encode()).text()
    assert "base64" in again
    np.testing.assert_array_equal(files.read(again.encode()).main.outputs[0].stored(), graph.outputs[0].stored())


@pytest.mark.parametrize("kind", ["onnx", "tflite", "ir"])
def test_models_of_all_formats_are_evaluated(kind: str, tmp_path: Path) -> None:
    model = parser.parse_model(MODEL)
    path = tmp_path / f"m.{kind}"
    if kind == "onnx":
        path.write_bytes(model.SerializeToString())
    elif kind == "ir":
        path.write_text(onnxtfl.inspect(model, "lifted").text())
    else:
        onnxtfl.onnx_to_tflite(model, path, check=False)
    weights = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(onnxtfl.run(path, {"x": X})["y"], np.maximum(X @ weights, 0), rtol=1e-6)


@pytest.mark.parametrize("initial", ["tensor<2xfloat32> [10.0, 10.0]", "tensor<float32> [10.0]"])
def test_states_keep_their_values_between_runs(initial: str) -> None:
    """An initial value of rank 0 is that of all elements."""
    text = f"""graph g(%x: tensor<1xfloat32>) -> (%y) {{
      state %s: tensor<2xfloat32> -> %y = {initial}
      %y = Add(%s, %x)
    }}"""
    evaluator = Evaluator(text.encode())
    found = [evaluator.run([np.asarray([2.0])])[0].tolist() for _ in range(3)]
    assert found == [[12.0, 12.0], [14.0, 14.0], [16.0, 16.0]]


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(MODEL).SerializeToString())
    np.savez(tmp_path / "x.npz", x=X)
    run = CliRunner().invoke
    graph, out = str(tmp_path / "g.ir"), str(tmp_path / "y.npz")
    assert run(command, ["inspect", str(tmp_path / "m.onnx"), "--stage", "lifted", "-o", graph]).exit_code == 0
    built = run(command, ["build", graph, "-o", str(tmp_path / "g.tflite")])
    assert built.exit_code == 0 and "passed (neutral" in built.output
    assert run(command, ["run", graph, "--inputs", str(tmp_path / "x.npz"), "-o", out]).exit_code == 0
    weights = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(np.load(out)["y"], np.maximum(X @ weights, 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph g(%x: tensor<2xfloat32>) -> (%y) { %y = Foo(%x) }", "line 1: unknown op 'Foo'"),
        ("graph g(%x: tensor<2xfloat32>) -> (%y) { %y = Softmax(%x) {axsi = 1} }", "no attribute axsi"),
        ("graph g(%x: tensor<2xfloat32>) -> (%y) { %y = Relu(%z) }", "%z is not defined"),
        ("graph g(%x: tensor<2xfloat32>) -> (%y) {", "line 1"),
        ("graph g(%x: tensor<2xfloot>) -> (%x) {}", "floot"),
        ('graph g() -> (%c) { %c = constant tensor<9xfloat32> base64 "AAAA" }', "elements of a constant"),
        ("graph g(%x: tensor<2xfloat32>) -> (%y) { %y = Relu(%x) : tensor<3xfloat32> }", "inferred"),
    ],
)
def test_invalid_text_is_a_clear_error(text: str, message: str) -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match=message.replace("'", ".").replace("%", ".")) as error:
        onnxtfl.build_model(text.encode(), to="tflite")
    assert error.value.code == "E-FILE-005"


def test_strings_may_be_bytes() -> None:
    """As LiteRT returns them, and as NumPy's fixed-width strings are."""
    graph = b"graph g(%a: tensor<2xstring>, %b: tensor<2xstring>) -> (%y) { %y = StringConcat(%a, %b) }"
    found = onnxtfl.run(graph, {"a": np.asarray([b"x", "\u00e9".encode()]), "b": np.asarray(["1", "2"], object)})
    assert found["y"].tolist() == ["x1", "\u00e92"]


def test_inputs_by_name_and_position() -> None:
    graph = b"graph g(%a: tensor<1xfloat32>, %b: tensor<1xfloat32>) -> (%y) { %y = Sub(%a, %b) }"
    one, two = np.asarray([1.0]), np.asarray([2.0])
    assert onnxtfl.run(graph, {"b": one, "a": two})["y"].item() == 1.0
    assert onnxtfl.run(graph, {"arr_0": one, "arr_1": two})["y"].item() == -1.0
    with pytest.raises(onnxtfl.UsageError, match="no input 'c'"):
        onnxtfl.run(graph, {"a": one, "c": two})
    with pytest.raises(onnxtfl.UsageError, match="no array for the input 'b'"):
        onnxtfl.run(graph, {"a": one})
