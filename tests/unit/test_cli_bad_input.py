"""Bad input to the real converters: exit 1, one line that names the place, no traceback, no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtfl.cli import commands, running
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_scale

FLOAT = TensorProto.FLOAT
Make = Callable[[Path], object]
SHAPED: list[tuple[str, int, list[int]]] = [("x", FLOAT, [2, 3])]


def nodes_of(*nodes: onnx.NodeProto, constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    return onnx_model(nodes, SHAPED, [("y", FLOAT, [2, 3])], constants)


def cut(folder: Path) -> object:
    data = nodes_of(
        helper.make_node("Add", ["x", "c"], ["y"]), constants={"c": np.ones((2, 3), np.float32)}
    ).SerializeToString()
    return data[: len(data) // 2]


def external(location: str, length: int = 24) -> Make:
    """A model whose weight lies at ``location``; the file there has ``length`` bytes, if it can be made."""

    def make(folder: Path) -> object:
        model = nodes_of(helper.make_node("Add", ["x", "c"], ["y"]), constants={"c": np.ones((2, 3), np.float32)})
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location.format(folder=folder)), ("offset", "0"), ("length", "24")):
            tensor.external_data.add(key=key, value=value)
        if length:
            (folder.parent / "outside.bin").write_bytes(bytes(length))
            (folder / "inside.bin").write_bytes(bytes(length))
        return model

    return make


def cyclic(folder: Path) -> object:
    return nodes_of(helper.make_node("Add", ["x", "y"], ["a"]), helper.make_node("Relu", ["a"], ["y"]))


def duplicate(folder: Path) -> object:
    return nodes_of(helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"]))


def short(folder: Path) -> object:
    model = nodes_of(helper.make_node("Add", ["x", "c"], ["y"]), constants={"c": np.ones((2, 3), np.float32)})
    model.graph.initializer[0].raw_data = b"\0" * 8
    return model


def absurd(folder: Path) -> object:
    model = nodes_of(helper.make_node("Add", ["x", "c"], ["y"]), constants={"c": np.ones((2, 3), np.float32)})
    model.graph.initializer[0].dims[:] = [2**40, 2**40]
    return model


def unknown_value(folder: Path) -> object:
    return nodes_of(helper.make_node("Add", ["x", "nowhere"], ["y"]))


def unknown_op(folder: Path) -> object:
    return nodes_of(helper.make_node("Frobnicate", ["x"], ["y"], name="the_node"))


def unknown_domain(folder: Path) -> object:
    model = nodes_of(helper.make_node("Frobnicate", ["x"], ["y"], name="the_node", domain="nobody.knows"))
    model.opset_import.append(helper.make_opsetid("nobody.knows", 1))
    return model


CASES: dict[str, tuple[Make, str]] = {
    "cut": (cut, ""),
    "random": (lambda folder: np.random.default_rng(0).bytes(5000), ""),
    "text": (lambda folder: b"<html>not found</html>", ""),
    "empty": (lambda folder: b"", "empty"),
    "tflite": (lambda folder: tflite_scale(), "is a TFLite file, not an ONNX one"),
    "external missing": (external("inside.bin", 0), "inside.bin"),
    "external short": (external("inside.bin", 10), "cut off"),
    "external absolute": (external("{folder}/inside.bin"), "relative"),
    "external above": (external("../outside.bin"), "outside.bin"),
    "cyclic": (cyclic, ""),
    "duplicate names": (duplicate, "'y'"),
    "short initializer": (short, "'c'"),
    "absurd dims": (absurd, "'c'"),
    "unknown value": (unknown_value, "'nowhere'"),
    "unknown op": (unknown_op, "Frobnicate"),
    "unknown domain": (unknown_domain, "Frobnicate"),
}


def refused(capsys: pytest.CaptureFixture[str], command: object, *words: object) -> str:
    """The one line that a command says when it refuses with exit 1."""
    assert running.exit_code(command, [str(word) for word in words]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert "internal error" not in told
    return told


@pytest.mark.parametrize("name", CASES)
def test_onnx(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, telling = CASES[name]
    folder = tmp_path / "model"
    folder.mkdir()
    source = saved(make(folder), folder / "m.onnx")
    before = sorted(path.name for path in folder.iterdir())
    assert telling in refused(capsys, commands._onnx2tfl, source)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("size", [0, 3, 9, 100, -40])
def test_a_tflite_that_was_cut(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tflite_scale()[:size], tmp_path / "m.tflite")
    refused(capsys, commands._tfl2onnx, source)
    assert [path.name for path in tmp_path.iterdir()] == ["m.tflite"]


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    assert "none" in refused(capsys, commands._onnx2tfl, source, "-o", tmp_path / "none" / "m.tflite")
    if os.name == "posix" and os.geteuid() != 0:
        (tmp_path / "locked").mkdir(0o500)
        assert "Permission denied" in refused(
            capsys, commands._onnx2tfl, source, "-o", tmp_path / "locked" / "m.tflite"
        )


def test_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, name in ((commands._onnx2tfl, "none.onnx"), (commands._tfl2onnx, "none.tflite")):
        assert name in refused(capsys, command, tmp_path / name)
        refused(capsys, command, tmp_path)
