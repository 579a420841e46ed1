"""Ops without a case of ONNX's own (tests/unit/test_onnx_cases.py) evaluate to a formula in NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType
from tests.harness.litert import Array

R = np.random.default_rng(0)
X = np.concatenate([R.normal(0, 4, (2, 3, 4)), [[[-np.inf, np.inf, np.nan, 0]] * 3]]).astype(np.float32)
Y = R.normal(0, 2, (4,)).astype(np.float32)
FINITE, SMALL = X[:2], X[:2] * np.float32(1e-6)
IMAGE = R.normal(0, 1, (2, 4, 6, 3)).astype(np.float32)
IDS = np.asarray([2, -1, 0, 2, 4, 0], np.int32)
INTS = R.integers(-(2**31), 2**31, (3, 4)).astype(np.int32)
MATRIX, OTHER = R.normal(0, 1, (5, 4)).astype(np.float32), R.normal(0, 1, (2, 4, 3)).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def phi(x: Array) -> Array:
    return np.asarray([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x.reshape(-1).tolist()]).reshape(x.shape)


def normal(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def updated(x: Array, update: Array, *starts: int) -> Array:
    result = x.copy()
    result[tuple(slice(a, a + n) for a, n in zip(starts, update.shape, strict=True))] = update
    return result


def segments(join: Any, x: Array, ids: Array, count: int) -> Array:
    return np.stack([join(x[ids == i], axis=0) for i in range(count)])


def blocks(x: Array, first: Array) -> Array:
    """The batch of SpaceToBatch: (block row, block column, batch), for blocks of 2 x 3 and amounts of `first`."""
    x = np.pad(x, [(0, 0), *first, (0, 0)])
    return np.concatenate([x[:, i::2, j::3] for i in range(2) for j in range(3)])


AMOUNTS = np.asarray([[0, 2], [1, 2]])
BLOCKED = blocks(IMAGE, AMOUNTS)
CROPPED = np.pad(IMAGE, [(0, 0), (0, 2), (1, 2), (0, 0)])[:, :-2, 1:-2]
CASES: dict[str, tuple[type[Op], list[Any], dict[str, Any], Any]] = {
    "atan2": (ops.Atan2, [X, Y], {}, np.arctan2(X, Y)),
    "batch to space": (ops.BatchToSpace, [BLOCKED, AMOUNTS], {"blocks": (2, 3)}, CROPPED),
    "cbrt": (ops.Cbrt, [X], {}, np.cbrt(X)),
    "complex": (ops.Complex, [FINITE, Y], {}, FINITE + 1j * Y),
    "real": (ops.Real, [FINITE + 1j * Y], {}, FINITE),
    "imag": (ops.Imag, [FINITE + 1j * Y], {}, np.broadcast_to(Y, FINITE.shape)),
    "contraction": (
        ops.Contraction,
        [OTHER, R.normal(0, 1, (3, 5, 4)).astype(np.float32)],
        {"lhs_contracting_dimensions": (1, 2), "rhs_contracting_dimensions": (2, 0), "output_permutation": (1, 0)},
        lambda a, b: np.einsum("acb,bdc->da", a, b),
    ),
    "copy": (ops.Copy, [X], {}, X),
    "dot with bias": (
        ops.DotGeneralBias,
        [MATRIX, OTHER, Y[:3]],
        {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)},
        np.einsum("ab,cbd->acd", MATRIX, OTHER) + Y[:3],
    ),
    "dynamic update slice": (
        ops.DynamicUpdateSlice, [IMAGE[0], IMAGE[1, :2, :3], np.asarray([1, 9, 0])], {},
        updated(IMAGE[0], IMAGE[1, :2, :3], 1, 3, 0),
    ),
    "expm1": (ops.Expm1, [SMALL], {}, np.expm1(SMALL.astype(np.float64))),
    "log1p": (ops.Log1p, [SMALL], {}, np.log1p(SMALL.astype(np.float64))),
    "gated linear": (ops.Glu, [FINITE], {"dim": 2}, FINITE[..., :2] * sigmoid(FINITE[..., 2:])),
    "gated gelu": (ops.GeGlu, [FINITE], {"dim": -1}, FINITE[..., :2] * FINITE[..., 2:] * phi(FINITE[..., 2:])),
    "gated tanh": (ops.Gtu, [FINITE], {"dim": 2}, np.tanh(FINITE[..., :2]) * sigmoid(FINITE[..., 2:])),
    "is finite": (ops.IsFinite, [X], {}, np.isfinite(X)),
    "layer norm": (ops.LayerNorm, [FINITE, Y, Y + 1], {}, normal(FINITE.astype(np.float64)) * Y + Y + 1),
    "population count": (
        ops.PopulationCount, [INTS], {}, lambda x: np.vectorize(int.bit_count)(x.astype(object) & 0xFFFFFFFF),
    ),
    "reverse": (ops.Reverse, [X], {"dimensions": (0, 2)}, np.flip(X, (0, 2))),
    "relu6": (ops.Relu6, [X], {}, np.clip(X, 0, 6)),
    "relu n1 to 1": (ops.ReluN1To1, [X], {}, np.clip(X, -1, 1)),
    "round": (ops.Round, [X.round(1)], {}, np.copysign(np.floor(np.abs(X.round(1)) + 0.5), X)),
    "sum of segments": (
        ops.SegmentReduce, [IMAGE.reshape(6, -1), IDS, np.asarray(4)], {}, lambda x, *_: segments(np.sum, x, IDS, 4),
    ),
    "product of segments": (
        ops.SegmentReduce, [IMAGE.reshape(6, -1), IDS, np.asarray(4)], {"kind": "prod"},
        lambda x, *_: segments(np.prod, x, IDS, 4),
    ),
    "mean of many": (
        ops.Reduce, [1 + np.tile(IMAGE[0, 0, 0], (1 << 18, 1)), np.asarray([0])], {"kind": "mean"}, 1 + IMAGE[0, 0, 0],
    ),
    "silu": (ops.Silu, [FINITE], {}, FINITE * sigmoid(FINITE)),
    "size": (ops.Size, [IMAGE], {}, np.asarray(IMAGE.size)),
    "sort": (ops.Sort, [FINITE, IMAGE[:, 0, 0, :, None] + FINITE], {"dimension": 1}, np.sort(FINITE, 1)),
    "space to batch": (ops.SpaceToBatch, [IMAGE, AMOUNTS], {"blocks": (2, 3)}, BLOCKED),
    "squared difference": (ops.SquaredDifference, [X, Y], {}, (X - Y) ** 2),
    "bfloat16": (ops.ReducePrecision, [X], {"dtype": DType.BFLOAT16}, X.astype(ml_dtypes.bfloat16).astype(np.float32)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", CASES)
def test_an_op_evaluates_to_its_formula(name: str) -> None:
    op, operands, attributes, wanted = CASES[name]
    expected = wanted(*operands) if callable(wanted) else wanted
    results = op.evaluate(attributes, *operands)
    found = results[0] if isinstance(results, tuple) else results
    assert found.shape == expected.shape
    atol = 0 if name in ("expm1", "log1p") else 2e-6
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=atol)
