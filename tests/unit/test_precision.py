"""Rounding to bfloat16, float8 and float4 is exact: for all float16, and for float32 near every bfloat16."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtfl.build.dtypes import number_of
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.small_types import SMALL_FLOATS, bits_type, rounded
from onnxtfl.ir.types import DType, tensor
from onnxtfl.passes.types.bits import decoded, encoded

TYPES = sorted(SMALL_FLOATS, key=lambda dtype: dtype.value)
FLOAT8 = [dtype for dtype in TYPES if dtype.value.startswith("float8") and dtype is not DType.FLOAT8E8M0]


def inputs() -> Array:
    """All float16, all bfloat16, and the float32 at, before and after the places halfway between two of them."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    floats = [(high | low).view(np.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    return np.concatenate([*floats, np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)])


X = inputs()


def by_onnx(x: Array, dtype: DType, saturate: bool, rounding: str) -> Array:
    """What onnx.reference computes."""
    small = onnx.helper.tensor_dtype_to_np_dtype(number_of(dtype))
    if dtype is DType.FLOAT8E8M0:
        return np.asarray(numpy_helper.to_float8e8m0(x, saturate, rounding).astype(small))
    saturates = saturate and dtype in FLOAT8
    return np.asarray(numpy_helper.saturate_cast(x, small) if saturates else x.astype(small))


def roundings(dtype: DType) -> list[tuple[bool, str]]:
    """The attributes that a cast to `dtype` may have."""
    modes = ("nearest", "up", "down") if dtype is DType.FLOAT8E8M0 else ("nearest",)
    return [*itertools.product((True, False), modes)] if dtype in (*FLOAT8, DType.FLOAT8E8M0) else [(True, "nearest")]


@pytest.mark.parametrize(
    ("dtype", "saturate", "rounding"), [(dtype, *how) for dtype in TYPES for how in roundings(dtype)]
)
def test_every_value_is_rounded_as_onnx_defines(dtype: DType, saturate: bool, rounding: str) -> None:
    graph = Graph()
    x = Term(Builder(graph), graph.add_input(tensor("float32", X.size)))
    y = rounded(x, dtype, saturate, rounding)
    graph.outputs = [y.value, encoded(y, dtype).value]
    with np.errstate(all="ignore"):
        values, codes = run(graph, [X])
        wanted = by_onnx(X, dtype, saturate, rounding)
    known = slice(None) if dtype is not DType.FLOAT4E2M1 else ~np.isnan(X)  # float4 has no NaN
    np.testing.assert_array_equal(values[known], wanted.astype(np.float32)[known])
    np.testing.assert_array_equal(codes[known], wanted.view(bits_type(dtype).numpy)[known])


@pytest.mark.parametrize("dtype", [*TYPES, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2])
def test_bits_are_read_and_written(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits).astype(bits_type(dtype).numpy)
    graph = Graph()
    values = decoded(Term(Builder(graph), graph.add_input(tensor(bits_type(dtype).value, codes.size))), dtype)
    graph.outputs = [values.value, encoded(values, dtype).value]
    found, again = run(graph, [codes])
    if dtype.is_integer:
        np.testing.assert_array_equal(found, np.where(codes > max(found), codes.astype(int) - (1 << dtype.bits), codes))
        np.testing.assert_array_equal(again, codes)
        return
    wanted = codes.view(dtype.numpy).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(again[~np.isnan(wanted)], codes[~np.isnan(wanted)])
    assert np.isnan(again.view(dtype.numpy).astype(np.float32)[np.isnan(wanted)]).all()
