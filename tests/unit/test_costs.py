"""Costs: the work of an op, the rows that are about it, the choice among forms, and the probe that measures."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.probe.costs.fit import Timing, rows
from tools.probe.costs.machines import own_kind
from tools.probe.costs.measure import UNMEASURED
from tools.probe.costs.models import candidates, minimal
from tools.probe.costs.nodes import Sample, samples
from tools.probe.costs.timing import times
from tools.probe.tables import rows_text

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.types import DType, tensor
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets import Target
from onnxtfl.targets.instance import OpInstance
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.table import costs_of, entry
from onnxtfl.targets.tflite import TfliteTarget
from onnxtfl.targets.work import along_last, amounts_of, estimates

TARGETS: tuple[Target, ...] = (TfliteTarget(), OnnxTarget(21))


def value(*shape: int | str, dtype: str = "float32") -> Value:
    return Value(tensor(dtype, *shape))


def instance(op: str, operands: list[Value | None], *result: int | str, **options: Any) -> OpInstance:
    return OpInstance(entry(op), operands, [value(*result)], options)


def numbers(*values: int) -> Value:
    return constant(np.asarray(values, np.int32))


def test_bytes_and_multiply_adds() -> None:
    product = instance("FULLY_CONNECTED", [value(5, 8), constant(np.ones((3, 8), np.float32)), None], 5, 3)
    amounts = amounts_of(product)
    assert (amounts["call"], amounts["read"], amounts["written"], amounts["macs"]) == (1, 160, 60, 120)
    batched = instance("BATCH_MATMUL", [value(4, 5, 8), value(4, 8, 3)], 4, 5, 3)
    assert amounts_of(batched)["macs"] == 4 * 120 and amounts_of(batched)["read"] == 4 * (160 + 96)


def test_contiguous_parts() -> None:
    x = value(2, 6, 5, 4)
    gathered = amounts_of(instance("GATHER", [x, numbers(0, 1, 2)], 2, 3, 5, 4, axis=1))
    assert (gathered["rows"], gathered["pieces"], gathered["blocks"]) == (30, 6, 2)
    joined = amounts_of(instance("CONCATENATION", [x, value(2, 6, 5, 1)], 2, 6, 5, 5, axis=3))
    assert joined["blocks"] == 120
    reduced = amounts_of(instance("SUM", [x, numbers(2)], 2, 6, 1, 4, keep_dims=True))
    assert (reduced["rows"], reduced["pieces"], reduced["blocks"]) == (60, 60, 12)
    sliced = instance("SLICE", [x, numbers(0, 0, 1, 0), numbers(2, 6, 2, 4)], 2, 6, 2, 4)
    assert amounts_of(sliced)["blocks"] == 12 and not along_last(sliced)


@pytest.mark.parametrize(
    ("shape", "order", "last"),
    [((2, 3, 4, 5), (0, 2, 1, 3), False), ((2, 3, 4, 5), (0, 2, 3, 1), True), ((2, 3, 4, 1), (0, 2, 3, 1), True)],
)
def test_transposes_that_move_the_last_axis(shape: tuple[int, ...], order: tuple[int, ...], last: bool) -> None:
    result = [shape[axis] for axis in order]
    assert along_last(instance("TRANSPOSE", [value(*shape), numbers(*order)], *result)) == last


def test_the_first_row_about_an_op_counts() -> None:
    table = [{"constant": "filter", "call": 10, "macs": 1.0}, {"last": True, "call": 5}, {"last": False, "read": 0.5}]
    known = costs_of({"avx512": table, "avx2": [{**row, "call": 7} for row in table]})
    weight = constant(np.ones((3, 8), np.float32))
    assert estimates(known, instance("FULLY_CONNECTED", [value(5, 8), weight, None], 5, 3)) == (130, 127)
    assert estimates(known, instance("FULLY_CONNECTED", [value(5, 8), value(3, 8), None], 5, 8)) == (128, 7 + 128)
    assert (
        estimates(costs_of({"avx512": table[:1]}), instance("FULLY_CONNECTED", [value(5, 8), value(3, 8), None], 5, 3))
        is None
    )


def dot(lhs: Value, rhs: Value, rhs_axis: int) -> Node:
    axes = {"lhs_contracting_dimensions": (lhs.rank - 1,), "rhs_contracting_dimensions": (rhs_axis,)}
    result = Builder(Graph())(ops.DotGeneral, lhs, rhs, **axes)
    assert result.producer is not None
    return result.producer


def accepted(node: Node) -> str:
    form = TfliteTarget().accepted(node)
    assert form is not None
    return form.op


def test_the_cheapest_form_is_taken() -> None:
    x, weight = value(128, 64), np.ones((64, 32), np.float32)
    assert accepted(dot(x, constant(weight), 0)) == "FULLY_CONNECTED"
    assert accepted(dot(x, value(32, 64), 1)) == "BATCH_MATMUL"
    assert accepted(dot(value(1, 64), value(512, 64), 1)) == "FULLY_CONNECTED"
    half = Builder(Graph())(ops.Convert, constant(weight.T.astype(np.float16)), dtype=DType.FLOAT32)
    assert accepted(dot(x, half, 1)) == "FULLY_CONNECTED"


class _Priced(TfliteTarget):
    """A target with costs of its own."""

    def __init__(self, **nanoseconds: tuple[float, ...]) -> None:
        super().__init__()
        self.nanoseconds = nanoseconds

    def cost(self, node: Node, form: Form) -> tuple[float, ...] | None:
        return self.nanoseconds.get(form.op)


@pytest.mark.parametrize(
    ("costs", "op"),
    [
        ({"FULLY_CONNECTED": (1000.0, 1000.0), "BATCH_MATMUL": (1050.0, 900.0)}, "FULLY_CONNECTED"),
        # as good as equal: by rank
        ({"FULLY_CONNECTED": (1050.0, 1050.0), "BATCH_MATMUL": (1000.0, 1000.0)}, "FULLY_CONNECTED"),
        ({"FULLY_CONNECTED": (5000.0, 5000.0), "BATCH_MATMUL": (1000.0, 1000.0)}, "BATCH_MATMUL"),
        ({"FULLY_CONNECTED": (5000.0, 1000.0), "BATCH_MATMUL": (1000.0, 1000.0)}, "BATCH_MATMUL"),
        # not at the expense of one machine
        ({"FULLY_CONNECTED": (5000.0, 1000.0), "BATCH_MATMUL": (1000.0, 5000.0)}, "FULLY_CONNECTED"),
        ({"BATCH_MATMUL": (1000.0, 1000.0)}, "FULLY_CONNECTED"),  # nothing is known of the other
    ],
)
def test_equal_costs_leave_the_choice_to_the_rank(costs: dict[str, tuple[float, ...]], op: str) -> None:
    weight = constant(np.ones((32, 64), np.float32))
    form = _Priced(**costs).accepted(dot(value(128, 64), weight, 1))
    assert form is not None and form.op == op


def test_of_equal_costs_the_delegate_computes_its_own_ops() -> None:
    """XNNPACK leaves FULLY_CONNECTED with a computed filter to other kernels."""
    form = _Priced(FULLY_CONNECTED=(1000.0,), BATCH_MATMUL=(1050.0,)).accepted(dot(value(128, 64), value(32, 64), 1))
    assert form is not None and form.op == "BATCH_MATMUL"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_forms_that_compete_were_measured(target: Target) -> None:
    for sample in samples():
        found = list(candidates(sample, target))
        if len(found) > 1 and not any(c.op in UNMEASURED for c in found):
            assert all(target.cost(c.node, c.form) is not None for c in found), [c.op for c in found]


def test_costs_are_remembered_by_the_axes_of_constants() -> None:
    """The same types, but along the rows of one and along the columns of the other."""
    shared = TfliteTarget()
    costs = list[object]()
    for target in (shared, shared, TfliteTarget(), TfliteTarget()):
        axis = 1 + len(costs) % 2
        graph = Graph("g")
        x = graph.add_input(tensor(DType.FLOAT32, 1, 512, 512))
        summed = Builder(graph)(ops.Reduce, x, [axis], kind="sum", keepdims=False)
        assert summed.producer is not None
        (form,) = shared.forms(summed.producer)
        costs.append(target.cost(summed.producer, form))
    assert costs[:2] == costs[2:]
    assert costs[0] != costs[1]


def timing(nanoseconds: float, last: bool = False, **amounts: float) -> Timing:
    return Timing(
        "SUM", frozenset(), {}, last, False, {"call": 1.0, **dict.fromkeys(_REST, 0.0), **amounts}, nanoseconds
    )


_REST = ("read", "written", "rows", "pieces", "blocks", "parts")


def test_rows_explain_times_with_the_fewest_kinds_of_work() -> None:
    sizes = (1000, 20_000, 300_000, 5_000_000)
    timings = [timing(400 + 0.05 * n + 2 * p, read=n, pieces=p) for n in sizes for p in (10, 4000)]
    (row,) = rows(timings)
    assert row.keys() == {"call", "read", "pieces"}
    assert row["call"] == pytest.approx(400, rel=0.1) and row["read"] == pytest.approx(0.05, rel=0.1)


def test_axes_have_rows_of_their_own_where_that_matters() -> None:
    sizes = (1000, 20_000, 300_000, 5_000_000, 6_000_000, 7_000_000)
    timings = [timing((0.5 if last else 0.05) * n, last, read=n) for n in sizes for last in (True, False)]
    assert rows(timings) == [{"last": True, "read": 0.5}, {"last": False, "read": 0.05}]
    assert tomllib.loads(rows_text({"avx2": rows(timings)}))["avx2"] == rows(timings)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs /proc/cpuinfo (Linux)")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_models_of_candidates_run(target: Target) -> None:
    sample = Sample(ops.Transpose, [(2, 3, 4)], {"permutation": (0, 2, 1)})
    (candidate,) = candidates(sample, target)
    kernels = {"tfl": "litert", "onnx": "onnxruntime"}[target.name]
    whole, before, after, least = times((own_kind(), kernels, [*candidate.models, minimal(target)]))
    assert min(whole, before, after, least) > 0
