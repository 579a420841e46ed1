"""ONNX's op tests in LiteRT, unchanged and with constant inputs, against the ratchet lists.

Where another onnx is installed than that of the lists, the cases that theirs has are held to them too; what is new and
fails is reported.
"""

from __future__ import annotations

import pytest

from tests.conformance import ratchet
from tests.conformance.cases import MODES, Case, load_cases
from tests.conformance.history_cases import load_history_cases
from tests.conformance.run_case import Result, run_case
from tests.harness.workers import Worker

_LISTS = {mode: ratchet.load(mode) for mode in MODES}
_HISTORY = ratchet.load("history")
_EVERY = 20
"""Of the op tests of older releases, of which most differ little, every how many runs here."""
_NAMES = ratchet.case_names()
_PARAMETERS = [pytest.param(mode, case, id=f"{mode}-{case.name}") for mode in MODES for case in load_cases(mode, True)]


@pytest.mark.parametrize(("mode", "case"), _PARAMETERS)
def test_onnx_op(worker: Worker, mode: str, case: Case) -> None:
    hold(_LISTS[mode], case.name, run_case(worker, case))


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in load_history_cases()[::_EVERY]])
def test_op_of_an_older_release(worker: Worker, case: Case) -> None:
    result = run_case(worker, case)
    assert result.passed is not (case.name in _HISTORY.known), f"{result.reason}\n{result.message}\n{result.detail}"


def hold(listed: ratchet.Ratchet, name: str, result: Result) -> None:
    """Fail, expect the failure, or skip, by what the list says of a case with this result."""
    if name in listed.known:
        if not result.passed:
            pytest.xfail(result.reason)
        if listed.is_current:
            pytest.fail(f"passes now: remove it from {listed.path.name} (python tools/conformance.py --update)")
    elif not result.passed and name not in _NAMES:
        pytest.skip(f"new in this onnx, and fails: {result.reason}: {result.message}")
    else:
        assert result.passed, f"{result.reason}\n{result.message}\n{result.detail}"


def test_lists_made_with_another_onnx() -> None:
    """Known cases are held to the list, new ones that fail are reported; nothing is skipped as a whole."""
    other = ratchet.Ratchet("plain", "0.1", {"test_listed": "a reason"})
    failed, known = Result("a reason", "a message"), min(_NAMES)
    with pytest.raises(pytest.xfail.Exception):
        hold(other, "test_listed", failed)
    with pytest.raises(AssertionError):
        hold(other, known, failed)
    with pytest.raises(pytest.skip.Exception, match="new in this onnx"):
        hold(other, "test_of_a_later_release", failed)
    hold(other, "test_listed", Result())
    hold(other, "test_of_a_later_release", Result())


def test_every_case_of_the_onnx_of_the_lists_is_named() -> None:
    if _LISTS["plain"].is_current:
        assert frozenset(case.name for case in load_cases("plain", True)) == _NAMES
