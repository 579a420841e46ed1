"""Measure the forms of all samples on a runtime."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.harness.workers import Worker
from tools.probe.costs.fit import OPTIONS, Row, Timing, rows
from tools.probe.costs.models import Candidate, candidates, minimal
from tools.probe.costs.nodes import samples

from onnxtfl.ir import ops
from onnxtfl.ir.budget import MACHINES
from onnxtfl.targets import Target
from onnxtfl.targets.target import results_of
from onnxtfl.targets.work import along_last, amounts_of

RUNTIMES: Mapping[str, str] = {"tfl": "litert", "onnx": "onnxruntime"}
UNMEASURED = frozenset({"GlobalAveragePool", "GlobalMaxPool", "PAD"})
"""Ops whose own time misleads: ONNX Runtime computes global pools after convolutions on blocked channels, and XNNPACK
fuses PAD into the convolution after it.
"""
_BATCH = 24
"""The number of forms that are timed alternately."""
_SECONDS = 900


def costs(target: Target, wanted: Sequence[str] = (), machine: str = MACHINES[0]) -> dict[str, list[Row]]:
    """The cost rows of each op on a kind of machine; `wanted`: only of these ops."""
    return fitted(timings(target, wanted, machine))


def timings(target: Target, wanted: Sequence[str], machine: str) -> list[Timing]:
    """The timings of all samples of these ops (all, if none are named)."""
    with Worker() as worker:
        return [_timing(candidate, time, target) for candidate, time in _timed(worker, target, wanted, machine)]


def fitted(measured: Iterable[Timing]) -> dict[str, list[Row]]:
    """The cost rows of each op."""
    found: defaultdict[str, list[Timing]] = defaultdict(list)
    for timing in measured:
        found[timing.op].append(timing)
    return {op: rows(found[op]) for op in sorted(found)}


def _timed(worker: Worker, target: Target, wanted: Sequence[str], machine: str) -> Iterator[tuple[Candidate, float]]:
    every = sorted((c for sample in samples() for c in candidates(sample, target)), key=lambda c: c.node.op.name)
    chosen = [c for c in every if c.op not in UNMEASURED and (not wanted or c.op in wanted)]
    for start in range(0, len(chosen), _BATCH):
        part = chosen[start : start + _BATCH]
        models = list(dict.fromkeys([minimal(target), *(m for c in part for m in c.models)]))
        outcome = worker.run("tools.probe.costs.timing:times", (machine, RUNTIMES[target.name], models), _SECONDS)
        if outcome.kind != "done":
            raise RuntimeError(f"{machine}: {outcome.message}\n{outcome.detail}")
        times = dict(zip(models, outcome.value, strict=True))
        for candidate in part:
            full, operands, results = (times[model] for model in candidate.models)
            yield candidate, full - operands - results + times[models[0]]


def _timing(candidate: Candidate, nanoseconds: float, target: Target) -> Timing:
    node, form = candidate.node, candidate.form
    op = target.bound(form, results_of(node, form))
    assert op is not None
    is_product = node.op in (ops.DotGeneral, ops.Conv)
    weights = frozenset(p.name for _, p, v in op.operands if v.is_constant and p.name != "bias")
    weights = weights if node.op is ops.DotGeneral else frozenset()
    options = {name: bool(form.attributes[name]) for name in OPTIONS.get(form.op, ())}
    return Timing(form.op, weights, options, not is_product and along_last(op), is_product, amounts_of(op), nanoseconds)
