"""The corpus' .tflite models of one op converted to ONNX, against the ratchet list."""

from __future__ import annotations

import pytest

from tests.conformance import ratchet
from tests.conformance.run_case import TIMEOUT, result_of
from tests.conformance.tflite_cases import ARCHIVE, TfliteCase, load_tflite_cases
from tests.harness.workers import Worker

_LIST = ratchet.load("tflite")
_CASES = [pytest.param(case, id=case.name) for case in load_tflite_cases()]


@pytest.mark.skipif(not _CASES, reason=f"there is no {ARCHIVE}")
def test_the_archive_is_complete() -> None:
    assert len(_CASES) == 509


@pytest.mark.parametrize("case", _CASES)
def test_tflite_op(worker: Worker, case: TfliteCase) -> None:
    if not _LIST.is_current:
        pytest.skip(f"the list was made with onnx {_LIST.onnx_version}, another one is installed")
    result = result_of(worker.run("tests.conformance.tflite_cases:attempt_to_onnx", (case, ""), TIMEOUT))
    if case.name not in _LIST.known:
        assert result.passed, f"{result.reason}\n{result.message}\n{result.detail}"
    elif result.passed:
        pytest.fail("passes now: remove it from tflite_ops.toml (python tools/conformance.py --mode tflite --update)")
    elif not result.reason.startswith("UnsupportedError"):
        pytest.fail(f"listed, but not an UnsupportedError: {result.reason}\n{result.message}")
    else:
        pytest.xfail(result.reason)
