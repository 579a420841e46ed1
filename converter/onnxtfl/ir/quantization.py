"""Quantization parameters as a part of a tensor's type, and the one arithmetic for them.

real = scale * (stored - zero_point), in float32. Back: round(real / scale) + zero_point, where halves are rounded to
even, as ONNX's QuantizeLinear and the vector kernels of LiteRT round (its plain C++ kernels round halves away from 0:
half-way cases may differ by 1 there); what is out of range becomes the least or the greatest stored number. With stored
numbers of 32 bits the arithmetic is that of float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.ir.dims import Shape, product, static
from onnxtfl.ir.dtypes import Array, DType


@dataclass(frozen=True, slots=True)
class Quantization:
    """How real numbers are stored as integers; carried bit for bit, never re-estimated.

    One scale and zero point for the tensor (`axis` None), one for each index of `axis`, or one for each block of
    `block` elements along `axis` (then `scales` is row-major over the blocked shape).
    `scales` are the float32 values widened to Python floats, which keeps them exact.
    """

    storage: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points):
            raise ValueError(f"{len(self.scales)} scales but {len(self.zero_points)} zero points")
        if self.axis is None and len(self.scales) != 1:
            raise ValueError("several scales need an axis")

    @property
    def per_tensor(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return self.axis is None

    @property
    def dtype(self) -> DType:
        """The element type of the stored numbers."""
        return DType(self.storage)

    def fits(self, shape: Shape | None) -> bool:
        """Whether there is a scale for each index, or block, of `axis`, as far as `shape` is known."""
        if self.axis is None or shape is None:
            return True
        if not self.axis < len(shape):
            return False
        if self.block is None:
            size = shape[self.axis]
            return size == len(self.scales) or not isinstance(size, int)
        return not static(shape) or math.prod(self._blocked(shape)) == len(self.scales)

    def _blocked(self, shape: Sequence[Any]) -> list[int]:
        """The shape of the scales of blocks of a tensor of the static `shape`."""
        return [-(-int(d) // (self.block or 1)) if i == self.axis else int(d) for i, d in enumerate(shape)]

    def permuted(self, permutation: Sequence[int], shape: Shape) -> Quantization:
        """The parameters of a transposed tensor, before of `shape`; ValueError for blocks of an unknown shape."""
        if self.axis is None:
            return self
        axis = list(permutation).index(self.axis)
        if self.block is None:
            return replace(self, axis=axis)
        if not static(shape):
            raise ValueError(f"blocks of a tensor of {shape} cannot be transposed")
        places = np.arange(len(self.scales)).reshape(self._blocked(shape)).transpose(permutation).reshape(-1)
        scales = tuple(self.scales[i] for i in places.tolist())
        zero_points = tuple(self.zero_points[i] for i in places.tolist())
        return replace(self, scales=scales, zero_points=zero_points, axis=axis)

    def reshaped(self, before: Shape, after: Shape) -> Quantization | None:
        """The parameters of a tensor that is reshaped; None where its axis does not stay one by itself."""
        if self.axis is None:
            return self
        outer = product(before[: self.axis])
        for axis, size in enumerate(after):
            if size == before[self.axis] and product(after[:axis]) == outer:
                return replace(self, axis=axis)
        return None

    def __str__(self) -> str:
        where = "" if self.axis is None else f" axis={self.axis}"
        where += "" if self.block is None else f" block={self.block}"
        pairs = " ".join(f"{s!r}:{z}" for s, z in zip(self.scales, self.zero_points, strict=True))
        return f"quant<{self.storage}{where} {pairs}>"


def spread(parameters: Array, shape: Sequence[int], axis: int | None, block: int | None) -> Array:
    """Scales or zero points (for the tensor, along `axis`, or for blocks) so that they broadcast over `shape`."""
    if axis is None:
        return parameters.reshape(())
    if block:
        return np.repeat(parameters, block, axis).take(np.arange(shape[axis]), axis)
    return parameters.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


def to_stored(real: Array, scale: Array, zero_point: Array | int, dtype: DType) -> Array:
    """Real numbers as integers of `dtype`; scale and zero point broadcast."""
    with np.errstate(all="ignore"):
        return np.clip(np.rint(real / scale) + zero_point, *limits(dtype)).astype(np.int64).astype(dtype.numpy)


def to_real(stored: Array, scale: Array, zero_point: Array | int) -> Array:
    """The real numbers, in the type of `scale`, that stored ones stand for; scale and zero point broadcast."""
    return np.asarray((stored - zero_point).astype(scale.dtype) * scale)


def quantize(real: Array, quantization: Quantization) -> Array:
    """The integers that real numbers are stored as."""
    scale, zero = _spread(quantization, real.shape)
    return to_stored(real.astype(scale.dtype), scale, zero.astype(scale.dtype), quantization.dtype)


def dequantize(stored: Array, quantization: Quantization, dtype: DType = DType.FLOAT32) -> Array:
    """The real numbers, as `dtype`, that stored integers stand for."""
    return to_real(stored.astype(np.int64), *_spread(quantization, stored.shape)).astype(dtype.numpy)


def _spread(quantization: Quantization, shape: Sequence[int]) -> tuple[Array, Array]:
    wide = np.float64 if quantization.dtype.bits >= 32 else np.float32
    scales: Array = np.asarray(quantization.scales, wide)
    zeros: Array = np.asarray(quantization.zero_points, np.int64)
    axis, block = quantization.axis, quantization.block
    if block is not None:
        scales, zeros = (values.reshape(quantization._blocked(shape)) for values in (scales, zeros))
    return spread(scales, shape, axis, block), spread(zeros, shape, axis, block)
