"""ONNX's op tests in LiteRT, unchanged and with constant inputs, against the ratchet lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import ratchet
from tests.conformance.cases import MODES, Case, load_cases
from tests.conformance.run_case import run_case
from tests.harness.workers import Worker

_LISTS = {mode: ratchet.load(mode) for mode in MODES}
_PARAMETERS = [pytest.param(mode, case, id=f"{mode}-{case.name}") for mode in MODES for case in load_cases(mode, True)]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize(("mode", "case"), _PARAMETERS)
def test_onnx_op(worker: Worker, mode: str, case: Case) -> None:
    listed = _LISTS[mode]
    if not listed.is_current:
        pytest.skip(f"the list was made with onnx {listed.onnx_version}, another one is installed")
    result = run_case(worker, case)
    if case.name not in listed.known:
        assert result.passed, f"{result.reason}\n{result.message}\n{result.detail}"
    elif result.passed:
        pytest.fail(f"passes now: remove it from {listed.path.name} (python tools/conformance.py --update)")
    else:
        pytest.xfail(result.reason)
