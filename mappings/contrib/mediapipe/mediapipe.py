"""Custom ops of MediaPipe's models: transposed convolution with a bias, max pooling with indices and its inverse, and
transforms of landmarks and images by a matrix.

Options are FlexBuffers, or C structs of 32-bit integers. No Python runtime has these kernels. Source:
google-ai-edge/mediapipe, mediapipe/util/tflite/operations; LiteRT kernels/perception (MaxPoolWithArgmax)."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.build.custom_options import custom_integers, custom_options
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size, known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.convolution import channels_last_attributes
from onnxtfl.ir.reshape import broadcast, reshape, transposed, unsqueezed
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl

_PADDINGS = {1: "SAME", 2: "VALID"}


# --- TfLiteTransposeConvParams, TfLitePoolParams ----------------------------------------------------------------------


def _padding(number: int) -> str:
    """SAME or VALID, from the value of the enum TfLitePadding."""
    if number not in _PADDINGS:
        raise ValueError(f"padding is {number}: 1 (SAME) or 2 (VALID) expected")
    return _PADDINGS[number]


def _sizes(x: Value) -> list[int]:
    """The height and width of an image [n, h, w, c]. Raises UnsupportedError if one is dynamic."""
    sizes = known_sizes(x.shape[1:3])
    if x.rank != 4 or len(sizes) < 2:
        raise UnsupportedError("an image [n, h, w, c] of known height and width is needed", code="E-SHAPE-001")
    return sizes


@lift_tfl("custom:Convolution2DTransposeBias")
def _conv_transpose_bias(b: Builder, node: Node) -> Value:
    """Transposed convolution plus bias, without padding (VALID), or cropped (SAME).

    SAME crops each axis of the result by max(0, kernel - (size - 1) % stride - 1) elements in total.
    """
    x, kernel, bias = (node.operand(i) for i in range(3))
    number, *strides = custom_integers(node, 3)
    strides.reverse()  # the width is first in the struct
    same, sizes, spans = _padding(number) == "SAME", _sizes(x), kernel.shape[1:3]
    axes = zip(spans, sizes, strides, strict=True)
    totals = [max(0, span - (size - 1) % stride - 1) if same else 0 for span, size, stride in axes]
    padding = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    window = {"window_strides": tuple(strides), "rhs_dilation": (1, 1), "padding": padding}
    return b(ops.ConvTranspose, x, kernel, bias, **channels_last_attributes(2, 3, 0, (1, 2)), **window)


def _pool_window(padding: str, shape: tuple[int, int], strides: tuple[int, int], sizes: list[int]) -> Window:
    """The window of a pool over an image of these sizes, with explicit padding."""
    return Window(shape, strides, (1, 1), SAME if padding == "SAME" else (0, 0, 0, 0)).explicit(sizes)


def _pooled_with_indices(b: Builder, x: Value, window: Window) -> tuple[Value, Term, Term]:
    """The maximum of each window, and its row and column in the image."""
    height, width = _sizes(x)
    image = transposed(b, x, (0, 3, 1, 2))  # MaxPool's indices are flat over [n, c, h, w]
    pair = b.many(ops.MaxPool, image, **ops.pool_attributes(window, (2, 3)), return_indices=True)
    largest, flat = (transposed(b, v, (0, 2, 3, 1)) for v in pair)
    flat_index = Term(b, flat)
    return largest, flat_index.apply(ops.Div, width).apply(ops.Rem, height), flat_index.apply(ops.Rem, width)


@lift_tfl("custom:MaxPoolWithArgmax")
def _max_pool_with_argmax(b: Builder, node: Node) -> list[Value]:
    """Maxima and their indices, flat over [height, width, channels]: int32, or int64 as TensorFlow writes them."""
    options, x = custom_options(node), node.operand(0)
    shape, strides = ([int(n) for n in options[name]] for name in ("ksize", "strides"))
    padding = options.get("padding")
    unit = (shape[0], shape[3], strides[0], strides[3]) == (1, 1, 1, 1)
    if not unit or options.get("include_batch_in_index") or padding not in ("SAME", "VALID"):
        raise ValueError(
            f"a pool over height and width, with padding SAME or VALID, expected; its options are {options}"
        )
    window = _pool_window(padding, (shape[1], shape[2]), (strides[1], strides[2]), _sizes(x))
    largest, row, column = _pooled_with_indices(b, x, window)
    channel = constant(np.arange(_channels(x)))
    index = (row * _sizes(x)[1] + column) * _channels(x) + Term(b, channel)
    wide = node.results[1].dtype is DType.INT64
    return [largest, index.to(DType.INT64 if wide else DType.INT32).value]


def _channels(x: Value) -> int:
    """The number of channels of an image [n, h, w, c]. Raises UnsupportedError if it is dynamic."""
    return known_size(x.shape[3], "the number of channels of an image")


def _pool_options(node: Node) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """Padding, window (height, width) and strides (height, width) from a TfLitePoolParams struct."""
    number, stride_w, stride_h, width, height, activation = custom_integers(node, 6)
    if activation or min(stride_w, stride_h, width, height) < 1:
        raise UnsupportedError(
            f"a pool with indices needs activation 0 (is {activation}), and positive strides and window sizes"
        )
    return _padding(number), (height, width), (stride_h, stride_w)


@lift_tfl("custom:MaxPoolingWithArgmax2D")
def _max_pooling_with_argmax(b: Builder, node: Node) -> list[Value]:
    """Maxima and their float32 indices, flat within the window, plus 0.1 so that truncation returns the integer."""
    x = node.operand(0)
    padding, shape, strides = _pool_options(node)
    window = _pool_window(padding, shape, strides, _sizes(x))
    largest, row, column = _pooled_with_indices(b, x, window)
    counts = largest.shape[1:3]
    corners = [np.arange(n) * s - f for n, s, f in zip(counts, strides, window.before, strict=True)]
    in_window = (row - Term(b, constant(corners[0][:, None, None]))) * shape[1] + column
    index = in_window - Term(b, constant(corners[1][:, None]))
    return [largest, (index.to(DType.FLOAT32) + 0.1).value]


@lift_tfl("custom:MaxUnpooling2D")
def _max_unpooling(b: Builder, node: Node) -> Value:
    """Scatter each element to its index in a larger image of zeros; of several elements at one index, the last counts.

    Indices are int32 into the result (LiteRT), or float32 within each window (MediaPipe).
    """
    x, indices = node.operand(0), Term(b, node.operand(1))
    padding, shape, strides = _pool_options(node)
    (height, width), channels = _sizes(x), _channels(x)
    if indices.dtype is DType.INT32:  # LiteRT: flat over the result
        sizes = [
            n * s if padding == "SAME" else (n - 1) * s + k
            for n, s, k in zip((height, width), strides, shape, strict=True)
        ]
        return _scatter_to_image(b, x, indices.to(DType.INT64), (*sizes, channels))
    if any(s < k for s, k in zip(strides, shape, strict=True)):
        raise UnsupportedError("unpooling of overlapping windows (stride < window) is not supported")
    flat_index, sizes = indices.to(DType.INT64), [height * shape[0], width * shape[1]]
    rows, columns = (np.arange(n) * s for n, s in zip((height, width), strides, strict=True))
    row = flat_index.apply(ops.Div, shape[1]) + Term(b, constant(rows[:, None, None]))
    column = flat_index.apply(ops.Rem, shape[1]) + Term(b, constant(columns[:, None]))
    flat = (row * sizes[1] + column) * channels + Term(b, constant(np.arange(channels)))
    return _scatter_to_image(b, x, flat, (*sizes, channels))


def _scatter_to_image(b: Builder, x: Value, index: Term, shape: tuple[int, ...]) -> Value:
    """Scatter the elements of each image of `x` to their flat indices in zeros of `shape`."""
    batch, count = x.shape[0], product(x.shape[1:])
    zeros = broadcast(b, b.scalar(0.0, x), (batch, product(shape)), x)
    indices, values = (reshape(b, v, (batch, count)) for v in (index.value, x))
    return reshape(b, b(ops.ScatterElements, zeros, indices, values, axis=1), (batch, *shape))


# --- Transforms by a matrix [1, 4, 4] ---------------------------------------------------------------------------------


def _affine_map(b: Builder, matrix: Value) -> Term:
    """The map of (x, y, 1) to (x, y) [3, 2]: the transposed first two rows of the matrix, without the column of z."""
    without_z = b(ops.Gather, reshape(b, matrix, (4, 4)), np.asarray([0, 1, 3]), axis=1)
    return Term(b, transposed(b, slice_axes(b, without_z, {0: slice(0, 2)}), (1, 0)))


@lift_tfl("custom:TransformLandmarks")
def _transform_landmarks(b: Builder, node: Node) -> Value:
    """The landmarks with x and y transformed by the matrix; z is unchanged."""
    x, options = node.operand(0), custom_options(node)
    first_version = node.op.version < 2
    depth = int(options.get("dimensions") or 0) if first_version else x.shape[-1]
    scale = float(options.get("scale") or 0) if first_version else 1.0
    if depth not in (2, 3) or scale == 0 or x.shape[-1] % depth:
        raise ValueError(
            f"landmarks of 2 or 3 dimensions and a nonzero scale expected; options {options}, shape {x.shape}"
        )
    landmarks = reshape(b, x, (product(x.shape) // depth, depth))
    rows = _affine_map(b, node.operand(1))
    rotation, shift = (Term(b, slice_axes(b, rows.value, {0: part})) for part in (slice(0, 2), slice(2, 3)))
    moved = Term(b, slice_axes(b, landmarks, {1: slice(0, 2)})).dot(rotation, (1,), (0,)) + shift * scale
    parts = [moved.value, *([slice_axes(b, landmarks, {1: slice(2, 3)})] if depth == 3 else [])]
    return reshape(b, parts[0] if depth == 2 else b(ops.Concatenate, *parts, axis=1), x.shape)


@lift_tfl("custom:TransformTensorBilinear", "custom:TransformTensor")
def _transform_tensor(b: Builder, node: Node) -> Value:
    """The image sampled bilinearly at the transformed coordinates of each result element; 0 outside of the image."""
    x, options = node.operand(0), custom_options(node)
    first_version = node.op.version < 2
    wanted = options.get("output_size") if first_version else [options.get(f"output_{a}") for a in ("height", "width")]
    sizes = [n for n in known_sizes(wanted or ()) if n > 0]
    if len(sizes) != 2 or options.get("mode", "bilinear") != "bilinear":
        raise ValueError(f"an output size and mode bilinear expected; the options are {options}")
    (height, width), (out_h, out_w), half = _sizes(x), sizes, 0.0 if first_version else 0.5
    columns, rows = np.meshgrid(np.arange(out_w) + half, np.arange(out_h) + half)
    points = constant(np.stack([columns, rows, np.ones_like(rows)], -1).astype(np.float32))
    found = Term(b, points).dot(_affine_map(b, node.operand(1)), (2,), (0,)) - half
    limits = Term(b, constant(np.asarray([width - 1, height - 1], np.float32)))
    in_window = ((found >= 0.0) & (found <= limits)).to(DType.FLOAT32).reduce("min", [2])
    steps = Term(b, constant(np.asarray([max(width - 1, 1), max(height - 1, 1)], np.float32)))
    grid = unsqueezed(b, (found.clamp(0.0, None).min(limits) / steps * 2.0 - 1.0).value, [0])
    image = transposed(b, x, (0, 3, 1, 2))
    sampled = b(ops.GridSample, image, grid, mode="linear", padding_mode="border", align_corners=True)
    return (Term(b, transposed(b, sampled, (0, 2, 3, 1))) * in_window).value


@lift_tfl("custom:Landmarks2TransformMatrix")
def _landmarks_to_matrix(b: Builder, node: Node) -> Value:
    """The matrix that maps coordinates of an upright crop around the landmarks to the image.

    matrix = translation to the crop's center @ rotation @ scale @ translation of the crop's center to 0
    """
    options = custom_options(node)
    return (_matrix_1 if node.op.version < 2 else _matrix_2)(b, Term(b, node.operand(0)), options)


def _landmarks_at(x: Term, indices: object) -> Term:
    """x and y [n, 2] of the landmarks at `indices`; a landmark has three elements."""
    landmarks = reshape(x.b, x.value, (product(x.value.shape) // 3, 3))
    return Term(x.b, slice_axes(x.b, x.b(ops.Gather, landmarks, np.asarray(indices), axis=0), {1: slice(0, 2)}))


def _step_of_rotation(x: Term, options: dict[str, object]) -> tuple[Term, Term]:
    """x and y of the step from the left to the right landmark of the rotation."""
    ends = _landmarks_at(x, [_index_option(options, f"{side}_rotation_idx") for side in ("left", "right")])
    step = ends.at(1, 0) - ends.at(0, 0)
    return step.at(0, 0), step.at(1, 0)


def _cos_sin(angle: Term) -> tuple[Term, Term]:
    """Cosine and sine."""
    return angle.apply(ops.Cos), angle.apply(ops.Sin)


def _bounds(points: Term, cosine: Term, sine: Term) -> tuple[Term, Term, Term, Term]:
    """The width and height of the bounding box of the rotated points, and its center, rotated back."""
    x, y = points.at(0, 1), points.at(1, 1)
    rotated_points = (x * cosine - y * sine, x * sine + y * cosine)
    maxima = [v.reduce("max", [0], keepdims=False) for v in rotated_points]
    minima = [v.reduce("min", [0], keepdims=False) for v in rotated_points]
    mid_x, mid_y = ((a + c) * 0.5 for a, c in zip(maxima, minima, strict=True))
    return maxima[0] - minima[0], maxima[1] - minima[1], mid_x * cosine + mid_y * sine, mid_y * cosine - mid_x * sine


def _matrix_2(b: Builder, x: Term, options: dict[str, object]) -> Value:
    """The matrix of version 2, in pixels of the crop and of the image."""
    height, width = (_positive_option(options, f"output_{a}") for a in ("height", "width"))
    step_x, step_y = _step_of_rotation(x, options)
    target: Any = options.get("target_rotation_radians") or 0.0
    angle = -(step_y.apply(ops.Atan2, step_x)) + float(target)
    cosine, sine = _cos_sin(angle)
    crop_w, crop_h, mid_x, mid_y = _bounds(_landmarks_at(x, options["subset_idxs"]), cosine, sine)
    scale_x = crop_w * (_positive_option(options, "scale_x") / width)
    scale_y = crop_h * (_positive_option(options, "scale_y") / height)
    return _rotation_matrix(b, cosine, sine, (scale_x, scale_y), (mid_x, mid_y), (-width / 2, -height / 2))


def _matrix_1(b: Builder, x: Term, options: dict[str, object]) -> Value:
    """The matrix of version 1: coordinates are relative, -1 to 1 in the crop, `landmarks_range` in the image."""
    (in_h, in_w), (out_h, out_w) = (_pair_option(options, f"{side}_hw") for side in ("input", "output"))
    landmarks_range, factor = (_positive_option(options, name) for name in ("landmarks_range", "bbox_size_multiplier"))
    step_x, step_y = _step_of_rotation(x, options)
    cosine, sine = _cos_sin(-((step_y / step_x).apply(ops.Atan)))
    crop_w, crop_h, mid_x, mid_y = _bounds(_landmarks_at(x, options["subset"]), cosine, sine)
    half_w, half_h = (in_w - 1) / 2, (in_h - 1) / 2
    scale = (crop_w * (factor / landmarks_range), crop_h * (factor / landmarks_range))
    to_crop = (2 / (out_w - 1), 2 / (out_h - 1))
    rows = []
    for half, mid, pair in ((half_w, mid_x, (cosine, sine)), (half_h, mid_y, (-sine, cosine))):
        first, second = (p * s * half for p, s in zip(pair, scale, strict=True))
        # the offsets -1 and +1 of the two coordinate systems cancel out
        shift = mid * (2.0 / landmarks_range) * half - first - second
        rows.append((first * to_crop[0], second * to_crop[1], shift))
    return _matrix_of_rows(b, rows)


def _rotation_matrix(
    b: Builder,
    cosine: Term,
    sine: Term,
    scale: tuple[Term, Term],
    middle: tuple[Term, Term],
    corner: tuple[float, float],
) -> Value:
    """The matrix of a scaling and rotation about `corner`, then a translation to `middle`."""
    rows = []
    for mid, (c, s) in zip(middle, ((cosine, sine), (-sine, cosine)), strict=True):
        first, second = c * scale[0], s * scale[1]
        rows.append((first, second, first * corner[0] + second * corner[1] + mid))
    return _matrix_of_rows(b, rows)


def _matrix_of_rows(b: Builder, rows: list[tuple[Term, Term, Term]]) -> Value:
    """The matrix [1, 4, 4] from its first two rows, as coefficients of (x, y, 1); z is unchanged."""
    zero = b.scalar(0.0, DType.FLOAT32)
    elements = [v for x, y, one in rows for v in (x.value, y.value, zero, one.value)]
    top = b(ops.Concatenate, *(reshape(b, v, (1,)) for v in elements), axis=0)
    rest = np.asarray([0, 0, 1, 0, 0, 0, 0, 1], np.float32)
    return reshape(b, b(ops.Concatenate, top, rest, axis=0), (1, 4, 4))


def _positive_option(options: dict[str, object], name: str) -> float:
    """The option `name`, a number above 0. Raises ValueError for others."""
    found = options.get(name)
    if not isinstance(found, int | float) or found <= 0:
        raise ValueError(f"{name} is {found}: a number above 0 expected")
    return float(found)


def _index_option(options: dict[str, object], name: str) -> int:
    """The option `name`, an integer of at least 0. Raises ValueError for others."""
    found = options.get(name)
    if not isinstance(found, int) or found < 0:
        raise ValueError(f"{name} is {found}: an integer of at least 0 expected")
    return found


def _pair_option(options: dict[str, object], name: str) -> tuple[float, float]:
    """The option `name`, two numbers above 0. Raises ValueError for others."""
    found = options.get(name)
    if not isinstance(found, list) or len(found) != 2 or min(found) <= 0:
        raise ValueError(f"{name} is {found}: two numbers above 0 expected")
    return float(found[0]), float(found[1])
