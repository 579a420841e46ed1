"""Run `mypy --strict` on the package in its installed layout, with mappings and schemas inside of `onnxtfl`.

The sources are in three folders, which mypy cannot combine, so they are first copied to one tree in build/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PARTS = {"converter/onnxtfl/": "", "mappings/": "mappings/", "schemas/": "schemas/"}
_TOOLS = (
    "tools/bench.py",
    "tools/conformance.py",
    "tools/corpus.py",
    "tools/github_action.py",
    "tools/make_models.py",
    "tools/typecheck.py",
)


def main() -> int:
    """Return the exit code of mypy; its output has the paths of the sources."""
    tree = ROOT / "build" / "typing"
    shutil.rmtree(tree, ignore_errors=True)
    for source, inside in _PARTS.items():
        _copy(ROOT / source, tree / "onnxtfl" / inside)
    command = [sys.executable, "-m", "mypy", "--strict", *sys.argv[1:]]
    environment = {**os.environ, "MYPYPATH": str(tree)}
    package = _run([*command, "-p", "onnxtfl"], environment)
    tools = _run([*command, *(str(ROOT / tool) for tool in _TOOLS)], environment)
    return package or tools


def _copy(source: Path, target: Path) -> None:
    """Copy the Python files with their modification times, so that mypy's cache stays valid."""
    for path in source.rglob("*"):
        if path.suffix in (".py", ".typed") and "__pycache__" not in path.parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _run(command: list[str], environment: dict[str, str]) -> int:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(_as_sources(done.stdout) + done.stderr, end="")
    return done.returncode


def _as_sources(text: str) -> str:
    text = re.sub(r"build/typing/onnxtfl/(mappings|schemas)/", r"\1/", text)
    return text.replace("build/typing/onnxtfl/", "converter/onnxtfl/")


if __name__ == "__main__":
    sys.exit(main())
