"""Random QDQ graphs: every op of the result is within one step of what ONNX Runtime computes in float."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.quantized_graphs import random_graph
from tests.harness.workers import Worker
from tests.models.each_op import Difference, compare_each


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


def differences(case: tuple[int, int, bool]) -> list[Difference]:
    """The differences of a random graph, in the worker process."""
    seed, steps, wild = case
    graph = random_graph(seed, steps, wild=wild)
    return compare_each(graph.model(), graph.inputs)


def _check(worker: Worker, seed: int, steps: int, wild: bool = False) -> None:
    outcome = worker.run("tests.fuzz.test_quantized_fuzz:differences", (seed, steps, wild), 120)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    for difference in outcome.value:
        assert difference.steps <= 1, difference


@pytest.mark.parametrize("seed", range(100))
def test_one_op(worker: Worker, seed: int) -> None:
    _check(worker, seed, 1)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_several_ops(worker: Worker, seed: int) -> None:
    _check(worker, seed, 2 + seed % 3)


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_scales_of_any_size(worker: Worker, seed: int) -> None:
    _check(worker, seed, 1, wild=True)
