"""Bad input, in both directions, on the command line and from Python.

Each is a one-line error that names the place, exit code 1, no traceback, and no file: neither a result nor anything
in the folder for temporary files.
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import onnxtfl
from onnxtfl.cli import commands, running
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import SourceFile
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import tensor
from tests.unit.bad_models import ONNX, TFLITE, added, point_outside
from tests.unit.onnx_nodes import named_node, onnx_file
from tests.unit.tiny_models import onnx_scale, saved, tflite_scale

Capture = pytest.CaptureFixture[str]
COMMANDS = {"m.onnx": commands.onnx2tfl, "m.tflite": commands.tfl2onnx}
FUNCTIONS = {"m.onnx": onnxtfl.onnx_to_tflite, "m.tflite": onnxtfl.tflite_to_onnx}
_AS_ROOT = os.name != "posix" or os.geteuid() == 0


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of which none may stay."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model."""
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(capsys: Capture, command: click.Command, *words: object, code: int = 1) -> str:
    """The one line that a command says when it refuses with this exit code; no file comes into being."""
    top = Path(tempfile.gettempdir()).parent
    before = files_in(top)
    assert running.exit_code(command, [str(word) for word in words]) == code
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert "internal error" not in told
    assert files_in(top) == before
    return told


def refused_from_python(name: str, model: object) -> onnxtfl.OnnxtflError:
    """The error that the function raises."""
    with pytest.raises(onnxtfl.OnnxtflError) as caught:
        FUNCTIONS[name](model)  # type: ignore[operator]
    assert caught.value.exit_code == 1
    assert not isinstance(caught.value, onnxtfl.InternalError)
    assert "\n" not in str(caught.value)
    return caught.value


CASES = [
    *(pytest.param("m.onnx", *case, id=f"onnx: {what}") for what, case in ONNX.items()),
    *(pytest.param("m.tflite", *case, id=f"tflite: {what}") for what, case in TFLITE.items()),
]


@pytest.mark.parametrize(("name", "make", "telling"), CASES)
def test_bad_model(name: str, make: object, telling: str, folder: Path, capsys: Capture) -> None:
    source = saved(make(folder), folder / name)  # type: ignore[operator]
    told = refused(capsys, COMMANDS[name], source)
    assert telling in told
    assert told == f"error: {refused_from_python(name, source).text('cli')}\n"
    refused_from_python(name, source.read_bytes())


@pytest.mark.parametrize("name", COMMANDS)
def test_cut_file(name: str, folder: Path, capsys: Capture) -> None:
    """At every place, of a file that holds a weight."""
    whole = bytes(added().SerializeToString()) if name == "m.onnx" else tflite_scale()
    for length in range(0, len(whole), 1 + len(whole) // 150):
        source = saved(whole[:length], folder / name)
        code = running.exit_code(COMMANDS[name], [str(source), "--no-check"])
        told = capsys.readouterr().err
        assert code == 1 and told.startswith("error: ") and told.count("\n") == 1 and str(folder) in told, told
        assert "internal error" not in told
    assert files_in(folder) == [name]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_model(name: str, folder: Path, capsys: Capture) -> None:
    """No such file, a directory, a path through a file."""
    assert "none" in refused(capsys, COMMANDS[name], folder / f"none.{name}")
    assert "-o DIR" in refused(capsys, COMMANDS[name], folder, code=2)
    inside = saved(b"", folder / "file") / name
    assert str(inside) in refused(capsys, COMMANDS[name], inside)
    for model in (folder / name, folder, inside):
        refused_from_python(name, model)


@pytest.mark.skipif(_AS_ROOT, reason="root reads everything")
@pytest.mark.parametrize("name", COMMANDS)
def test_unreadable_file(name: str, folder: Path, capsys: Capture) -> None:
    source = saved(b"", folder / name)
    source.chmod(0)
    assert "Permission denied" in refused(capsys, COMMANDS[name], source)


GOOD = {"m.onnx": bytes(onnx_scale().SerializeToString()), "m.tflite": tflite_scale()}


@pytest.mark.parametrize("name", COMMANDS)
def test_nowhere_to_write(name: str, folder: Path, capsys: Capture) -> None:
    """A file where a directory should be."""
    source, command = saved(GOOD[name], folder / name), COMMANDS[name]
    (folder / "file").write_text("mine")
    assert "file" in refused(capsys, command, source, "-o", folder / "file" / "result")
    assert (folder / "file").read_text() == "mine"
    with pytest.raises(onnxtfl.OutputError):
        FUNCTIONS[name](source, folder / "file" / "result")  # type: ignore[operator]


@pytest.mark.skipif(_AS_ROOT, reason="root writes everywhere")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_directory_that_cannot_be_written(name: str, folder: Path, capsys: Capture) -> None:
    source = saved(GOOD[name], folder / name)
    (folder / "locked").mkdir(0o500)
    assert "Permission denied" in refused(capsys, COMMANDS[name], source, "-o", folder / "locked" / "result")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_device(name: str, folder: Path, capsys: Capture) -> None:
    source = saved(GOOD[name], folder / name)
    assert "No space left" in refused(capsys, COMMANDS[name], source, "-o", "/dev/full", "--no-check")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_failure_leaves_the_last_result(name: str, folder: Path, capsys: Capture) -> None:
    (folder / "result").write_text("of yesterday")
    source = saved(GOOD[name][:60], folder / name)
    refused(capsys, COMMANDS[name], source, "-o", folder / "result")
    assert (folder / "result").read_text() == "of yesterday"


def test_a_link_beside_the_resolved_model_is_followed(folder: Path) -> None:
    """As caches of model hubs lay them: links in a snapshot, files under their hashes elsewhere."""
    blobs, snapshot = folder / "blobs", folder / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    model = added()
    point_outside(model, "weights.bin")
    saved(model, blobs / "0123")
    (blobs / "4567").write_bytes(bytes(24))
    try:
        (snapshot / "m.onnx").symlink_to(blobs / "0123")
        (snapshot / "weights.bin").symlink_to(blobs / "4567")
    except OSError:
        pytest.skip("no links here")
    assert onnxtfl.onnx_to_tflite(snapshot / "m.onnx", check=False).data


def test_a_link_to_elsewhere_is_refused(folder: Path, capsys: Capture) -> None:
    model = added()
    point_outside(model, "weights.bin")
    (folder.parent / "secret").write_bytes(bytes(24))
    try:
        (folder / "weights.bin").symlink_to(folder.parent / "secret")
    except OSError:
        pytest.skip("no links here")
    assert "'c'" in refused(capsys, COMMANDS["m.onnx"], saved(model, folder / "m.onnx"))


def test_external_data_of_a_model_in_memory() -> None:
    """There is no folder that could contain it."""
    model = added()
    point_outside(model, "weights.bin")
    assert "'c'" in str(refused_from_python("m.onnx", model))
    assert "'c'" in str(refused_from_python("m.onnx", model.SerializeToString()))


@pytest.mark.parametrize("model", [None, 3, [], {"graph": 1}, "", onnx.GraphProto()], ids=repr)
def test_what_is_no_model_at_all(model: object) -> None:
    with pytest.raises(onnxtfl.UsageError if model != "" else onnxtfl.InvalidModelError):
        onnxtfl.onnx_to_tflite(model)  # type: ignore[arg-type]


def test_as_a_process(folder: Path) -> None:
    """The same through a real process: nothing but the line on stderr, nothing on stdout."""
    source = saved(ONNX["an unknown op"][0](folder), folder / "m.onnx")
    code = "from onnxtfl.cli import onnx2tfl; onnx2tfl()"
    ran = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith("error: there is no conversion for this op [node 'the_node' Frobnicate")


def test_an_internal_error(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the step; the traceback for those who ask."""
    from onnxtfl import stages

    def breaks(graph: object) -> None:
        raise KeyError("what")

    monkeypatch.setattr(stages, "sink_reshapes", breaks)
    source = saved(GOOD["m.onnx"], folder / "m.onnx")
    assert running.exit_code(COMMANDS["m.onnx"], [str(source)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: internal error in sink: KeyError: 'what'; please report it")
    assert told.count("\n") == 1
    with pytest.raises(onnxtfl.InternalError) as caught:
        onnxtfl.onnx_to_tflite(source)
    assert isinstance(caught.value.__cause__, KeyError)
    monkeypatch.setenv("ONNXTFL_DEBUG", "1")
    assert running.exit_code(COMMANDS["m.onnx"], [str(source)]) == 1
    assert "in breaks" in capsys.readouterr().err
    assert files_in(folder) == ["m.onnx"]


def test_files_are_closed_without_a_warning(tmp_path: Path) -> None:
    """Also where the graph that reads them is a cycle, as it is after each conversion."""
    source: list[object] = [SourceFile(saved(b"weights", tmp_path / "m.bin"))]
    source.append(source)
    with pytest.raises(onnxtfl.InvalidModelError):
        SourceFile(tmp_path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del source
        gc.collect()
    assert not [str(warning.message) for warning in seen if issubclass(warning.category, ResourceWarning)]


F = np.float32


def test_a_file_of_zeros_ends_at_the_first() -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="at byte 0 has the number 0"):
        onnxtfl.onnx_to_tflite(bytes(1 << 24), check=False)


def test_text_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path, length = tmp_path / "m.onnx", 1 << 36
    with path.open("wb") as file:
        file.write(b"\x32" + bytes(length >> shift & 0x7F | 0x80 for shift in range(0, 35, 7)) + b"\x02")
        file.truncate(length + 7)
    with pytest.raises(onnxtfl.InvalidModelError, match="MB without the tensors"):
        onnxtfl.onnx_to_tflite(path, check=False)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_external_data_in_a_loop_of_links(tmp_path: Path) -> None:
    model = onnx.load_from_string(onnx_file([named_node("Add", "x c")], [4], {"c": np.ones(4, F)}))
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="a.bin")
    (tmp_path / "a.bin").symlink_to("b.bin")
    (tmp_path / "b.bin").symlink_to("a.bin")
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(onnxtfl.InvalidModelError, match="external data is missing"):
        onnxtfl.onnx_to_tflite(tmp_path / "m.onnx", check=False)


def test_entries_of_metadata_that_are_one_buffer() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 4), "x")
    graph.outputs = Builder(graph).foreign("tfl", "NEG", [x], [tensor("float32", 4)])
    model, out = Model(graph), io.BytesIO()
    model.metadata.properties |= {f"k{i}": "v" * 5000 for i in range(9)}
    write(model, out)
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    tables = schema.ModelT.InitFromObj(schema.Model.GetRootAs(out.getvalue(), 0))
    buffer = tables.buffers[tables.metadata[0].buffer]
    buffer.data = np.tile(buffer.data, 20)
    for entry in tables.metadata:
        entry.buffer = tables.metadata[0].buffer
    flatbuffers = pytest.importorskip("flatbuffers")
    builder = flatbuffers.Builder(1024)
    builder.Finish(tables.Pack(builder), b"TFL3")
    with pytest.raises(onnxtfl.InvalidModelError, match="refer to the same bytes too often"):
        onnxtfl.tflite_to_onnx(bytes(builder.Output()), check=False)
