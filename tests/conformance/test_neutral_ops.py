"""Every neutral op in both runtimes, on operands drawn from its declaration: they compute what `evaluate` does."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxtfl.ir.op import OPS, Effect
from onnxtfl.rewriting.registry import all_rules
from tests.conformance.run_case import TIMEOUT
from tests.harness.workers import Outcome, Worker
from tests.unit.test_decompositions import NOT_DRAWN

all_rules()
LISTED = tomllib.loads((Path(__file__).parent / "neutral_ops.toml").read_text(encoding="utf-8"))
VALUELESS = ("Absent", "Copy", "Shape", "Tuple", "Unstack", "GetTupleElement")
"""Ops whose results are no tensors, or known before run time."""
DRAWN = [name for name, op in OPS.items() if op.effect is Effect.PURE and name not in (*NOT_DRAWN, *VALUELESS)]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize("target", ["tflite", "onnx"])
@pytest.mark.parametrize("name", DRAWN)
def test_runtimes_compute_what_an_op_means(worker: Worker, name: str, target: str) -> None:
    judge(worker.run("tests.conformance.neutral_cases:attempt", (name, target), TIMEOUT), LISTED[target].get(name))


@pytest.mark.parametrize("target", ["tflite", "onnx"])
@pytest.mark.parametrize("name", DRAWN)
def test_the_edges_of_an_op(worker: Worker, name: str, target: str) -> None:
    """Special elements, element types, ranks, sizes of 0, negative axes, equal elements.

    LiteRT's arithmetic clips infinite results, of inner values too, and some kernels drop NaN (schemas/, `nan`;
    docs/troubleshooting.md): there, ops that compute get finite elements.
    """
    outcome = worker.run("tests.conformance.neutral_cases:attempt_edges", (name, target), TIMEOUT)
    judge(outcome, LISTED[f"{target} edges"].get(name))


def judge(outcome: Outcome, reason: str | None) -> None:
    """Fail if a case is wrong; listed ones have to be refused."""
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.stage}\n{outcome.detail}"
    assert outcome.value, "no sample"
    wrong = [result for result in outcome.value if not result.passed]
    if reason is None:
        assert not wrong, f"{wrong[0].reason}\n{wrong[0].message}\n{wrong[0].detail}"
    elif not wrong:
        pytest.fail("passes now: remove it from neutral_ops.toml")
    else:
        assert all(result.reason.startswith(("UnsupportedError", "_RefusedError", "run: refused")) for result in wrong)
        pytest.xfail(reason)
