"""Quantized cases, made from float cases: quantized operands, and the results for their dequantized values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from tools.probe.case import Array, Case, Position

from onnxtfl.formats.tflite.schema import options_table
from onnxtfl.ir.quantization import Quantization, dequantize, limits, quantize
from onnxtfl.ir.types import DType
from onnxtfl.targets.table import entry

STORAGES = ("int8", "uint8", "int16")
_DATA_MOVEMENT = (
    "RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE PAD PADV2 MIRROR_PAD CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE",
    "STRIDED_SLICE GATHER GATHER_ND TILE BROADCAST_TO REVERSE_V2 SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND",
    "BATCH_TO_SPACE_ND SELECT SELECT_V2 DYNAMIC_UPDATE_SLICE FILL SHAPE",
)
DATA_MOVEMENT = frozenset(op for line in _DATA_MOVEMENT for op in line.split())
"""Ops that copy elements without arithmetic."""
AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "TRANSPOSE_CONV": 0, "FULLY_CONNECTED": 0}
"""The quantization axis of the filter, for per-axis quantization."""
_BIAS_TYPE = "quantized_bias_type"
_CASES_PER_CELL = 3
_VARIATIONS = 2


def quantized(cases: Iterable[Case]) -> Iterator[Case]:
    """Quantized cases of some float cases of each rank and mode: each storage type, equal and different scales."""
    counts: Counter[Any] = Counter()
    for case in cases:
        cell = case.group, case.mode, case.rank
        counts[cell] += 1
        if counts[cell] <= _CASES_PER_CELL and (case.evaluate or case.op in DATA_MOVEMENT):
            for varied in (case, *_varied(case)):
                for storage in STORAGES:
                    yield from _stored(varied, storage)


def _varied(case: Case) -> Iterator[Case]:
    """Copies of the case with other elements, which have other scales and round differently."""
    for seed in range(_VARIATIONS if case.evaluate is not None else 0):
        rng = np.random.default_rng(seed)
        operands = [_scaled(a, rng) for a in case.operands]
        assert case.evaluate is not None
        yield replace(case, operands=operands, expected=case.evaluate(*operands))


def _scaled(array: Array | None, rng: np.random.Generator) -> Array | None:
    """Scale each element by a factor in [0.2, 1), which keeps it in the domain of the op."""
    if array is None or array.dtype != np.float32:
        return array
    return (array * rng.uniform(0.2, 1.0, array.shape)).astype(np.float32)


def _stored(case: Case, storage: str) -> Iterator[Case]:
    fixed = entry(case.op).fixed_results.get(f"q{storage}")
    if case.op in AXES:
        for axis in (None,) if storage == "uint8" else (None, AXES[case.op]):
            yield _weighted(case, storage, axis)
            if storage == "int16" and _BIAS_TYPE in _options_of(case.op):
                yield _weighted(case, storage, axis, "int32")
        return
    if case.op == "BATCH_MATMUL":
        yield from _by_weights(case, storage)
    if fixed is not None:
        result = {("results", 0): Quantization(storage, (fixed[0],), (int(fixed[1]),))}
        yield _case(case, _different(case, storage) | result, quantization="fixed")
        other = {("results", 0): Quantization(storage, (fixed[0] * 1.3,), (int(fixed[1]),))}
        yield _case(case, _different(case, storage) | other)
    else:
        yield _case(case, _different(case, storage))
    yield _case(case, _same(case, storage), quantization="same")


def _activations(case: Case) -> Iterator[tuple[Position, Array]]:
    """The positions and values of float32 operands and results with type variable T or W."""
    for side, arrays in (("operands", case.operands), ("results", case.expected)):
        parameters = getattr(entry(case.op), side)
        for index, array in enumerate(arrays):
            variable = parameters[min(index, len(parameters) - 1)].variable
            if array is not None and array.dtype == np.float32 and variable in ("T", "W"):
                yield (side, index), array


def _different(case: Case, storage: str) -> dict[Position, Quantization]:
    """A scale for each operand and result; data movement has one for all operands, and one for all results.

    If kernels may require a fixed scale of results, or that of an operand (which a maximum's range is), the results get
    another scale, even if their range fits that one.
    """
    if case.op not in DATA_MOVEMENT:
        far = 1.5 if entry(case.op).fixed_results else 1.0
        found = {p: parameters(a * far if p[0] == "results" else a, storage) for p, a in _activations(case)}
        of_operands = [q for (side, _), q in found.items() if side == "operands"]
        equal = {p: parameters(a * 1.5, storage) for p, a in _activations(case) if found[p] in of_operands}
        return found | {p: q for p, q in equal.items() if p[0] == "results"}
    arrays = [array.reshape(-1) for _, array in _activations(case)]
    inner = parameters(np.concatenate(arrays), storage)
    outer = parameters(np.concatenate(arrays) * 1.5, storage)
    return {position: inner if position[0] == "operands" else outer for position, _ in _activations(case)}


def _same(case: Case, storage: str) -> dict[Position, Quantization]:
    one = parameters(np.concatenate([array.reshape(-1) for _, array in _activations(case)]), storage)
    return {position: one for position, _ in _activations(case)}


def _options_of(op: str) -> Collection[str]:
    """The names of the options of `op`."""
    table = options_table(op)
    return table.by_name if table is not None else ()


def _weighted(case: Case, storage: str, axis: int | None, bias_type: str = "") -> Case:
    """A convolution or dense layer: 8-bit filter (symmetric unless uint8), the bias' scale is the product of scales.

    `bias_type`: another than the default (int64 for int16, else int32), which kernels then add up in.
    """
    x = 2 if case.op == "TRANSPOSE_CONV" else 0
    kernel, bias = case.operands[1], len(case.operands) - 1
    assert kernel is not None
    found = {p: q for p, q in _different(case, storage).items() if p[1] == x or p[0] == "results"}
    weights = parameters(kernel, "uint8") if storage == "uint8" else symmetric(kernel, "int8", axis)
    found["operands", 1] = weights
    wide = bias_type or ("int64" if storage == "int16" else "int32")
    if bias_type:
        case = replace(case, options={**case.options, _BIAS_TYPE: bias_type.upper()})
    if case.operands[bias] is not None:
        scales = tuple(found["operands", x].scales[0] * s for s in weights.scales)
        found["operands", bias] = Quantization(wide, scales, (0,) * len(scales), None if axis is None else 0)
    declared = {_BIAS_TYPE: bias_type.upper()} if bias_type else {}
    return _case(case, found, {"B": f"q{wide}"}, **({} if axis is None else {"per_axis": "W B"}), **declared)


def _by_weights(case: Case, storage: str) -> Iterator[Case]:
    """A product by int8 weights: with int16 activations, and with a scale for each column."""
    kernel, found = case.operands[1], _different(case, storage)
    assert kernel is not None
    columns = kernel.ndim - (2 if case.options["adj_y"] else 1)
    for axis in () if storage == "uint8" else (None, columns):
        if axis is not None or storage == "int16":
            per_axis = {} if axis is None else {"per_axis": "W"}
            yield _case(case, found | {("operands", 1): symmetric(kernel, "int8", axis)}, **per_axis)


def _case(
    case: Case, chosen: Mapping[Position, Quantization], types: Mapping[str, str] = MappingProxyType({}), **extra: Any
) -> Case:
    """The case with quantized operands and results: quantize(evaluate(dequantize(quantize(operands))))."""
    stored = [_optional(quantize, a, chosen.get(("operands", i))) for i, a in enumerate(case.operands)]
    if case.evaluate is not None:
        values = (_optional(dequantize, a, chosen.get(("operands", i))) for i, a in enumerate(stored))
        expected = list(case.evaluate(*values))
    else:
        inner = next(q for (side, _), q in chosen.items() if side == "operands")
        expected = [dequantize(quantize(a, inner), inner) if a.dtype == np.float32 else a for a in case.expected]
    results = [_optional(quantize, a, chosen.get(("results", i))) for i, a in enumerate(expected)]
    return replace(
        case,
        types={v: _type(case, v, chosen) or t for v, t in {**case.types, **types}.items()},
        operands=stored,
        expected=results,
        real=expected,
        extra={**case.extra, **extra},
        quantizations=chosen,
        options={**case.options, **({"pot_scale_int16": False} if case.op in ("ADD", "SUB") else {})},
        evaluate=None,
    )


def _optional(convert: Callable[[Array, Quantization], Array], array: Any, quantization: Quantization | None) -> Any:
    return array if array is None or quantization is None else convert(array, quantization)


def _type(case: Case, variable: str, chosen: Mapping[Position, Quantization]) -> str:
    """The element type of a variable in the kernel tables; "" if it is not quantized."""
    for (side, index), quantization in chosen.items():
        parameters = getattr(entry(case.op), side)
        if parameters[min(index, len(parameters) - 1)].variable == variable:
            return f"q{quantization.storage}"
    return ""


def parameters(array: Array, storage: str) -> Quantization:
    """Scale and zero point for the range of zero and the finite elements; int16 is symmetric."""
    if storage == "int16":
        return symmetric(array, storage, None)
    bounds = np.iinfo(storage)
    finite = array[np.isfinite(array)]
    low, high = min(0.0, float(np.min(finite, initial=0))), max(0.0, float(np.max(finite, initial=0)))
    scale = float(np.float32(max(high - low, 1e-3) / 255))
    return Quantization(storage, (scale,), (round(bounds.min - low / scale),))


def symmetric(array: Array, storage: str, axis: int | None) -> Quantization:
    """Symmetric scales from the largest absolute values, one for each index of `axis`; zero points are 0."""
    over = None if axis is None else tuple(i for i in range(array.ndim) if i != axis)
    largest = np.atleast_1d(np.max(np.abs(array), axis=over, initial=1e-3))
    scales = tuple(float(np.float32(m / limits(DType(storage))[1])) for m in largest)
    return Quantization(storage, scales, (0,) * len(scales), axis)
