"""Hybrid cases, made from float ones: quantized weights and float activations, which kernels round to 8 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from tools.probe.case import Array, Case
from tools.probe.quantized import AXES, symmetric

from onnxtfl.formats.tflite import schema
from onnxtfl.ir.quantization import dequantize, quantize
from onnxtfl.targets.table import entry

STORAGES = ("int8", "int4")
_CASES_PER_CELL = 6
_ASYMMETRIC = "asymmetric_quantize_inputs"
_SLACK = 1.1


def hybrid(cases: Iterable[Case]) -> Iterator[Case]:
    """For some of the float cases with constant weights: each storage, one scale or several, both ways of rounding."""
    counts: Counter[Any] = Counter()
    for case in cases:
        weights = [i for i in case.constants if _variable(case, i) == "W" and case.operands[i] is not None]
        if case.evaluate is None or not weights or _variables(case, "W") != sorted(weights):
            continue
        cell = case.group, case.mode, case.rank
        counts[cell] += 1
        if counts[cell] <= _CASES_PER_CELL:
            for storage in STORAGES:
                for axis in (None, AXES[case.op]) if case.op in AXES else (None,):
                    for options in _roundings(case):
                        yield _stored(case, storage, axis, options)


def _variable(case: Case, index: int) -> str:
    parameters = entry(case.op).operands
    return parameters[min(index, len(parameters) - 1)].variable


def _variables(case: Case, variable: str) -> list[int]:
    """The operands that are present and have the variable."""
    return [i for i, a in enumerate(case.operands) if a is not None and _variable(case, i) == variable]


def _roundings(case: Case) -> list[dict[str, Any]]:
    table = schema.options_table(case.op)
    has = table is not None and _ASYMMETRIC in table.by_name
    return [{_ASYMMETRIC: flag} for flag in (False, True)] if has else [{}]


def _stored(case: Case, storage: str, axis: int | None, rounding: dict[str, Any]) -> Case:
    """Quantized weights; the results for the values that these represent, and for the unrounded activations."""
    assert case.evaluate is not None
    operands, real, chosen = list(case.operands), list(case.operands), {}
    for i in _variables(case, "W"):
        array = operands[i]
        assert array is not None
        chosen["operands", i] = quantization = symmetric(array, storage, axis)
        operands[i] = quantize(array, quantization)
        real[i] = dequantize(operands[i], quantization)
    return replace(
        case,
        types={**case.types, "W": f"q{storage}"},
        operands=operands,
        expected=case.evaluate(*real),
        bounds=_bounds(case, real),
        extra={**_without_groups(case), **rounding, **({} if axis is None else {"per_axis": "W"})},
        quantizations=chosen,
        options={**case.options, **rounding},
        evaluate=None,
    )


def _without_groups(case: Case) -> dict[str, Any]:
    """The constraints except the one on groups, which is known only after layout assignment."""
    return {key: value for key, value in case.extra.items() if key != "grouped"}


def _bounds(case: Case, operands: list[Array | None]) -> list[Array]:
    """The largest errors of the results if activations are off by half a step of 1/127 of the largest.

    They are the results of the op itself for such errors and the absolute values of the weights.
    """
    activations = _variables(case, "T")
    largest = max((float(np.max(np.abs(np.asarray(operands[i])))) for i in activations), default=0.0)
    errors = [
        a
        if a is None or a.dtype != np.float32
        else np.full_like(a, largest / 254)
        if i in activations
        else np.abs(a)
        if _variable(case, i) == "W"
        else np.zeros_like(a)
        for i, a in enumerate(operands)
    ]
    assert case.evaluate is not None
    found = case.evaluate(*errors) if activations else [np.zeros_like(a) for a in case.expected]
    return [_SLACK * a for a in found]
