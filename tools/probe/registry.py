"""The probes: for each op, a function that gives the cases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from tools.probe.case import Case
from tools.probe.quantized import quantized

ACTIVATION = "fused_activation_function"
BOUNDS = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}
"""What an activation clips to; a case has its name for the mode."""
Probe = Callable[[str], Iterator[Case]]
_PROBES: dict[str, list[Probe]] = {}


def probe(*ops: str) -> Callable[[Probe], Probe]:
    """Register the cases of these ops."""

    def register(function: Probe) -> Probe:
        for op in ops:
            _PROBES.setdefault(op, []).append(function)
        return function

    return register


def probes() -> dict[str, list[Probe]]:
    """All probes, by op."""
    package = importlib.import_module("tools.probe.cases")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"tools.probe.cases.{module.name}")
    return _PROBES


def cases_of(op: str) -> Iterator[Case]:
    """The cases of an op, but those that the Python interface cannot feed: scalars of strings."""
    for function in probes()[op]:
        floats = []
        for case in function(op):
            if not any(array.dtype == object and array.ndim == 0 for array in case.inputs()):
                yield case
            if case.types.get("T") == "float32" and set(case.types.values()) <= {"float32", "int32", "bool"}:
                floats.append(case)
        yield from _activated(
            [c for c in floats if c.mode == "equal" and c.rank <= 5 and c.options.get(ACTIVATION) == "NONE"]
        )
        yield from quantized(floats)


def _activated(cases: Sequence[Case]) -> Iterator[Case]:
    """Some of the float cases with each activation fused in."""
    for activation, (low, high) in BOUNDS.items():
        for case in cases[:: max(1, len(cases) // 6)]:
            expected = [np.clip(array, low, high) for array in case.expected]
            options = {**case.options, ACTIVATION: activation}
            yield replace(case, mode=activation, expected=expected, options=options)
