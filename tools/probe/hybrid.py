"""Hybrid cases, made from float cases: quantized weights, and float activations that kernels round to 8 bits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from tools.probe.case import Array, Case, Position
from tools.probe.quantized import AXES, symmetric

from onnxtfl.formats.tflite import schema
from onnxtfl.ir.quantization import Quantization, dequantize, quantize
from onnxtfl.targets.table import entry

STORAGES = ("int8", "int4")
_CASES_PER_CELL = 6
_ASYMMETRIC = "asymmetric_quantize_inputs"
_FUSED = "fused_activation_function"
_SLACK = 1.1
_OF_BLOCKS, _BLOCKS = ("FULLY_CONNECTED", "EMBEDDING_LOOKUP"), (32, 16)
"""The ops with scales of blocks, and the sizes of these."""


def hybrid(cases: Iterable[Case]) -> Iterator[Case]:
    """Hybrid cases of some float cases with constant weights.

    They vary in the storage type, per-tensor or per-axis scales, and symmetric or asymmetric activations.
    """
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
            if case.op in _OF_BLOCKS and _is_matrix(case):
                yield from _of_blocks(case)


def _is_matrix(case: Case) -> bool:
    """Whether the weights have two axes, as those with scales of blocks."""
    return all(np.ndim(case.operands[i]) == 2 for i in _variables(case, "W"))


def _of_blocks(case: Case) -> Iterator[Case]:
    for block, name in itertools.product(_BLOCKS, ("NONE", "RELU")):  # a kernel ignores the fused activation
        wide = _wide(case, block)
        chosen = {("operands", i): _by_block(wide.operands[i], block) for i in _variables(case, "W")}
        extra = {"per_axis": "W", "blocks": "32n" if block % 32 == 0 else "any"}
        table = schema.options_table(case.op)
        if table is not None and _FUSED in table.by_name:
            wide, extra = _activated(wide, name), {**extra, _FUSED: name}
        elif name != "NONE":
            continue
        for options in _roundings(case):
            yield _with(wide, chosen, extra, options)


def _wide(case: Case, block: int) -> Case:
    """The case with rows of two blocks."""
    operands = list(case.operands)
    for i in (*_variables(case, "T"), *_variables(case, "W")):
        array = operands[i]
        assert array is not None
        times = (*(1 for _ in array.shape[:-1]), -(-2 * block // array.shape[-1]))
        operands[i] = np.ascontiguousarray(np.tile(array, times)[..., : 2 * block])
    return replace(case, operands=operands)


def _activated(case: Case, name: str) -> Case:
    """The case with a fused activation."""
    evaluate = case.evaluate
    assert evaluate is not None
    options = {**case.options, _FUSED: name}
    if name == "NONE":
        return replace(case, options=options)
    return replace(case, options=options, evaluate=lambda *arrays: [np.maximum(a, 0) for a in evaluate(*arrays)])


def _by_block(array: Array | None, block: int) -> Quantization:
    """Symmetric int4 with a float16 scale for each block of a row."""
    assert array is not None
    largest = np.max(np.abs(array.reshape(array.shape[0], -1, block)), axis=2, initial=1e-3)
    scales = tuple(map(float, (largest / 7).astype(np.float16).reshape(-1)))
    return Quantization("int4", scales, (0,) * len(scales), 1, block)


def _variable(case: Case, index: int) -> str:
    parameters = entry(case.op).operands
    return parameters[min(index, len(parameters) - 1)].variable


def _variables(case: Case, variable: str) -> list[int]:
    """The indices of present operands with this type variable."""
    return [i for i, a in enumerate(case.operands) if a is not None and _variable(case, i) == variable]


def _roundings(case: Case) -> list[dict[str, Any]]:
    table = schema.options_table(case.op)
    has = table is not None and _ASYMMETRIC in table.by_name
    return [{_ASYMMETRIC: flag} for flag in (False, True)] if has else [{}]


def _stored(case: Case, storage: str, axis: int | None, rounding: dict[str, Any]) -> Case:
    """The case with quantized weights; the expected results use the dequantized weights and unrounded activations."""
    chosen: dict[Position, Quantization] = {}
    for i in _variables(case, "W"):
        array = case.operands[i]
        assert array is not None
        chosen["operands", i] = symmetric(array, storage, axis)
    return _with(case, chosen, {} if axis is None else {"per_axis": "W"}, rounding)


def _with(case: Case, chosen: dict[Position, Quantization], extra: dict[str, Any], rounding: dict[str, Any]) -> Case:
    """The case with some operands quantized."""
    assert case.evaluate is not None
    operands, real = list(case.operands), list(case.operands)
    for (_, i), quantization in chosen.items():
        array = operands[i]
        assert array is not None
        operands[i] = quantize(array, quantization)
        real[i] = dequantize(operands[i], quantization)
    storage = next(iter(chosen.values())).storage
    return replace(
        case,
        types={**case.types, "W": f"q{storage}"},
        operands=operands,
        expected=case.evaluate(*real),
        bounds=_bounds(case, real),
        extra={**_without_groups(case), **rounding, **extra},
        quantizations=chosen,
        options={**case.options, **rounding},
        evaluate=None,
    )


def _without_groups(case: Case) -> dict[str, Any]:
    """`extra` without the constraint on groups, which is known only after layout assignment."""
    return {key: value for key, value in case.extra.items() if key != "grouped"}


def _bounds(case: Case, operands: list[Array | None]) -> list[Array]:
    """Bounds of the results' errors, if activations are rounded to steps of 1/127 of their largest absolute value.

    They are the op's results for activations of half a step and the absolute values of the weights.
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
    found = case.evaluate(*errors) if activations else [np.zeros_like(a) for a in case.evaluate(*operands)]
    return [_SLACK * a for a in found]
