"""Results of checks as JUnit XML for CI systems: a test suite per pair, a test case per output.

The elements and attributes are those that Jenkins, GitLab and GitHub's actions read (schema "jenkins-junit").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from onnxtfl.checking.report import CheckReport

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Pair(NamedTuple):
    """Two models and the result of their check."""

    a: str
    b: str
    report: CheckReport


_KINDS = {"failure": "differs", "error": "not checked", "skipped": "excluded from the verdict"}


class _Case(NamedTuple):
    name: str
    outcome: str  # "", "failure", "error" or "skipped"
    message: str = ""
    text: str = ""


def junit(pairs: Iterable[Pair]) -> str:
    """Return the XML of the checks; a check that could not run is an error, a differing output a failure."""
    suites = [_suite(pair) for pair in pairs]
    totals = {key: str(sum(int(suite.attrib[key]) for suite in suites)) for key in ("tests", "failures", "errors")}
    seconds = sum(float(suite.attrib["time"]) for suite in suites)
    root = Element("testsuites", {"name": "onnxtfl check", **totals, "time": f"{seconds:.3f}"})
    root.extend(suites)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(pair: Pair) -> Element:
    cases, seconds = _cases(pair), pair.report.seconds
    outcomes = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {"tests": str(len(cases))}
    counts |= {name: str(sum(case.outcome == outcome for case in cases)) for name, outcome in outcomes.items()}
    suite = Element("testsuite", {"name": _valid(f"{pair.a} and {pair.b}"), **counts, "time": f"{seconds:.3f}"})
    for case in cases:
        fields = {"name": _valid(case.name), "classname": _valid(pair.b), "time": f"{seconds / len(cases):.3f}"}
        element = SubElement(suite, "testcase", fields)
        if case.outcome:
            fields = {"type": _KINDS[case.outcome], "message": _valid(case.message)}
            SubElement(element, case.outcome, fields).text = _valid(case.text)
    told = "\n".join(row.text for row in pair.report.rows(verbose=True))
    SubElement(suite, "system-out").text = _valid(told)
    return suite


def _cases(pair: Pair) -> list[_Case]:
    """A case for each output; one for the check if there are no outputs, or none of them is the reason of the failure;
    and one for sizes that are excluded from the verdict.
    """
    report = pair.report
    cases = [
        _Case(
            f"output {out.name}", "" if out.ok else "failure", "" if out.ok else out.message or "differs", out.in_words
        )
        for out in report.outputs
    ]
    if report.ok:
        excluded = [_Case(report.excluded, "skipped", "the models differ")] if report.excluded else []
        return [*(cases or [_Case("check", "")]), *excluded]
    if any(case.outcome for case in cases):
        return cases
    outcome = "error" if report.status == "not checked" else "failure"
    return [*cases, _Case("check", outcome, report.reason, str(report))]


def _valid(text: str) -> str:
    """`text` without the characters that XML does not allow."""
    return _INVALID.sub("?", text)
