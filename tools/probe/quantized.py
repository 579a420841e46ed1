"""Quantized cases, made of float ones: operands stored as integers, and what is right for exactly these numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from tools.probe.case import Array, Case, Place

from onnxtfl.ir.quantization import Quantization, dequantize, quantize
from onnxtfl.targets.table import entry

STORAGES = ("int8", "uint8", "int16")
_MOVES = (
    "RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE PAD PADV2 MIRROR_PAD CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE",
    "STRIDED_SLICE GATHER GATHER_ND TILE BROADCAST_TO REVERSE_V2 SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND",
    "BATCH_TO_SPACE_ND SELECT SELECT_V2 DYNAMIC_UPDATE_SLICE FILL",
)
MOVES = frozenset(op for line in _MOVES for op in line.split())
"""Ops that move numbers without computing."""
_AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "TRANSPOSE_CONV": 0, "FULLY_CONNECTED": 0}
"""The axis of the filter that has a scale for each index."""
_A_CELL = 3


def quantized(cases: Iterable[Case]) -> Iterator[Case]:
    """For some of the float cases of each rank and mode: each storage, with equal and with different scales."""
    taken: Counter[Any] = Counter()
    for case in cases:
        cell = case.group, case.mode, case.rank
        taken[cell] += 1
        if taken[cell] <= _A_CELL and (case.meaning or case.op in MOVES):
            for storage in STORAGES:
                yield from _stored(case, storage)


def _stored(case: Case, storage: str) -> Iterator[Case]:
    fixed = entry(case.op).fixed_results.get(f"q{storage}")
    if case.op in _AXES:
        yield _weighted(case, storage, None)
        if storage != "uint8":
            yield _weighted(case, storage, _AXES[case.op])
        return
    if fixed is not None:
        own = _own(case, storage) | {("results", 0): Quantization(storage, (fixed[0],), (int(fixed[1]),))}
        yield _made(case, own, quantization="fixed")
    yield _made(case, _own(case, storage))
    yield _made(case, _shared(case, storage), quantization="same")


def _main(case: Case) -> Iterator[tuple[Place, Array]]:
    """The operands and results of float32 whose type variables are those of activations."""
    for side, arrays in (("operands", case.operands), ("results", case.expected)):
        parameters = getattr(entry(case.op), side)
        for index, array in enumerate(arrays):
            variable = parameters[min(index, len(parameters) - 1)].variable
            if array is not None and array.dtype == np.float32 and variable in ("T", "W"):
                yield (side, index), array


def _own(case: Case, storage: str) -> dict[Place, Quantization]:
    """A scale for each; the operands of ops that only move share one, the results have another."""
    if case.op not in MOVES:
        return {place: parameters(array, storage) for place, array in _main(case)}
    arrays = [array.reshape(-1) for _, array in _main(case)]
    inner = parameters(np.concatenate(arrays), storage)
    outer = parameters(np.concatenate(arrays) * 1.5, storage)
    return {place: inner if place[0] == "operands" else outer for place, _ in _main(case)}


def _shared(case: Case, storage: str) -> dict[Place, Quantization]:
    one = parameters(np.concatenate([array.reshape(-1) for _, array in _main(case)]), storage)
    return {place: one for place, _ in _main(case)}


def _weighted(case: Case, storage: str, axis: int | None) -> Case:
    """A convolution or dense layer: filter of 8 bits (symmetric unless uint8), bias of the product of scales."""
    x = 2 if case.op == "TRANSPOSE_CONV" else 0
    kernel, bias = case.operands[1], len(case.operands) - 1
    assert kernel is not None
    found = {place: q for place, q in _own(case, storage).items() if place[1] == x or place[0] == "results"}
    weights = parameters(kernel, "uint8") if storage == "uint8" else symmetric(kernel, "int8", axis)
    found["operands", 1] = weights
    wide = "int64" if storage == "int16" else "int32"
    if case.operands[bias] is not None:
        scales = tuple(found["operands", x].scales[0] * s for s in weights.scales)
        found["operands", bias] = Quantization(wide, scales, (0,) * len(scales), None if axis is None else 0)
    return _made(case, found, {"B": f"q{wide}"}, **({} if axis is None else {"per_axis": "W B"}))


def _made(
    case: Case, parameters_: Mapping[Place, Quantization], types: Mapping[str, str] = MappingProxyType({}), **extra: Any
) -> Case:
    """The case with these operands and results stored; what is right is computed from what the integers mean."""
    stored = [_each(quantize, a, parameters_.get(("operands", i))) for i, a in enumerate(case.operands)]
    if case.meaning is not None:
        meant_by = (_each(dequantize, a, parameters_.get(("operands", i))) for i, a in enumerate(stored))
        expected = list(case.meaning(*meant_by))
    else:
        inner = next(q for (side, _), q in parameters_.items() if side == "operands")
        expected = [dequantize(quantize(a, inner), inner) if a.dtype == np.float32 else a for a in case.expected]
    results = [_each(quantize, a, parameters_.get(("results", i))) for i, a in enumerate(expected)]
    return replace(
        case,
        types={v: _type(case, v, parameters_) or t for v, t in {**case.types, **types}.items()},
        operands=stored,
        expected=results,
        extra={**case.extra, **extra},
        quantizations=parameters_,
        options={**case.options, **({"pot_scale_int16": False} if case.op in ("ADD", "SUB") else {})},
        meaning=None,
    )


def _each(convert: Callable[[Array, Quantization], Array], array: Any, quantization: Quantization | None) -> Any:
    return array if array is None or quantization is None else convert(array, quantization)


def _type(case: Case, variable: str, found: Mapping[Place, Quantization]) -> str:
    known = entry(case.op)
    for (side, index), quantization in found.items():
        known_ones = known.operands if side == "operands" else known.results
        if known_ones[min(index, len(known_ones) - 1)].variable == variable:
            return f"q{quantization.storage}"
    return ""


def parameters(array: Array, storage: str) -> Quantization:
    """Scale and zero point that cover the numbers (and zero); int16 is symmetric."""
    if storage == "int16":
        return symmetric(array, storage, None)
    bounds = np.iinfo(storage)
    finite = array[np.isfinite(array)]
    low, high = min(0.0, float(np.min(finite, initial=0))), max(0.0, float(np.max(finite, initial=0)))
    scale = float(np.float32(max(high - low, 1e-3) / 255))
    return Quantization(storage, (scale,), (round(bounds.min - low / scale),))


def symmetric(array: Array, storage: str, axis: int | None) -> Quantization:
    """Zero point 0; a scale for each index of `axis`."""
    over = None if axis is None else tuple(i for i in range(array.ndim) if i != axis)
    largest = np.atleast_1d(np.max(np.abs(array), axis=over, initial=1e-3))
    scales = tuple(float(np.float32(m / np.iinfo(storage).max)) for m in largest)
    return Quantization(storage, scales, (0,) * len(scales), axis)
