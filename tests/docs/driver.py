"""Run the blocks of a page in the current folder, in order, in one process, as a reader would.

Reads ``blocks.json`` (a list of {"language", "text", "exit", "file"}), writes ``results.json``: for each block what
was wrong ("" if nothing) and what it printed. Python blocks share a namespace; commands run in a shell each.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
import traceback
from pathlib import Path
from typing import Any

NOT_RUN = ("pip install", "python -m pip install", "make", "git clone", "source ", ". ", "cd ", "python3 -m venv")
"""Commands that change the machine or the reader's shell; `tests.docs.static` looks at them instead."""
SECONDS = 120.0  # for one command


def commands(language: str, text: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines of output that the page shows."""
    lines = text.replace("\\\n", "").splitlines()
    if language == "console":
        found: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
        return found
    if any("<<" in line for line in lines):
        return [(text, [])]
    return [(line, []) for line in lines if line.strip() and not line.startswith("#")]


def is_run(command: str) -> bool:
    """Whether the tests run this command."""
    return not command.strip().startswith(NOT_RUN)


def differences(expected: list[str], printed: str) -> str:
    """What differs between the lines that a page shows and those printed, "" if nothing does.

    ``...`` is any text (on a line of its own: any lines), and a number with a point or an exponent is any such number:
    times, sizes, errors and versions depend on the machine.
    """
    import re

    lines = [line.rstrip() for line in printed.strip().splitlines()]
    decimal = r"-?\d+(?:\.\d+)*(?:e[+-]?\d+)?"
    patterns = []
    for line in expected:
        if line.strip() == "...":
            patterns.append(r"(?:.*\n)*?")
            continue
        parts = re.split(r"(\.\.\.|\d+(?:\.\d+)+(?:e[+-]?\d+)?|\d+e[+-]?\d+)", line.rstrip())
        kinds = {"...": ".*"}
        made = [kinds.get(part, decimal) if i % 2 else re.escape(part) for i, part in enumerate(parts)]
        patterns.append(re.sub(r"(?:\\ ){2,}", " +", "".join(made)) + "\n")
    if re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in lines)):
        return ""
    return "the page shows\n" + "\n".join(expected) + "\nbut this was printed:\n" + "\n".join(lines)


def main() -> None:
    """Run all blocks."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    results = []
    for block in json.loads(Path("blocks.json").read_text(encoding="utf-8")):
        wrong, printed = _run(block, namespace)
        results.append({"wrong": wrong, "printed": printed})
    Path("results.json").write_text(json.dumps(results), encoding="utf-8")


def _run(block: dict[str, Any], namespace: dict[str, Any]) -> tuple[str, str]:
    if block["file"]:
        path = Path(block["file"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["text"], encoding="utf-8")
        return "", ""
    if block["language"] == "python":
        return _python(block["text"], namespace)
    return _shell(block)


def _python(text: str, namespace: dict[str, Any]) -> tuple[str, str]:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(text, "block", "exec"), namespace)
    except BaseException:  # a block that leaves the process is wrong too
        return traceback.format_exc(limit=-3), out.getvalue()
    return "", out.getvalue()


def _shell(block: dict[str, Any]) -> tuple[str, str]:
    wrong, printed = [], []
    todo = [entry for entry in commands(block["language"], block["text"]) if is_run(entry[0])]
    for k, (command, expected) in enumerate(todo):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        printed.append(done.stdout)
        wanted = block["exit"] if k + 1 == len(todo) else 0
        if done.returncode != wanted:
            code = f"exit code {done.returncode} instead of {wanted}"
            wrong.append(f"$ {shlex.join([command])[1:-1]}\n{code}\n{done.stdout[-2000:]}")
        while expected and not expected[-1].strip():
            expected.pop()
        if expected and (text := differences(expected, done.stdout)):
            wrong.append(f"$ {command}\n{text}")
    return "\n".join(wrong), "".join(printed)


if __name__ == "__main__":
    main()
