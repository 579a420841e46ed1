"""Fourier transforms.

==============  =============================================================================================
ONNX            DFT 17 20, STFT 17
TFLite          RFFT2D, REAL, IMAG, COMPLEX_ABS; to TFLite a DFT is a contraction, an STFT a convolution
==============  =============================================================================================
"""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.math.fourier_matrices import (
    convolved_along,
    fourier,
    number,
    size_along,
    spectrum_of_planes,
    transformed_at,
)

from onnxtfl.build.operands import to_operand
from onnxtfl.build.qlinear import MICROSOFT, lift_op
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import iota, reshape, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl, upgrade

upgrade("DFT", since=(17,))(to_operand("axis", default=1, count=2))


@lift_onnx("DFT", since=(20,))
def _dft(b: Builder, node: Node) -> Value:
    x, length, axis = node.operand(0), node.optional(1), node.optional(2) or constant(np.asarray(-2))
    _check_parts(x)
    count = None if length is None or static_ints(length) == [0] else number(b, length)
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    return transformed_at(b, x, axis, count, inverse, onesided)


def _check_parts(x: Value) -> None:
    known_size(x.shape[-1], "the number of parts (1 or 2) of a transform")


@lift_onnx("STFT", since=(17,))
def _stft(b: Builder, node: Node) -> Value:
    """Multiply frames of the signal [n, size, parts] by a matrix [length, parts, results, 2] (transform, window)."""
    signal, window = node.operand(0), node.optional(2)
    if signal.rank == 2:  # one part, as ONNX Runtime reads it (core/providers/cpu/signal/dft.cc)
        signal = unsqueezed(b, signal, [2])
    _check_parts(signal)
    length = size_along(b, signal if window is None else window, 0 if window is not None else 1)
    length = length if node.optional(3) is None else number(b, node.operand(3))
    matrix = fourier(length, length, False, bool(node.attr("onesided", 1)), signal.size(2)).to(signal.dtype)
    if window is not None:
        matrix = matrix * Term(b, window).along(0, 4)
    step = number(b, node.operand(1))
    known = static_ints(step.value)
    if known is None or static_ints(length.value) is None:
        return _gathered_frames(signal, matrix, length, step)
    return _convolved(b, signal, matrix.value, known[0])


def _convolved(b: Builder, signal: Value, matrix: Value, step: int) -> Value:
    """Return a convolution along the signal with the matrix as its kernel."""
    length, parts, results, both = matrix.shape
    kernel = reshape(b, matrix, (length, parts, product((results, both))))
    frames = convolved_along(b, signal, kernel, step)
    return reshape(b, frames, (*frames.shape[:2], results, both))


def _gathered_frames(signal: Value, matrix: Term, length: Term, step: Term) -> Value:
    """Gather frames at dynamic positions::

    x: [n, size, parts] -> [n, frames, length, parts] x matrix [length, parts, results, 2]
    """
    b = matrix.b
    frames = (size_along(b, signal, 1) - length) // step + 1
    starts = (Term(b, iota(b, frames.value)) * step).along(0, 2)
    places = starts + Term(b, iota(b, length.value))
    return Term(b, signal).apply(ops.Gather, places, axis=1).dot(matrix, (2, 3), (0, 1)).value


@lift_tfl("RFFT2D")
def _tfl_rfft2d(b: Builder, node: Node) -> Value:
    lengths = static_ints(node.operand(1))
    if lengths is not None and lengths[1] == 1 and lengths[0] > 1:
        raise UnsupportedError("LiteRT's kernel does not transform columns of one element", code="E-OP-001")
    real, imaginary = spectrum_of_planes(b, node.operand(0), node.operand(1))
    return real.apply(ops.Complex, imaginary).value


# --- com.microsoft, as older PyTorch exporters wrote them ------------------------------------------------------------


@lift_onnx("Rfft", since=(1,), domain=MICROSOFT)
def _rfft(b: Builder, node: Node) -> Value:
    """Transform real [..., n] to complex [..., n // 2 + 1, 2] (all n if not onesided)."""
    _check_along_last_axis(node)
    x, attributes = unsqueezed(b, node.operand(0), [-1]), {"onesided": int(node.attr("onesided", 1))}
    return lift_op(b, "DFT", 20, [x, None, constant(np.asarray(-2))], attributes)


@lift_onnx("Irfft", since=(1,), domain=MICROSOFT)
def _irfft(b: Builder, node: Node) -> Value:
    """Transform complex [..., n // 2 + 1, 2] to real [..., n], divided by n."""
    _check_along_last_axis(node)
    attributes = {"inverse": 1, "onesided": int(node.attr("onesided", 1))}
    real = lift_op(b, "DFT", 20, [node.operand(0), None, constant(np.asarray(-2))], attributes)
    return b(ops.Gather, real, np.asarray(0), axis=real.rank - 1)


def _check_along_last_axis(node: Node) -> None:
    if node.attr("signal_ndim", 1) != 1 or node.attr("normalized", 0):
        raise UnsupportedError("a transform over several axes, or a normalized one")
