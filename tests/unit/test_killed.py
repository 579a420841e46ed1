"""A process that is killed, or whose terminal is closed, leaves no process and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from onnxtfl import temporary
from onnxtfl.runtimes import worker
from onnxtfl.temporary import Folder
from tests.unit.tiny_models import onnx_model, onnx_scale, saved

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and locks of POSIX")

_CONVERT = """
import os, signal, sys, onnxtfl
def step(name):
    if name == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)
onnxtfl.onnx_to_tflite({model!r}, {result!r}, on_progress=step)
"""
_RUN = """
import os, signal, sys, time, numpy as np
from onnxtfl.runtimes import ONNXRUNTIME
worker = ONNXRUNTIME.worker()
worker.run({model!r}, [np.int64(1)])
worker.submit({model!r}, [[np.int64(2**62)]])
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""
_HOLD = """
import sys
from onnxtfl.temporary import Folder
print(Folder(sys.argv[1]).path, flush=True)
sys.stdin.read()
"""


def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with a directory for temporary files of its own."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp")}


def left(tmp_path: Path) -> list[str]:
    """The folders of this package, and the processes that have a file in `tmp_path` open or as an argument."""
    walked = os.walk(tmp_path)  # unlike rglob, it passes over what disappears
    folders = [name for _, directories, files in walked for name in (*directories, *files) if "onnxtfl-" in name]
    return folders + [text for text in map(_arguments, Path("/proc").glob("[0-9]*")) if os.fspath(tmp_path) in text]


def _arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def ends(script: str, env: Mapping[str, str], tmp_path: Path) -> None:
    """Run a script that kills itself, and wait until nothing is left of it."""
    done = subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    limit = time.monotonic() + 20
    while left(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not left(tmp_path)


def long_loop():
    """A model that counts to its input, one iteration after the other."""
    state = helper.make_tensor_value_info("s", TensorProto.INT64, [])
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["s", "s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            state,
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("t", 7, [])],
    )
    nodes = [helper.make_node("Loop", ["n", "", "n"], ["y"], body=body)]
    return onnx_model(nodes, [("n", TensorProto.INT64, ())], [("y", TensorProto.INT64, ())])


@pytest.mark.parametrize("step", ["read", "check"])
def test_during_a_conversion(tmp_path: Path, step: str) -> None:
    """The processes of the check wait for work."""
    model, result = saved(onnx_scale(), tmp_path / "m.onnx"), tmp_path / "out" / "m.tflite"
    (tmp_path / "out").mkdir()
    script = _CONVERT.format(step=step, model=os.fspath(model), result=os.fspath(result))
    ends(script, environment(tmp_path), tmp_path)


def test_during_a_run(tmp_path: Path) -> None:
    """The process of the runtime would work for years."""
    model = saved(long_loop(), tmp_path / "m.onnx")
    ends(_RUN.format(model=os.fspath(model)), environment(tmp_path), tmp_path)


def test_a_request_that_takes_too_long(tmp_path: Path) -> None:
    """The process ends itself where its parent does not end it."""
    import numpy as np

    np.savez(tmp_path / "in.npz", n=np.int64(2**62))
    request = {"id": 1, "runtime": "onnxruntime", "model": os.fspath(saved(long_loop(), tmp_path / "m.onnx"))}
    request |= {"arrays": os.fspath(tmp_path / "in.npz"), "runs": [[{"kind": "array", "key": "n"}]], "feedback": []}
    request |= {"results": "", "kernels": "default", "spare": 0, "keep": False, "time_limit": 0.3 - worker.LATE}
    command = [sys.executable, worker.__file__, "onnxruntime", ""]
    done = subprocess.run(command, input=json.dumps(request) + "\n", text=True, check=False, timeout=60, stderr=-1)
    assert done.returncode == 1
    assert "Timeout" in done.stderr


def test_a_check_leaves_no_file(tmp_path: Path) -> None:
    """Not even one of a runtime."""
    model, page = saved(onnx_scale(), tmp_path / "m.onnx"), str(tmp_path / "r.html")
    command = [sys.executable, "-m", "onnxtfl", "check", model, model, "--report", page]
    subprocess.run(command, env=environment(tmp_path), check=True, capture_output=True, timeout=60)
    assert not list((tmp_path / "tmp").iterdir())


def test_of_several_models(tmp_path: Path) -> None:
    """Each of them has a process, which has those of its check."""
    for k in range(3):
        saved(long_loop(), tmp_path / f"{k}.onnx")
    command = [sys.executable, "-m", "onnxtfl", "onnx2tfl", str(tmp_path), "-o", str(tmp_path / "out"), "--jobs", "2"]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.DEVNULL) as parent:
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("out/.onnxtfl-*")) and time.monotonic() < limit:
            time.sleep(0.05)
        parent.kill()
    while left(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert [name for name in left(tmp_path) if name != ".onnxtfl.jsonl"] == []


def test_a_closed_terminal(tmp_path: Path) -> None:
    """SIGHUP ends a command as Ctrl-C does."""
    script = _CONVERT.format(step="read", model=os.fspath(saved(onnx_scale(), tmp_path / "m.onnx")), result="")
    start = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # under nohup the tests ignore it
    start += "from onnxtfl.cli import interrupts\ninterrupts.catch()\n"
    script = start + script.replace("SIGKILL", "SIGHUP")
    done = subprocess.run(
        [sys.executable, "-c", script.replace("''", repr(os.fspath(tmp_path / "m.tflite")))],
        env=environment(tmp_path),
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert left(tmp_path) == []


def test_the_next_process_removes_what_is_left(tmp_path: Path) -> None:
    """Folders of a living process stay, and those with another name."""
    (tmp_path / "onnxtfl-tmp-mine").mkdir()
    commands = [sys.executable, "-c", _HOLD, os.fspath(tmp_path)]
    with (
        subprocess.Popen(commands, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
        subprocess.Popen(commands, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
    ):
        assert living.stdout is not None
        assert killed.stdout is not None
        kept, lost = Path(living.stdout.readline().strip()), Path(killed.stdout.readline().strip())
        killed.kill()
        killed.wait()
        assert lost.is_dir()
        with Folder(tmp_path) as mine:
            found = {path.name for path in tmp_path.iterdir()}
            assert found == {kept.name, mine.name, "onnxtfl-tmp-mine"}
            temporary.sweep(os.fspath(tmp_path))
            assert mine.is_dir()
        living.kill()


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has none, folders have a name that is never removed by another process."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with Folder(tmp_path) as folder:
        monkeypatch.undo()
        temporary.sweep(os.fspath(tmp_path))
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_makes_folders_and_leaves_those_of_its_parent(tmp_path: Path) -> None:
    """Also where another thread is making folders at that moment."""
    own, done = Folder(tmp_path), threading.Event()

    def make() -> None:
        while not done.is_set():
            Folder(tmp_path).close()

    thread = threading.Thread(target=make)
    thread.start()
    children = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with Folder(tmp_path):
                temporary.remove_all()
            os._exit(0)
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    done.set()
    thread.join()
    assert ended == [0] * 10
    assert [path.name for path in tmp_path.iterdir()] == [own.path.name]
    own.close()
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_while_others_sweep(tmp_path: Path) -> None:
    """A folder that is new, and not locked yet, may be removed by another process: it is made again."""
    script = "import sys\nfrom onnxtfl.temporary import sweep\nwhile True: sweep(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", script, os.fspath(tmp_path)]) as sweeper:
        try:
            limit = time.monotonic() + 1
            while time.monotonic() < limit:
                with Folder(tmp_path) as folder:
                    assert folder.name.startswith(".onnxtfl-tmp-")
                    (folder / "file").write_text("kept")
                    assert (folder / "file").read_text() == "kept"
        finally:
            sweeper.kill()
    assert list(tmp_path.iterdir()) == []
