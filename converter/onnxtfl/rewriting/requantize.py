"""Legalization of nodes on quantized types: changes of quantization for a kernel, else float arithmetic.

::

    %y = Softmax(%q) : int8 0.01:3     ->    %p = Softmax(%q) : int8 1/256:-128
                                             %y = Convert(%p) : int8 0.01:3

    %y = Erf(%q) : int8 0.01:3         ->    %a = Convert(%q) : float32
                                             %b = Erf(%a)
                                             %y = Convert(%b) : int8 0.01:3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, dequantized_constant
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import SMALL
from onnxtfl.ir.quantization import UINT8_OFFSET, Quantization, limits, quantize, shifted_to_int8, shifted_to_uint8
from onnxtfl.ir.quantized import picked_operands, quantization_of, selected_operands
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.target import Target

_COARSEST = 2.0
"""The largest ratio of the result's scale to the scale of an intermediate quantization."""
_SHIFTS = (("uint8", shifted_to_int8, -UINT8_OFFSET), ("int8", shifted_to_uint8, UINT8_OFFSET))
_STORED = (0.0, math.inf, -math.inf)
"""Bounds that all quantized types represent or saturate to."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The quantization of each operand and result (None: unchanged)."""

    operands: tuple[Quantization | None, ...]
    results: tuple[Quantization | None, ...]


def requantized(b: Builder, node: Node, target: Target) -> list[Value] | None:
    """Return the results of `node` computed in other quantizations that the target accepts, else None.

    Those that only its fallback accepts come last, and are none for a node that the fallback accepts as it is.
    """
    variants = list(_variants(node, target))
    for by_fallback in (False,) if target.accepted(node) is not None else (False, True):
        for variant in variants:
            if _accepts(node, variant, target, by_fallback):
                return _made(b, node, variant, target)
    return None


def in_float(b: Builder, node: Node, target: Target) -> list[Value]:
    """Return the results of `node` computed on dequantized operands, then quantized."""

    def real(value: Value) -> Value:
        constant = value.is_constant and value.is_quantized and not target.has_hybrid_kernels
        return dequantized_constant(value) if constant else convert_quantization(b, value, None)

    operands = [v if v is None else real(v) for v in node.operands]
    results = b.many(node.op, *operands, **node.attributes)
    return [convert_quantization(b, new, quantization_of(old)) for new, old in zip(results, node.results, strict=True)]


def _constant_in(value: Value, quantization: Quantization) -> Value | None:
    """Return a constant in another quantization; None for other values, and for large ones that change."""
    if value.data is None:
        return None
    for storage, shift, offset in _SHIFTS:
        before = value.tensor_type.quantization
        if before is not None and before.storage == storage and shift(before) == quantization:
            return constant(
                value.data.cast(quantization.dtype, offset), type_=value.tensor_type.stored_as(quantization)
            )
    if value.data.size > SMALL:
        return None
    stored = ArrayData(quantize(value.numpy().astype(np.float32), quantization), quantization.dtype)
    return constant(stored, type_=value.tensor_type.stored_as(quantization))


def _variants(node: Node, target: Target) -> Iterator[Variant]:
    """Yield candidate variants, the most exact first: elements are chosen after rounding; another type of the same
    steps; fixed results; equal quantization of operands and results.
    """
    results = [_per_tensor(r) for r in node.results]
    operands = [_per_tensor(v) for v in node.operands]
    storage = next((q.storage for q in (*results, *operands) if q is not None), None)
    if storage is None:
        return
    nothing = (None,) * len(operands)
    sources, wanted = ({q for q in found if q is not None} for found in (operands, results))
    common = next(iter(wanted)) if len(wanted) == 1 else None
    alike = Variant(tuple(common if q is not None else None for q in operands), (None,) * len(results))
    chooses = common is not None and _selects(node, common)
    if chooses:
        yield alike
    shifted = _shifted(node, operands, results)
    yield from shifted if target.has_uint8_kernels else ()
    yield from _widened(node, operands, results)
    for form in target.forms(node):
        fixed = target.fixed_quantization(form, storage)
        if fixed is not None and _is_fine(fixed, wanted) and _covers(fixed, wanted, node.op.bounds):
            yield Variant(nothing, tuple(fixed if q is not None else None for q in results))
        wide = None if fixed is None else target.fixed_quantization(form, "int16")
        if wide is not None and storage != "int16":
            finer = tuple(None if q is None else _as_int16(q) for q in operands)
            yield Variant(finer, tuple(wide if q is not None else None for q in results))
    single = next(iter(sources)) if len(sources) == 1 else None
    if single is not None and (
        _selects(node, single) or (picked_operands(node) == "mean" and _is_fine(single, wanted))
    ):
        yield Variant(nothing, tuple(single if q is not None else None for q in results))
    if common is not None and not chooses and _is_monotonic(node):
        yield alike
    yield from () if target.has_uint8_kernels else shifted


def _shifted(
    node: Node, operands: Sequence[Quantization | None], results: Sequence[Quantization | None]
) -> list[Variant]:
    """Return the variants with int8 instead of uint8, and with uint8, whose kernels have a zero point of weights.

    The one that converts fewer values (constants are stored in the other type) comes first.
    """
    found = []
    for storage, shift, _ in _SHIFTS:
        sides = [[shift(q) if q is not None and q.storage == storage else None for q in s] for s in (operands, results)]
        if any(q is not None for side in sides for q in side):
            found.append(Variant(tuple(sides[0]), tuple(sides[1])))
    values = (*node.operands, *node.results)

    def conversions(variant: Variant) -> int:
        changed = zip(values, (*variant.operands, *variant.results), strict=True)
        return sum(v is not None and v.data is None and q is not None for v, q in changed)

    return sorted(found, key=conversions)


def _widened(
    node: Node, operands: Sequence[Quantization | None], results: Sequence[Quantization | None]
) -> Iterator[Variant]:
    """Yield the variants with int16 instead of 8 bits beside int16: of all operands, then not of constants (weights).

    An operand keeps its scale, so that all of its values are represented; a result is rounded to finer steps first.
    """
    if not any(q is not None and q.storage == "int16" for q in (*operands, *results)):
        return
    finer = tuple(_as_int16(q) if q is not None and q.dtype.bits == 8 else None for q in results)
    eight_bit = [i for i, q in enumerate(operands) if q is not None and q.dtype.bits == 8]
    for places in (eight_bit, [i for i in eight_bit if not node.operand(i).is_constant]):
        wider = tuple(
            Quantization("int16", q.scales, (0,)) if q is not None and i in places else None
            for i, q in enumerate(operands)
        )
        if any(q is not None for q in (*wider, *finer)):
            yield Variant(wider, finer)


def _as_int16(quantization: Quantization) -> Quantization:
    """The quantization as int16 that represents all values of one of 8 bits."""
    return Quantization("int16", (quantization.scales[0] / 128,), (0,))


def _is_fine(rounded: Quantization, wanted: set[Quantization]) -> bool:
    """Whether rounding to `rounded` first changes results in the quantizations `wanted` by at most a step."""
    return all(rounded.scales[0] <= _COARSEST * q.scales[0] for q in wanted)


def _covers(fixed: Quantization, wanted: set[Quantization], bounds: tuple[float, float] | None) -> bool:
    """Whether `fixed` represents the results within `bounds` in the quantizations `wanted`, to a step at its ends."""
    (low, high), step = fixed.bounds, fixed.scales[0]
    least, greatest = bounds or (-math.inf, math.inf)
    return all(max(q.bounds[0], least) >= low - step and min(q.bounds[1], greatest) <= high + step for q in wanted)


def _selects(node: Node, quantization: Quantization) -> bool:
    """Whether results in `quantization` are elements of operands with the same one, so that the op rounds nothing."""
    if node.op.inserts:
        return node.op.kept(node, quantization, node.results[0].tensor_type.shape) is not None
    clamps = node.op.clamps is not None and all(bound in _STORED for bound in node.op.clamps)
    return selected_operands(node) is not None or clamps or picked_operands(node) == "element"


def _is_monotonic(node: Node) -> bool:
    """Whether the op commutes with rounding (its constants are rounded likewise)."""
    return node.op.inserts or node.op.clamps is not None


def _per_tensor(value: Value | None) -> Quantization | None:
    quantization = value.type.quantization if value is not None and isinstance(value.type, TensorType) else None
    return quantization if quantization is not None and quantization.per_tensor else None


def _accepts(node: Node, variant: Variant, target: Target, by_fallback: bool) -> bool:
    """Whether the target accepts `node` with the types of `variant`; `by_fallback`: or its fallback."""
    operands = [v if q is None else _retyped(v, q) for v, q in zip(node.operands, variant.operands, strict=True)]
    probe = Node(node.op, operands, node.attributes)
    for result, quantization in zip(node.results, variant.results, strict=True):
        probe.add_result(result.type if quantization is None else result.tensor_type.stored_as(quantization))
    try:
        form = target.accepted(probe)
        return form is not None and (by_fallback or not target.falls_back(probe, form))
    finally:
        probe.detach()


def _retyped(value: Value | None, quantization: Quantization) -> Value | None:
    if value is None:
        return None
    return _constant_in(value, quantization) or Value(value.tensor_type.stored_as(quantization))


def _made(b: Builder, node: Node, variant: Variant, target: Target) -> list[Value]:
    operands = [
        v if v is None or q is None else _constant_in(v, q) or _rounded_again(b, v, v.tensor_type.stored_as(q), target)
        for v, q in zip(node.operands, variant.operands, strict=True)
    ]
    results = b.many(node.op, *operands, **node.attributes)
    for new, old, quantization in zip(results, node.results, variant.results, strict=True):
        kept = old.tensor_type.quantization if quantization is None else quantization
        new.type = new.tensor_type.stored_as(kept)
    return [_rounded_again(b, new, old.tensor_type, target) for new, old in zip(results, node.results, strict=True)]


def _rounded_again(b: Builder, value: Value, wanted: TensorType, target: Target) -> Value:
    """Requantize the rounded `value` to the quantization of `wanted`; by a product with 1 if that is more exact."""
    before, after = value.tensor_type.quantization, wanted.quantization
    if before is None or after is None or not _is_off(before, after, target.factor_bits):
        return convert_quantization(b, value, after)
    one = Quantization(before.storage, (1.0,), (0,))
    stored = constant(np.ones((), one.dtype.numpy), type_=TensorType(value.dtype, (), one))
    made = b(ops.Mul, value, stored)
    made.type = wanted
    return made


def _is_off(before: Quantization, after: Quantization, bits: int | None) -> bool:
    """Whether a factor of `bits` bits makes the total rounding error more than a step of `after`."""
    if bits is None or before.storage != after.storage or before.dtype.bits != 8:
        return False
    ratio = before.scales[0] / after.scales[0]
    low, high = limits(before.dtype)
    farthest = max(before.zero_points[0] - low, high - before.zero_points[0])
    error = abs(round(ratio * (1 << bits)) / (1 << bits) - ratio)
    return ratio / 2 + farthest * error > 1.0
