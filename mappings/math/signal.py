"""Fourier transforms and windows.

==============  =============================================================================================
ONNX            DFT 17 20, STFT 17, HannWindow HammingWindow BlackmanWindow 17, MelWeightMatrix 17
TFLite          RFFT2D, REAL, IMAG, COMPLEX_ABS; to TFLite a DFT is a contraction, an STFT a convolution
==============  ============================================================================================="""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnxtfl.mappings.math.fourier import fourier, open_fourier, open_mel_matrix, transformed_at

from onnxtfl.build.dtypes import dtype_from
from onnxtfl.build.operands import moved_last, to_operand
from onnxtfl.build.qlinear import MICROSOFT, lifted
from onnxtfl.build.sizes import as_int32, sliced
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import dim_value, positions, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl, upgrade

upgrade("DFT", since=(17,))(to_operand("axis", default=1, count=2))


@lift_onnx("DFT", since=(20,))
def _dft(b: Builder, node: Node) -> Value:
    x, inverse, onesided = node.operand(0), bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if not isinstance(x.shape[-1], int):
        raise UnsupportedError("a DFT whose number of parts (1 or 2) is unknown", code="E-SHAPE-001")
    where, length = _known(node.optional(2), -2), _known(node.optional(1), 0)
    axis = None if where is None else normalize_axis(where, x.rank)
    size = None if axis is None else x.shape[axis]
    if axis is None or length is None or not isinstance(size, int):
        place = node.optional(2) or constant(np.asarray(-2))
        return transformed_at(b, x, place, node.optional(1), inverse, onesided)
    length = length or (2 * (size - 1) if inverse and onesided else size)
    matrix = fourier(min(size, length // 2 + 1 if inverse and onesided else length), length, inverse, onesided)
    matrix = matrix[:, : x.shape[-1]]
    signal = sliced(b, x, {axis: slice(0, matrix.shape[0])})
    axes = {"lhs_contracting_dimensions": (axis, x.rank - 1), "rhs_contracting_dimensions": (0, 1)}
    order = list(range(x.rank))
    order.insert(axis, order.pop(x.rank - 2))
    spread = tuple(order) if axis != x.rank - 2 else ()
    result = b(ops.DotGeneral, signal, matrix.astype(x.dtype.numpy), **axes, output_permutation=spread)
    return b(ops.Mul, result, b.scalar(1.0 / length, x)) if inverse else result


def _known(value: Value | None, default: int) -> int | None:
    """The integer in an operand, which may be absent; None if it is known only at run time."""
    known = [default] if value is None else static_ints(value)
    return None if known is None else known[0]


@lift_onnx("STFT", since=(17,))
def _stft(b: Builder, node: Node) -> Value:
    """A convolution along the signal with a kernel of the transform's rows times the window."""
    signal, window = node.operand(0), node.optional(2)
    step, length = _known(node.operand(1), 1), _frame_length(node)
    if signal.rank == 2:  # one part, as ONNX Runtime reads it (core/providers/cpu/signal/dft.cc)
        signal = unsqueezed(b, signal, [2])
    parts = signal.shape[2]
    if not isinstance(parts, int):
        raise UnsupportedError("an STFT whose number of parts (1 or 2) is unknown", code="E-SHAPE-001")
    if step is None or length is None:
        return _open_stft(b, node, signal, parts)
    matrix = fourier(length, length, False, bool(node.attr("onesided", 1)))[:, :parts]
    kernel: Value = constant(matrix.reshape(length, parts, -1).astype(signal.dtype.numpy))
    if window is not None:
        kernel = b(ops.Mul, kernel, reshape(b, window, (length, 1, 1)))
    spatial = {"input_spatial_dimensions": (1,), "output_spatial_dimensions": (1,), "kernel_spatial_dimensions": (0,)}
    features = {"input_feature_dimension": 2, "output_feature_dimension": 2}
    kernels = {"kernel_input_feature_dimension": 1, "kernel_output_feature_dimension": 2}
    slide = {"window_strides": (step,), "padding": (0, 0), "rhs_dilation": (1,)}
    frames = b(ops.Conv, signal, kernel, None, **spatial, **features, **kernels, **slide)
    return reshape(b, frames, (signal.shape[0], frames.shape[1], matrix.shape[2], 2))


def _frame_length(node: Node) -> int | None:
    """The number of elements in a frame: that of the window, or of the signal; None if known only at run time."""
    given = node.optional(3)
    if given is not None and (known := _known(given, 0)) is not None:
        return known
    window = node.optional(2)
    size = window.shape[0] if window is not None else None if given is not None else node.operand(0).shape[1]
    return size if isinstance(size, int) else None


def _open_stft(b: Builder, node: Node, signal: Value, parts: int) -> Value:
    """Frames gathered at positions known only at run time, times a matrix that is computed there::

    x: [n, size, parts] -> [n, frames, length, parts] x matrix [length, parts, results, 2]
    """
    window, given = node.optional(2), node.optional(3)
    step = Term(b, reshape(b, as_int32(b, node.operand(1)), (1,)))
    size = Term(b, as_int32(b, dim_value(b, signal.shape[1], signal)))
    whole = size if window is None else Term(b, as_int32(b, dim_value(b, window.shape[0], window)))
    length = whole if given is None else Term(b, reshape(b, as_int32(b, given), (1,)))
    frames = (size - length).apply(ops.FloorDiv, step) + 1
    starts = (Term(b, positions(b, frames.value)) * step).along(0, 2)
    places = starts + Term(b, positions(b, length.value))
    matrix, _ = open_fourier(b, length, length, False, bool(node.attr("onesided", 1)), parts)
    weights = Term(b, matrix).to(signal.dtype)
    if window is not None:
        weights = weights * Term(b, b(ops.Reshape, window, np.asarray([-1, 1, 1, 1])))
    taken = b(ops.Gather, signal, places.value, axis=1)
    axes = {"lhs_contracting_dimensions": (2, 3), "rhs_contracting_dimensions": (0, 1)}
    return b(ops.DotGeneral, taken, weights.value, **axes)


@lift_tfl("RFFT2D")
def _tfl_rfft2d(b: Builder, node: Node) -> Value:
    """The spectrum of the last two axes: one after the other, the last onesided; too short a signal has zeros after."""
    x, lengths = node.operand(0), static_ints(node.operand(1))
    sizes = [d for d in x.shape[-2:] if isinstance(d, int)]
    if lengths is None or len(sizes) != 2:
        return _rfft2d_of_run_time(b, x, node.operand(1))
    if lengths[1] == 1 and lengths[0] > 1:
        raise UnsupportedError("LiteRT's kernel does not transform columns of one element", code="E-OP-001")
    taken = [min(size, length) for size, length in zip(sizes, lengths, strict=True)]
    x = sliced(b, x, {axis: slice(0, n) for axis, n in zip((x.rank - 2, x.rank - 1), taken, strict=True)})
    rows, columns = fourier(taken[1], lengths[1], False, True)[:, 0], fourier(taken[0], lengths[0], False, False)
    last = {"lhs_contracting_dimensions": (x.rank - 1,), "rhs_contracting_dimensions": (0,)}
    half = b(ops.DotGeneral, x, rows.astype(np.float32), **last)
    both = {"lhs_contracting_dimensions": (x.rank - 2, x.rank), "rhs_contracting_dimensions": (0, 1)}
    order = (*range(x.rank - 2), x.rank - 1, x.rank - 2, x.rank)
    full = b(ops.DotGeneral, half, columns.astype(np.float32), **both, output_permutation=order)
    real, imaginary = (Term(b, full).at(i, x.rank) for i in (0, 1))
    return real.apply(ops.Complex, imaginary).value


def _rfft2d_of_run_time(b: Builder, x: Value, lengths: Value) -> Value:
    """RFFT2D by matrices that a run computes, since it alone knows the sizes."""
    signal, (columns, rows) = Term(b, x), (Term(b, lengths).to(DType.INT64).at(i, 0) for i in (0, 1))
    half = rows.apply(ops.FloorDiv, 2) + 1
    width, height = (b(ops.Convert, dim_value(b, x.shape[i], x), dtype=DType.INT64) for i in (-1, -2))
    cosine, sine = _waves(b, width, rows, half)
    real, imaginary = (_contracted(signal, wave) for wave in (cosine, sine))
    cosine, sine = _waves(b, height, columns, columns)
    turned = [Term(b, transposed(b, v.value, moved_last(x.rank - 2, x.rank))) for v in (real, imaginary)]
    real = _contracted(turned[0], cosine) - _contracted(turned[1], sine)
    imaginary = _contracted(turned[0], sine) + _contracted(turned[1], cosine)
    parts = [Term(b, transposed(b, v.value, moved_last(x.rank - 2, x.rank))) for v in (real, imaginary)]
    return parts[0].apply(ops.Complex, parts[1]).value


def _waves(b: Builder, size: Value, length: Term, count: Term) -> tuple[Term, Term]:
    """The matrices [size, count] of cos and -sin of 2 pi i k / length, 0 where i is not below `length`."""
    index = Term(b, unsqueezed(b, positions(b, size), [1]))
    turns = index * Term(b, unsqueezed(b, positions(b, count.value), [0])) % length
    angles = turns.to(DType.FLOAT32) / length.to(DType.FLOAT32) * (2 * math.pi)
    inside = (index < length).to(DType.FLOAT32)
    return angles.apply(ops.Cos) * inside, -angles.apply(ops.Sin) * inside


def _contracted(x: Term, matrix: Term) -> Term:
    """The last axis of `x` times `matrix`."""
    return x.apply(ops.DotGeneral, matrix, lhs_contracting_dimensions=(x.rank - 1,), rhs_contracting_dimensions=(0,))


_WINDOWS = {"HannWindow": (0.5, 0.5), "HammingWindow": (25 / 46, 21 / 46), "BlackmanWindow": (0.42, 0.5, 0.08)}


@lift_onnx("HannWindow", since=(17,))
@lift_onnx("HammingWindow", since=(17,))
@lift_onnx("BlackmanWindow", since=(17,))
def _window(b: Builder, node: Node) -> Value:
    """a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), with N the size, or one less if not periodic."""
    size, dtype = node.operand(0), dtype_from(node.attr("output_datatype", 1))
    factors, less = _WINDOWS[node.op.name.removeprefix("onnx.")], 0 if node.attr("periodic", 1) else 1
    known = static_ints(size)
    if known:
        check_elements(known[0], "the window")
        places = np.arange(known[0]) / (known[0] - less)
        numbers = sum(a * (-1) ** k * np.cos(2 * np.pi * k * places) for k, a in enumerate(factors))
        return b(ops.Convert, constant(np.asarray(numbers, np.float32)), dtype=dtype)
    index, period = (Term(b, v).to(DType.FLOAT32) for v in (positions(b, size), reshape(b, size, ())))
    n = index / (period - float(less))
    total: Any = factors[0]
    for k, factor in enumerate(factors[1:], 1):
        total = (n * (2 * math.pi * k)).apply(ops.Cos) * (factor * (-1) ** k) + total
    return b(ops.Convert, total.value, dtype=dtype)


@lift_onnx("MelWeightMatrix", since=(17,))
def _mel_weight_matrix(b: Builder, node: Node) -> Value:
    """Triangles over the spectrum; source: ONNX's reference implementation."""
    if not all(v is not None and v.is_constant for v in node.operands):
        bands = open_mel_matrix(b, *(node.operand(i) for i in range(5)))
        return b(ops.Convert, bands, dtype=dtype_from(node.attr("output_datatype", 1)))
    bins, length, rate = (int(node.operand(i).numpy().reshape(-1)[0]) for i in range(3))
    check_elements((length // 2 + 1) * bins, "the matrix")
    lower, upper = (float(node.operand(i).numpy().reshape(-1)[0]) for i in (3, 4))
    matrix = mel_matrix(bins, length, rate, lower, upper).astype(np.float32)
    return b(ops.Convert, constant(matrix), dtype=dtype_from(node.attr("output_datatype", 1)))


def mel_matrix(bins: int, length: int, rate: int, lower: float, upper: float) -> Array:
    """The weights [length // 2 + 1, bins] with which a spectrum is gathered into mel bands."""
    low, high = (2595 * np.log1p(f / 700) / np.log(10) for f in (lower, upper))
    mels = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    edges = (((length + 1) * 700 * np.expm1(mels / 2595 * np.log(10))) // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bins))
    if edges[-1] > len(matrix):
        raise ValueError(f"bands up to line {edges[-1]} of a spectrum of {len(matrix)}")
    for i, (left, center, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising, falling = np.arange(left, center + 1), np.arange(center, right)
        matrix[rising, i] = (rising - left) / (center - left) if center > left else 1
        if right > center:
            matrix[falling, i] = (right - falling) / (right - center)
    return matrix


# --- com.microsoft, as older PyTorch exporters wrote them ------------------------------------------------------------


@lift_onnx("Rfft", since=(1,), domain=MICROSOFT)
def _rfft(b: Builder, node: Node) -> Value:
    """Real [..., n] to complex [..., n // 2 + 1, 2] (all n where it is not one-sided)."""
    _check_along_last_axis(node)
    x, attributes = unsqueezed(b, node.operand(0), [-1]), {"onesided": int(node.attr("onesided", 1))}
    return lifted(b, "DFT", 20, [x, None, constant(np.asarray(-2))], attributes)


@lift_onnx("Irfft", since=(1,), domain=MICROSOFT)
def _irfft(b: Builder, node: Node) -> Value:
    """Complex [..., n // 2 + 1, 2] to real [..., n], divided by n."""
    _check_along_last_axis(node)
    attributes = {"inverse": 1, "onesided": int(node.attr("onesided", 1))}
    real = lifted(b, "DFT", 20, [node.operand(0), None, constant(np.asarray(-2))], attributes)
    return b(ops.Gather, real, np.asarray(0), axis=real.rank - 1)


def _check_along_last_axis(node: Node) -> None:
    if node.attr("signal_ndim", 1) != 1 or node.attr("normalized", 0):
        raise UnsupportedError("a transform of several axes, or a normalized one")
