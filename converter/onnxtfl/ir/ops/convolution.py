"""Conv, and the dimension numbers that it shares with ConvTranspose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import half
from onnxtfl.ir.attributes import Attribute, Axes, Axis, Integer, Integers, Padding
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, indivisible, is_static, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.divisions import Division, Part, along, at
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import NUMERIC, Attributes, Op, Operand, Permutation, Permuted, attributes_of
from onnxtfl.ir.permutations import physical_axes, unless_identity
from onnxtfl.ir.spatial import Window

DIMENSIONS: dict[str, Attribute] = {
    "input_batch_dimension": Axis(0),
    "input_feature_dimension": Axis(1),
    "input_spatial_dimensions": Axes(),
    "kernel_input_feature_dimension": Axis(1),
    "kernel_output_feature_dimension": Axis(0),
    "kernel_spatial_dimensions": Axes(),
    "output_batch_dimension": Axis(0),
    "output_feature_dimension": Axis(1),
    "output_spatial_dimensions": Axes(),
    "window_strides": Integers(),
    "padding": Integers(),
    "rhs_dilation": Integers(),
    "feature_group_count": Integer(1),
}


class Convolution(Op, register=False):
    """The base of Conv and ConvTranspose: dimension numbers, and how they are renumbered."""

    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("input", NUMERIC),
        Operand("kernel", NUMERIC, like="input"),
        Operand("bias", NUMERIC, optional=True),
    )

    typed = True
    widens = True

    @classmethod
    def shape(cls, x: Value, w: Value, *others: Value | None, **attributes: Any) -> Dims:
        rank = len(attributes["output_spatial_dimensions"])
        if x.rank != rank + 2 or w.rank != rank + 2:
            raise ValueError(f"input of rank {x.rank}, kernel of rank {w.rank}, {rank} spatial axes")
        result = cls.output_shape(attributes, x.shape, w.shape)
        if others and others[0] is not None:
            _check_bias(others[0], result[attributes["output_feature_dimension"]])
        return result

    @classmethod
    def output_shape(cls, attributes: Attributes, x: Dims, w: Dims) -> Dims:
        """The shape of the result."""
        raise NotImplementedError

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
        """Samples, and features unless there are groups."""
        x, w, bias = operands
        assert x is not None and w is not None
        batch, place = attributes["input_batch_dimension"], attributes["kernel_output_feature_dimension"]
        yield along(attributes["output_batch_dimension"], x.shape[batch], (batch, None, None))
        if attributes["feature_group_count"] == 1:
            flat = None if bias is None else int(np.argmax(bias.shape))
            yield along(attributes["output_feature_dimension"], w.shape[place], (None, place, flat))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """Input and result are permuted together, the kernel independently, the bias never."""
        attributes = attributes_of(node)
        if index > 1:
            return None
        rest: tuple[Permutation | None, ...] = (None,) * (len(node.operands) - 2)
        if index == 1:
            operands = (None, unless_identity(permutation), *rest)
            return Permuted(operands, (None,), renumbered(attributes, "kernel", permutation))
        order = [_roles(attributes, "input" if index == 0 else "output").index(axis) for axis in permutation]
        x, y = ([_roles(attributes, side)[role] for role in order] for side in ("input", "output"))
        changed = {**renumbered(attributes, "input", x), **renumbered(attributes, "output", y)}
        return Permuted((unless_identity(x), None, *rest), (unless_identity(y),), changed)


def _check_bias(bias: Value, features: Dim) -> None:
    """Raise ValueError unless `bias` has one element per output feature."""
    shape = bias.tensor_type.shape
    count = features if shape is None else product(shape)
    if differ(count, features):
        raise ValueError(f"a bias of {count} elements for {features} output features")


def _roles(attributes: Attributes, side: str) -> list[int]:
    """Return the axes of input or output in the order batch, feature, spatial."""
    batch, feature = attributes[f"{side}_batch_dimension"], attributes[f"{side}_feature_dimension"]
    return [batch, feature, *attributes[f"{side}_spatial_dimensions"]]


def renumbered(attributes: Attributes, side: str, order: Sequence[int]) -> dict[str, Any]:
    """The dimension numbers of one operand or result whose axes are in `order`, which may add axes or omit some."""
    names = [n for n in attributes if n.startswith(f"{side}_") and "dimension" in n]
    return {n: physical_axes(attributes[n], order) for n in names}


def spatial_sizes(attributes: Attributes, side: str, shape: Sequence[Any]) -> tuple[Any, ...]:
    """The spatial sizes of the tensor at `side` ("input", "kernel", "output")."""
    return tuple(shape[a] for a in attributes[f"{side}_spatial_dimensions"])


def sample_sizes(attributes: Attributes, side: str, shape: Sequence[Any]) -> tuple[Any, ...]:
    """All sizes but that of the batch."""
    return tuple(shape[axis] for axis in _roles(attributes, side)[1:])


def conv_window(attributes: Attributes, kernel_shape: Sequence[Any]) -> Window:
    """Return the window of a convolution. UnsupportedError if the kernel's size is dynamic."""
    shape = known_kernel_sizes(spatial_sizes(attributes, "kernel", kernel_shape))
    return Window.of(shape, *(attributes[name] for name in ("window_strides", "rhs_dilation", "padding")))


def window_attributes(window: Window) -> dict[str, Any]:
    """Return the attributes of a convolution that describe `window`."""
    return {"window_strides": window.strides, "padding": window.padding, "rhs_dilation": window.dilations}


def channels_first_attributes(window: Window, groups: int = 1) -> dict[str, Any]:
    """Return the attributes of a channels-first Conv or ConvTranspose with `window`."""
    spatial = tuple(range(2, window.rank + 2))
    numbers = {f"{side}_spatial_dimensions": spatial for side in ("input", "kernel", "output")}
    return {**numbers, **window_attributes(window), "feature_group_count": groups}


def channels_last_attributes(
    rank: int, kernel_input: int, kernel_output: int, kernel_spatial: Sequence[int]
) -> dict[str, Any]:
    """Return the dimension numbers of channels-last tensors with `rank` spatial axes."""
    spatial = tuple(range(1, rank + 1))
    sides = {
        f"{s}_{k}": v
        for s in ("input", "output")
        for k, v in (("feature_dimension", rank + 1), ("spatial_dimensions", spatial))
    }
    return {
        **sides,
        "kernel_input_feature_dimension": kernel_input,
        "kernel_output_feature_dimension": kernel_output,
        "kernel_spatial_dimensions": tuple(kernel_spatial),
    }


def known_kernel_sizes(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Return the sizes of a kernel. UnsupportedError if they are dynamic."""
    if not sizes or not is_static(sizes):
        hint = "freeze the kernel, or fix the sizes of the inputs (`input_shapes`)"
        raise UnsupportedError("the size of the kernel is unknown", hint=hint, code="E-SHAPE-001")
    return tuple(sizes)


def placed(attributes: Attributes, batch: Dim, features: Dim, sizes: Sequence[Dim]) -> Dims:
    shape: list[Dim] = [0] * (len(sizes) + 2)
    for axis, size in zip(_roles(attributes, "output"), (batch, features, *sizes), strict=True):
        shape[axis] = size
    return tuple(shape)


def is_depthwise(node: Node) -> bool:
    """Whether each group of a Conv has one input feature, and there are several groups."""
    groups = node.attr("feature_group_count")
    return bool(groups > 1 and node.operand(0).shape[node.attr("input_feature_dimension")] == groups)


class Conv(Convolution):
    """Convolution (cross-correlation) over n spatial axes, with an optional bias per feature (the spec's ConvBias).

    `padding` as in :mod:`onnxtfl.ir.spatial`, negative padding crops; group g of the input features is convolved with
    group g of the kernel's output features. Floats under 32 bits are summed in float32, integers wrap. Source:
    neutral-ops 3.28, 3.29, whose form also has lhs_dilation and batch_group_count.
    """

    core = True
    documented = "ConvBias"
    multiplies = "windows"
    attributes = {**DIMENSIONS, "padding": Padding()}

    @classmethod
    def documented_name(cls, node: Node) -> str:
        return cls.documented if node.optional(2) is not None else cls.name

    @classmethod
    def output_shape(cls, attributes: Attributes, x: Dims, w: Dims) -> Dims:
        features, depth = x[attributes["input_feature_dimension"]], w[attributes["kernel_input_feature_dimension"]]
        groups, out = attributes["feature_group_count"], w[attributes["kernel_output_feature_dimension"]]
        if differ(features, depth * groups):
            raise ValueError(f"{features} input features for {groups} groups of {depth}")
        if indivisible(out, groups):
            raise ValueError(f"{out} output features for {groups} groups")
        sizes = conv_window(attributes, w).counts(spatial_sizes(attributes, "input", x))
        return placed(attributes, x[attributes["input_batch_dimension"]], out, sizes)

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
        """Samples, features, and positions along each spatial axis, which are computed from the windows over them."""
        yield from super().divisions(attributes, operands)
        x, w, _ = operands
        assert x is not None and w is not None
        sizes: tuple[int, ...] = spatial_sizes(attributes, "input", x.shape)
        window = conv_window(attributes, w.shape).explicit(sizes)
        axes = zip(*(attributes[f"{side}_spatial_dimensions"] for side in ("input", "output")), strict=True)
        for i, ((place, axis), count) in enumerate(zip(axes, window.known_counts(sizes), strict=True)):
            yield Division(axis, count, partial(_positions, window, i, x.shape[place], place))

    @staticmethod
    def compute(x: Array, w: Array, bias: Array | None, **attributes: Any) -> Array:
        image, kernel = channels_first(attributes, x, w)
        window, groups, features = conv_window(attributes, w.shape), attributes["feature_group_count"], kernel.shape[0]
        padded, counts = window.pad(image, 0)
        rows = kernel.reshape(groups, features // groups, math.prod(kernel.shape[1:]))
        result = np.empty((groups, features // groups, image.shape[0], *counts), image.dtype)
        for sample, part in _pieces(len(padded), window, padded.shape[1], counts):
            positions = [part.stop - part.start, *counts[1:]]
            columns = _columns(padded[sample], window, part, counts).reshape(
                groups, rows.shape[2], math.prod(positions)
            )
            result[:, :, sample, part] = half.matmul(rows, columns).reshape(*rows.shape[:2], *positions)
        return finish(attributes, result, bias)


def _positions(window: Window, i: int, size: int, place: int, start: int, stop: int) -> Part:
    """What the positions from `start` to `stop` along spatial axis `i` read: axis `place` of the input, of `size`."""
    seen, rest = window.part(i, size, start, stop)
    return Part((at(place, *seen), (), ()), {"padding": rest.padding})


_MOST_COLUMNS = 1 << 16
"""About how many elements of windows are copied for one matrix product."""


def _pieces(samples: int, window: Window, features: int, counts: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """The index of a sample and a range of positions along the first spatial axis, of all samples and positions."""
    step = max(1, _MOST_COLUMNS // max(1, features * math.prod(window.shape) * math.prod(counts[1:])))
    for sample in range(samples):
        for start in range(0, counts[0] if all(counts) else 0, step):
            yield sample, slice(start, min(start + step, counts[0]))


def _columns(sample: Array, window: Window, part: slice, counts: Sequence[int]) -> Array:
    """The windows of a padded sample [feature, spatial...] at some positions: [feature, taps, positions...]."""
    begin, stride = part.start * window.strides[0], window.strides[0]
    rows = sample[:, begin : (part.stop - 1) * stride + window.span[0]]
    number = [part.stop - part.start, *counts[1:]]
    return np.stack([rows[window.seen(tap, number)] for tap in window.taps()], axis=1)


def channels_first(attributes: Attributes, x: Array, w: Array) -> tuple[Array, Array]:
    """The input as batch, feature, spatial; the kernel as output feature, input feature, spatial."""
    out, in_ = attributes["kernel_output_feature_dimension"], attributes["kernel_input_feature_dimension"]
    image = x.transpose(_roles(attributes, "input"))
    return image, w.transpose(out, in_, *attributes["kernel_spatial_dimensions"])


def finish(attributes: Attributes, grouped: Array, bias: Array | None) -> Array:
    """[group, feature, batch, spatial...] plus bias, in the order of the output's dimension numbers.

    Adds the bias in place.
    """
    result = grouped.reshape(grouped.shape[0] * grouped.shape[1], *grouped.shape[2:])
    if bias is not None:
        result += bias.reshape(-1, *[1] * (result.ndim - 1)).astype(result.dtype)
    first = np.swapaxes(result, 0, 1)
    roles = _roles(attributes, "output")
    return first.transpose([roles.index(a) for a in range(first.ndim)])


def kernel_at(kernel: Array, tap: Sequence[int]) -> Array:
    """Return the matrix of a kernel (spatial axes last) at one position of its window."""
    index: Any = (..., *tap)
    matrix: Array = kernel[index]
    return matrix
