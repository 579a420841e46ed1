"""Devices, pipes, full disks, hard links, and files that a model reads: one clear line, nothing replaced or left."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxtfl
from onnxtfl import InvalidModelError, OutputError, UsageError, output
from onnxtfl.ir.data import SourceFile
from tests.unit.tiny_models import onnx_model, onnx_scale, saved

pytestmark = pytest.mark.skipif(os.name != "posix", reason="devices and pipes of POSIX")


def with_external_data(folder: Path) -> Path:
    """A model in `folder`, whose weight is in the file w.bin next to it."""
    model = onnx_model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", 1, (1, 64))], [("y", 1, (1, 64))])
    model.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "m.onnx"


def converted(model: Path, result: Path, **options) -> None:
    onnxtfl.onnx_to_tflite(model, result, check=False, load=False, **options)


def run(*words: str | Path, **options) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "onnxtfl", *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


@pytest.mark.parametrize("name", ["zero", "pipe"])
def test_sources_that_never_end(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = tmp_path / "pipe" if name == "pipe" else Path("/dev/zero")
    good = saved(onnx_scale(), tmp_path / "m.onnx")
    for a, b in ((source, good), (good, source)):
        with pytest.raises(InvalidModelError, match="not a regular file"):
            onnxtfl.check(a, b)
    with pytest.raises(InvalidModelError, match="not a regular file"):
        converted(source, tmp_path / "m.tflite")
    with pytest.raises(UsageError, match="not a regular file"):
        onnxtfl.check(good, good, data=source)


def test_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    converted(saved(onnx_scale(), tmp_path / "m.onnx"), tmp_path / "pipe")
    reader.join()
    assert found[0][4:8] == b"TFL3"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_into_a_pipe_that_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="no process reads this pipe"):
        converted(saved(onnx_scale(), tmp_path / "m.onnx"), tmp_path / "pipe")


def test_standard_output_by_its_name(tmp_path: Path) -> None:
    """In a pipe, and where it is a file; the report goes to standard error."""
    model = saved(onnx_scale(), tmp_path / "m.onnx")
    words = ("onnx2tfl", model, "--no-check", "--no-load", "-o", "/dev/stdout")
    piped = run(*words)
    assert (piped.returncode, piped.stdout[4:8]) == (0, b"TFL3")
    assert b"ops after" in piped.stderr
    with (tmp_path / "m.tflite").open("wb") as file:
        subprocess.run([sys.executable, "-m", "onnxtfl", *map(str, words)], stdout=file, check=True, stderr=-3)
    assert (tmp_path / "m.tflite").read_bytes() == piped.stdout


def test_an_open_file_by_its_name(tmp_path: Path) -> None:
    """It is written into; a file of that name would be another one."""
    with (tmp_path / "m.tflite").open("wb") as file:
        converted(saved(onnx_scale(), tmp_path / "m.onnx"), Path(f"/proc/self/fd/{file.fileno()}"))
        assert os.fstat(file.fileno()).st_size > 100


def test_a_full_device(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"):
        converted(saved(onnx_scale(), tmp_path / "m.onnx"), Path("/dev/full"))


_LIMIT = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
"""
_CONVERT = "from onnxtfl.cli import onnx2tfl\nonnx2tfl()\n"
_REPORT = """
from onnxtfl.cli.running import print_error
from onnxtfl.output import write_text
try:
    write_text("out", 9999 * "text")
except Exception as error:
    print_error(str(error))
    sys.exit(1)
"""


@pytest.mark.parametrize("script", [_CONVERT, _REPORT], ids=["model", "report"])
def test_a_full_disk(tmp_path: Path, script: str) -> None:
    """Files may have 4 KB; what was there before stays."""
    words = ["e/m.onnx", "-o", "out", "--no-check", "--no-load"]
    with_external_data(tmp_path / "e")
    (tmp_path / "out").write_text("before")
    command = [sys.executable, "-c", _LIMIT + script, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"error: cannot write out: File too large (E-OUT-001)\n")
    assert (tmp_path / "out").read_text() == "before"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["e", "m.onnx", "out", "w.bin"]


def test_files_that_the_model_reads(tmp_path: Path) -> None:
    """A result never replaces them, under any name."""
    model = with_external_data(tmp_path / "e")
    (tmp_path / "link.bin").symlink_to(tmp_path / "e" / "w.bin")
    before = (tmp_path / "e" / "w.bin").read_bytes()
    for target in (tmp_path / "e" / "w.bin", tmp_path / "link.bin"):
        with pytest.raises(UsageError, match="a file of the source"):
            converted(model, target)
    assert (tmp_path / "e" / "w.bin").read_bytes() == before


def test_hard_links(tmp_path: Path) -> None:
    """To a file elsewhere they are refused, as symlinks are; in the model's folder they are not."""
    model = with_external_data(tmp_path / "e")
    os.link(tmp_path / "e" / "w.bin", tmp_path / "e" / "same.bin")
    converted(model, tmp_path / "m.tflite")
    os.link(tmp_path / "e" / "w.bin", tmp_path / "other.bin")
    with pytest.raises(InvalidModelError, match="hard link out of the model's directory"):
        converted(model, tmp_path / "m.tflite")


def test_errors_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the file that is read, not the result."""
    model = with_external_data(tmp_path / "e")
    opened = SourceFile.__init__

    class Broken:
        def seek(self, offset: int) -> None:
            pass

        def readinto(self, view: memoryview) -> int:
            raise OSError(5, "Input/output error")

        def close(self) -> None:
            pass

    def broken(self: SourceFile, path: Path) -> None:
        opened(self, path)
        if Path(path).name == "w.bin":
            self._file = Broken()  # type: ignore[assignment]

    monkeypatch.setattr(SourceFile, "__init__", broken)
    with pytest.raises(InvalidModelError, match=r"w\.bin: cannot be read: Input/output error"):
        converted(model, tmp_path / "m.tflite")
