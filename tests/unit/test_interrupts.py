"""Ctrl-C at any time: one line, exit code 130, no traceback, nothing left."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import click
import pytest

import onnxtfl
from onnxtfl import temporary
from onnxtfl.cli import interrupts, running
from tests.unit.tiny_models import onnx_scale, saved

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

_WHILE_IMPORTING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[0] = 'onnx2tfl'
from onnxtfl.cli import onnx2tfl
onnx2tfl()
"""


@pytest.mark.parametrize("module", ["click", "onnxtfl.cli.convert", "onnxtfl.api", "numpy", "onnx"])
def test_during_an_import(tmp_path: Path, module: str) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", _WHILE_IMPORTING.format(module=module), str(source)],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, b"error: interrupted\n", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


_OF_OS = {"os", "os.path", "posixpath", "genericpath", "stat", "_stat", "_collections_abc"}
"""What `site` imports otherwise, before anything of ours."""
_MODULES = """
import sys
before = set(sys.modules)
sys.path.insert(0, {path!r})
import onnxtfl.cli.interrupts
print(*sorted(set(sys.modules) - before))
"""


def test_next_to_nothing_is_imported_before_signals_are_handled() -> None:
    command = [sys.executable, "-I", "-S", "-c", _MODULES.format(path=str(Path(onnxtfl.__file__).parents[1]))]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    files = {name for name in done.stdout.split() if name not in _OF_OS}
    ours = {"onnxtfl", "onnxtfl.cli", "onnxtfl.cli.interrupts", "onnxtfl.platform_calls"}
    assert files <= {"__future__", "_signal", *ours}


def test_between_the_command_and_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "exit_code", interrupted)
    for name in ("catch", "leave_at_once"):
        monkeypatch.setattr(interrupts, name, lambda: None)
    with pytest.raises(SystemExit) as left:
        running.run(click.Command("onnx2tfl"), [])
    gc.unfreeze()
    gc.enable()
    assert (left.value.code, capsys.readouterr().err) == (130, "error: interrupted\n")


_LONG = """
import numpy as np
from onnxtfl.cli import interrupts
from onnxtfl.temporary import Folder
interrupts.PATIENCE = 0.2
interrupts.catch()
folder, large = Folder({place!r}), np.ones((5000, 5000), np.int64)
print(folder.path, flush=True)
large @ large
"""


def test_during_a_long_computation(tmp_path: Path) -> None:
    """NumPy would compute for minutes before Python can raise KeyboardInterrupt."""
    command = [sys.executable, "-c", _LONG.format(place=os.fspath(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert Path(os.fsdecode(child.stdout.readline().strip())).is_dir()
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=20)
    assert (child.returncode, told) == (130, b"error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_of_several_models(tmp_path: Path) -> None:
    """The signal goes to the workers too, as from a terminal."""
    for k in range(4):
        saved(onnx_scale(float(k)), tmp_path / f"{k}.onnx")
    command = [sys.executable, "-m", "onnxtfl", "onnx2tfl", str(tmp_path), "-o", str(tmp_path / "out"), "--jobs", "1"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    limit = time.monotonic() + 60
    while not (tmp_path / "out" / ".onnxtfl.jsonl").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert (child.returncode, told) == (130, b"error: interrupted\n")
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert not {name for name in left if name.startswith(".onnxtfl-")}
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0
    assert "up to date" in done.stdout


@pytest.mark.parametrize("line", range(40))
def test_at_each_line_that_makes_or_removes_a_folder(tmp_path: Path, line: int) -> None:
    temporary.add_place(tmp_path)
    lines = itertools.count()

    def interrupted(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename != temporary.__file__:
            return None
        if event == "line" and next(lines) == line:
            raise KeyboardInterrupt
        return interrupted

    before = sys.gettrace()
    sys.settrace(interrupted)
    with contextlib.suppress(KeyboardInterrupt), temporary.Folder(tmp_path):
        pass
    sys.settrace(before)
    temporary.remove_all()
    assert list(tmp_path.iterdir()) == []
