"""The public functions that write a report to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from onnxtfl.checking.report import CheckReport
from onnxtfl.conversion import Conversion
from onnxtfl.errors import UsageError
from onnxtfl.output import write_text
from onnxtfl.reporting.junit import Pair, junit
from onnxtfl.reporting.page import Subject, page

Result = Conversion | CheckReport


def write_report(
    result: Result | Sequence[Result], path: str | os.PathLike[str], *, a: str | None = None, b: str | None = None
) -> Path:
    """Write the report of a conversion or check to ``path``, by suffix as .html, .xml (JUnit) or .json.

    ``result``: what a conversion or `onnxtfl.check` returned, or ``error.conversion`` of a `CheckFailedError`; for .xml
    also several of them. ``a``, ``b``: the names of the two models, by default their paths. The HTML page is one file
    that needs no network; with ``onnxtfl.check(..., per_layer=True, profile=True)`` it has errors along the depth and
    the time of each op. Folders are created; returns the path. Raises `OutputError` and `UsageError`.
    """
    target = Path(os.fspath(path))
    results = [result] if isinstance(result, Result) else list(result)
    subjects = [_subject(one, a, b) for one in results]
    kind = target.suffix.lower()
    if kind not in (".html", ".htm", ".xml", ".json"):
        raise UsageError(f"{target}: no report has this suffix", hint="use .html, .xml (JUnit) or .json")
    if kind != ".xml" and len(subjects) != 1:
        raise UsageError(f"{target}: a file for {len(subjects)} results", hint="write .xml, or a file for each")
    text = _xml(subjects) if kind == ".xml" else _json(subjects[0]) if kind == ".json" else page(subjects[0])
    write_text(target, text)
    return target


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
    return json.dumps(_check(subject).to_json(subject.a, subject.b), indent=2, ensure_ascii=False) + "\n"
