"""Quantization at run time, over the range of each row, as TFLite's hybrid kernels quantize activations."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value


def on_int8_grid(b: Builder, x: Value, axes: Sequence[int], *, asymmetric: bool) -> Value:
    """`x` rounded to int8 steps over its range along `axes` (one range for each index of the other axes).

    Symmetric: steps of max|x| / 127; asymmetric: 255 steps between the least and the greatest element and 0.
    Source: LiteRT kernels/internal/reference/portable_tensor_utils.cc (PortableSymmetricQuantizeFloats,
    PortableAsymmetricQuantizeFloats); halves are rounded to even, as in its vector kernels.
    """
    real = Term(b, x)
    if not asymmetric:
        scale = _unless_zero(real.abs().reduce("max", axes) / 127.0)
        return ((real / scale).apply("RoundNearestEven") * scale).value
    low, high = real.reduce("min", axes).min(0.0), real.reduce("max", axes).max(0.0)
    scale = _unless_zero((high - low) / 255.0)
    zero = (-128.0 - low / scale).apply("RoundNearestEven")
    steps = (real / scale + zero).apply("RoundNearestEven").clamp(-128.0, 127.0)
    return ((steps - zero) * scale).value


def _unless_zero(scale: Term) -> Term:
    """1 where `scale` is 0."""
    return scale.equals(0.0).choose(scale.constant(1.0), scale)
