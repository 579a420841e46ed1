"""Convolutions with a dilated operand and groups of the batch, as XLA has them, by Conv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.ops.convolution import Conv
from onnxtfl.ir.ops.padding import InteriorPad, cut_within
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.window_padding import pad_axes


def general_convolution(
    b: Builder,
    x: Value,
    kernel: Value,
    bias: Value | None,
    numbers: Mapping[str, Any],
    *,
    strides: Sequence[int],
    padding: Sequence[int] | str,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Value:
    """A Conv of the dilated operand; groups of the batch become groups of features.

    `numbers`: the axes of input, kernel and output, as attributes of Conv; `padding`: before all spatial axes, then
    after them, of the dilated operand, where negative entries crop it, or SAME. Empty lists mean ones, or no padding.
    """
    rank = len(numbers["input_spatial_dimensions"])
    given = padding if isinstance(padding, str) else tuple(padding) or (0,) * (2 * rank)
    axes = numbers["input_spatial_dimensions"]
    x, given = _cropped(b, dilated(b, x, axes, lhs_dilation), axes, given)
    groups = feature_groups
    if batch_groups > 1:
        if feature_groups > 1:
            raise ValueError(f"{feature_groups} groups of features and {batch_groups} groups of the batch")
        x, groups = _batch_as_features(b, x, numbers, batch_groups), batch_groups
    ones = (1,) * rank
    window = {
        "window_strides": tuple(strides) or ones,
        "rhs_dilation": tuple(rhs_dilation) or ones,
        "padding": given,
    }
    if rank:
        return b(Conv, x, kernel, bias, **numbers, **window, feature_group_count=groups)
    x, kernel, numbers, window = _with_a_spatial_axis(b, x, kernel, numbers)
    made = b(Conv, x, kernel, bias, **numbers, **window, feature_group_count=groups)
    return reshape(b, made, made.shape[:-1], made)


def dilated(b: Builder, x: Value, axes: Sequence[int], dilations: Sequence[int]) -> Value:
    """`x` with d - 1 zeros between neighbors along each of `axes`, d of `dilations` (which may be empty)."""
    steps = dict(zip(axes, dilations, strict=False))
    if all(step == 1 for step in steps.values()):
        return x
    return b(InteriorPad, x, None, interior_padding=tuple(steps.get(axis, 1) - 1 for axis in range(x.rank)))


def _cropped(
    b: Builder, x: Value, axes: Sequence[int], padding: tuple[int, ...] | str
) -> tuple[Value, tuple[int, ...] | str]:
    """Apply padding that crops by a Pad; return its result and the remaining padding."""
    if isinstance(padding, str) or min(padding, default=0) >= 0:
        return x, padding
    sides = zip(axes, padding, padding[len(axes) :], strict=False)
    before, after = zip(*(cut_within(x.shape[axis], low, high) for axis, low, high in sides), strict=True)
    return pad_axes(b, x, axes, (*before, *after)), (0,) * len(padding)


def _batch_as_features(b: Builder, x: Value, numbers: Mapping[str, Any], parts: int) -> Value:
    """Move the groups of the batch before the features of the input: [g n, c] as [n, g c]."""
    batch, feature = numbers["input_batch_dimension"], numbers["input_feature_dimension"]
    sizes = [part for i, d in enumerate(x.shape) for part in ((parts, d // parts) if i == batch else (d,))]
    split = reshape(b, x, sizes, x)
    order = [a for a in range(split.rank) if a != batch]
    order.insert(order.index(feature + (feature > batch)), batch)
    merged = [d * parts if i == feature else d // parts if i == batch else d for i, d in enumerate(x.shape)]
    return reshape(b, transposed(b, split, order), merged, x)


def _with_a_spatial_axis(
    b: Builder, x: Value, kernel: Value, numbers: Mapping[str, Any]
) -> tuple[Value, Value, dict[str, Any], dict[str, Any]]:
    """Append a unit axis to the operands of a convolution without spatial axes."""
    x, kernel = (reshape(b, v, (*v.shape, 1)) for v in (x, kernel))
    spatial = {name: (2,) for name in numbers if name.endswith("spatial_dimensions")}
    return x, kernel, {**numbers, **spatial}, {"window_strides": (1,), "rhs_dilation": (1,), "padding": (0, 0)}
