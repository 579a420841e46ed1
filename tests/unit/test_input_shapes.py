"""Shapes of inputs that the user asks for: open, named, fixed, changed; and names and ranks that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.checking.settings import Settings
from onnxtfl.cli import commands, running
from onnxtfl.errors import UsageError
from onnxtfl.kinds import Names, Shapes
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_scale


def convolution(shape=(1, 3, 8, 8)):
    """A convolution and a global pool over an image, with the shapes in between declared."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model = onnx_model(nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, (1, 4))], {"w": weights})
    model.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, (1, 4, 8, 8)))
    return model


@pytest.mark.parametrize(
    ("wanted", "shape"),
    [
        ((None, 3, 8, 8), ("?", 3, 8, 8)),
        (("batch", 3, 8, 8), ("batch", 3, 8, 8)),
        ((2, 3, 16, 8), (2, 3, 16, 8)),
        (("batch", 3, None, 64), ("batch", 3, "?", 64)),
    ],
    ids=str,
)
def test_a_fixed_size_is_changed_or_opened(wanted, shape) -> None:
    conversion = onnxtfl.onnx_to_tflite(convolution(), input_shapes={"x": wanted}, check="require")
    found = conversion.report.inputs[0].shape
    assert [a if isinstance(a, int) else "open" for a in found] == [b if isinstance(b, int) else "open" for b in shape]
    assert [a for a in found if a == "batch"] == [b for b in shape if b == "batch"]


def test_the_way_back() -> None:
    conversion = onnxtfl.tflite_to_onnx(tflite_scale(), input_shapes={"x": ("n", 3)}, check="require")
    assert conversion.report.inputs[0].shape == ("n", 3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("x:?,3", (None, 3)), ("x:batch,3", ("batch", 3)), ("x:2,3", (2, 3)), ("x:-1,3", (None, 3)), ("x:", ())],
)
def test_on_the_command_line(words: str, expected: object) -> None:
    assert Shapes().read(words) == ("x", expected)


def test_the_check_takes_open_sizes(tmp_path: Path) -> None:
    a, b = onnx_scale(shape=("n", 3)), onnxtfl.onnx_to_tflite(onnx_scale(shape=("n", 3)), check=False).data
    assert onnxtfl.check(a, b, input_shapes={"x": (None, 3)}).ok
    assert onnxtfl.check(a, b, input_shapes={"x": (5, 3)}).inputs[0].shape == (5, 3)


@pytest.mark.parametrize(
    ("shapes", "telling"),
    [
        ({"image": (2, 3)}, "the model has no input 'image'; its inputs are: 'x'"),
        ({"xx": (2, 3)}, "did you mean 'x'?"),
        ({"x": (2, 3, 4)}, "input 'x' has 2 axes, not 3"),
        ({"x": (2.5, 3)}, "invalid shape 2.5,3 for input 'x'"),
        ({"x": (-5, 3)}, "invalid shape -5,3 for input 'x'"),
        ({"x": "2,3"}, "invalid shape '2,3' for input 'x'"),
        ("x:2,3", "input_shapes cannot be 'x:2,3'; use a dictionary"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_an_error(shapes, telling: str) -> None:
    with pytest.raises(UsageError) as converting:
        onnxtfl.onnx_to_tflite(onnx_scale(), input_shapes=shapes)
    with pytest.raises(UsageError) as checking:
        onnxtfl.check(onnx_scale(), tflite_scale(), input_shapes=shapes)
    assert telling in str(converting.value)
    assert telling in str(checking.value)


def test_unknown_names_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = saved(onnx_scale(), tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite")
    assert running.exit_code(commands.onnxtfl, ["check", str(a), str(b), "--input-shape", "foo:1,2"]) == 2
    assert "the model has no input 'foo'; its inputs are: 'x'" in capsys.readouterr().err
    assert running.exit_code(commands.onnx2tfl, [str(a), "--outputs", "yy"]) == 2
    assert "the model has no tensor 'yy'; did you mean 'y'?" in capsys.readouterr().err


def test_inspect_at_other_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(saved(convolution(), tmp_path / "m.onnx"))
    found = onnxtfl.inspect(model, "lower", input_shapes={"x": (2, 3, 16, 16)}, outputs=["p"])
    assert "2x16x16" in "".join(found.lines())
    words = ["inspect", model, "--stage", "lower", "--input-shape", "x:2,3,16,16", "--outputs", "p,c"]
    assert running.exit_code(commands.onnxtfl, words) == 0
    assert "2x16x16" in capsys.readouterr().out
    assert running.exit_code(commands.onnxtfl, ["inspect", model, "--input-shape", "x:2,3,16,16"]) == 2
    assert "--input-shape has no effect on the file itself; name a later step with --stage" in capsys.readouterr().err


def decoder_inputs() -> onnx.ModelProto:
    """Two inputs that share dimensions, one of which has a formula as its name, and one of another size."""
    nodes = [helper.make_node("Concat", ["x", "y"], ["z"], axis=1), helper.make_node("Neg", ["m"], ["n"])]
    inputs = [("x", TensorProto.FLOAT, ("batch", "past")), ("y", TensorProto.FLOAT, ("batch", "seq"))]
    inputs.append(("m", TensorProto.FLOAT, ("batch", "past + seq", 4)))
    return onnx_model(nodes, inputs, [("z", TensorProto.FLOAT, None), ("n", TensorProto.FLOAT, None)])


def test_a_dimension_is_set_in_all_inputs_that_have_it() -> None:
    made = onnxtfl.onnx_to_tflite(decoder_inputs(), dims={"batch": 2, "past": 3, "seq": 1}, check="require")
    assert [one.shape for one in made.report.inputs] == [(2, 3), (2, 1), (2, 4, 4)]
    assert made.check is not None
    assert [one.shape for one in made.check.inputs] == [(2, 3), (2, 1), (2, 4, 4)]
    some = onnxtfl.onnx_to_tflite(decoder_inputs(), dims={"past + seq": 5}, check=False)
    assert some.report.inputs[2].shape == ("batch", 5, 4)


def test_a_dimension_that_was_named_or_cut_is_set() -> None:
    made = onnxtfl.onnx_to_tflite(decoder_inputs(), input_shapes={"x": ("n", 3)}, dims={"n": 2, "seq": 4}, check=False)
    assert [one.shape for one in made.report.inputs] == [(2, 3), ("batch", 4), ("batch", "past_seq", 4)]
    cut = onnxtfl.onnx_to_tflite(decoder_inputs(), outputs=["z"], dims={"batch": 2, "past": 3}, check="require")
    assert [one.shape for one in cut.report.inputs[:2]] == [(2, 3), (2, "seq")]


def test_a_dimension_of_a_tflite_model() -> None:
    open_sizes = onnxtfl.onnx_to_tflite(onnx_scale(shape=("n", 3)), check=False).data
    assert open_sizes is not None
    assert onnxtfl.tflite_to_onnx(open_sizes, dims={"x_d0": 4}, check="require").report.inputs[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("dims", "telling"),
    [
        ({"sequence": 1}, "no input has a dimension called 'sequence'; the dimensions are: 'batch', 'past', 'seq'"),
        ({"bach": 1}, "did you mean 'batch'?"),
        ({"batch": -1}, "dims cannot be 'batch=-1'; use sizes from 0"),
        ({"batch": "b"}, "dims cannot be 'batch=b'; use sizes from 0"),
    ],
    ids=str,
)
def test_an_unknown_dimension_is_an_error(dims: dict[str, int], telling: str) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.onnx_to_tflite(decoder_inputs(), dims=dims)
    assert telling in str(error.value)


def test_dimensions_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(saved(decoder_inputs(), tmp_path / "m.onnx"))
    words = [model, "--dim", "batch=2", "--dim", "past + seq=4"]
    assert running.exit_code(commands.onnx2tfl, words) == 0
    assert "[2,4,4]" in capsys.readouterr().out
    assert running.exit_code(commands.onnx2tfl, [model, "--dim", "batch:2"]) == 2
    assert "'batch:2' is not NAME=SIZE, like batch=1" in capsys.readouterr().err
    assert running.exit_code(commands.onnxtfl, ["inspect", model, "--stage", "lifted", "--dim", "batch=2"]) == 0


def test_dimensions_of_the_check_arrive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[Settings] = []

    def compare(a: object, b: object, settings: Settings, *others: object) -> onnxtfl.CheckReport:
        found.append(settings)
        return onnxtfl.CheckReport("passed", "")

    monkeypatch.setattr("onnxtfl.checking.session.check_models", compare)
    made = onnxtfl.onnx_to_tflite(decoder_inputs(), tmp_path / "m.tflite", dims={"batch": 2}, check_dims={"past": 3})
    assert made.report.inputs[0].shape == (2, "past")
    onnxtfl.check(decoder_inputs(), tmp_path / "m.tflite", dims={"past": 4})
    a, b = str(saved(decoder_inputs(), tmp_path / "m.onnx")), str(tmp_path / "m.tflite")
    assert running.exit_code(commands.onnxtfl, ["check", a, b, "--dim", "seq=5"]) == 0
    assert running.exit_code(commands.onnx2tfl, [a, "-o", b, "--check-dim", "seq=6"]) == 0
    assert [one.dims for one in found] == [{"past": 3}, {"past": 4}, {"seq": 5}, {"seq": 6}]


def test_names_in_a_list(tmp_path: Path) -> None:
    names = Names().collect
    assert names(["a,b"]) == names(["a", "b"]) == ["a", "b"]
    assert names([r"a\,b", "c"]) == ["a,b", "c"]
    assert names([]) is None
