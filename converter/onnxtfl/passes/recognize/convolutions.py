"""Convolutions and pools in ONNX's form: over any number of axes, channels first, with any padding.

Spatial axes of size 1 are removed::

    %r = Reshape(%x: 1x8x9) [1, 8, 1, 9]              %c = Conv(%x, %k: 4x8x3)
    %c = Conv(%r, %k: 4x8x1x3) over two axes    ->    %y = Reshape(%c) [1, 4, 1, 7]

The reshape after it sinks (see :mod:`onnxtfl.passes.canonical.unit_axes`) until another reshape cancels it.
A reshape that only moves unit axes becomes another axis order; separate padding is fused into pools::

    Conv(Reshape(%x: 1x1x49x10) [1, 49, 10, 1]) channels last         ->   Conv(%x) channels first
    AveragePool(Pad(%x) with 0)    MaxPool(Pad(%x) with -infinity)    ->   the pool with padding
    BatchToSpace(Conv(SpaceToBatch(%x)))                              ->   Conv(%x) dilated
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use, splat_value
from onnxtfl.ir.op import Elementwise, attributes_of
from onnxtfl.ir.ops.convolution import conv_window, renumbered, window_attributes
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import rank_of
from onnxtfl.passes.canonical.fuse.linear import window_padding
from onnxtfl.passes.canonical.unit_axes import UnitReshape
from onnxtfl.rewriting.patterns import Patterns

CONVOLUTIONS = Patterns()
_SIDES = ("input", "kernel", "output")


@CONVOLUTIONS.on(ops.Conv, ops.ConvTranspose)
def conv_over_fewer(b: Builder, node: Node) -> Value | None:
    """Remove a spatial axis of size 1 over which the kernel has size 1."""
    attributes, x, kernel = attributes_of(node), node.operand(0), node.operand(1)
    dims = [attributes[f"{side}_spatial_dimensions"] for side in _SIDES]
    if len(dims[0]) < 2 or not _pays(node):
        return None
    window = conv_window(attributes, kernel.shape)
    i = _single_axis(window, (x, dims[0]), (node.result, dims[2]))
    if i is None:
        return None
    changed = window_attributes(window.along(_without(range(window.rank), i)))
    for side, axes in zip(_SIDES, dims, strict=True):
        rest = {**attributes, f"{side}_spatial_dimensions": _without(axes, i)}
        changed |= renumbered(rest, side, (*_without(range(x.rank), axes[i]), axes[i]))
    operands = (_dropped(b, v, axes[i]) for v, axes in zip((x, kernel), dims, strict=False))
    result = b(node.op, *operands, node.optional(2), **{**attributes, **changed})
    return reshape(b, result, node.result.shape, x)


@CONVOLUTIONS.on(ops.MaxPool, ops.AveragePool)
def pool_over_fewer(b: Builder, node: Node) -> Value | None:
    """Remove a spatial axis of size 1 over which the window has size 1."""
    x, window, dims = node.operand(0), ops.pool_window(attributes_of(node)), node.attr("dims")
    if window.rank < 2 or len(node.results) > 1 or not _pays(node):
        return None
    i = _single_axis(window, (x, dims), (node.result, dims))
    if i is None:
        return None
    rest = [a - (a > dims[i]) for a in _without(dims, i)]
    changed = ops.pool_attributes(window.along(_without(range(window.rank), i)), rest)
    result = b(node.op, _dropped(b, x, dims[i]), **{**node.attributes, **changed})
    return reshape(b, result, node.result.shape, x)


def _single_axis(window: Window, *tensors: tuple[Value, Sequence[int]]) -> int | None:
    """Return the first spatial axis of size 1 in the window and in all `tensors`, each with its spatial axes."""
    for i, size in enumerate(window.shape):
        alone = size == 1 and all(v.shape[axes[i]] == 1 for v, axes in tensors)
        if alone and not window.along([i]).explicit([1]).is_padded:
            return i
    return None


@CONVOLUTIONS.on(ops.Conv, ops.ConvTranspose)
def other_order(b: Builder, node: Node) -> Value | None:
    """Replace a reshape that only moves unit axes by renumbered axes."""
    found = _moved_units(node.operand(0))
    if found is None:
        return None
    source, order = found
    permuted = node.op.permuted(node, 0, inverse(order))
    if permuted is None:
        return None
    changed = {name: value for name, value in permuted.attributes.items() if name.startswith("input_")}
    return b(node.op, source, *node.operands[1:], **{**node.attributes, **changed})


def _moved_units(value: Value) -> tuple[Value, tuple[int, ...]] | None:
    """Return the operand of a reshape that only moves unit axes, and the equivalent permutation."""
    move = UnitReshape.of(value)
    if move is None or len(move.before) != len(move.after):
        return None
    units = iter(i for i in range(len(move.before)) if i not in move.place.values())
    return move.source, tuple(move.place[i] if i in move.place else next(units) for i in range(len(move.after)))


@CONVOLUTIONS.on(ops.AveragePool, ops.MaxPool)
def pad_into_pool(b: Builder, node: Node) -> Value | None:
    """Fuse a Pad with 0 into an average that counts padding, or one with a lower bound into a maximum."""
    pad, dims = made_by(node.operand(0), ops.Pad), node.attr("dims")
    padding = window_padding(pad, dims) if pad is not None else None
    if pad is None or padding is None or len(node.results) > 1:
        return None
    if any(node.attr("padding")):
        return None
    if (padding >= node.attr("kernel_shape") * 2).any():
        return None
    number = 0.0 if pad.optional(2) is None else splat_value(pad.operand(2))
    if not _pads_alike(node, pad.operand(0), number):
        return None
    counts = {"count_include_pad": True} if node.op is ops.AveragePool else {}
    return b(node.op, pad.operand(0), **{**node.attributes, **counts, "padding": tuple(padding.tolist())})


def _pads_alike(node: Node, x: Value, number: float | None) -> bool:
    """Whether padding with `number` equals the pool's padding."""
    if number is None or node.op is ops.AveragePool:
        return number == 0.0
    return number <= float(np.finfo(np.float32).min) or (number <= 0 and never_negative(x))


@CONVOLUTIONS.on(ops.BatchToSpace)
def dilated(b: Builder, node: Node) -> Value | None:
    """Replace a convolution of all phases of the input by a dilated one; elementwise ops between them move after it."""
    conv = made_by(node.operand(0))
    if conv is not None and issubclass(conv.op, Elementwise):
        return _elementwise_after(b, node, conv)
    phases = made_by(conv.operand(0), ops.SpaceToBatch) if conv is not None and conv.op is ops.Conv else None
    blocks, rank = node.attr("blocks"), len(node.attr("blocks"))
    if conv is None or phases is None or phases.attr("blocks") != blocks or not single_use(conv.result, b.graph):
        return None
    attributes, places = attributes_of(conv), tuple(range(1, rank + 1))
    plain = {
        **{f"{side}_spatial_dimensions": places for side in ("input", "output")},
        **{f"{side}_batch_dimension": 0 for side in ("input", "output")},
        "padding": (0,) * (2 * rank),
        "window_strides": (1,) * rank,
    }
    if any(attributes[name] != value for name, value in plain.items()):
        return None
    added, cut = (ops.block_amounts(v, blocks) for v in (phases.operand(1), node.operand(1)))
    padding = [p - c for side in (1, 2) for p, c in ((a[side], z[side]) for a, z in zip(added, cut, strict=True))]
    if not is_static(padding) or min(padding) < 0:
        return None
    dilation = tuple(d * block for d, block in zip(attributes["rhs_dilation"], blocks, strict=True))
    changed = {**attributes, "padding": tuple(padding), "rhs_dilation": dilation}
    result = b(ops.Conv, phases.operand(0), *conv.operands[1:], **changed)
    result.type = node.result.type
    return result


def _elementwise_after(b: Builder, node: Node, inner: Node) -> Value | None:
    """Move an elementwise op, whose constants vary only along the last axis, after the BatchToSpace."""
    varying = [v for v in inner.present_operands if not v.is_constant]
    constants = [v for v in inner.present_operands if v.data is not None]
    last = inner.result.rank - 1
    small = all(len(v.data.shape) <= 1 or set(v.data.shape[:-1]) == {1} for v in constants if v.data is not None)
    if len(varying) != 1 or not small or last <= len(node.attr("blocks")) or not single_use(inner.result, b.graph):
        return None
    if varying[0].tensor_type.shape != inner.result.tensor_type.shape:
        return None
    back = b(ops.BatchToSpace, varying[0], node.operand(1), **node.attributes)
    return b(inner.op, *(back if v is varying[0] else v for v in inner.operands), **inner.attributes)


def _pays(node: Node) -> bool:
    """Whether a reshape inserts an axis before `node` or removes one after it."""
    inserted = made_by(node.operand(0), ops.Reshape)
    if inserted is not None and _rank(inserted.operand(0)) < _rank(node.operand(0)):
        return True
    users = node.results[0].users()
    return bool(users) and all(u.op is ops.Reshape and _rank(u.result) < _rank(node.results[0]) for u in users)


def _rank(value: Value) -> int:
    known = rank_of(value.type)
    return 99 if known is None else known


def _without(numbers: Sequence[int], i: int) -> tuple[int, ...]:
    return (*numbers[:i], *numbers[i + 1 :])


def _dropped(b: Builder, x: Value, axis: int) -> Value:
    return reshape(b, x, _without(x.shape, axis))
