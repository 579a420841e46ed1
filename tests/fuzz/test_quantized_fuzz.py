"""Random QDQ graphs: every op of the result is within one step of what ONNX Runtime computes in float."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.quantized_graphs import random_graph
from tests.harness.workers import Worker
from tests.models.each_op import Difference, compare_each

_APPROXIMATE = {"LOGISTIC", "TANH", "SOFTMAX"}
"""Ops whose kernels for int16 interpolate in tables."""
_INT16_STEPS = 8


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


def differences(case: tuple[int, int, bool]) -> tuple[str, list[Difference]]:
    """The type of the activations and the differences of a random graph, in the worker process."""
    seed, steps, wild = case
    graph = random_graph(seed, steps, wild=wild)
    return graph.dtype, compare_each(graph.model(), graph.inputs)


def _check(worker: Worker, seed: int, steps: int, wild: bool = False) -> None:
    outcome = worker.run("tests.fuzz.test_quantized_fuzz:differences", (seed, steps, wild), 120)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    dtype, found = outcome.value
    for difference in found:
        approximate = dtype == "int16" and not _APPROXIMATE.isdisjoint(difference.ops)
        assert difference.steps <= (_INT16_STEPS if approximate else 1), difference


@pytest.mark.parametrize("seed", range(100))
def test_one_op(worker: Worker, seed: int) -> None:
    _check(worker, seed, 1)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_several_ops(worker: Worker, seed: int) -> None:
    _check(worker, seed, 2 + seed % 3)


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_scales_of_any_size(worker: Worker, seed: int) -> None:
    _check(worker, seed, 1, wild=True)
