"""Systems other than Linux: what they lack is hidden from a child process, in which all else is the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onnxtfl import platform_calls
from tests.unit.tiny_models import onnx_scale, saved

ROOT = Path(__file__).resolve().parents[2]
_SPECIFIC = re.compile(
    r"\b(?:fcntl|prctl|SIGHUP|O_NOFOLLOW|O_DIRECTORY|O_NONBLOCK|register_at_fork|getppid|getuid|pread|sendfile"
    r"|copy_file_range|set_wakeup_fd|sched_getaffinity|os\.fork|import resource|set_blocking|os\.name)\b"
    r"|[\"']/(?:proc|dev)/"
)
_MISSING = (
    *("fork", "forkpty", "register_at_fork", "getppid", "getuid", "geteuid", "pread", "pwrite", "sendfile", "sysconf"),
    *("copy_file_range", "set_blocking", "sched_getaffinity", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC"),
)
_HIDING = f"""
import builtins, io, os, shutil, signal, subprocess, sys, _signal
shutil._use_fd_functions = False
import multiprocessing.popen_spawn_posix, multiprocessing.synchronize, multiprocessing.resource_tracker
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in {_MISSING!r}:
    if hasattr(os, name):
        delattr(os, name)
for module in (signal, _signal):
    if hasattr(module, "SIGHUP"):
        del module.SIGHUP
def hiding(of):
    def opened(path, *args, **kwargs):
        if not isinstance(path, int) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "hidden", path)
        return of(path, *args, **kwargs)
    return opened
builtins.open = io.open = hiding(io.open)
def replace(source, target, of=os.replace):
    # as on Windows: no process may have either file open
    for fd in os.listdir("/proc/self/fd"):
        try:
            held = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if held in (os.path.realpath(source), os.path.realpath(target)):
            raise PermissionError(13, "open: " + held, str(source))
    of(source, target)
os.replace = replace
"""
_RUN = "import sys\nsys.argv[0] = 'onnxtfl'\nfrom onnxtfl.cli import {command}\n{command}()\n"
Environment = dict[str, str]


def _with_site(folder: Path, code: str) -> Environment:
    """The environment variables with which each Python process, also a child's child, runs `code` first."""
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.fspath(folder)}


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment variables of processes that hide what other systems lack."""
    return _with_site(tmp_path_factory.mktemp("hiding"), _HIDING)


def _python(env: Environment, code: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, check=False, encoding="utf-8", errors="replace", env=env, timeout=120
    )


def _run(env: Environment, *words: object, command: str = "onnx2tfl") -> subprocess.CompletedProcess[str]:
    return _python(env, _RUN.format(command=command), *words)


def test_one_module_names_what_is_special_to_a_system() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in ("converter", "mappings")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "platform_calls.py"
        for match in _SPECIFIC.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_fallbacks(hiding: Environment) -> None:
    code = (
        "from onnxtfl import platform_calls as p\n"
        "p.after_fork(print)\n"
        "print(p.locked('.'), p.parent(), p.signal_pipe(), p.memory_available(), p.peak_memory(), p.ending_signals())\n"
    )
    done = _python(hiding, code)
    assert done.stdout == "None None None None None [2, 15]\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="numbers from /proc")
def test_numbers_of_linux() -> None:
    assert (platform_calls.memory_available() or 0) > 1 << 20 and (platform_calls.peak_memory() or 0) > 1 << 20


def test_a_conversion_with_its_check_and_reports(tmp_path: Path, hiding: Environment) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    target = tmp_path / "m.tflite"
    done = _run(hiding, source, "-o", target, "--check", "--report", tmp_path / "r.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^check +passed", done.stdout, re.M) and "peak memory" not in done.stdout
    done = _run(hiding, "check", source, target, "--json", "-", command="main")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["status"]) == (0, "", "passed")
    back = _run(hiding, target, "-o", tmp_path / "back.onnx", "--check", command="tfl2onnx")
    assert (back.returncode, back.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["back.onnx", "m.onnx", "m.tflite", "r.html"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere file names are UTF-8")
def test_file_names_where_their_encoding_is_ascii(tmp_path: Path) -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = _run(env, saved(onnx_scale(), tmp_path / "μ.onnx"), "-o", tmp_path / "ξ.tflite", "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_many_files(tmp_path: Path, hiding: Environment) -> None:
    for k in range(2):
        saved(onnx_scale(k + 2.0), tmp_path / f"m{k}.onnx")
    done = _run(hiding, *sorted(tmp_path.glob("*.onnx")), "-o", f"{tmp_path / 'out'}/")
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in sorted(os.listdir(tmp_path / "out")) if name[0] != "."] == ["m0.tflite", "m1.tflite"]
    (journal,) = (path for path in (tmp_path / "out").iterdir() if path.suffix != ".tflite")
    journal.write_bytes(journal.read_bytes().replace(b"\n", b"\r\n"))  # an editor of Windows
    done = _run(hiding, *sorted(tmp_path.glob("*.onnx")), "-o", f"{tmp_path / 'out'}/")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 models: 2 up to date")


def test_an_interrupt(tmp_path: Path, hiding: Environment) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    interrupt = "from onnxtfl.output import Output\nOutput.commit = lambda self: signal.raise_signal(2)\n"
    code = "import signal\n" + interrupt + _RUN.format(command="onnx2tfl")
    done = _python(hiding, code, source, "-o", tmp_path / "new" / "m.tflite")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    assert os.listdir(tmp_path) == ["m.onnx"]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["a\\b", "C:\\models\\net", "CON", "NUL", "aux", "com1.v2"])
def test_names_special_to_windows_are_kept(tmp_path: Path, hiding: Environment, name: str) -> None:
    source = saved(onnx_scale(), tmp_path / f"{name}.onnx")
    done = _run(hiding, source, "-o", f"{tmp_path / 'out'}/", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path / "out") == [f"{name}.tflite"]


def test_without_litert(tmp_path: Path) -> None:
    """Where it has no wheel: the result is written, and what cannot be checked is said with a code."""
    env = _with_site(
        tmp_path,
        "import sys\nfor name in ('ai_edge_litert', 'tflite_runtime', 'tensorflow'):\n    sys.modules[name] = None\n",
    )
    source, target = saved(onnx_scale(), tmp_path / "m.onnx"), tmp_path / "m.tflite"
    done = _run(env, source, "-o", target)
    assert done.returncode == 0 and target.is_file()
    assert re.search(r"^check +not checked.*E-RUN-001", done.stdout, re.M | re.S)
    done = _run(env, source, "-o", target, "--check")
    assert done.returncode == 3 and "E-CHECK-002" in done.stderr


_NARROW = [{"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"} for encoding in ("cp1252", "ascii")]


def _named_in_greek() -> onnx.ModelProto:
    """A model with names that no Western code page has."""
    model = onnx_scale(shape=("β→", 3))
    model.graph.input[0].name = model.graph.node[0].input[0] = "ξ"
    model.graph.output[0].name = model.graph.node[0].output[0] = "ψ≠"
    model.graph.node[0].name = "κόμβος"
    return model


@pytest.mark.parametrize("environment", _NARROW, ids=["cp1252", "ascii"])
def test_a_console_with_few_characters(tmp_path: Path, environment: Environment) -> None:
    source = saved(_named_in_greek(), tmp_path / "m.onnx")
    target = tmp_path / "m.tflite"
    runs = [
        ("onnx2tfl", source, "-o", target, "-v", "--report", tmp_path / "r.html"),
        ("onnx2tfl", source, "-o", target, "--inputs", "λ"),
        ("onnx2tfl", tmp_path / "no.onnx", "--λ"),
        ("main", "check", source, target, "-v"),
        ("main", "inspect", source),
        ("main", "inspect", target),
        ("main", "ops"),
        ("main", "explain", "E-RUN-001"),
        ("onnx2tfl", saved(onnx_scale(), tmp_path / "μ1.onnx"), source, "-o", tmp_path / "many"),
        (
            "onnx2tfl",
            saved(onnx_scale(), tmp_path / "μ.onnx"),
            "-o",
            tmp_path / "μ.tflite",
            "--save-outputs",
            tmp_path / "μ",
        ),
        ("tfl2onnx", target, "-o", tmp_path / "μ.onnx"),
        ("onnx2tfl", source, "-o", tmp_path, "--list-unsupported", "--json"),
        *(("main", *words, "--help") for words in ((), ("check",), ("inspect",), ("ops",), ("explain",))),
        ("onnx2tfl", "--help"),
        ("tfl2onnx", "--help"),
    ]
    for command, *words in runs:
        done = _run({**os.environ, **environment}, *words, command=command)
        assert "UnicodeEncode" not in done.stderr and "Traceback" not in done.stderr, (command, words)
        assert done.stdout or done.stderr
        assert done.returncode in (0, 2), (command, words, done.stderr)


def test_a_name_that_the_file_system_cannot_have(tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['onnx2tfl', 'missing-\\u2192.onnx']; from onnxtfl.cli import onnx2tfl; onnx2tfl()"
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert r"no file here can have the name 'missing-\u2192.onnx'" in done.stderr
