"""The probes: for each op, functions that generate its cases."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from tools.probe.case import Array, Case
from tools.probe.hybrid import hybrid
from tools.probe.quantized import quantized

ACTIVATION = "fused_activation_function"
BOUNDS = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}
"""The bounds of each fused activation; the name of the activation is the mode of its cases."""
Probe = Callable[[str], Iterator[Case]]
_PROBES: dict[str, list[Probe]] = {}


def probe(*ops: str) -> Callable[[Probe], Probe]:
    """A decorator that registers a probe of these ops."""

    def register(function: Probe) -> Probe:
        for op in ops:
            _PROBES.setdefault(op, []).append(function)
        return function

    return register


def probes() -> dict[str, list[Probe]]:
    """All probes by op."""
    package = importlib.import_module("tools.probe.cases")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"tools.probe.cases.{module.name}")
    return _PROBES


def cases_of(op: str) -> Iterator[Case]:
    """The cases of an op, except string scalars, which the Python interface cannot set as inputs."""
    for function in probes()[op]:
        floats = []
        for case in function(op):
            if not any(array.dtype == object and array.ndim == 0 for array in case.inputs()):
                yield case
            if _is_float32(case):
                floats.append(case)
        yield from _special(floats)
        yield from _with_activations(
            [c for c in floats if c.mode == "equal" and c.rank <= 5 and c.options.get(ACTIVATION) == "NONE"]
        )
        yield from quantized(floats)


def hybrid_cases_of(op: str) -> Iterator[Case]:
    """The cases of an op with quantized weights and float activations."""
    for function in probes()[op]:
        yield from hybrid(case for case in function(op) if _is_float32(case))


def _is_float32(case: Case) -> bool:
    return case.types.get("T") == "float32" and set(case.types.values()) <= {"float32", "int32", "int64", "bool"}


def _special(cases: Sequence[Case]) -> Iterator[Case]:
    """A copy of one case, with NaN and infinities."""
    suitable = [c for c in cases if c.evaluate and c.mode == "equal" and not c.constants and c.rank > 1]
    for case in suitable[:1]:
        operands = [_with_nan(a) for a in case.operands]
        with contextlib.suppress(ValueError, IndexError), np.errstate(all="ignore"):
            assert case.evaluate is not None
            yield replace(case, mode="nan", operands=operands, expected=case.evaluate(*operands))


def _with_nan(array: Array | None) -> Array | None:
    if array is None or array.dtype != np.float32 or array.size < 4:
        return array
    result = array.copy()
    result.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    return result


def _with_activations(cases: Sequence[Case]) -> Iterator[Case]:
    """Copies of some float cases with each fused activation."""
    for activation, (low, high) in BOUNDS.items():
        for case in cases[:: max(1, len(cases) // 6)]:
            expected = [np.clip(array, low, high) for array in case.expected]
            options = {**case.options, ACTIVATION: activation}
            yield replace(case, mode=activation, expected=expected, options=options)
