"""Sums of convolutions of parts of one value, which are one convolution of it (`canonical.parted_convolutions`).

::

    Add(Conv(%x[..., :512], %k), Conv(%x[..., 512:], %m))       ->   Conv(%x, %k and %m)
    Add(Conv(%x, %k), Pad(Conv(%x[:2], %m), 12 rows before))    ->   Conv(%x, %m and %k), dilation 12

The parts are joined in pairs: those of which only the input features differ, or only the taps along one axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, single_use, splat_value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.spatial import Window
from onnxtfl.passes.canonical.fuse.linear import window_padding
from onnxtfl.rewriting.patterns import Patterns

CONVOLUTION_PARTS = Patterns()
Ranges = tuple[range, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A convolution of the positions `read` of `source`, one range for each axis.

    `written`: the positions of its results in the sum along each spatial axis. `taps`: for each axis of the kernel, the
    features, or the position of `source` that a tap reads at position 0 of the sum.
    """

    node: Node
    source: Value
    read: Ranges
    written: Ranges
    taps: Ranges

    @classmethod
    def of(cls, value: Value, graph: Graph) -> Part | None:
        """The convolution that makes `value`, alone or with a Pad; None for other values and dynamic sizes."""
        pad = made_by(value, ops.Pad)
        node = made_by(value if pad is None else pad.operand(0), ops.Conv)
        if node is None or not all(single_use(v, graph) for v in (value, node.result)):
            return None
        x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
        if not (x.is_static and value.is_static and kernel.is_static):
            return None
        before = zeros_before(pad, attributes["output_spatial_dimensions"])
        if attributes["feature_group_count"] != 1 or before is None or (pad is not None and not _has_no_bias(node)):
            return None
        source, read = part_of(x)
        counts = spatial_sizes(attributes, "output", node.result.shape)
        written = tuple(range(start, start + count) for start, count in zip(before, counts, strict=True))
        return cls(node, source, read, written, _taps(node, read, before))


def zeros_before(pad: Node | None, axes: Sequence[int]) -> Sequence[int] | None:
    """The zeros that a Pad adds before each of these axes; None if it adds other elements."""
    if pad is None:
        return [0] * len(axes)
    amounts = window_padding(pad, axes)
    is_zero = pad.optional(2) is None or splat_value(pad.operand(2)) == 0
    return None if amounts is None or not is_zero else amounts[: len(axes)].tolist()


def _has_no_bias(node: Node) -> bool:
    return node.optional(2) is None or splat_value(node.operand(2)) == 0


def part_of(value: Value) -> tuple[Value, Ranges]:
    """The value of which `value` is a part, and the positions along each axis."""
    read = tuple(map(range, value.shape))
    while (found := _sliced(value)) is not None:
        value, starts = found
        read = tuple(range(r.start + n, r.stop + n) for r, n in zip(read, starts, strict=True))
    return value, read


def _sliced(value: Value) -> tuple[Value, Sequence[int]] | None:
    """The operand of the Slice or Split that makes `value`, and where it starts along each axis."""
    node = made_by(value, ops.Slice, ops.Split)
    if node is None or not node.operand(0).is_static:
        return None
    x = node.operand(0)
    if node.op is ops.Split:
        axis = normalize_axis(node.attr("axis"), x.rank)
        before = node.results[: node.results.index(value)]
        return x, [sum(r.shape[axis] for r in before) if i == axis else 0 for i in range(x.rank)]
    starts, strides = static_ints(node.operand(1)), static_ints(node.operand(3))
    if starts is None or strides is None or {*strides} != {1}:
        return None
    return x, [min(start + size if start < 0 else start, size) for start, size in zip(starts, x.shape, strict=True)]


def _taps(node: Node, read: Ranges, before: Sequence[int]) -> Ranges:
    attributes, kernel = attributes_of(node), node.operand(1).shape
    window = conv_window(attributes, kernel).explicit(spatial_sizes(attributes, "input", node.operand(0).shape))
    taps = list(map(range, kernel))
    taps[attributes["kernel_input_feature_dimension"]] = read[attributes["input_feature_dimension"]]
    spatial = zip(attributes["kernel_spatial_dimensions"], attributes["input_spatial_dimensions"], strict=True)
    for axis, (place, of_x) in enumerate(spatial):
        step = window.dilations[axis] if window.shape[axis] > 1 else 1
        first = read[of_x].start - before[axis] * window.strides[axis] - window.before[axis]
        taps[place] = range(first, first + step * window.shape[axis], step)
    return tuple(taps)


@CONVOLUTION_PARTS.on(ops.Add)
def parts_of_a_convolution(b: Builder, node: Node) -> Value | None:
    """Join two parts whose kernels differ along one axis."""
    parts = [part for value in node.present_operands if (part := Part.of(value, b.graph)) is not None]
    if len(parts) != 2 or parts[0].source is not parts[1].source or not _are_alike(node, parts):
        return None
    places = [axis for axis, (one, other) in enumerate(zip(*(p.taps for p in parts), strict=True)) if one != other]
    if len(places) != 1:
        return None
    first, last = sorted(parts, key=lambda part: part.taps[places[0]].start)
    joined = _progression([*first.taps[places[0]], *last.taps[places[0]]])
    if joined is None:
        return None
    taps = tuple(joined if axis == places[0] else r for axis, r in enumerate(first.taps))
    both = zip(first.read, last.read, strict=True)
    read = tuple(range(min(r.start for r in each), max(r.stop for r in each)) for each in both)
    if not all(_reads_all(node, part, read) for part in parts):
        return None
    kernel = b(ops.Concatenate, first.node.operand(1), last.node.operand(1), axis=places[0])
    return _whole(b, node, parts, kernel, taps, read)


def _are_alike(node: Node, parts: Sequence[Part]) -> bool:
    """Whether the parts differ in their operands and windows only; the operands of the sum have equal shapes."""
    one, other = (
        {name: value for name, value in attributes_of(p.node).items() if name not in ("padding", "rhs_dilation")}
        for p in parts
    )
    return one == other and len({v.shape for v in node.present_operands}) == 1


def _progression(positions: Sequence[int]) -> range | None:
    """Ascending positions as a range; None if they are not evenly spaced."""
    steps = {b - a for a, b in itertools.pairwise(positions)}
    step = min(steps)
    return range(positions[0], positions[-1] + step, step) if len(steps) == 1 and step > 0 else None


def _reads_all(node: Node, part: Part, read: Ranges) -> bool:
    """Whether a part multiplies all elements in `read` that its taps read at any position of the sum, for each axis."""
    attributes = attributes_of(part.node)
    names = ("output_spatial_dimensions", "input_spatial_dimensions", "kernel_spatial_dimensions", "window_strides")
    for axis, (place, of_x, of_kernel, stride) in enumerate(zip(*(attributes[name] for name in names), strict=True)):
        positions = np.arange(node.result.shape[place])[:, None]
        elements = positions * stride + np.asarray(part.taps[of_kernel])
        multiplied = _inside(positions, part.written[axis]) & _inside(elements, part.read[of_x])
        if not np.array_equal(multiplied, _inside(elements, read[of_x])):
            return False
    batch = attributes["input_batch_dimension"]
    return bool(part.read[batch] == read[batch])


def _inside(positions: np.ndarray, bounds: range) -> np.ndarray:
    return (positions >= bounds.start) & (positions < bounds.stop)


def _whole(b: Builder, node: Node, parts: Sequence[Part], kernel: Value, taps: Ranges, read: Ranges) -> Value | None:
    """The convolution of both parts; None if its window would begin or end inside what is read."""
    attributes, before, after = attributes_of(parts[0].node), list[int](), list[int]()
    places = [taps[axis] for axis in attributes["kernel_spatial_dimensions"]]
    bounds = [read[axis] for axis in attributes["input_spatial_dimensions"]]
    counts = spatial_sizes(attributes, "output", node.result.shape)
    strides = attributes["window_strides"]
    for positions, bound, count, stride in zip(places, bounds, counts, strides, strict=True):
        before.append(bound.start - positions[0])
        after.append(positions[-1] + (count - 1) * stride + 1 - bound.stop)
    if min(*before, *after) < 0:
        return None
    steps = tuple(positions.step for positions in places)
    window = Window.of(tuple(map(len, places)), strides, steps, (*before, *after))
    x = slice_axes(b, parts[0].source, {axis: slice(r.start, r.stop) for axis, r in enumerate(read)})
    biases = [part.node.operand(2) for part in parts if not _has_no_bias(part.node)]
    bias = biases[0] if len(biases) == 1 else b(ops.Add, *biases) if biases else None
    return b(ops.Conv, x, kernel, bias, **{**attributes, **window_attributes(window)})
