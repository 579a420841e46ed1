"""StableHLO ops in .tflite files against JAX, where it is installed: in ONNX Runtime, and folded by `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.test_stablehlo import EDGES, check, ends, sample

lax = pytest.importorskip("jax.lax")
jax = pytest.importorskip("jax")

REAL = np.float32(EDGES)
UNARY = {
    "ABS": lax.abs,
    "CBRT": lax.cbrt,
    "COSINE": lax.cos,
    "EXPONENTIAL": lax.exp,
    "FLOOR": lax.floor,
    "LOG": lax.log,
    "LOGISTIC": lax.logistic,
    "NEGATE": lax.neg,
    "RSQRT": lax.rsqrt,
    "TANH": lax.tanh,
}
BINARY = {
    "ADD": lax.add,
    "SUBTRACT": lax.sub,
    "MULTIPLY": lax.mul,
    "DIVIDE": lax.div,
    "REMAINDER": lax.rem,
    "MAXIMUM": lax.max,
    "MINIMUM": lax.min,
}
BITS = {"AND": lax.bitwise_and, "OR": lax.bitwise_or, "SHIFT_LEFT": lax.shift_left}


@pytest.mark.parametrize("op", UNARY)
def test_elements(op: str) -> None:
    x = REAL[np.abs(REAL) < 1e9] if op == "COSINE" else REAL
    check(op, [x], np.asarray(UNARY[op](x)), error=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("op", BINARY)
def test_pairs_of_elements(op: str, dtype: str) -> None:
    """The extremes; a divisor of 0 or -1 of integers, too."""
    x = REAL if dtype == "float32" else ends(dtype)
    lhs, rhs = (a.reshape(-1).copy() for a in np.meshgrid(x, x))
    if op == "REMAINDER" and dtype == "float32":  # the remainder of 1e30 by 1e-30 needs exact arithmetic
        lhs, rhs = sample("float32", 40), sample("float32", 40, seed=1)
    check(op, [lhs, rhs], np.asarray(BINARY[op](lhs, rhs)), error=1e-5)


@pytest.mark.parametrize("op", BITS)
def test_bits(op: str) -> None:
    lhs, rhs = sample("int32", 3, 4), sample("int32", 3, 4, seed=1)
    rhs = rhs % 40 if op == "SHIFT_LEFT" else rhs
    check(op, [lhs, rhs], np.asarray(BITS[op](lhs, rhs)))


def test_slices_and_gathers_of_moved_starts() -> None:
    x, update = sample("float32", 4, 5), sample("float32", 2, 2, seed=1)
    for start in ([1, 2], [9, 0]):  # JAX counts negative starts from the end, XLA clamps them
        at = [np.asarray(i, np.int32) for i in start]
        wanted: Any = lax.dynamic_slice(x, at, (2, 3))
        check("DYNAMIC_SLICE", [x, *at], np.asarray(wanted), slice_sizes=[2, 3])
        check("DYNAMIC_UPDATE_SLICE", [x, update, *at], np.asarray(lax.dynamic_update_slice(x, update, at)))


def test_clamps() -> None:
    low, high = np.float32(-1), np.float32(2)
    check("CLAMP", [low, REAL, high], np.asarray(lax.clamp(low, REAL, high)))
