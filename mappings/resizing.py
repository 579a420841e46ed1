"""Resizing.

==============  =============================================================================================
ONNX            Resize 10 11 13 18 19, Upsample 1 7 9 10
TFLite          RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR
==============  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import normalize_axes
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import append_operand, lift_onnx, upgrade
from onnxtfl.rewriting.sizes import dim_vector


@upgrade("Upsample", since=(1,))
def _upsample_1(b: Builder, node: Node) -> None:
    node.attributes["scales"] = (1.0, 1.0, node.attributes.pop("height_scale"), node.attributes.pop("width_scale"))
    _upsample_7(b, node)


@upgrade("Upsample", since=(7,))
def _upsample_7(b: Builder, node: Node) -> None:
    append_operand(node, constant(np.asarray(node.attributes.pop("scales"), np.float32)))
    node.attributes["mode"] = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))


@upgrade("Resize", since=(10,))
def _resize_10(b: Builder, node: Node) -> None:
    """Version 10 knows scales only, and reads at x / scale, rounded down."""
    scales = node.operand(1)
    node.set_operand(1, None)
    append_operand(node, scales)
    node.attributes.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@lift_onnx("Upsample", since=(9, 10))
def _upsample(b: Builder, node: Node) -> Value:
    _resize_10(b, node)
    return resized(b, node)


@lift_onnx("Resize", since=(11, 13, 18, 19))
def _resize(b: Builder, node: Node) -> Value:
    return resized(b, node)


def resized(b: Builder, node: Node) -> Value:
    """A Resize in the form of version 19 (a superset of 11 on)."""
    x = node.operand(0)
    if x.tensor_type.shape is None:
        raise UnsupportedError("the rank of a Resize's operand is not known", hint="give --input-shape")
    axes = node.attr("axes")
    dims = normalize_axes(axes, x.rank) if axes is not None else tuple(range(x.rank))
    roi = node.optional(1) if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize" else None
    scales, sizes = (_given(node.optional(i), len(dims)) for i in (2, 3))
    if sizes is not None:
        scales, sizes = _kept_aspect(b, x, dims, sizes, node.attr("keep_aspect_ratio_policy", "stretch"))
    elif scales is not None:
        sizes = _scaled_sizes(b, x, dims, scales, roi)
    else:
        raise UnsupportedError("Resize has neither scales nor sizes")
    return _of_changed(b, node, x, dims, sizes, scales, roi)


def _given(vector: Value | None, count: int) -> Value | None:
    """An operand that is there: an empty vector stands for an absent one."""
    if vector is None or (vector.tensor_type.shape == (0,) and count > 0):
        return None
    return vector


def _kept_aspect(b: Builder, x: Value, dims: Sequence[int], sizes: Value, policy: str) -> tuple[Value | None, Value]:
    """Scales (where they are not new size by old) and sizes under a keep_aspect_ratio_policy."""
    if policy == "stretch":
        return None, sizes
    known = [d for a in dims if isinstance(d := x.shape[a], int)]
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


def _scaled_sizes(b: Builder, x: Value, dims: Sequence[int], scales: Value, roi: Value | None) -> Value:
    """floor(size * part * scale), with symbols kept where a scale is a whole number or one by a whole number."""
    lengths = [x.shape[d] for d in dims]
    if scales.is_constant and (roi is None or roi.is_constant):
        parts = np.ones(len(dims), np.float32)
        if roi is not None:
            parts = roi.numpy()[len(dims) :] - roi.numpy()[: len(dims)]
        known = [_times(n, float(s) * float(p)) for n, s, p in zip(lengths, scales.numpy(), parts, strict=True)]
        if all(d is not None for d in known):
            return dim_vector(b, [d for d in known if d is not None], x)
    exact = b(ops.Mul, b(ops.Convert, dim_vector(b, lengths, x), dtype=DType.FLOAT32), scales)
    if roi is not None:
        count = len(dims)
        part = b(ops.Sub, b(ops.Slice, roi, [count], [2 * count], [1]), b(ops.Slice, roi, [0], [count], [1]))
        exact = b(ops.Mul, exact, part)
    return b(ops.Convert, b(ops.Floor, exact), dtype=DType.INT64)


def _times(size: Dim, factor: float) -> Dim | None:
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(factor)))
    if factor == int(factor):
        return size * int(factor)
    inverse = round(1 / factor) if factor > 0 else 0
    return size // inverse if inverse and np.float32(1 / inverse) == np.float32(factor) else None


def _of_changed(
    b: Builder, node: Node, x: Value, dims: Sequence[int], sizes: Value, scales: Value | None, roi: Value | None
) -> Value:
    """A Resize of those axes only whose size or coordinates change."""
    kept = [i for i, d in enumerate(dims) if _changes(x.shape[d], i, len(dims), sizes, scales, roi)]
    if not kept:
        return x
    sizes, scales = (_entries(b, v, kept, len(dims)) for v in (sizes, scales))  # type: ignore[assignment]
    roi = _entries(b, roi, [*kept, *(len(dims) + i for i in kept)], 2 * len(dims))
    attributes = {name: node.attr(name) for name in ops.Resize.defaults if node.attr(name) is not None}
    for name in ("exclude_outside", "antialias"):
        attributes[name] = bool(attributes.get(name, 0))
    return b(ops.Resize, x, sizes, scales, roi, **{**attributes, "dims": tuple(dims[i] for i in kept)})


def _changes(size: Dim, i: int, count: int, sizes: Value, scales: Value | None, roi: Value | None) -> bool:
    """Whether axis i is resampled at all, as far as one can tell."""
    if roi is not None and not (roi.is_constant and roi.numpy()[i] == 0 and roi.numpy()[count + i] == 1):
        return True
    if scales is not None and not (scales.is_constant and scales.numpy()[i] == 1):
        return True
    return sizes.known is None or sizes.known[i] != size


def _entries(b: Builder, vector: Value | None, kept: Sequence[int], count: int) -> Value | None:
    if vector is None or len(kept) == count:
        return vector
    return b(ops.Gather, vector, list(kept), axis=0)
