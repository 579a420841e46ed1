"""Conversions of the element type: Convert BitcastConvert."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals, numeric
from onnxtfl.ir.attributes import Choice, ElementType, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import Elementwise, Op, Operand, SharedAxes
from onnxtfl.ir.types import DType


class Convert(Elementwise):
    """The elements converted to `dtype` by a C cast: fractions are truncated, integers wrap, bool: != 0.

    `saturate`: floats beyond the range of a float8 type become its largest value, else NaN or infinity. `rounding` to
    float8e8m0: "nearest", "up" or "down". Source: neutral-ops 3.30, ONNX Cast. Strings can be converted by `evaluate`
    only: no TFLite kernel does it.
    """

    operands = (Operand("input"),)
    results = (Operand("output", like="dtype"),)
    attributes = {
        "dtype": ElementType(),
        "saturate": Flag(True),
        "rounding": Choice("nearest", "up", "down", default="nearest"),
    }
    core = True
    propagates = True
    carries = slice(0, 1)

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Bounds of floats are truncated for integer results."""
        before, after = node.operand(0).dtype, node.attr("dtype")
        return intervals.truncated(of(0)) if before.is_float and after.is_integer else of(0)

    @staticmethod
    def compute(x: Array, *, dtype: DType, saturate: bool, rounding: str) -> Array:
        if x.dtype == object:
            return _from_objects(x, dtype)
        if dtype is DType.STRING:
            return np.asarray([_text(v) for v in numeric.widened(x).reshape(-1).tolist()], object).reshape(x.shape)
        return numeric.cast(x, dtype, saturate, rounding)


def _from_objects(x: Array, dtype: DType) -> Array:
    """Parse strings; dims are unchanged."""
    items = x.reshape(-1).tolist()
    if not any(isinstance(v, str) for v in items):
        if not dtype.is_integer:
            raise TypeError("dims are integers")
        return x
    if dtype is DType.STRING:
        return x
    numbers = np.asarray([float(v) for v in items], np.float64).reshape(x.shape)
    return numeric.cast(numbers, dtype, True)


def _text(value: object) -> str:
    """Format `value` like ONNX Runtime, with 8 digits for all float types."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:.8g}".replace("inf", "INF").replace("nan", "NaN") if isinstance(value, float) else str(value)


class BitcastConvert(Op):
    """The bits of the operand reinterpreted as `dtype`.

    To a narrower type, each element becomes a new last axis; to a wider type, the last axis becomes one element; low
    bits first. Source: neutral-ops 3.17, ONNX BitCast, TFLite BITCAST.
    """

    operands = (Operand("input"),)
    results = (Operand("output", like="dtype"),)
    attributes = {"dtype": ElementType()}
    core = True
    shared_axes = SharedAxes(independent=False)

    @staticmethod
    def shape(x: Value, *, dtype: DType) -> Dims:
        if x.dtype.bits == dtype.bits:
            return x.shape
        if x.dtype.bits > dtype.bits:
            return (*x.shape, x.dtype.bits // dtype.bits)
        if not x.shape or x.shape[-1] != dtype.bits // x.dtype.bits:
            raise ValueError(f"the last axis of {x.shape} does not hold the bytes of {dtype.value}")
        return x.shape[:-1]

    @staticmethod
    def compute(x: Array, *, dtype: DType) -> Array:
        x, wanted = np.ascontiguousarray(x).reshape(x.shape), dtype.numpy
        if x.dtype.itemsize == wanted.itemsize:
            return x.view(wanted)
        if x.dtype.itemsize > wanted.itemsize:
            return x[..., None].view(wanted)
        return np.asarray(x.view(wanted)[..., 0])
