"""Quantization parameters, a part of tensor types, and the arithmetic of quantize and dequantize.

real = scale * (stored - zero_point) and stored = clamp(round(real / scale) + zero_point), in float32, or in float64 if
stored in 32 bits. Halves are rounded to even, like ONNX's QuantizeLinear and the vector kernels of LiteRT (its plain
C++ kernels round halves away from 0: ties may differ by 1 there).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import Shape, differ, is_static, product
from onnxtfl.ir.dtypes import Array, DType

UINT8_OFFSET = 128
"""The difference between the uint8 and the int8 integer that store the same real value."""


class StoredNumbers(Sequence[Any]):
    """The numbers in a constant, which are read when they are needed: a language model has millions of scales.

    Equal if the keys of the constants are equal.
    """

    def __init__(self, data: TensorData) -> None:
        self.data = data

    def __len__(self) -> int:
        return self.data.size

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = self.data.numpy().reshape(-1)[index].tolist()
        return tuple(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data.numpy().reshape(-1).tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.data.numpy().reshape(-1), dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredNumbers) and self.data.key == other.data.key

    def __hash__(self) -> int:
        return hash(self.data.key)


@dataclass(frozen=True, slots=True)
class Zeros(Sequence[int]):
    """As many zeros as there are scales."""

    length: int

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return (0,) * len(range(self.length)[index]) if isinstance(index, slice) else 0

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0, self.length)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.zeros(self.length, dtype or np.int64)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How real values are stored as integers; parameters are copied exactly, never re-estimated.

    One scale and zero point for the tensor (`axis` None), one for each index of `axis`, or one for each block of
    `block` elements along `axis` (then `scales` is row-major over the blocked shape).
    `scales` are the float32 values widened to Python floats, which keeps them exact; those of blocks may be
    `StoredNumbers`, and their zero points `Zeros`.
    """

    storage: str
    scales: Sequence[float]
    zero_points: Sequence[int]
    axis: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points):
            raise ValueError(f"{len(self.scales)} scales but {len(self.zero_points)} zero points")
        if self.axis is None and len(self.scales) != 1:
            raise ValueError("several scales need an axis")

    @property
    def per_tensor(self) -> bool:
        """Whether the tensor has a single scale."""
        return self.axis is None

    @property
    def dtype(self) -> DType:
        """The element type of the stored integers."""
        return DType(self.storage)

    @property
    def is_centered(self) -> bool:
        """Whether all zero points are 0."""
        return isinstance(self.zero_points, Zeros) or not any(self.zero_points)

    def stores(self, number: float) -> bool:
        """Whether `number` is quantized without rounding (per-tensor parameters)."""
        if not self.per_tensor or not math.isfinite(number):
            return False
        real = np.asarray([number], np.float32)
        return bool(dequantize(quantize(real, self), self)[0] == real[0])

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest real value that is stored (per-tensor parameters)."""
        low, high = dequantize(np.asarray(limits(self.dtype)), self)
        return float(low), float(high)

    def along(self, parameters: Array, rank: int) -> Array:
        """Parameters, one or one for each index of the axis, in a shape that broadcasts to a tensor of `rank`."""
        return broadcastable(parameters, (1,) * rank, self.axis, None)

    def bounds_along(self, rank: int) -> list[Array]:
        """The least and the greatest real value that is stored, so that they broadcast to a tensor of `rank`."""
        shape = [] if self.axis is None else [len(self.scales) if i == self.axis else 1 for i in range(rank)]
        return [dequantize(np.full(shape, limit), self) for limit in limits(self.dtype)]

    def fits(self, shape: Shape | None) -> bool:
        """Whether there is one scale per index or block of `axis`, as far as `shape` is known."""
        if self.axis is None or shape is None:
            return True
        if not self.axis < len(shape):
            return False
        if self.block is None:
            return not differ(shape[self.axis], len(self.scales))
        return not is_static(shape) or math.prod(self.blocked(shape)) == len(self.scales)

    def blocked(self, shape: Sequence[Any]) -> list[int]:
        """The shape of blockwise scales for a tensor of the static `shape`."""
        return [-(-int(d) // (self.block or 1)) if i == self.axis else int(d) for i, d in enumerate(shape)]

    def permuted(self, permutation: Sequence[int], shape: Shape) -> Quantization:
        """The parameters after a tensor of `shape` is transposed. Raises ValueError for blocks of an unknown shape."""
        if self.axis is None:
            return self
        axis = list(permutation).index(self.axis)
        if self.block is None:
            return replace(self, axis=axis)
        if not is_static(shape):
            raise ValueError(f"blocks of a tensor of {shape} cannot be transposed")
        places = np.arange(len(self.scales)).reshape(self.blocked(shape)).transpose(permutation).reshape(-1)
        scales = tuple(self.scales[i] for i in places.tolist())
        zero_points = tuple(self.zero_points[i] for i in places.tolist())
        return replace(self, scales=scales, zero_points=zero_points, axis=axis)

    def part(self, index: Sequence[slice]) -> Quantization:
        """The parameters of the elements at `index` (parameters for the tensor or along an axis)."""
        if self.axis is None or len(index) <= self.axis:
            return self
        places = index[self.axis]
        return replace(self, scales=self.scales[places], zero_points=self.zero_points[places])

    def reshaped(self, before: Shape, after: Shape) -> Quantization | None:
        """The parameters after a reshape; None if the quantized axis does not remain an axis of its own."""
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
        if isinstance(self.scales, StoredNumbers):
            return f"quant<{self.storage}{where} {len(self.scales)} scales>"
        pairs = " ".join(f"{s!r}:{z}" for s, z in zip(self.scales, self.zero_points, strict=True))
        return f"quant<{self.storage}{where} {pairs}>"


def broadcastable(parameters: Array, shape: Sequence[int], axis: int | None, block: int | None) -> Array:
    """Reshape scales or zero points (one, along `axis`, or blockwise) so that they broadcast to `shape`."""
    if axis is None:
        return parameters.reshape(())
    if block:
        return np.repeat(parameters, block, axis).take(np.arange(shape[axis]), axis)
    return parameters.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


def to_stored(real: Array, scale: Array, zero_point: Array | int, dtype: DType) -> Array:
    """Quantize real values to integers of `dtype`, NaN to the lowest; scale and zero point broadcast.

    Source for NaN: ONNX Runtime's vector kernels, mlas/lib/quantize.cpp.
    """
    low, high = limits(dtype)
    with np.errstate(all="ignore"):
        stored = np.asarray(real / scale)
        stored = np.asarray(np.rint(stored, out=stored) + zero_point)
        np.fmin(np.fmax(stored, low, out=stored), high, out=stored)
        return stored.astype(np.int64 if dtype.bits > 16 else np.int32).astype(dtype.numpy)


def to_real(stored: Array, scale: Array, zero_point: Array | int) -> Array:
    """Dequantize stored integers to real values of the type of `scale`; scale and zero point broadcast."""
    real = np.asarray(stored - zero_point).astype(scale.dtype, copy=False)
    np.multiply(real, scale, out=real)
    return real


def exact_type(stored: Array, scale: Array) -> np.dtype[Any]:
    """The type in which stored integers minus a zero point are exact: a float for up to 16 bits, to save memory."""
    return np.result_type(scale.dtype, np.float32) if stored.dtype.itemsize <= 2 else np.dtype(np.int64)


def with_other_sign(stored: Array) -> Array:
    """The same real values stored as int8 instead of uint8, 128 less, or as uint8 instead of int8, 128 more."""
    if stored.dtype == np.uint8:
        return (stored.astype(np.int16) - UINT8_OFFSET).astype(np.int8)
    return (stored.astype(np.int16) + UINT8_OFFSET).astype(np.uint8)


def shifted_to_int8(quantization: Quantization) -> Quantization:
    """The parameters of the same real values stored as int8 instead of uint8, 128 less."""
    return replace(quantization, storage="int8", zero_points=tuple(z - UINT8_OFFSET for z in quantization.zero_points))


def shifted_to_uint8(quantization: Quantization) -> Quantization:
    """The parameters of the same real values stored as uint8 instead of int8, 128 more."""
    return replace(quantization, storage="uint8", zero_points=tuple(z + UINT8_OFFSET for z in quantization.zero_points))


def product_quantization(x: Quantization, w: Quantization) -> Quantization:
    """The quantization in which integer kernels add up products of `x`, per tensor, and `w`, per tensor or per axis.

    A vector with one element for each index of the axis of `w`; int64 for int16 activations, else int32.
    Source: LiteRT kernels/kernel_util.cc (PopulateConvolutionQuantizationParams).
    """
    scales = tuple(float(np.float32(x.scales[0]) * np.float32(s)) for s in w.scales)
    storage = "int64" if x.storage == "int16" else "int32"
    return Quantization(storage, scales, (0,) * len(scales), None if w.per_tensor else 0)


def quantize(real: Array, quantization: Quantization) -> Array:
    """Quantize real values to stored integers."""
    scale, zero = _spread(quantization, real.shape)
    return to_stored(real.astype(scale.dtype, copy=False), scale, zero.astype(scale.dtype), quantization.dtype)


def dequantize(stored: Array, quantization: Quantization, dtype: DType = DType.FLOAT32) -> Array:
    """Dequantize stored integers to real values of `dtype`."""
    with np.errstate(over="ignore"):
        scale, zero = _spread(quantization, stored.shape)
        wide = exact_type(stored, scale)
        return to_real(stored.astype(wide), scale, zero.astype(wide)).astype(dtype.numpy, copy=False)


def _spread(quantization: Quantization, shape: Sequence[int]) -> tuple[Array, Array]:
    wide = np.float64 if quantization.dtype.bits >= 32 else np.float32
    scales: Array = np.asarray(quantization.scales, wide)
    zeros: Array = np.asarray(quantization.zero_points, np.int64)
    axis, block = quantization.axis, quantization.block
    if block is not None:
        scales, zeros = (values.reshape(quantization.blocked(shape)) for values in (scales, zeros))
    return broadcastable(scales, shape, axis, block), broadcastable(zeros, shape, axis, block)
