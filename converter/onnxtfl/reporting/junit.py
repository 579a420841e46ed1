"""The result of checks as JUnit's XML, which CI systems read: a test suite for each pair, a test case for each output.

The elements and attributes are those that Jenkins, GitLab and GitHub's actions read (schema "jenkins-junit").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from onnxtfl.checking.report import CheckReport

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Pair(NamedTuple):
    """Two models and what their check found."""

    a: str
    b: str
    report: CheckReport


class _Case(NamedTuple):
    name: str
    outcome: str  # "", "failure" or "error"
    message: str = ""
    text: str = ""


def junit(pairs: Iterable[Pair]) -> str:
    """The XML of the checks; a check that could not be made is an error, an output that differs a failure."""
    suites = [_suite(pair) for pair in pairs]
    tests, failures, errors = (sum(getattr(s, key) for s in suites) for key in ("tests", "failures", "errors"))
    seconds = sum(suite.seconds for suite in suites)
    totals = f'tests="{tests}" failures="{failures}" errors="{errors}" time="{seconds:.3f}"'
    content = "".join(suite.xml for suite in suites)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<testsuites name="onnxtfl check" {totals}>\n{content}</testsuites>\n'


class _Suite(NamedTuple):
    """The number of cases, failures and errors, the seconds, and the XML."""

    tests: int
    failures: int
    errors: int
    seconds: float
    xml: str


def _suite(pair: Pair) -> _Suite:
    cases, report = _cases(pair), pair.report
    failures, errors = (sum(case.outcome == outcome for case in cases) for outcome in ("failure", "error"))
    name, seconds = f"{pair.a} and {pair.b}", f"{report.seconds:.3f}"
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="0" time="{seconds}"'
    told = "\n".join(row.text for row in report.rows(verbose=True))
    content = "".join(_xml(case, pair.b, report.seconds / len(cases)) for case in cases)
    xml = f"  <testsuite name={_attribute(name)} {counts}>\n{content}"
    xml += f"    <system-out>{escape(_valid(told))}</system-out>\n  </testsuite>\n"
    return _Suite(len(cases), failures, errors, report.seconds, xml)


def _cases(pair: Pair) -> list[_Case]:
    """A case for each output; one for the check where there are none, or where none of them is why it failed."""
    report = pair.report
    cases = [
        _Case(
            f"output {out.name}", "" if out.ok else "failure", "" if out.ok else out.message or "differs", out.in_words
        )
        for out in report.outputs
    ]
    if report.ok and cases:
        return cases
    if report.ok or any(case.outcome for case in cases):
        return cases or [_Case("check", "")]
    outcome = "error" if report.status == "not checked" else "failure"
    return [*cases, _Case("check", outcome, report.reason, str(report))]


def _xml(case: _Case, b: str, seconds: float) -> str:
    head = f'    <testcase name={_attribute(case.name)} classname={_attribute(b)} time="{seconds:.3f}"'
    if not case.outcome:
        return f"{head}/>\n"
    found = f'<{case.outcome} type="{"differs" if case.outcome == "failure" else "not checked"}"'
    found += f" message={_attribute(case.message)}>{escape(_valid(case.text))}</{case.outcome}>"
    return f"{head}>\n      {found}\n    </testcase>\n"


def _valid(text: str) -> str:
    """`text` without the characters that XML does not allow."""
    return _INVALID.sub("?", text)


def _attribute(text: str) -> str:
    return quoteattr(_valid(text), {"\n": "&#10;", "\t": "&#9;"})
