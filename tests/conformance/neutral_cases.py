"""Graphs of one neutral op, drawn from its declaration, built for both formats: the runtimes compute what it means."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.run_case import Result, conversion_failure
from tests.harness.child import stage
from tests.harness.litert import Array, narrow, run_onnx, run_tflite

COUNT = 6
"""The samples of an op."""


def attempt(job: tuple[str, str]) -> list[Result]:
    """The results of all samples of an op ("Add") in a format ("tflite" or "onnx"), in the worker process."""
    from onnxtfl.ir.op import OPS
    from tests.unit.op_samples import samples
    from tests.unit.test_decompositions import built

    name, format_ = job
    found = [built(OPS[name], *one) for one in samples(OPS[name], 4 * COUNT)]
    graphs = [one for one in found if one is not None][:COUNT]
    return [_attempt(one, format_) for one in graphs]


def attempt_edges(job: tuple[str, str]) -> list[Result]:
    """The results of the graphs at the edges of an op; of samples, all in one model, and if it fails, of each one."""
    from onnxtfl.ir.op import OPS
    from tests.unit import edge_graphs
    from tests.unit.edge_samples import edge_samples
    from tests.unit.test_decompositions import built, together

    name, format_ = job
    if name in edge_graphs.EDGES:
        return [_attempt(one, format_) for one in edge_graphs.edge_graphs(name)]
    op = OPS[name]
    found = list(edge_samples(op, clips=format_ == "tflite"))
    one = together(op, found)
    if one is None or (result := _attempt(one, format_)).passed:
        return [] if one is None else [result]
    each = [built(op, *sample) for sample in found]
    return [result, *(_attempt(sample, format_) for sample in each if sample is not None)]


def _attempt(one: Any, format_: str) -> Result:
    import onnxtfl
    from onnxtfl.ir.text import print_graph

    text = print_graph(one.graph, limit=1 << 20)
    stage(f"convert {text[:300]}")
    try:
        made = onnxtfl.build_model(text.encode(), to=format_, check=False)
    except Exception as error:
        return conversion_failure(error)
    stage(f"run {text[:300]}")
    names = [value.name for value in one.graph.inputs]
    inputs = [narrow(array) for array in one.inputs]
    try:
        if format_ == "onnx":
            outputs = list(run_onnx(made.data, dict(zip(names, inputs, strict=True))).values())
        else:
            outputs = [array for _, array in run_tflite(made.data, inputs, kernels="builtin")]
    except Exception as error:
        return Result("run: refused", f"{error} {text}")
    for found, meant in zip(outputs, one.results, strict=True):
        message = difference(np.asarray(found), meant)
        if message:
            return Result(f"run: {message.partition(':')[0]}", f"{message} {text}")
    return Result()


def difference(found: Array, meant: Array) -> str:
    """How a result differs from what the op means; "" within float32 rounding. float64 and small types are widened."""
    if meant.dtype.kind == "c" and found.dtype.kind == "f":  # pairs
        meant = np.stack([meant.real, meant.imag], -1)
    if found.shape != meant.shape:
        return f"wrong shape: {found.shape} for {meant.shape}"
    if meant.dtype.kind in "iub" and found.dtype.kind in "iub":
        wrong = int(np.count_nonzero(found != meant))
        return f"wrong values: {wrong} of {meant.size}" if wrong else ""
    if meant.dtype.kind not in "fc":
        return "" if np.array_equal(found, meant) else "wrong values"
    with np.errstate(all="ignore"):
        finite = np.abs(meant[np.isfinite(meant)])
        largest = float(finite.max(initial=0.0))
        close = np.isinf(meant) & (np.abs(found) >= np.finfo(np.float32).max)  # LiteRT clips infinite results
        relative = max(2e-4, 4 * float(np.finfo(meant.dtype).eps))  # half floats are rounded at each node
        close |= np.isclose(found, meant, relative, relative / 10 * max(1.0, largest), True)
    return "" if close.all() else f"wrong values: {int(np.count_nonzero(~close))} of {meant.size}"
