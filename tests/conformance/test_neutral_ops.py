"""Every neutral op in both runtimes, on operands drawn from its declaration: they compute what `evaluate` does."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from onnxtfl.ir.op import OPS, Effect
from onnxtfl.op_tables.neutral_document import documented_ops
from onnxtfl.rewriting.registry import all_rules
from tests.conformance.run_case import TIMEOUT
from tests.harness.workers import Outcome, Worker
from tests.unit import edge_graphs
from tests.unit.edge_samples import edge_samples
from tests.unit.test_decompositions import NOT_DRAWN, built

all_rules()
LISTED = tomllib.loads((Path(__file__).parent / "neutral_ops.toml").read_text(encoding="utf-8"))
VALUELESS = ("Absent", "Copy", "Shape", "Tuple", "Unstack", "GetTupleElement")
"""Ops whose results are no tensors, or known before run time."""
DRAWN = [name for name, op in OPS.items() if op.effect is Effect.PURE and name not in (*NOT_DRAWN, *VALUELESS)]

EDGES = [*DRAWN, "Copy", "Shape", "NonMaxSuppression", *edge_graphs.EDGES]


@pytest.mark.parametrize("target", ["tflite", "onnx"])
@pytest.mark.parametrize("name", DRAWN)
def test_runtimes_compute_what_an_op_means(worker: Worker, name: str, target: str) -> None:
    judge(worker.run("tests.conformance.neutral_cases:attempt", (name, target), TIMEOUT), LISTED[target].get(name))


def test_every_documented_op_has_edges() -> None:
    """Six or more for each; no runtime has a kernel for CustomCall (tests/unit/test_neutral_models.py)."""
    few = {}
    for one in documented_ops():
        if one.name == "CustomCall":
            continue
        if one.name in edge_graphs.EDGES:
            count = len(list(edge_graphs.edge_graphs(one.name)))
        else:
            assert one.op is not None and one.op.name in EDGES
            found = (built(one.op, *sample) for sample in edge_samples(one.op, clips=True))
            count = sum(sample is not None for sample in found)
        if count < 6:
            few[one.name] = count
    assert not few


@pytest.mark.parametrize("target", ["tflite", "onnx"])
@pytest.mark.parametrize("name", EDGES)
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
