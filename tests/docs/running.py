"""Run the blocks of a page in a folder of its own, and say what was wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from tests.docs import driver
from tests.docs.blocks import ROOT, Block
from tests.docs.samples import prepare

RUN = ("sh", "console", "python")
SECONDS = 300.0  # for a page


def missing(block: Block) -> list[str]:
    """Which of the modules and programs that a block needs are not there."""
    return [name for name in block.needs if not _there(name)]


def _there(name: str) -> bool:
    if shutil.which(name, path=_path()):
        return True
    return re.fullmatch(r"\w+", name) is not None and find_spec(name) is not None


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def run(page: Sequence[Block], folder: Path) -> list[str]:
    """Run the blocks that can run here, in order; returns a text for each that was wrong."""
    todo = [b for b in page if (b.language in RUN or "file" in b.directives) and not missing(b)]
    if not todo:
        return []
    prepare(folder, "".join(block.text for block in page))
    found = _drive(todo, folder)
    wrong = [f"{block.place}: {result['wrong']}" for block, result in zip(todo, found, strict=True) if result["wrong"]]
    printed = {id(block): result["printed"] for block, result in zip(todo, found, strict=True)}
    for before, shown in pairwise(page):
        if "output" in shown.directives and id(before) in printed:
            text = driver.differences(shown.text.rstrip().splitlines(), printed[id(before)])
            wrong += [f"{shown.place}: {text}"] if text else []
    return wrong


def _drive(todo: Sequence[Block], folder: Path) -> list[dict[str, str]]:
    """Run the blocks in a process that runs nothing else; returns its results."""
    described = [
        {
            "language": block.language,
            "text": block.text,
            "exit": int(block.directives.get("exit", "0")),
            "file": block.directives.get("file", ""),
        }
        for block in todo
    ]
    (folder / "blocks.json").write_text(json.dumps(described), encoding="utf-8")
    # FORCE_COLOR and the like would change what is printed; the pages show what a pipe gets
    environment = {k: v for k, v in os.environ.items() if "COLOR" not in k and not k.startswith(("PYTEST", "ONNXTFL_"))}
    environment |= {"PATH": _path(), "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(ROOT / "tests" / "docs" / "driver.py")]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    results = folder / "results.json"
    if done.returncode or not results.exists():
        return [{"wrong": f"the driver failed: {done.stderr[-3000:]}", "printed": ""} for _ in todo]
    found: list[dict[str, str]] = json.loads(results.read_text(encoding="utf-8"))
    return found
