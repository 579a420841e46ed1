"""The step of action.yml that checks models: converts ONNXTFL_MODELS, and compares the pairs in ONNXTFL_PAIRS.

Each model or pair is one run of the command line. Failures become annotations of the file; all results are in a table
of the job summary and, on request, in a JUnit file. The exit code is 1 if something failed, or if there is nothing to
check.

File names and the output of commands are not trusted: the author of a pull request chooses them. They are printed so
that the runner cannot execute workflow commands in them, and paths are never parsed as options.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
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
"""The verdict for each exit code of the command line."""


@dataclass(frozen=True)
class Task:
    """A command to run. `name`: in tables; `file`: where a failure is annotated."""

    name: str
    file: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The exit code, output and duration of a task; `message`: the last line of stderr, why it failed."""

    task: Task
    code: int
    output: str
    message: str
    seconds: float

    @property
    def verdict(self) -> str:
        """The verdict in one or two words."""
        return VERDICTS.get(self.code, f"crashed ({self.code})")


def main(environment: Mapping[str, str]) -> int:
    """Run all tasks, and write annotations, summary and outputs for GitHub. Returns the exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        tasks = list(_tasks(environment, Path(scratch)))
        results = [_run(task) for task in tasks]
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names may not be valid UTF-8
    for result in results:
        _print(result)
    if not tasks:
        print("::error title=onnxtfl::nothing to check: set the input models or pairs to paths that exist")
    failed = sum(result.code != 0 for result in results)
    status = "passed" if tasks and not failed else "failed"
    _append(environment.get("GITHUB_OUTPUT"), f"status={status}\nchecked={len(results)}\nfailed={failed}\n")
    _append(environment.get("GITHUB_STEP_SUMMARY"), _summary(results, status))
    if environment.get("ONNXTFL_JUNIT"):
        _write_junit(Path(environment["ONNXTFL_JUNIT"]), results)
    return status == "failed"


def _print(result: Result) -> None:
    """Print the output of a command as a group in the log, and its failure as an annotation.

    The runner executes no workflow commands in the output: they are disabled until a line with a random token.
    """
    token = secrets.token_hex(16)
    print(f"::group::{_escaped(printable(result.task.name))}: {result.verdict}\n::stop-commands::{token}")
    print(f"{result.output}\n::{token}::\n::endgroup::")
    if result.code:
        print(f"::error file={_escaped(result.task.file, ':,')},title=onnxtfl::{_escaped(result.message)}")


def _tasks(environment: Mapping[str, str], scratch: Path) -> Iterator[Task]:
    options = ["--runtime", "gpu"] if environment.get("ONNXTFL_GPU") == "true" else []
    options += shlex.split(environment.get("ONNXTFL_ARGS", ""))
    output = Path(environment.get("ONNXTFL_OUTPUT") or scratch)
    for k, (model, target) in enumerate(_targets(environment.get("ONNXTFL_MODELS", "")).items()):
        made = output / target
        made.parent.mkdir(parents=True, exist_ok=True)
        command = (_converter(model), "-o", os.fspath(made), "--check", *options)
        page = re.sub(r"[^-.\w]", "_", f"model{k}-{Path(model).stem}.html")
        command += _file(environment, "report", page)
        yield Task(model, model, (*command, "--", *_paths(model)))
    for k, line in enumerate(filter(None, map(str.strip, environment.get("ONNXTFL_PAIRS", "").splitlines()))):
        pair = shlex.split(line)
        command = ("onnxtfl", "check", *options)
        command += _file(environment, "json", f"pair{k}.json") + _file(environment, "report", f"pair{k}.html")
        yield Task(" and ".join(pair), pair[-1], (*command, "--", *_paths(*pair)))


def _paths(*paths: str) -> Iterator[str]:
    """The paths as command arguments; a file called "-" becomes "./-", which is not standard input."""
    return (os.path.join(os.curdir, path) if path == "-" else path for path in paths)


def _file(environment: Mapping[str, str], option: str, name: str) -> tuple[str, ...]:
    """The option that writes the file `name` to the requested folder; nothing if none is requested."""
    folder = environment.get(f"ONNXTFL_{option.upper()}")
    return (f"--{option}", os.fspath(Path(folder) / name)) if folder else ()


def _converter(model: str) -> str:
    return "tfl2onnx" if model.lower().endswith((".tflite", ".lite")) else "onnx2tfl"


def _targets(patterns: str) -> dict[str, Path]:
    """Each model with the path of its result inside the output folder; the paths are unique.

    Folders below the fixed part of a pattern are kept: for `models/**/*.onnx`, models/a/x.onnx becomes a/x.tflite. If
    this path is taken, the whole path of the model is used, then also its suffix, then also a number.
    """
    targets: dict[str, Path] = {}
    for model, folder in _models(patterns):
        suffix = ".onnx" if _converter(model) == "tfl2onnx" else ".tflite"
        inside = Path(os.path.relpath(model, folder))
        whole = Path(*(part for part in Path(model).parts if part not in (os.pardir, Path(model).anchor)))
        names = [inside.with_suffix(suffix), whole.with_suffix(suffix), Path(f"{whole}{suffix}")]
        names += [Path(f"{whole}.{len(targets)}{suffix}")]
        if model not in targets:
            targets[model] = next(name for name in names if name not in targets.values())
    return targets


def _models(patterns: str) -> Iterator[tuple[str, Path]]:
    """The files that match each pattern (one a line), each with the folder before the first wildcard.

    A pattern without matches is returned as a path, so that the error names it.
    """
    for pattern in filter(None, map(str.strip, patterns.splitlines())):
        found = sorted(glob.glob(pattern, recursive=True))
        parts = Path(pattern).parts[:-1]
        wildcard = next((k for k, part in enumerate(parts) if found and glob.has_magic(part)), len(parts))
        for model in found or [pattern]:
            yield model, Path(*parts[:wildcard])


def _run(task: Task) -> Result:
    started = time.perf_counter()
    done = subprocess.run(
        task.command, capture_output=True, text=True, errors="backslashreplace", check=False, stdin=subprocess.DEVNULL
    )
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
    message = lines[-1] if lines else "no message"
    return Result(task, done.returncode, done.stdout + done.stderr, message, time.perf_counter() - started)


def _summary(results: Sequence[Result], status: str) -> str:
    """The job summary: a table in Markdown."""
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
        fields = {"classname": "onnxtfl", "name": printable(result.task.name), "time": f"{result.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", fields)
        if result.code:
            failure = ElementTree.SubElement(
                case, "failure", {"message": printable(result.message), "type": result.verdict}
            )
            failure.text = "\n".join(map(printable, result.output.splitlines()))
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _append(path: str | None, text: str) -> None:
    if path:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def _cell(text: str) -> str:
    """`text` as a table cell, with Markdown and HTML characters escaped."""
    return re.sub(r"[\\`*\[\]<>&|]", r"\\\g<0>", printable(text))


def printable(text: str) -> str:
    """`text` on one line: line breaks and other non-printable characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _escaped(text: str, more: str = "") -> str:
    """`text` escaped for a workflow command; `more`: further characters to escape."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


if __name__ == "__main__":
    sys.exit(main(os.environ))
