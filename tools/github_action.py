"""The step of action.yml that checks models: converts those of ONNXTFL_MODELS, compares the pairs of ONNXTFL_PAIRS.

Each is a run of the command line. What fails is an annotation of the file, all of it a table in the summary of the job,
and on request a JUnit file. The exit code is 1 where something failed or there is nothing to check.
"""

from __future__ import annotations

import glob
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

VERDICTS = {0: "passed", 1: "not possible", 2: "wrong usage", 3: "differs"}
"""Exit codes of the command line in words."""


@dataclass(frozen=True)
class Task:
    """A command to run: `name` in tables, `file` that a failure is annotated to."""

    name: str
    file: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The exit code of a task, its output, and the line that says why it failed."""

    task: Task
    code: int
    output: str
    message: str
    seconds: float

    @property
    def verdict(self) -> str:
        """One or two words."""
        return VERDICTS.get(self.code, f"crashed ({self.code})")


def main(environment: Mapping[str, str]) -> int:
    """Run all tasks and write what GitHub shows; returns the exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        tasks = list(_tasks(environment, Path(scratch)))
        results = [_run(task) for task in tasks]
    for result in results:
        print(f"::group::{result.task.name}: {result.verdict}\n{result.output}::endgroup::")
        if result.code:
            print(f"::error file={_escaped(result.task.file, ':,')},title=onnxtfl::{_escaped(result.message)}")
    if not tasks:
        print("::error title=onnxtfl::there is nothing to check: set models or pairs, to paths that exist")
    failed = sum(result.code != 0 for result in results)
    status = "passed" if tasks and not failed else "failed"
    _append(environment.get("GITHUB_OUTPUT"), f"status={status}\nchecked={len(results)}\nfailed={failed}\n")
    _append(environment.get("GITHUB_STEP_SUMMARY"), _summary(results, status))
    if environment.get("ONNXTFL_JUNIT"):
        _write_junit(Path(environment["ONNXTFL_JUNIT"]), results)
    return status == "failed"


def _tasks(environment: Mapping[str, str], scratch: Path) -> Iterator[Task]:
    options = shlex.split(environment.get("ONNXTFL_ARGS", ""))
    output = Path(environment.get("ONNXTFL_OUTPUT") or scratch)
    output.mkdir(parents=True, exist_ok=True)
    for k, model in enumerate(_models(environment.get("ONNXTFL_MODELS", ""))):
        to_onnx = model.lower().endswith((".tflite", ".lite"))
        name = f"{k}-{Path(model).stem}" if output == scratch else Path(model).stem
        made = output / (name + (".onnx" if to_onnx else ".tflite"))
        command = ("tfl2onnx" if to_onnx else "onnx2tfl", model, "-o", os.fspath(made), "--check", *options)
        yield Task(model, model, command + _file(environment, "report", f"model{k}-{Path(model).stem}.html"))
    for k, line in enumerate(filter(None, map(str.strip, environment.get("ONNXTFL_PAIRS", "").splitlines()))):
        pair = shlex.split(line)
        command = ("onnxtfl", "check", *pair, *options)
        command += _file(environment, "json", f"pair{k}.json") + _file(environment, "report", f"pair{k}.html")
        yield Task(" and ".join(pair), pair[-1], command)


def _file(environment: Mapping[str, str], option: str, name: str) -> tuple[str, ...]:
    """The option that writes the file `name` to a folder, where that is asked for."""
    folder = environment.get(f"ONNXTFL_{option.upper()}")
    return (f"--{option}", os.fspath(Path(folder) / name)) if folder else ()


def _models(patterns: str) -> Iterator[str]:
    """The files that match each line, or the line itself where none does, so that the error names it."""
    for pattern in filter(None, map(str.strip, patterns.splitlines())):
        yield from sorted(glob.glob(pattern, recursive=True)) or [pattern]


def _run(task: Task) -> Result:
    started = time.perf_counter()
    done = subprocess.run(task.command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
    message = lines[-1] if lines else "no message"
    return Result(task, done.returncode, done.stdout + done.stderr, message, time.perf_counter() - started)


def _summary(results: Sequence[Result], status: str) -> str:
    """A table in Markdown."""
    rows = [
        f"| {_cell(r.task.name)} | {r.verdict} | {r.seconds:.1f} s | {_cell(r.message) if r.code else ''} |\n"
        for r in results
    ]
    return (
        f"### onnxtfl: {status}\n\n| models | verdict | time | reason |\n| --- | --- | ---: | --- |\n{''.join(rows)}\n"
    )


def _write_junit(path: Path, results: Sequence[Result]) -> None:
    failed = sum(result.code != 0 for result in results)
    counts = {"tests": str(len(results)), "failures": str(failed)}
    suite = ElementTree.Element("testsuite", {"name": "onnxtfl", **counts})
    for result in results:
        fields = {"classname": "onnxtfl", "name": result.task.name, "time": f"{result.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", fields)
        if result.code:
            failure = ElementTree.SubElement(case, "failure", {"message": result.message, "type": result.verdict})
            failure.text = result.output
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _append(path: str | None, text: str) -> None:
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _escaped(text: str, more: str = "") -> str:
    """`text` as part of a workflow command."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


if __name__ == "__main__":
    sys.exit(main(os.environ))
