"""Pad.

ONNX: Pad. TFLite: PAD PADV2 MIRROR_PAD.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.runtime_axes import named_factors
from onnxtfl.build.sizes import HUGE, int32_operands, narrow_constant, on_fewer_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import exceeds, is_static, known_sizes, open_axes
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.padding import cut_within, spread_out
from onnxtfl.ir.quantization import quantize
from onnxtfl.ir.reshape import (
    as_int64,
    broadcast,
    dim_value,
    dim_vector,
    iota,
    reshape,
    spread,
    stacked_along,
    unsqueezed,
)
from onnxtfl.ir.shapes import known_dims, normalize_axes, static_ints
from onnxtfl.ir.shown_sizes import may_be_fed
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType, tensor
from onnxtfl.rewriting.registry import (
    Computed,
    Form,
    append_operand,
    decompose,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)

_MOST_PADDED = 1 << 15
"""The most padded elements that are stored, so that a delegate computes a Pad by a constant."""

# --- about the centre ------------------------------------------------------------------------------------------------


@lift_onnx("CenterCropPad", since=(18,))
def _center_crop_pad(b: Builder, node: Node) -> Value:
    """Crop axes that are too long, pad those that are too short with zeros; an odd element goes to the end."""
    x, wanted = node.operand(0), known_dims(node.operand(1))
    axes = normalize_axes(node.attr("axes") or tuple(range(x.rank)), x.rank)
    more = Term(b, as_int64(b, node.operand(1))) - Term(b, dim_vector(b, [x.shape[axis] for axis in axes], x))
    before = more / 2  # rounds toward zero
    sides = [reshape(b, spread(b, v.value, axes, x.rank, 0), (x.rank, 1)) for v in (before, more - before)]
    padded = b(ops.Pad, x, b(ops.Concatenate, *sides, axis=1))
    if wanted is not None and not padded.is_constant:
        sizes = dict(zip(axes, wanted, strict=True))
        padded.type = padded.tensor_type.with_shape(tuple(sizes.get(i, d) for i, d in enumerate(x.shape)))
    return padded


# --- ONNX ------------------------------------------------------------------------------------------------------------


@upgrade("Pad", since=(1, 2))
def _pad_2(b: Builder, node: Node) -> None:
    """Attributes (Pad-1 calls them paddings) become operands."""
    pads = node.attributes.pop("pads", None) or node.attributes.pop("paddings", ())
    append_operand(node, constant(np.asarray(pads, np.int64)))
    append_operand(node, constant(np.asarray(node.attributes.pop("value", 0.0)), node.operand(0).dtype))


@lift_onnx("Pad", since=(1,), domain=MICROSOFT)
@lift_onnx("Pad", since=(11, 13, 18, 19, 21, 23, 24, 25))
def _pad(b: Builder, node: Node) -> Value:
    """`pads` has all beginnings, then all ends, of all axes or of `axes`."""
    x, pads, value, axes = node.operand(0), node.operand(1), node.optional(2), node.optional(3)
    mode = node.attr("mode", "constant")
    if mode != "constant":
        value = None
    elif value is not None:
        value = reshape(b, value, ())
    places = static_ints(axes)
    if axes is not None and places is None:
        if min(static_ints(pads) or (), default=0) < 0:
            raise UnsupportedError("negative padding along dynamic axes", code="E-SHAPE-002")
        return b(ops.Pad, x, _rows_of_axes(b, pads, axes, x.rank), value, mode=mode)
    where = list(range(x.rank)) if places is None else list(normalize_axes(places, x.rank))
    return b(ops.Pad, x, _rows(b, pads, where, x.rank), value, mode=mode)


def _rows(b: Builder, pads: Value, axes: Sequence[int], rank: int) -> Value:
    """Return padding [rank, 2] for all axes, 0 for those not in `axes`."""
    rows = b(ops.Transpose, b(ops.Reshape, pads, [2, len(axes)]), permutation=(1, 0))
    if list(axes) == list(range(rank)):
        return rows
    more = b(ops.Concatenate, rows, constant(np.zeros((1, 2)), pads.dtype), axis=0)
    return b(ops.Gather, more, [axes.index(i) if i in axes else len(axes) for i in range(rank)], axis=0)


def _rows_of_axes(b: Builder, pads: Value, axes: Value, rank: int) -> Value:
    """Scatter the rows of padding to dynamic axes."""
    places = b(ops.FloorMod, axes, b.scalar(rank, axes))
    pairs = b(ops.Transpose, b(ops.Reshape, pads, [2, -1]), permutation=(1, 0))
    rows = b(ops.Reshape, places, [-1, 1])
    return b(ops.ScatterND, constant(np.zeros((rank, 2), np.int64)), rows, pairs, kind="none", unique_indices=True)


@lower_onnx(ops.Pad)
def _to_onnx_pad(node: Node, opset: int) -> Form | None:
    rows, mode, value = node.operand(1), node.attr("mode"), node.optional(2)
    if mode == "symmetric" or (mode == "wrap" and opset < 19):
        return None
    pads: Array | Computed = np.asarray(rows.numpy(), np.int64).T.reshape(-1) if rows.is_constant else _flat(node)
    return Form("Pad", (node.operand(0), pads, *(() if value is None else (value,))), {"mode": mode})


def _flat(node: Node) -> Computed:
    """Return dynamic padding as all beginnings, then all ends."""

    def flat(b: Builder) -> Value:
        return b(ops.Reshape, b(ops.Transpose, as_int64(b, node.operand(1)), permutation=(1, 0)), [-1])

    return Computed(tensor("int64", 2 * node.operand(0).rank), flat)


# --- TFLite ----------------------------------------------------------------------------------------------------------


@lower_tfl(ops.Pad)
def _to_tfl_pad(node: Node) -> Form | None:
    rows, value, mode = node.operand(1), node.optional(2), node.attr("mode")
    known = static_ints(rows)
    if min(known, default=0) < 0 if known is not None else not never_negative(rows):
        return None
    padding = narrow_constant(rows)
    if mode in ("reflect", "symmetric"):
        return Form("MIRROR_PAD", (node.operand(0), padding), {"mode": mode.upper()}) if _mirrors_once(node) else None
    if mode != "constant":
        return None
    if value is None or (value.is_constant and _is_zero(value)):
        return Form("PAD", (node.operand(0), padding))
    return Form("PADV2", (node.operand(0), padding, _stored_alike(value, node.operand(0))))


def _stored_alike(value: Value, x: Value) -> Value:
    """Return a constant in the quantization of `x`."""
    quantization = x.tensor_type.quantization
    if quantization is None or not value.is_constant or not quantization.per_tensor:
        return value
    type_ = value.tensor_type.stored_as(quantization)
    return constant(quantize(value.numpy(), quantization), type_=type_)


def _is_zero(value: Value) -> bool:
    number = value.numpy().reshape(-1)[0]
    return bool(number == 0) and not np.signbit(np.asarray(number, np.float64))


def _mirrors_once(node: Node) -> bool:
    """Whether the padding is smaller than the mirrored axes (assumed for dynamic sizes)."""
    known = static_ints(node.operand(1))
    if known is None:
        return True
    spare = 1 if node.attr("mode") == "reflect" else 0
    pairs = zip(known[::2], known[1::2], node.operand(0).shape, strict=True)
    return not any(exceeds(max(a, c), n - spare) for a, c, n in pairs if a or c)


@lift_tfl("PAD", "PADV2")
def _from_tfl_pad(b: Builder, node: Node) -> Value:
    if node.operand(0).tensor_type.rank == 0:
        return node.operand(0)
    value = node.optional(2)
    return b(ops.Pad, node.operand(0), node.operand(1), None if value is None else reshape(b, value, ()))


@lift_tfl("MIRROR_PAD")
def _from_tfl_mirror_pad(b: Builder, node: Node) -> Value:
    if node.operand(0).tensor_type.rank == 0:
        return node.operand(0)
    return b(ops.Pad, node.operand(0), node.operand(1), mode=str(node.attr("mode")).lower())


# --- in other ops ----------------------------------------------------------------------------------------------------


@decompose(ops.Pad, order="operands")
def _crop_first(b: Builder, node: Node) -> Value | None:
    """Replace negative padding by a Slice."""
    known = static_ints(node.operand(1))
    if known is None or min(known, default=0) >= 0:
        return None
    sizes, rows = node.operand(0).shape, np.asarray(known, np.int64).reshape(-1, 2)
    rows = np.asarray([cut_within(n, *row) for n, row in zip(sizes, rows.tolist(), strict=True)], np.int64)
    for axis in open_axes(sizes):
        if min(rows[axis]) < 0 < max(rows[axis]):
            assume(
                f"an axis that {shown_name(node)} crops and pads has at least {-min(rows[axis])} elements",
                is_minor=not may_be_fed(sizes[axis], 1),
            )
    starts, limits = np.maximum(-rows[:, 0], 0), np.where(rows[:, 1] < 0, rows[:, 1], HUGE)
    cut = b(ops.Slice, node.operand(0), starts, limits, np.ones_like(starts))
    rows = np.maximum(rows, 0)
    return b(ops.Pad, cut, rows, node.optional(2), **node.attributes) if rows.any() else cut


@decompose(ops.Pad, "tfl", "operands")
def _crop_computed_padding(b: Builder, node: Node) -> Value | Sequence[Value] | None:
    """Crop by a Slice before the Pad if dynamic padding may be negative, which LiteRT's PAD refuses.

    What a side crops of an axis beyond its size (`cut_within`), it takes from the padding of the other side.
    """
    x, rows = node.operand(0), node.operand(1)
    if node.attr("mode") != "constant" or static_ints(rows) is not None or never_negative(rows):
        return _padding_as_int32(b, node)
    rows = rows if rows.dtype is DType.INT32 else b(ops.Convert, rows, dtype=DType.INT32)
    axes, size = x.rank, Term(b, b(ops.Shape, x, dtype=DType.INT32))
    before, after = (Term(b, reshape(b, b(ops.Slice, rows, [0, k], [axes, k + 1], [1, 1]), (axes,))) for k in (0, 1))
    excess = [(side + size).min(0) for side in (before, after)]
    before, after = before - excess[0] + excess[1], after - excess[1] + excess[0]
    limits = size + after.min(0)
    cut = b(ops.Slice, x, (-before).max(0).value, limits.value, constant(np.ones(axes), DType.INT32))
    rows = stacked_along(b, [side.max(0).value for side in (before, after)], 1)
    padded = b(ops.Pad, cut, rows, node.optional(2), **node.attributes)
    padded.type = node.result.type  # the sizes of axes that are not padded are known
    return padded


def has_constant_padding(node: Node) -> bool:
    known = node.attr("mode") == "constant" and node.operand(0).is_static
    return known and static_ints(node.operand(1)) is not None and never_negative(node.operand(1))


def _has_narrow_padding(node: Node) -> bool:
    """Whether the amounts and the value of the padding are known, with few padded elements."""
    if not has_constant_padding(node) or (value := node.optional(2)) is None or not value.is_constant:
        return False
    before, after = node.operand(0).shape, node.result.shape
    return is_static(before) and is_static(after) and math.prod(after) - math.prod(before) <= _MOST_PADDED


@decompose(ops.Pad, "gpu", order="operands", when=has_constant_padding)
@decompose(ops.Pad, "xnnpack", when=_has_narrow_padding)
def _pad_by_concatenation(b: Builder, node: Node) -> Value:
    """Join constants before and after each padded axis: the accelerator has no PADV2, and PAD for a batch of 1 only;
    XNNPACK has no PADV2.
    """
    return joined_padding(b, node)


def joined_padding(b: Builder, node: Node, zero: float = 0.0) -> Value:
    """Return the result of a Pad with known amounts by constants that are joined to its operand, axis by axis.

    `zero`: in place of 0.
    """
    x, value, rows = node.operand(0), node.optional(2), static_ints(node.operand(1)) or []
    fill = b.scalar(0, x) if value is None else value
    known = (fill.numpy().reshape(-1)[0] or np.asarray(zero, fill.dtype.numpy)) if fill.is_constant else None
    for axis in range(x.rank):
        sides = []
        for amount in rows[2 * axis : 2 * axis + 2]:
            shape = (*x.shape[:axis], amount, *x.shape[axis + 1 :])
            side = broadcast(b, fill, shape) if known is None else constant(np.full(shape, known))
            sides.append(side if amount else None)
        parts = [part for part in (sides[0], x, sides[1]) if part is not None]
        x = b(ops.Concatenate, *parts, axis=axis) if len(parts) > 1 else x
    return x


_padding_as_int32 = int32_operands(1)


@decompose(ops.Pad, order="axes")
def _pad_merged_axes(b: Builder, node: Node) -> Value | None:
    """Merge unpadded axes, for kernels with a limit on the rank."""
    known = static_ints(node.operand(1))
    if known is None or node.operand(0).tensor_type.shape is None or node.operand(0).rank < 4:
        return None
    rows = np.asarray(known, np.int64).reshape(-1, 2)
    return on_fewer_axes(b, node, rows, (0, 0), partial(_padded_as_one_sample, b, node))


def _padded_as_one_sample(b: Builder, node: Node, x: Value, rows: Array) -> Value:
    """Pad with a first axis of size 1, if `node` has too many axes for a GPU and there is room: it takes no other."""
    if x.rank >= 4 or x.shape[0] == 1 or node.operand(0).rank <= 4:
        return b.remade(node, x, rows, node.optional(2))[0]
    made = b.remade(node, unsqueezed(b, x, [0]), np.concatenate([[(0, 0)], rows]), node.optional(2))[0]
    return reshape(b, made, made.shape[1:], made)


@decompose(ops.Pad)
def _pad_by_index(b: Builder, node: Node) -> Value | None:
    """Modes edge, reflect, symmetric and wrap: gather along each padded axis."""
    x, rows, mode = node.operand(0), node.operand(1), node.attr("mode")
    if mode == "constant" or x.tensor_type.shape is None:
        return None
    known = static_ints(rows)
    for axis in range(x.rank):
        if known is None or any(known[2 * axis : 2 * axis + 2]):
            x = b(ops.Gather, x, _repeated(b, x, rows, axis, mode).value, axis=axis)
    return x


def _repeated(b: Builder, x: Value, rows: Value, axis: int, mode: str) -> Term:
    """Return the positions along `axis` that the padded result reads; cropping comes first."""
    size = Term(b, reshape(b, dim_value(b, x.shape[axis], x), ()))
    before, after = (Term(b, rows).to(DType.INT64).at(axis, 0).at(side, 0) for side in (0, 1))
    places = iota(b, (before + size + after).value)
    if never_negative(rows):
        return _within(Term(b, places) - before, size, mode)
    start, end = (-before).max(0), (-after).max(0)
    return _within(Term(b, places) - before.max(0), size - start - end, mode) + start


def _within(places: Term, size: Term, mode: str) -> Term:
    """Return the position from 0 to `size` - 1 to which each of `places` is mapped."""
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "wrap":
        return places % size
    last = size * 2 - (2 if mode == "reflect" else 1)
    places = places % (last.max(1) if mode == "reflect" else size * 2)
    return places.min(last - places)


@lift_tfl("DILATE")
def _dilate(b: Builder, node: Node) -> Value:
    """Insert the padding value dilations[i] - 1 times between neighbors along axis i."""
    x, value = node.operand(0), reshape(b, node.operand(2), ())
    factors, dilations = named_factors(b, node.operand(1))
    for axis, step in enumerate(dilations):
        x = spread_out(b, x, axis, step, value, factors)
    return x


@lift_tfl("STABLEHLO_PAD")
def _stablehlo_pad(b: Builder, node: Node) -> Value:
    """Interior padding, then padding at the ends; negative amounts crop, also interior and opposite padding."""
    x, value = node.operand(0), node.operand(1)
    x = b(ops.InteriorPad, x, value, interior_padding=tuple(map(int, node.attr("interior_padding"))))
    rows = zip(x.shape, node.attr("edge_padding_low"), node.attr("edge_padding_high"), strict=True)
    amounts = np.asarray([cut_within(*row) for row in rows], np.int64).reshape(-1, 2)
    sizes = [n + sum(row) for n, row in zip(x.shape, amounts.tolist(), strict=True)]
    if min(known_sizes(sizes), default=1) <= 0:
        return b(ops.BroadcastTo, value, [0] * x.rank)  # what the kernel returns if any size is 0
    if any(sum(amounts[axis]) < 0 for axis in open_axes(x.shape)):
        assume(
            f"the result of {shown_name(node)} is not empty (TFLite's empty result has size 0 along every axis)",
            is_minor=True,
        )
    return b(ops.Pad, x, amounts, value)
