"""What kernels may depend on besides the options of an op: properties of its operands and results.

The forms of a target's table restrict them as they restrict options, and the probe measures each case with them.
ML Drift (LiteRT's GPU accelerator) takes the axes of a tensor for batch, height, width and channels: those of one axis
for B, of two for BC, of three for BWC, of four for BHWC (tensorflow/lite/delegates/gpu/common/model_builder_helper.cc,
ExtractTensorShape). A constant of a binary op has no batch there: of one axis it is C, of more HWC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnxtfl.ir.dims import Shape, is_static
from onnxtfl.ir.graph import Value
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import shape_of
from onnxtfl.targets.instance import OpInstance

EXACT_INTEGERS = 1 << 24
"""The accelerator holds constants of int32 in float32, which has all integers up to this one."""
_AXES = {0: "", 1: "B", 2: "BC", 3: "BWC", 4: "BHWC"}
"""The letters of a tensor's axes by its rank."""
_WINDOW_OPTIONS = (("h", "height"), ("w", "width"))
"""The ends of the names of a pool's options for each axis of its window."""
_AXIS_NAMES = ("axis", "dim", "axes", "dims")
"""The names of options and operands that are axes."""


def equal_ranks(op: OpInstance) -> bool:
    """Whether the computed main operands have as many axes as the result."""
    shapes = [shape_of(value.type) for value in _main(op, "operands") if not value.is_constant]
    return len({len(shape) for shape in (*shapes, *_result_shapes(op)) if shape is not None}) <= 1


def constant_ranks(op: OpInstance) -> bool:
    """Whether the constant main operands have as many axes as the result, or one element."""
    known = [v for v in _main(op, "operands") if v.is_constant and not _is_scalar_constant(v)]
    ranks = {len(shape) for shape in (*(shape_of(v.type) for v in known), *_result_shapes(op)) if shape is not None}
    return not known or len(ranks) <= 1


def has_axes(op: OpInstance) -> bool:
    """Whether all computed main operands have axes, unless the result has none."""
    shapes = [shape_of(value.type) for value in _main(op, "operands") if not value.is_constant]
    return () not in shapes or () in _result_shapes(op)


def operand_shapes(op: OpInstance) -> str:
    """Whether the operands have "equal" shapes, or all others than a "scalar" have, or they "broadcast"."""
    return "equal" if not op.broadcasts else "scalar" if op.broadcasts_scalars() else "broadcast"


def flat_scalars(op: OpInstance) -> bool:
    """Whether operands of one element have no axes, unless the result has one element too."""
    shapes = [shape_of(value.type) for _, _, value in op.operands]
    results = [shape for shape in _shapes(op, "results") if any(size != 1 for size in shape)]
    return not results or not any(shape and all(size == 1 for size in shape) for shape in shapes)


def unit_constants(op: OpInstance) -> bool:
    """Whether constant operands have no batch: the first axis of size 1, or fewer axes than the result."""
    rank = max(map(len, _result_shapes(op)), default=0)
    shapes = [shape for value in _main(op, "operands") if value.is_constant and (shape := shape_of(value.type))]
    return not any(len(shape) >= rank and shape[0] != 1 for shape in shapes)


def unit_batch(op: OpInstance) -> bool:
    """Whether the first axis of each main operand and result has size 1."""
    return all(shape[0] == 1 for side in ("operands", "results") for shape in _shapes(op, side) if shape)


def fixed_batch(op: OpInstance) -> bool:
    """Whether an op that pads a batch of size 1 leaves that size."""
    operand, result = (next(iter(_shapes(op, side)), ()) for side in ("operands", "results"))
    return not op.named("padding") or operand[:1] != (1,) or result[:1] == (1,)


def axes(op: OpInstance) -> str:
    """The letters of the axes that the op names, of its first operand: "HW"; "?" if they are computed."""
    shape = next(iter(_shapes(op, "operands")), ())
    named = next((found for name in _AXIS_NAMES if (found := _named_axes(op, name)) is not None), None)
    letters = _AXES.get(len(shape))
    if named is None or letters is None:
        return "?"
    return "".join(letters[axis % len(shape)] for axis in sorted(axis % len(shape) for axis in named))


def constants(op: OpInstance) -> str:
    """The names of the operands that are constant."""
    return " ".join(parameter.name for _, parameter, value in op.operands if op.is_known(value))


def plain_slice(op: OpInstance) -> bool:
    """Whether a slice of known bounds goes forward, keeps all axes, and has its bounds inside of the tensor."""
    shape = next(iter(_shapes(op, "operands")), ())
    starts, ends, sizes, strides = (_numbers(op, name) for name in ("begin", "end", "size", "strides"))
    if any(op.options.get(name) for name in ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask", "offset")):
        return False
    if not len(starts) == len(sizes or ends) == len(shape) or not is_static(shape):
        return False
    if not op.named("size"):
        starts = [0 if op.options["begin_mask"] >> i & 1 else n for i, n in enumerate(starts)]
        ends = [shape[i] if op.options["end_mask"] >> i & 1 else n for i, n in enumerate(ends)]
    else:
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    inside = all(0 <= start < end <= n for start, end, n in zip(starts, ends, shape, strict=True))
    return inside and min(strides, default=1) > 0


def unit_strides(op: OpInstance) -> bool:
    """Whether a slice with strides keeps all axes and has no stride but 1."""
    masks = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask", "offset")
    strides = _numbers(op, "strides")
    return bool(strides) and set(strides) == {1} and not any(op.options.get(name) for name in masks)


def _numbers(op: OpInstance, name: str) -> list[int]:
    """The elements of a constant operand; none if it is computed or absent."""
    return static_ints(next(iter(op.named(name)), None)) or []


GROUP_CHANNELS = 4
"""LiteRT's GPU accelerator computes groups of multiples of so many channels."""


def channels_of_groups(op: OpInstance) -> str:
    """Of a convolution: "all" without groups, "4n" if groups read and make a multiple of 4 channels, else "any"; of a
    depthwise one: "all" if each channel makes one, else "any".
    """
    x, filters, y = _shapes(op, "operands")[0], shape_of(op.named("filter")[0].type), _shapes(op, "results")[0]
    if not x or not filters or x[-1] == filters[-1]:
        return "all"
    groups = x[-1] // filters[-1]  # 0 for a depthwise convolution
    return "4n" if groups and filters[-1] % GROUP_CHANNELS == (y[-1] // groups) % GROUP_CHANNELS == 0 else "any"


def shrinks(op: OpInstance) -> bool:
    """Whether the factor of negative elements is from 0 to 1."""
    return 0 <= float(op.options["alpha"]) <= 1


def closed_windows(op: OpInstance) -> bool:
    """Whether the stride of a pool is at most the size of its window along each axis."""
    return all(op.options[f"stride_{axis}"] <= op.options[f"filter_{size}"] for axis, size in _WINDOW_OPTIONS)


def whole_slices(op: OpInstance) -> bool:
    """Whether the op works along other axes than the channels, or these are a multiple of 4: the last slice of 4
    channels ends with zeros.
    """
    shape = next(iter(_shapes(op, "operands")), ())
    return not shape or shape[-1] % 4 == 0 or "C" not in axes(op)


def blocks(op: OpInstance) -> str:
    """Whether there are scales for blocks of a row: "none", "32n" if all have a multiple of 32 elements, or "any"."""
    sizes = {q.block for found in op.quantizations.values() for q in found if q.block}
    return "none" if not sizes else "32n" if all(size % 32 == 0 for size in sizes) else "any"


PROPERTIES: Mapping[str, Callable[[OpInstance], Any]] = {
    found.__name__: found
    for found in (
        equal_ranks,
        constant_ranks,
        has_axes,
        operand_shapes,
        flat_scalars,
        unit_constants,
        unit_batch,
        fixed_batch,
        axes,
        constants,
        plain_slice,
        unit_strides,
        channels_of_groups,
        whole_slices,
        closed_windows,
        shrinks,
        blocks,
    )
}
"""The properties that forms may restrict, by name."""
IN_WORDS: Mapping[str, str] = {
    "equal_ranks": "computed operands of as many axes as the result",
    "constant_ranks": "constants of as many axes as the result",
    "has_axes": "computed operands that have axes",
    "flat_scalars": "operands of one element that have no axes",
    "unit_constants": "constants whose first axis has size 1",
    "unit_batch": "a batch of size 1",
    "fixed_batch": "a batch of size 1 that stays 1",
    "plain_slice": "slices that go forward, of known bounds inside of the tensor",
    "unit_strides": "strides of 1 along all axes, which are kept",
    "whole_slices": "channels that are a multiple of 4",
    "closed_windows": "strides that are at most the size of the window",
    "shrinks": "a factor from 0 to 1",
}
"""What a form that needs a property accepts, for messages."""
OF_LAYOUT = frozenset({"unit_constants", "unit_batch", "axes", "channels_of_groups", "whole_slices"})
"""Those that depend on the order of axes."""


def _main(op: OpInstance, side: str) -> Iterator[Value]:
    """The operands or results of the main variable."""
    return (v for _, parameter, v in getattr(op, side) if parameter.variable == op.main)


def _shapes(op: OpInstance, side: str) -> list[Shape]:
    return [shape for value in _main(op, side) if (shape := shape_of(value.type)) is not None]


def _result_shapes(op: OpInstance) -> list[Shape]:
    """The shapes of the results of the main variable; of all results where none is, as of comparisons."""
    every = (shape for _, _, value in op.results if (shape := shape_of(value.type)) is not None)
    return _shapes(op, "results") or list(every)


def _is_scalar_constant(value: Value) -> bool:
    return value.is_constant and all(size == 1 for size in shape_of(value.type) or ())


def _named_axes(op: OpInstance, name: str) -> list[int] | None:
    """The axes that an option or a constant operand names; None if there is no such, or it is computed."""
    if name in op.options:
        return [int(op.options[name])]
    values = op.named(name)
    return None if not values else static_ints(values[0])
