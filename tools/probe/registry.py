"""The probes: for each op, a function that gives the cases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

from tools.probe.case import Case

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
        for case in function(op):
            if not any(array.dtype == object and array.ndim == 0 for array in case.inputs()):
                yield case
