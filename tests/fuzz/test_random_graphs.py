"""Random models convert both ways, with the outputs of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.run import TIMEOUT, Trial
from tests.harness.workers import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize("seed", range(100))
def test_random_model(worker: Worker, seed: int) -> None:
    outcome = worker.run("tests.fuzz.run:attempt", Trial(seed, back=True), TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    verdict = outcome.value
    assert verdict.kind in ("passed", "skipped"), (
        f"{verdict.kind}: {verdict.message}\n{verdict.model}\n{verdict.detail}"
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_recurrent_model(worker: Worker, seed: int) -> None:
    outcome = worker.run("tests.fuzz.run:attempt", Trial(seed, 4, back=True, recurrent=True), TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    verdict = outcome.value
    assert verdict.kind in ("passed", "skipped"), f"{verdict.kind}: {verdict.message}\n{verdict.model}"
