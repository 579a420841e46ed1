"""Time models alternately in one process, by thread CPU time, so that other load affects all of them equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tools.probe.costs.machines import become

_MEASUREMENT_NS = 1_000_000
"""The duration in nanoseconds of one measurement, which calls a model several times."""
_MEASUREMENTS = 25
Run = Callable[[], object]


def times(job: tuple[str, str, Sequence[bytes]]) -> list[float]:
    """The time of one run of each model in ns.

    `job`: the kind of machine (see :mod:`machines`), "litert" or "onnxruntime", and the models.
    """
    machine, runtime, models = job
    if runtime == "onnxruntime":
        return quartiles(list(map(_onnxruntime, models)))
    become(machine)
    return quartiles(list(map(_litert, models)))


def quartiles(runs: Sequence[Run]) -> list[float]:
    """The lower quartile of the times of one call of each function, in ns: disturbances only increase times."""
    counts = [_count(run) for run in runs]
    measured: list[list[float]] = [[] for _ in runs]
    for _ in range(_MEASUREMENTS):
        for run, count, found in zip(runs, counts, measured, strict=True):
            begin = time.thread_time_ns()
            for _ in range(count):
                run()
            found.append((time.thread_time_ns() - begin) / count)
    return [statistics.quantiles(found, n=4)[0] for found in measured]


def _count(run: Run) -> int:
    run()
    run()
    count, begin = 0, time.thread_time_ns()
    while time.thread_time_ns() - begin < _MEASUREMENT_NS:
        run()
        count += 1
    return count


def _litert(model: bytes) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], _random_array(detail["shape"]))
    return interpreter.invoke  # type: ignore[no-any-return]


def _onnxruntime(model: bytes) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for value in session.get_inputs():
        binding.bind_cpu_input(value.name, _random_array(value.shape))
    for value in session.get_outputs():
        element = np.int64 if "int64" in value.type else np.float32
        output = onnxruntime.OrtValue.ortvalue_from_shape_and_type(value.shape, element)
        binding.bind_ortvalue_output(value.name, output)
    return lambda: session.run_with_iobinding(binding)


def _random_array(shape: Sequence[int]) -> Any:
    return np.random.default_rng(0).uniform(0.5, 1.5, list(shape)).astype(np.float32)
