"""Measure the forms of all samples on a runtime."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.harness.workers import Worker
from tools.probe.costs.fit import Row, Timing, rows
from tools.probe.costs.models import Candidate, candidates, minimal
from tools.probe.costs.nodes import samples

from onnxtfl.ir import ops
from onnxtfl.targets import Target
from onnxtfl.targets.target import results_of
from onnxtfl.targets.work import along_last, amounts_of

KERNELS: Mapping[str, Mapping[str, float]] = {
    "tfl": {"litert": 1.0, "litert builtin": 1 / 32},
    "onnx": {"onnxruntime": 1.0},
}
"""The weight of each kernel set: users run the default one; the builtin one breaks ties."""
UNMEASURED = frozenset({"GlobalAveragePool", "GlobalMaxPool", "PAD"})
"""Ops whose own time misleads: ONNX Runtime computes global pools after convolutions on blocked channels, and XNNPACK
fuses PAD into the convolution after it.
"""
_BATCH = 24
"""The number of forms that are timed alternately."""
_SECONDS = 900


def costs(target: Target, wanted: Sequence[str] = ()) -> dict[str, list[Row]]:
    """The cost rows of each op; `wanted`: only of these ops."""
    found: defaultdict[str, list[Timing]] = defaultdict(list)
    with Worker() as worker:
        for candidate, nanoseconds in _timed(worker, target, wanted):
            found[candidate.op].append(_timing(candidate, nanoseconds, target))
    return {op: rows(found[op]) for op in sorted(found)}


def _timed(worker: Worker, target: Target, wanted: Sequence[str]) -> Iterator[tuple[Candidate, float]]:
    every = sorted((c for sample in samples() for c in candidates(sample, target)), key=lambda c: c.node.op.name)
    chosen = [c for c in every if c.op not in UNMEASURED and (not wanted or c.op in wanted)]
    for start in range(0, len(chosen), _BATCH):
        part = chosen[start : start + _BATCH]
        models = list(dict.fromkeys([minimal(target), *(m for c in part for m in c.models)]))
        total = [0.0] * len(part)
        for kernels, share in KERNELS[target.name].items():
            outcome = worker.run("tools.probe.costs.timing:times", (kernels, models), _SECONDS)
            if outcome.kind != "done":
                raise RuntimeError(f"{kernels}: {outcome.message}\n{outcome.detail}")
            times = dict(zip(models, outcome.value, strict=True))
            for i, candidate in enumerate(part):
                full, operands, results = (times[model] for model in candidate.models)
                total[i] += share * (full - operands - results + times[models[0]])
        yield from zip(part, total, strict=True)


def _timing(candidate: Candidate, nanoseconds: float, target: Target) -> Timing:
    node, form = candidate.node, candidate.form
    op = target.bound(form, results_of(node, form))
    assert op is not None
    is_product = node.op is ops.DotGeneral
    weights = frozenset(p.name for _, p, v in op.operands if v.is_constant) if is_product else frozenset[str]()
    return Timing(weights, not is_product and along_last(op), is_product, amounts_of(op), nanoseconds)
