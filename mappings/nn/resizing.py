"""Resizing.

==============  =============================================================================================
ONNX            Resize 10 11 13 18 19, Upsample 1 7 9 10
TFLite          RESIZE_BILINEAR; RESIZE_NEAREST_NEIGHBOR (lifted by `nearest_resizing`)
==============  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnxtfl.mappings.nn.nearest_resizing import assume_multiples, is_of_bytes, kernel_places

from onnxtfl.build.sizes import clamp_to_int32, int32_operands
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, is_static, known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.numeric import highest, lowest
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import as_int64, dim_vector, reshape
from onnxtfl.ir.resized_axis import ResizedAxis
from onnxtfl.ir.shapes import normalize_axes, static_ints
from onnxtfl.ir.shown_sizes import may_be_fed, shown_dim, shown_shape
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.kernels.onnxruntime_resize import integers_like_onnx
from onnxtfl.kernels.resize_bilinear import bilinear_of_integers, fits_fixed_point, tfl_bilinear
from onnxtfl.kernels.resize_nearest_neighbor import tfl_nearest, tfl_nearest_of_bytes
from onnxtfl.rewriting.registry import (
    Form,
    append_operand,
    decompose,
    decompose_late,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)


@upgrade("Upsample", since=(1,))
def _upsample_1(b: Builder, node: Node) -> None:
    node.attributes["scales"] = (1.0, 1.0, node.attributes.pop("height_scale"), node.attributes.pop("width_scale"))
    _upsample_7(b, node)


@upgrade("Upsample", since=(7,))
def _upsample_7(b: Builder, node: Node) -> None:
    append_operand(node, constant(np.asarray(node.attributes.pop("scales"), np.float32)))
    node.attributes["mode"] = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))


@lift_onnx("Upsample", since=(9, 10))
def _upsample(b: Builder, node: Node) -> Value:
    return _by_factors(b, node, grows=True)


@lift_onnx("Resize", since=(10, 11, 13, 18, 19))
def _resize(b: Builder, node: Node) -> Value:
    return _by_factors(b, node, grows=False) if node.op.version == 10 else _resize_19(b, node)


def _by_factors(b: Builder, node: Node, grows: bool) -> Value:
    """Version 10 has factors only and reads at x / factor.

    As in ONNX Runtime, the nearest neighbor is floor for growing axes and ceil for shrinking ones, so these are two
    steps. `grows`: no axis shrinks.
    """
    scales = node.operand(1)
    node.set_operand(1, None)
    append_operand(node, scales)
    node.attributes.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    if node.attr("mode", "nearest") != "nearest" or grows:
        return _resize_19(b, node)
    one = constant(np.ones(1, np.float32))
    for op, rounding in ((ops.Max, "floor"), (ops.Min, "ceil")):
        part = constant(op.compute(scales.numpy(), one.numpy())) if scales.is_constant else b(op, scales, one)
        node.set_operand(2, part)
        node.attributes["nearest_mode"] = rounding
        node.set_operand(0, _resize_19(b, node))
    return node.operand(0)


def _resize_19(b: Builder, node: Node) -> Value:
    """Lift a Resize with the attributes of version 19, a superset of versions 11 to 18."""
    x = node.operand(0)
    axes = node.attr("axes")  # ONNX Runtime resizes all axes if `axes` is empty
    dims = normalize_axes(axes, x.rank) if axes else tuple(range(x.rank))
    crops = node.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi = _roi(node.optional(1), len(dims)) if crops else None
    scales, sizes = (_given(node.optional(i), len(dims)) for i in (2, 3))
    _check_given(x, dims, scales, sizes)
    if sizes is not None:
        scales, sizes = _kept_aspect(b, x, dims, sizes, node.attr("keep_aspect_ratio_policy", "stretch"))
    elif scales is not None:
        sizes = _scaled_sizes(b, x, dims, scales)
    else:
        raise UnsupportedError("Resize has neither scales nor sizes")
    return _of_changed(b, node, x, dims, sizes, scales, roi)


def _roi(vector: Value | None, count: int) -> Value:
    """Return the operand `roi`: the starts, then the ends, of `count` axes."""
    if vector is None or vector.rank != 1 or differ(vector.shape[0], 2 * count):
        raise ValueError(f"roi has to have {2 * count} elements")
    return vector


def _given(vector: Value | None, count: int) -> Value | None:
    """Return an optional operand; an empty vector is absent. ValueError unless it has `count` elements."""
    if vector is None or (vector.tensor_type.shape == (0,) and count > 0):
        return None
    if vector.rank != 1 or (differ(vector.shape[0], count)):
        raise ValueError(f"sizes or scales of type {vector.type} for {count} axes")
    return vector


def _check_given(x: Value, dims: Sequence[int], scales: Value | None, sizes: Value | None) -> None:
    """Raise ValueError if a result would be empty that is not, or both vectors are given."""
    if scales is not None and sizes is not None:
        raise ValueError("both scales and sizes are given")
    if scales is not None and scales.is_constant and (scales.numpy() <= 0).any():
        raise ValueError(f"scales of {scales.numpy().tolist()}, all have to be positive")
    known = None if sizes is None else static_ints(sizes)
    if known is not None and any(n == 0 and x.shape[d] != 0 for n, d in zip(known, dims, strict=True)):
        raise ValueError(f"sizes of {known} for {shown_shape(x.shape)}")


def _kept_aspect(b: Builder, x: Value, dims: Sequence[int], sizes: Value, policy: str) -> tuple[Value | None, Value]:
    """Return scales (None if new size / old size) and sizes under keep_aspect_ratio_policy."""
    if policy == "stretch":
        return None, sizes
    known = known_sizes(x.shape[a] for a in dims)
    if sizes.is_constant and len(known) == len(dims):
        ratio = (np.min if policy == "not_larger" else np.max)(sizes.numpy() / np.asarray(known))
        scales = constant(np.full(len(dims), ratio, np.float32))
        return scales, constant(np.floor(np.asarray(known) * ratio + 0.5).astype(np.int64))
    lengths = b(ops.Convert, dim_vector(b, [x.shape[d] for d in dims], x), dtype=DType.FLOAT32)
    ratios = b(ops.Div, b(ops.Convert, sizes, dtype=DType.FLOAT32), lengths)
    scale = b(ops.Reduce, ratios, [0], kind="min" if policy == "not_larger" else "max", keepdims=True)
    half = b(ops.Add, b(ops.Mul, lengths, scale), b.scalar(0.5, DType.FLOAT32))
    resized = b(ops.Convert, b(ops.Floor, half), dtype=DType.INT64)
    return b(ops.BroadcastTo, scale, [len(dims)]), resized


def _scaled_sizes(b: Builder, x: Value, dims: Sequence[int], scales: Value) -> Value:
    """Return floor(size * scale), symbolic if the scale is k or 1 / k for an integer k.

    ONNX's text also multiplies by the extent of `roi`; ONNX Runtime's resize kernel does not.
    """
    lengths = [x.shape[d] for d in dims]
    if scales.is_constant:
        known = [ops.scaled(n, float(s)) for n, s in zip(lengths, scales.numpy(), strict=True)]
        if all(d is not None for d in known):
            return dim_vector(b, [d for d in known if d is not None], x)
    exact = b(ops.Mul, b(ops.Convert, dim_vector(b, lengths, x), dtype=DType.FLOAT32), scales)
    return b(ops.Convert, b(ops.Floor, exact), dtype=DType.INT64)


def _of_changed(
    b: Builder, node: Node, x: Value, dims: Sequence[int], sizes: Value, scales: Value | None, roi: Value | None
) -> Value:
    """Return a Resize of only the axes whose size or coordinates change."""
    kept = [i for i, d in enumerate(dims) if _changes(x.shape[d], i, len(dims), sizes, scales, roi)]
    if not kept:
        return x
    sizes, scales = (_entries(b, v, kept, len(dims)) for v in (sizes, scales))  # type: ignore[assignment]
    roi = _entries(b, roi, [*kept, *(len(dims) + i for i in kept)], 2 * len(dims))
    mode = node.attr("mode", "nearest")
    names = [name for name in ops.Resize.attributes if name != "nearest_mode" or mode == "nearest"]
    attributes = {name: node.attr(name) for name in names if node.attr(name) is not None}
    if (
        attributes.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn"
        and attributes.get("nearest_mode") == "floor"
    ):
        attributes.update(coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")
    for name in ("exclude_outside", "antialias"):
        attributes[name] = bool(attributes.get(name, 0))
    operands, attributes["dims"] = (sizes, scales, roi), tuple(dims[i] for i in kept)
    if x.dtype is DType.BOOL and mode == "nearest" and roi is None:
        return b(
            ops.Convert, b(ops.Resize, b(ops.Convert, x, dtype=DType.UINT8), *operands, **attributes), dtype=x.dtype
        )
    if not x.dtype.is_integer or mode == "nearest" or (mode == "linear" and x.dtype in _TRUNCATED):
        return b(ops.Resize, x, *operands, **attributes)
    wide = b(ops.Resize, b(ops.Convert, x, dtype=DType.FLOAT32), *operands, **attributes)
    return _saturated(Term(b, wide).apply(ops.RoundNearestEven), x.dtype).value


_TRUNCATED = (DType.INT8, DType.UINT8, DType.INT32)
"""Integer types with linear kernels in ONNX Runtime, which truncate; ONNX's reference rounds other types."""


def _saturated(x: Term, dtype: DType) -> Term:
    """Round float32 to the nearest integers of a type, saturated."""
    low, high = (np.float32(bound(dtype.numpy)) for bound in (lowest, highest))
    if float(high) > highest(dtype.numpy):
        high = np.nextafter(high, np.float32(0))
    return x.max(float(low)).min(float(high)).to(dtype)


def _changes(size: Dim, i: int, count: int, sizes: Value, scales: Value | None, roi: Value | None) -> bool:
    """Whether axis i is resampled; True if unknown."""
    if roi is not None and not (roi.is_constant and roi.numpy()[i] == 0 and roi.numpy()[count + i] == 1):
        return True
    if scales is not None:
        return not scales.is_constant or scales.numpy()[i] != 1
    return sizes.known is None or sizes.known[i] != size


def _entries(b: Builder, vector: Value | None, kept: Sequence[int], count: int) -> Value | None:
    if vector is None or len(kept) == count:
        return vector
    return b(ops.Gather, vector, list(kept), axis=0)


@lift_tfl("RESIZE_BILINEAR")
def _tfl_bilinear(b: Builder, node: Node) -> Value:
    """Source: LiteRT resize_bilinear.h (reference)."""
    corners, centers = bool(node.attr("align_corners")), bool(node.attr("half_pixel_centers"))
    if corners and centers:  # refused by TensorFlow and, for constant sizes, by LiteRT's kernel
        raise UnsupportedError("align_corners together with half_pixel_centers")
    if (found := bilinear_of_integers(b, node, kernel_places(corners, centers))) is not None:
        return found
    x = Term(b, node.operand(0))
    is_rounded = x.dtype is DType.UINT8
    wide = (x.to(DType.FLOAT32) if is_rounded else x).value
    found = b(ops.Resize, wide, node.operand(1), dims=(1, 2), mode="linear", **kernel_places(corners, centers))
    return (Term(b, found) + 0.5).floor().to(DType.UINT8).value if is_rounded else found


@lower_tfl(ops.Resize)
def _resize_2d(node: Node) -> Form | None:
    """Resize two of four axes, if a kernel reads the same positions with the same weights."""
    x, dims = node.operand(0), node.attr("dims")
    if x.tensor_type.rank != 4 or len(dims) != 2 or node.optional(3) is not None or node.optional(1) is None:
        return None
    sizes, scales = [x.shape[d] for d in dims], _constant(node.optional(2))
    resized = [node.result.shape[d] for d in dims]
    if node.optional(2) is not None and scales is None:
        return None
    factors = [None, None] if scales is None else list(scales)
    axes = list(zip(sizes, resized, factors, strict=True))
    target = clamp_to_int32(resized) if is_static(resized) else node.operand(1)
    name = {"linear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}.get(node.attr("mode"))
    for corners, centers in ((False, False), (False, True), (True, False)):
        if name is not None and all(_agrees(node, *axis, corners, centers) for axis in axes):
            _assume_not_1(node, axes)
            for size, resized, _ in axes if node.attr("mode") == "nearest" else ():
                if not is_static((size, resized)):
                    assume_multiples(node, size, resized)
            return Form(name, (x, target), {"align_corners": corners, "half_pixel_centers": centers})
    return None


def _assume_not_1(node: Node, axes: Sequence[tuple[Dim, Dim, float | None]]) -> None:
    """Record the assumption that dynamic new sizes are not 1, a special case of pytorch_half_pixel."""
    if node.attr("coordinate_transformation_mode") != "pytorch_half_pixel":
        return
    for size, resized, _ in axes:
        if not isinstance(resized, int) and size != resized and not isinstance(resized // size, int):
            text = f"the new size of Resize {shown_name(node)}, {shown_dim(resized)}, is not 1"
            assume(text, is_minor=not may_be_fed(resized, 1))


def _constant(vector: Value | None) -> Array | None:
    return vector.numpy() if vector is not None and vector.is_constant else None


def _agrees(node: Node, size: Dim, resized: Dim, scale: float | None, corners: bool, centers: bool) -> bool:
    """Whether TFLite's kernel with these options resamples an axis of `size` like the node."""
    sampling = Sampling.of(attributes_of(node))
    is_bilinear = sampling.mode == "linear" and is_of_bytes(node.operand(0))
    if is_bilinear and not fits_fixed_point(sampling, size, resized, scale):
        return False
    if not isinstance(size, int) or not isinstance(resized, int):
        return _agrees_always(node, size, resized, scale, corners, centers)
    factor = resized / size if scale is None else scale
    if sampling.antialias and factor < 1:
        return False
    where = sampling.coordinates(size, resized, factor)
    if sampling.mode == "nearest":
        found = sampling.nearest(where, size)
        in_fixed_point = is_of_bytes(node.operand(0)) and not corners and not centers
        if in_fixed_point and (found != tfl_nearest_of_bytes(size, resized)).any():
            return False
        return bool((found == tfl_nearest(size, resized, corners, centers)).all())
    theirs = tfl_bilinear(size, resized, corners, centers)
    return bool(np.allclose(np.clip(where, 0, size - 1), np.clip(theirs, 0, size - 1), rtol=0, atol=2e-6 * size))


def _agrees_always(node: Node, size: Dim, resized: Dim, scale: float | None, corners: bool, centers: bool) -> bool:
    """Whether the kernel agrees for all sizes, judged by the modes alone."""
    if size == resized and scale in (None, 1):
        return True
    mode = _mode_of_place(node, resized)
    if resized == 1 and mode == "asymmetric" and node.attr("mode") == "nearest":
        return not corners and not centers  # the coordinate is 0
    exact = scale is None or (scale == int(scale) and resized == size * int(scale))
    if node.attr("antialias") or not exact:
        return False
    if mode == "align_corners":
        return corners and (node.attr("mode") == "linear" or node.attr("nearest_mode") == "round_prefer_ceil")
    if node.attr("mode") == "linear":
        return not corners and centers == (mode in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"))
    if mode == "asymmetric" and node.attr("nearest_mode") == "floor":
        return not corners and not centers
    return not corners and centers and _nearest_by_centers(node, mode, scale)


def _mode_of_place(node: Node, resized: Dim) -> str:
    """Return the coordinate mode for this new size.

    pytorch_half_pixel reads the first element for a new size of 1, and equals half_pixel for others.
    """
    mode: str = node.attr("coordinate_transformation_mode")
    if mode != "pytorch_half_pixel":
        return mode
    return "asymmetric" if resized == 1 else "half_pixel"


def _nearest_by_centers(node: Node, mode: str, scale: float | None) -> bool:
    """Whether rounded half-pixel coordinates equal floor((x + 0.5) / scale), that is no ties for integer factors."""
    nearest = node.attr("nearest_mode")
    halves = nearest == "round_prefer_ceil" or (nearest == "round_prefer_floor" and scale is not None)
    return mode in ("half_pixel", "pytorch_half_pixel") and halves


def _has_no_cubic_kernel(node: Node) -> bool:
    """Whether ONNX Runtime has no cubic kernel: of integers, other axes than two of two, or the last two of four.

    Source: ONNX Runtime core/providers/cpu/tensor/upsamplebase.h (ScalesValidation), upsample.cc (ResizeBiCubic).
    """
    x, dims = node.operand(0), tuple(sorted(node.attr("dims")))
    if node.attr("mode") != "cubic" or not _is_known(node):
        return False
    dims = tuple(a for a in dims if node.result.shape[a] != x.shape[a])
    return x.dtype.is_integer or x.rank not in (2, 4) or not set(dims) <= {x.rank - 2, x.rank - 1}


@lower_onnx(ops.Resize)
def _onnx_resize(node: Node, opset: int) -> Form | None:
    """Write an entry for every axis: ONNX Runtime's optimizer mishandles `axes` (since 18) when it moves transposes."""
    x, sizes, scales, roi = (node.optional(i) for i in range(4))
    dims, mode = node.attr("dims"), node.attr("coordinate_transformation_mode")
    needed = {"half_pixel_symmetric": 19, "tf_half_pixel_for_nn": 99}.get(mode, 18 if node.attr("antialias") else 11)
    if opset < needed or x is None or x.tensor_type.rank is None or tuple(dims) != tuple(range(x.rank)):
        return None
    if _has_no_cubic_kernel(node):
        return None
    kept = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "extrapolation_value")
    attributes: dict[str, Any] = {name: node.attr(name) for name in kept}
    attributes["exclude_outside"] = int(node.attr("exclude_outside"))
    if node.attr("antialias"):
        attributes["antialias"] = 1
    return Form("Resize", (x, roi, scales, None if scales is not None else sizes), attributes)


def whole_factors(node: Node) -> Array | None:
    """Return the factors of a Resize to a dynamic size, if they are integers."""
    sizes = node.optional(1)
    if sizes is None or sizes.is_constant or node.optional(2) is not None:
        return None
    pairs = [(node.operand(0).shape[d], node.result.shape[d]) for d in node.attr("dims")]
    factors = known_sizes(new // size for size, new in pairs if size != 0 and new % size == 0)
    return np.asarray(factors, np.float32) if len(factors) == len(pairs) else None


def _of_some_axes(node: Node) -> bool:
    rank = node.operand(0).tensor_type.rank
    return rank is not None and tuple(node.attr("dims")) != tuple(range(rank)) and not _has_no_cubic_kernel(node)


@decompose_late(ops.Resize, "onnx", when=_of_some_axes)
def _resize_all_axes(b: Builder, node: Node) -> Value:
    """Extend the vectors of a Resize to all axes."""
    x, sizes, scales, roi = (node.optional(i) for i in range(4))
    assert x is not None
    dims = tuple(node.attr("dims"))
    factors = whole_factors(node)
    if factors is not None:
        sizes, scales = None, constant(factors)
    scales = None if scales is None else _spread(b, scales, dims, x.rank, 1.0)
    if roi is not None:
        starts = _spread(b, b(ops.Slice, roi, [0], [len(dims)], [1]), dims, x.rank, 0.0)
        ends = _spread(b, b(ops.Slice, roi, [len(dims)], [2 * len(dims)], [1]), dims, x.rank, 1.0)
        roi = b(ops.Concatenate, starts, ends, axis=0)
    whole = None if sizes is None else _all_sizes(b, node, sizes)
    resized = b(ops.Resize, x, whole, scales, roi, **{**node.attributes, "dims": tuple(range(x.rank))})
    resized.type = node.result.type  # factors would lose the inferred size
    return resized


def _all_sizes(b: Builder, node: Node, sizes: Value) -> Value:
    """Return the new sizes of all axes, resized or not."""
    x, dims, shape = node.operand(0), tuple(node.attr("dims")), node.result.shape
    if is_static(shape):
        return dim_vector(b, shape)
    both = b(ops.Concatenate, b(ops.Shape, x), as_int64(b, sizes), axis=0)
    return b(ops.Gather, both, [x.rank + dims.index(a) if a in dims else a for a in range(x.rank)], axis=0)


def _spread(b: Builder, vector: Value, dims: Sequence[int], rank: int, default: float) -> Value:
    """Return a float vector with an entry for every axis."""
    joined = b(ops.Concatenate, vector, np.full(1, default, np.float32), axis=0)
    return b(ops.Gather, joined, [dims.index(a) if a in dims else len(dims) for a in range(rank)], axis=0)


def _is_known(node: Node) -> bool:
    """Whether the rank is known, and the new sizes are an operand."""
    return node.operand(0).tensor_type.shape is not None and node.optional(1) is not None


def _is_sampled(node: Node) -> bool:
    """Whether elements are gathered or floats are interpolated (interpolated integers need rounding)."""
    return _is_known(node) and (node.operand(0).dtype.is_float or node.attr("mode") == "nearest")


def _is_mean_of_integers(node: Node) -> bool:
    return _is_known(node) and not _is_sampled(node)


@decompose(ops.Resize, order="elements", when=lambda node: node.optional(1) is None)
def _with_sizes(b: Builder, node: Node) -> Value:
    """Compute the new sizes of a Resize that has scales only."""
    x, scales, dims = node.operand(0), node.operand(2), node.attr("dims")
    return b(ops.Resize, x, _scaled_sizes(b, x, dims, scales), scales, node.optional(3), **node.attributes)


decompose(ops.Resize, "tfl", when=_is_mean_of_integers)(integers_like_onnx)


@decompose(ops.Resize, when=_is_mean_of_integers)
def _resize_as_floats(b: Builder, node: Node) -> Value:
    wide = b(ops.Convert, node.operand(0), dtype=DType.FLOAT32)
    return b(ops.Convert, b(ops.Resize, wide, *node.operands[1:], **node.attributes), dtype=node.result.dtype)


decompose(ops.Resize, "tfl", when=_is_sampled, benefit=1)(int32_operands(1))


def _is_of_last_axes(node: Node) -> bool:
    """Whether kernels can resample these trailing axes, two at a time with all others merged."""
    x, dims, scales = node.operand(0), tuple(sorted(node.attr("dims"))), node.optional(2)
    if node.attr("mode") == "cubic" or not _is_sampled(node) or (x.rank, len(dims)) == (4, 2):
        return False
    last = dims == tuple(range(x.rank - len(dims), x.rank)) or (x.rank == 4 and dims == (2,))
    is_known = node.operand(1).known is not None and (scales is None or _constant(scales) is not None)
    return last and is_known and node.optional(3) is None


@decompose(ops.Resize, "tfl", when=_is_of_last_axes)
def _in_four_axes(b: Builder, node: Node) -> Value:
    """Resize the trailing axes, two at a time with all others merged."""
    x, dims = node.operand(0), tuple(sorted(node.attr("dims")))
    result = _over(b, node, x, dims[-2:] if len(dims) > 1 else dims)
    for axis in reversed(dims[:-2]):
        result = _over(b, node, result, (axis,))
    return result


def _over(b: Builder, node: Node, x: Value, axes: Sequence[int]) -> Value:
    """Resize one or two axes in rank 4: leading axes merged to two, the resized axes, then the trailing ones merged."""
    lead, trailing = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
    inner = [x.shape[a] for a in axes] + ([product(trailing)] if trailing else [])
    spare = 2 - len(inner)
    four = (product(lead[:1]), product(lead[1:]), *[1] * spare, *inner)
    sizes = [node.result.shape[a] for a in axes]
    resized = dim_vector(b, [*[1] * spare, *sizes, *inner[len(axes) :]], x, node.operand(1))
    factors = _constant(node.optional(2))
    scales = None
    if factors is not None:
        own = [factors[node.attr("dims").index(a)] for a in axes]
        scales = np.asarray([*[1.0] * spare, *own, *[1.0] * (2 - spare - len(axes))], np.float32)
    small = b(ops.Resize, reshape(b, x, four), resized, scales, **{**node.attributes, "dims": (2, 3)})
    return reshape(b, small, (*lead, *sizes, *trailing), x, node.operand(1))


def axis_by_axis(b: Builder, node: Node) -> Value:
    """Resize one axis after the other, by Gather (nearest) or by a matrix of weights."""
    x = node.operand(0)
    for i in range(len(node.attr("dims"))):
        x = ResizedAxis(b, node, x, i).resampled()
    return x


decompose(ops.Resize, when=_is_sampled)(axis_by_axis)
