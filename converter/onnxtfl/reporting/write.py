"""The public functions that write a report to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onnxtfl.checking.report import CheckReport
from onnxtfl.conversion import Conversion
from onnxtfl.errors import UsageError
from onnxtfl.inspection import Inspection
from onnxtfl.ir.data import PathLike
from onnxtfl.output import write_text
from onnxtfl.reporting.junit import Pair, junit
from onnxtfl.reporting.page import Subject, inspection_page, page

Result = Conversion | CheckReport


def write_report(
    result: Result | Inspection | Sequence[Result],
    path: PathLike,
    *,
    a: str | None = None,
    b: str | None = None,
) -> Path:
    """Write the report of a conversion, check or inspection to ``path``, by suffix as .html, .xml (JUnit) or .json.

    ``result``: what a conversion, `onnxtfl.check` or `onnxtfl.inspect` returned, or ``error.conversion`` of a
    `CheckFailedError`; for .xml also several of them, but no inspection. ``a``, ``b``: the names of the two models, by
    default their paths. The HTML page is one file that needs no network; with ``onnxtfl.check(..., per_layer=True,
    profile=True)`` it has errors along the depth and the time of each op. Folders are created; returns the path.
    Raises `OutputError` and `UsageError`.
    """
    target = Path(os.fspath(path))
    if isinstance(result, Inspection):
        return _write_inspection(result, target)
    results = [result] if isinstance(result, Result) else list(result)
    subjects = [_subject(one, a, b) for one in results]
    kind = _kind(target)
    if kind != ".xml" and len(subjects) != 1:
        raise UsageError(f"{target}: a file for {len(subjects)} results", hint="write .xml, or a file for each")
    text = _xml(subjects) if kind == ".xml" else _json(subjects[0]) if kind == ".json" else page(subjects[0])
    write_text(target, text)
    return target


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in (".html", ".htm", ".xml", ".json"):
        raise UsageError(f"{path}: no report has this suffix", hint="use .html, .xml (JUnit) or .json")
    return kind


def _write_inspection(found: Inspection, path: Path) -> Path:
    kind = _kind(path)
    if kind == ".xml":
        raise UsageError(f"{path}: JUnit is for checks", hint="write .html or .json")
    write_text(path, inspection_page(found) if kind != ".json" else _as_json(found.to_json()))
    return path


def _subject(result: Result, a: str | None, b: str | None) -> Subject:
    check = result.check if isinstance(result, Conversion) else result
    conversion = result if isinstance(result, Conversion) else None
    names = [model.path for model in check.models] if check is not None and check.models else ["model a", "model b"]
    if conversion is not None:
        names[0] = conversion.report.source or names[0]
        names[1] = os.fspath(conversion.path) if conversion.path is not None else "the result"
    return Subject(a or names[0], b or names[1], conversion, check)


def _check(subject: Subject) -> CheckReport:
    return subject.check or CheckReport("not checked", "the conversion was run without a check")


def _xml(subjects: Sequence[Subject]) -> str:
    return junit(Pair(subject.a, subject.b, _check(subject)) for subject in subjects)


def _json(subject: Subject) -> str:
    values = _check(subject).to_json(subject.a, subject.b)
    if subject.conversion is not None:
        values["gains"] = [asdict(gain) for gain in subject.conversion.report.gains]
    return _as_json(values)


def _as_json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
