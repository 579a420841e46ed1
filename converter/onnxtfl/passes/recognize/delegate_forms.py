"""Forms that TFLite's delegate computes fastest, which one op of ONNX computes.

::

    Reshape(Pad(Reshape(%x: [1, h, w, c]) [1, h, 1, w c]))      ->   Pad(%x)         (`canonical.merged_pads`)
    Conv(Pad(Reshape(%x: [1, h, w, 3]) [1, h, w / 2, 6]))       ->   Conv(%x)        (`canonical.merged_columns`)
    Concatenate(Concatenate(%a, %b), Concatenate(%c, %d))       ->   Concatenate(%a, %b, %c, %d)
    %even and %odd in turn, of sums of %m0, %m1, %m2, %m3       ->   Conv(%x)        (`canonical.row_pairs`)
    Slice(Conv(%x)) of the first rows, without the last one     ->   Conv(%x)        (likewise, odd rows)
    Exp(%x - maximum) / sum of these, along one axis            ->   Softmax(%x)     (`canonical.slow_axes`)
    ArgMax(Transpose(%x)), the other axes in order              ->   ArgMax(%x)      (likewise)
    Mul(%x, ones), which repeats %x                             ->   BroadcastTo(%x)
    MaxPool(MaxPool(%x)) of 5 x 1 and 1 x 5                     ->   MaxPool(%x)     (`canonical.parted_pools`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData
from onnxtfl.ir.dims import Shape, known_size, known_sizes
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use, splat_value, terms_of, with_constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, spatial_sizes, window_attributes
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import dim_vector, reshape, transposed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.spatial import Window
from onnxtfl.passes.canonical.fuse.linear import window_padding
from onnxtfl.rewriting.patterns import Patterns

DELEGATE_FORMS = Patterns()
_COMBINED = (((1, 0, -1), (1, 0)), ((1, 1), (0, 0)), ((-1, 1), (0, 0)), ((-1, 0, 1), (0, 1)))
"""For each product of pairs of rows, the factors of the rows and the padding."""


@DELEGATE_FORMS.on(ops.Reshape, quantized=True)
def pad_of_rows(b: Builder, node: Node) -> Value | None:
    """Reshape(Pad(Reshape(%x)))    ->    Pad(%x), where the last axis of the first Reshape has the last ones of %x."""
    pad = made_by(node.operand(0), ops.Pad, quantized=True)
    rows = None if pad is None else made_by(pad.operand(0), ops.Reshape, quantized=True)
    amounts = None if pad is None else static_ints(pad.operand(1))
    if pad is None or rows is None or amounts is None or rows.operand(0).rank != node.result.rank != 0:
        return None
    x, pairs, merged = rows.operand(0), np.reshape(amounts, (-1, 2)), rows.result.shape
    axis, rank = _merged_axis(x.shape, merged), x.rank
    if axis is None or pad.attr("mode") != "constant":
        return None
    inner = math.prod(known_sizes(x.shape[axis + 1 :]))
    if pairs[axis:-1].any() or (pairs[-1] % inner).any():
        return None
    table = np.zeros((rank, 2), np.int64)
    table[:axis], table[axis] = pairs[:axis], pairs[-1] // inner
    result = b.remade(pad, x, table, *pad.operands[2:])[0]
    return result if result.shape == node.result.shape else None


def _merged_axis(before: Shape, after: Shape) -> int | None:
    """The last axis of `before` that is merged with those after it to the last axis of `after`, of as many axes."""
    rank = len(before)
    for axis in range(rank - 2, -1, -1):
        sizes, ones = known_sizes(before[axis:]), (1,) * (rank - axis - 1)
        if len(sizes) == rank - axis and 0 not in sizes and after == (*before[:axis], *ones, math.prod(sizes)):
            return axis
    return None


@DELEGATE_FORMS.on(ops.Concatenate, quantized=True)
def concatenation_in_groups(b: Builder, node: Node) -> Value | None:
    """Concatenate the parts of groups that nothing else reads, along the same axis."""
    parts, axis = list[Value](), normalize_axis(node.attr("axis"), node.result.rank)
    for value in filter(None, node.operands):
        group = made_by(value, ops.Concatenate, quantized=True) if single_use(value, b.graph) else None
        is_along = group is not None and normalize_axis(group.attr("axis"), value.rank) == axis
        is_stored_alike = value.tensor_type.quantization == node.result.tensor_type.quantization
        parts += group.present_operands if group and is_along and is_stored_alike else [value]
    return b.remade(node, *parts)[0] if len(parts) > len(node.operands) else None


@DELEGATE_FORMS.on(ops.Conv, quantized=True)
def columns_of_features(b: Builder, node: Node) -> Value | None:
    """Read the columns that are merged as features one by one; zero taps at both ends are left out."""
    kernel, quantization = node.operand(1), quantization_of(node.operand(1))
    found = _merged_columns(node)
    if found is None or kernel.data is None or quantization is None or quantization.block is not None:
        return None
    x, count, window = found
    stored = kernel.data.numpy()
    zeros = quantization.along(np.asarray(quantization.zero_points, stored.dtype), 4)
    taps = stored.reshape(*stored.shape[:2], stored.shape[2] * count, stored.shape[3] // count)
    used = np.flatnonzero((taps != zeros).any(axis=(0, 1, 3)))
    if not used.size:
        return None
    first, last = int(used[0]), int(used[-1]) + 1
    x, added = _before_pad(x)
    amounts = np.multiply(window.explicit_padding, (1, count, 1, count)) + added
    amounts -= (0, first, 0, taps.shape[2] - last)
    taps = np.ascontiguousarray(taps[:, :, first:last])
    strides, ones = (window.strides[0], window.strides[1] * count), (window.dilations[0], 1)
    part = Window.of((window.shape[0], last - first), strides, ones, tuple(amounts.tolist()))
    weights = constant(ArrayData(taps), type_=kernel.tensor_type.with_shape(taps.shape))
    return b.remade(node, x, weights, *node.operands[2:], **window_attributes(part))[0]


def _merged_columns(node: Node) -> tuple[Value, int, Window] | None:
    """Images channels last, how many of their columns are features, and the window with all padding."""
    attributes, x = attributes_of(node), node.operand(0)
    is_last = attributes["input_feature_dimension"] == attributes["kernel_input_feature_dimension"] == 3
    is_image = attributes["input_spatial_dimensions"] == attributes["kernel_spatial_dimensions"] == (1, 2)
    merged, added = _before_pad(x)
    split = made_by(merged, ops.Reshape, quantized=True)
    if not is_last or not is_image or attributes["feature_group_count"] != 1 or split is None:
        return None
    before, after = split.operand(0).tensor_type.shape, merged.shape
    sizes = None if before is None else (*before[2:], *after[2:])
    if (
        before is None
        or len(before) != 4
        or before[:2] != after[:2]
        or not all(isinstance(n, int) for n in sizes or ())
    ):
        return None
    window = conv_window(attributes, node.operand(1).shape).explicit(spatial_sizes(attributes, "input", x.shape))
    count = int(before[2] // after[2]) if after[2] else 0
    if count < 2 or before[2] != count * after[2] or window.dilations[1] != 1:
        return None
    amounts = tuple(np.add(window.explicit_padding, added).tolist())
    return split.operand(0), count, Window.of(window.shape, window.strides, window.dilations, amounts)


def _before_pad(x: Value) -> tuple[Value, Array]:
    """The operand of the Pad of images with zeros that makes `x`, and its amounts; else `x`."""
    pad = made_by(x, ops.Pad, quantized=True)
    is_zero = pad is not None and (pad.optional(2) is None or splat_value(pad.operand(2)) == 0)
    amounts = window_padding(pad, (1, 2)) if pad is not None and is_zero else None
    return (x, np.zeros(4, np.int64)) if pad is None or amounts is None else (pad.operand(0), amounts)


@dataclass(frozen=True, eq=False)
class Product:
    """A product of pairs of rows: the convolution, its window, and the convolution that combines rows."""

    node: Node
    window: Window
    rows: Node

    @classmethod
    def of(cls, value: Value) -> Product | None:
        """Return the product that makes `value`, else None."""
        node = made_by(value, ops.Conv)
        rows = None if node is None else made_by(node.operand(0), ops.Conv)
        if node is None or rows is None or not node.operand(1).is_constant or not rows.operand(1).is_constant:
            return None
        attributes, x = attributes_of(node), node.operand(0)
        window = conv_window(attributes, node.operand(1).shape)
        sizes = spatial_sizes(attributes, "input", x.shape)
        return cls(node, window.explicit(sizes), rows) if x.is_static else None

    def size(self, axis: int) -> int:
        """The number of rows that are combined, along a spatial axis."""
        return known_size(spatial_sizes(attributes_of(self.rows), "input", self.rows.operand(0).shape)[axis])

    def combines(self, factors: Sequence[int], padding: Sequence[int], axis: int, more: int) -> bool:
        """Whether this one multiplies the sum of rows times `factors`, along `axis`, with `more` padding after it."""
        attributes, kernel = attributes_of(self.rows), self.rows.operand(1)
        window = conv_window(attributes, kernel.shape)
        sizes, strides, amounts = [1] * window.rank, [1] * window.rank, [0] * 2 * window.rank
        sizes[axis], strides[axis] = len(factors), 2
        amounts[axis], amounts[window.rank + axis] = padding[0], padding[1] + more
        wanted = Window.of(tuple(sizes), tuple(strides), (1,) * window.rank, tuple(amounts))
        features = self.rows.operand(0).shape[attributes["input_feature_dimension"]]
        if window != wanted or attributes["feature_group_count"] != features or not _no_bias(self.rows):
            return False
        shape = [1] * kernel.rank
        shape[attributes["kernel_spatial_dimensions"][axis]] = len(factors)
        return bool((kernel.numpy() == np.reshape(factors, shape)).all())


def _no_bias(node: Node) -> bool:
    bias = node.optional(2)
    return bias is None or (bias.is_constant and not bias.numpy().any())


@DELEGATE_FORMS.on(ops.Reshape)
def merged_before_transposed(b: Builder, node: Node) -> Value | None:
    """Merge the axes of two joined values before these are transposed, if they are adjacent there too::

    Reshape(Transpose(Concatenate(%x, %y)))    ->    Transpose(Reshape(Concatenate(%x, %y)))
    """
    turn = made_by(node.operand(0), ops.Transpose)
    joined = None if turn is None else made_by(turn.operand(0), ops.Concatenate)
    if turn is None or joined is None or len(joined.operands) != 2 or not turn.result.is_static:
        return None
    before, after, order = turn.result.shape, node.result.shape, turn.attr("permutation")
    for axis, (first, second) in enumerate(pairwise(order)):
        merged = (*before[:axis], before[axis] * before[axis + 1], *before[axis + 2 :])
        if second == first + 1 and after == merged:
            shape = list(joined.result.shape)
            shape[first : first + 2] = [shape[first] * shape[second]]
            moved = [place - (place > first) for place in order if place != second]
            return transposed(b, reshape(b, joined.result, shape), moved)
    return None


@DELEGATE_FORMS.on(ops.Reshape)
def pairs_of_rows(b: Builder, node: Node) -> Value | None:
    """The convolution of which the positions along an axis are computed in pairs."""
    found = _in_turn(node)
    if found is None:
        return None
    even, odd, place = found
    products = _products(even, odd)
    if products is None:
        return None
    center = products[1].node
    spatial = center.attr("output_spatial_dimensions")
    if place not in spatial or any(p.rows.operand(0) is not products[0].rows.operand(0) for p in products):
        return None
    axis = spatial.index(place)
    more = 2 * even.size(place) - products[1].size(axis)  # a row of padding that completes the last pair
    each = zip(products, _COMBINED, strict=True)
    if not all(p.combines(factors, padding, axis, more) for p, (factors, padding) in each):
        return None
    if not _are_alike(products) or not all(_no_bias(p.node) for i, p in enumerate(products) if i != 1):
        return None
    kernel = _kernel(products, axis)
    return None if kernel is None else _direct(b, products, axis, kernel, more)


@DELEGATE_FORMS.on(ops.Slice)
def first_positions(b: Builder, node: Node) -> Value | None:
    """A Conv that nothing else reads computes the first positions only: it has less padding at the end."""
    convolution, starts, strides = made_by(node.operand(0), ops.Conv), *map(static_ints, node.operands[1::2])
    if convolution is None or not single_use(node.operand(0), b.graph) or starts is None or strides is None:
        return None
    if any(starts) or set(strides) != {1} or not node.result.is_static:
        return None
    attributes, whole = attributes_of(convolution), convolution.result
    if not whole.is_static or not convolution.operand(0).is_static:
        return None
    left = np.subtract(known_sizes(whole.shape), known_sizes(node.result.shape))
    spatial = list(attributes["output_spatial_dimensions"])
    sizes = spatial_sizes(attributes, "input", convolution.operand(0).shape)
    window = conv_window(attributes, convolution.operand(1).shape).explicit(sizes)
    amounts = np.array(window.explicit_padding)
    amounts[window.rank :] -= left[spatial] * window.strides
    if left.sum() != left[spatial].sum() or (amounts < 0).any():
        return None
    part = Window.of(window.shape, window.strides, window.dilations, tuple(amounts.tolist()))
    result = b.remade(convolution, *convolution.operands, **window_attributes(part))[0]
    return result if result.shape == node.result.shape else None


def _in_turn(node: Node) -> tuple[Value, Value, int] | None:
    """Values whose positions along an axis are in turn in the result, and the axis.

    They are joined along the axis after it, or along one between both, of size 1; one sample may have no axis then.
    """
    joined = made_by(node.operand(0), ops.Concatenate)
    if joined is None or len(joined.operands) != 2:
        return None
    first, second = (_without_unit_axis(v, joined.attr("axis")) for v in joined.operands)
    if first is None or second is None or first.shape != second.shape or not first.is_static:
        return None
    lacks_batch = first is not joined.operand(0) and first.rank == joined.result.rank
    axis = joined.attr("axis") - 1 + lacks_batch
    if axis < 0:
        return None
    whole = (*first.shape[:axis], 2 * first.shape[axis], *first.shape[axis + 1 :])
    return (first, second, axis) if node.result.shape == whole else None


def _without_unit_axis(value: Value | None, axis: int) -> Value | None:
    """`value` without this axis, or the one sample of which it is a reshape with the axis in place of the first."""
    made = made_by(value, ops.Reshape)
    if value is None or made is None or value.tensor_type.shape is None or made.operand(0).tensor_type.shape is None:
        return value
    shape, before = (*value.shape[:axis], *value.shape[axis + 1 :]), made.operand(0).shape
    return made.operand(0) if value.shape[axis] == 1 and before in (shape, (1, *shape)) else value


def _products(even: Value, odd: Value) -> list[Product] | None:
    """%m0, %m1, %m2, %m3 of %m0 + %m1 + %m2 and %m1 - %m2 + %m3."""
    terms, total = terms_of(even), made_by(odd, ops.Add)
    if total is None or len(terms) != 3:
        return None
    differences = [made_by(v, ops.Sub) for v in (total.operand(0), total.operand(1))]
    place = 0 if differences[0] is not None else 1
    difference = differences[place]
    if difference is None:
        return None
    m1, m2, m3 = difference.operand(0), difference.operand(1), total.operand(1 - place)
    first = [v for v in terms if v is not m1 and v is not m2]
    if len(first) != 1:
        return None
    found = [Product.of(v) for v in (first[0], m1, m2, m3)]
    products = [p for p in found if p is not None]
    return products if len(products) == 4 else None


def _are_alike(products: Sequence[Product]) -> bool:
    """Whether the products differ in their operands only."""
    numbers = [{k: v for k, v in attributes_of(p.node).items() if k != "padding"} for p in products]
    return all(n == numbers[0] and p.window == products[0].window for n, p in zip(numbers, products, strict=True))


def _kernel(products: Sequence[Product], axis: int) -> Value | None:
    """The kernel of three taps; None if the kernels of the products are not computed from one."""
    first, total, difference, last = (p.node.operand(1) for p in products)
    ends: list[Array] = [v.numpy() for v in (first, last)]
    sums: Array = total.numpy() + difference.numpy()
    if np.abs(sums - ends[0] - ends[1]).max() > 1e-5 * max(np.abs(sums).max(), *(np.abs(e).max() for e in ends)):
        return None
    place = products[0].node.attr("kernel_spatial_dimensions")[axis]
    return constant(np.concatenate([ends[0], total.numpy() - difference.numpy(), ends[1]], axis=place))


def _direct(b: Builder, products: Sequence[Product], axis: int, kernel: Value, more: int) -> Value:
    window, center = products[1].window, products[1].node
    amounts, sizes = list(window.explicit_padding), list(window.shape)
    amounts[axis], amounts[window.rank + axis] = 1, 1 + more
    sizes[axis] = 3
    whole = Window.of(tuple(sizes), window.strides, window.dilations, tuple(amounts))
    attributes = {**attributes_of(center), **window_attributes(whole)}
    return b(ops.Conv, products[0].rows.operand(0), kernel, *center.operands[2:], **attributes)


@DELEGATE_FORMS.on(ops.Div)
def softmax_by_formula(b: Builder, node: Node) -> Value | None:
    """Exp(%x - Reduce(%x) {kind = "max"}) / Reduce(Exp(..)) {kind = "sum"}    ->    Softmax(%x)"""
    powers = made_by(node.operand(0), ops.Exp)
    shifted = made_by(powers.operand(0), ops.Sub) if powers is not None else None
    if powers is None or shifted is None:
        return None
    x = shifted.operand(0)
    axis = _reduced_axis(shifted.operand(1), "max", x)
    is_softmax = axis is not None and axis == _reduced_axis(node.operand(1), "sum", powers.result)
    return b(ops.Softmax, x, axis=axis) if is_softmax else None


@DELEGATE_FORMS.on(ops.ArgMax, ops.ArgMin, quantized=True)
def arg_before_transpose(b: Builder, node: Node) -> Value | None:
    """ArgMax(Transpose(%x))    ->    ArgMax(%x) along the axis that is moved, if the others stay in order."""
    moved = made_by(node.operand(0), ops.Transpose, quantized=True)
    if moved is None or not single_use(moved.result, b.graph) or node.attr("keepdims"):
        return None
    order = list(moved.attr("permutation"))
    axis = order.pop(normalize_axis(node.attr("axis"), len(order)))
    return b.remade(node, moved.operand(0), axis=axis)[0] if order == sorted(order) else None


def _reduced_axis(value: Value, kind: str, x: Value) -> int | None:
    """The only axis along which `value` is the reduction of `x` by `kind`; None for others."""
    made = made_by(value, ops.Reduce)
    if made is None or made.operand(0) is not x or made.attr("kind") != kind or not made.attr("keepdims"):
        return None
    axes = reduced_axes(made)
    return axes[0] if axes is not None and len(axes) == 1 else None


@DELEGATE_FORMS.on(ops.Mul)
def repeated_by_ones(b: Builder, node: Node) -> Value | None:
    """Mul(%x, ones)    ->    BroadcastTo(%x), where the result has more elements than %x."""
    parts = with_constant(node)
    is_repeated = parts is not None and node.result.is_static and parts[0].type != node.result.type
    if parts is None or not is_repeated or splat_value(parts[1]) != 1:
        return None
    return b(ops.BroadcastTo, parts[0], dim_vector(b, node.result.shape))


@DELEGATE_FORMS.on(ops.MaxPool, quantized=True)
def window_of_both_axes(b: Builder, node: Node) -> Value | None:
    """MaxPool(MaxPool(%x)), where either window has one element along each axis of the other    ->    MaxPool(%x)."""
    inner = made_by(node.operand(0), ops.MaxPool, quantized=True)
    if inner is None or not single_use(inner.result, b.graph) or inner.attr("dims") != node.attr("dims"):
        return None
    windows = [ops.pool_window(pool.attributes) for pool in (inner, node)]
    quantizations = [pool.operand(0).tensor_type.quantization for pool in (inner, node)]
    if any(pool.attr("return_indices") for pool in (inner, node)) or quantizations[0] != quantizations[1]:
        return None
    axes = range(windows[0].rank)
    used = [[axis for axis in axes if not _is_unit(window.along([axis]))] for window in windows]
    if not all(used) or {*used[0]} & {*used[1]} or windows[0].is_same != windows[1].is_same:
        return None
    chosen = [windows[axis in used[1]].along([axis]) for axis in axes]
    shape, strides, dilations = (
        [side for part in chosen for side in getattr(part, name)] for name in ("shape", "strides", "dilations")
    )
    padding = windows[0].padding
    if not windows[0].is_same:
        padding = tuple(p for side in ("before", "after") for part in chosen for p in getattr(part, side))
    whole = Window.of(shape, strides, dilations, padding)
    return b.remade(node, inner.operand(0), **ops.pool_attributes(whole, node.attr("dims")))[0]


def _is_unit(window: Window) -> bool:
    """Whether a window has one element at each position."""
    return window.shape == window.strides == (1,) and not (window.is_padded and not window.is_same)
