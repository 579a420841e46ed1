"""Nothing but `onnxtfl.system` names what only some operating systems have, and all works without it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.tiny_models import onnx_model, saved

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "converter" / "onnxtfl"
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt", "winreg"}
NAMES = {"fork", "getppid", "getuid", "register_at_fork", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "pread", "SIGHUP"}
FILES = ("/proc/", "/dev/")
WITHOUT = """
import builtins, importlib.abc, os, signal, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ImportError(f"hidden: {name}")

sys.meta_path.insert(0, Hidden())
for name in ("fcntl", "resource"):
    sys.modules.pop(name, None)
for name in ("fork", "getppid", "getuid", "register_at_fork", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK"):
    if name != "register_at_fork" and hasattr(os, name):
        delattr(os, name)
del signal.SIGHUP
opened = builtins.open

def without_proc(file, *args, **kwargs):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(2, "hidden", file)
    return opened(file, *args, **kwargs)

builtins.open = without_proc
"""
"""Takes away what Windows lacks; the standard library itself may use it before."""


def platform_names(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} & NAMES | {f for f in FILES if node.value.startswith(f)}
    return found


def test_one_module_knows_operating_systems() -> None:
    found = {p.name: names for p in PACKAGE.rglob("*.py") if (names := platform_names(p)) and p.name != "system.py"}
    assert found == {"interrupts.py": {"SIGHUP"}, "many.py": {"SIGHUP"}}  # asked of `system.ending_signals` by name
    assert platform_names(PACKAGE / "system.py") >= {"fcntl", "resource", "getppid", "/proc/"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": np.ones((4, 3), np.float32)}
    inputs, outputs = [("x", TensorProto.FLOAT, (2, 4))], [("y", TensorProto.FLOAT, (2, 3))]
    return saved(onnx_model([node], inputs, outputs, weights), tmp_path / "m.onnx")


def command(*arguments: str, before: str = WITHOUT) -> str:
    """The code that runs a command; non-ASCII letters are escaped, as the command line may not have them."""
    argv = ascii(["onnx2tfl", *arguments])
    return f"{before}\nimport sys\nsys.argv = {argv}\nfrom onnxtfl.cli import onnx2tfl\nonnx2tfl()"


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, encoding="utf-8", errors="replace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.fspath(ROOT), os.environ.get("PYTHONPATH")])),
             **environment}, check=False,
    )  # fmt: skip


def test_a_conversion_with_its_check_and_report(model: Path) -> None:
    done = run(command("m.onnx", "--check", "--report", "r.html"), model.parent)
    assert done.returncode == 0, done.stderr
    assert "check       passed" in done.stdout
    assert sorted(p.name for p in model.parent.iterdir()) == ["m.onnx", "m.tflite", "r.html"]


def test_many_files(model: Path) -> None:
    (model.parent / "other.onnx").write_bytes(model.read_bytes())
    done = run(command("m.onnx", "other.onnx", "-o", "out", "--check"), model.parent)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (model.parent / "out").glob("[!.]*")) == ["m.tflite", "other.tflite"]


def test_an_interrupt(model: Path) -> None:
    code = command("-", "-o", "x.tflite", before=WITHOUT + "print('begun', flush=True)")
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=model.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline().strip() == b"begun"
    time.sleep(1.0)  # it waits for its standard input
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert sorted(p.name for p in model.parent.iterdir()) == ["m.onnx"]


def test_a_name_with_a_backslash(model: Path) -> None:
    name = "a\\b.onnx"
    model.rename(model.parent / name)
    done = run(command(name, "--check"), model.parent)
    assert done.returncode == 0, done.stderr
    assert (model.parent / "a\\b.tflite").is_file()


REPORT, ERROR, HELP = ["m.onnx", "--check", "--verbose"], ["missing-\u2192.onnx"], ["--help"]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
@pytest.mark.parametrize("arguments", [REPORT, ERROR, HELP], ids=["report", "error", "help"])
def test_consoles_of_few_characters(model: Path, arguments: list[str], encoding: str) -> None:
    done = run(command(*arguments, before=""), model.parent, PYTHONIOENCODING=encoding, PYTHONUTF8="0", LC_ALL="C")
    assert "UnicodeEncodeError" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stdout or done.stderr


def test_the_runtime_is_required_where_it_has_wheels() -> None:
    """Wheels of 2.3.0: Linux (glibc) x86-64 and ARM64, macOS ARM64, Windows x86-64."""
    from packaging.requirements import Requirement

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    line = next(line.strip().rstrip(",").strip('"') for line in text.splitlines() if "ai-edge-litert>=" in line)
    marker = Requirement(line.replace("'", '"')).marker
    assert marker is not None
    machines = [
        ("linux", "x86_64", True), ("linux", "aarch64", True), ("darwin", "arm64", True), ("win32", "AMD64", True),
        ("darwin", "x86_64", False), ("win32", "ARM64", False), ("linux", "riscv64", False),
    ]  # fmt: skip
    for system, machine, has in machines:
        assert marker.evaluate({"sys_platform": system, "platform_machine": machine}) is has, (system, machine)
