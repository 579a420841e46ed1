"""Ops that are defined by core ops: their meaning, and that legalization writes them with core ops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, TensorType, dtype_of
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget


def uniform(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).random(shape, np.float32) * 0.9 + 0.05


STEPS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
X, V, IMAGE = uniform(3, 4), uniform(4), uniform(2, 6, 5, 4)
INTS = np.random.default_rng(5).integers(-9, 9, (2, 7, 6)).astype(np.int32)


def group_norm(x: Array, scale: Array, bias: Array) -> Array:
    groups = x.reshape(2, 3, -1)
    apart = groups - groups.mean(-1, keepdims=True)
    normal = (apart / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    return normal * scale[:, None, None] + bias[:, None, None]


def windows(join: Any, x: Array, start: float, low: int, high: int, stride: int) -> Array:
    """Windows of 3 along axis 1 and of 2, two apart, along axis 2."""
    x = np.pad(x, [(0, 0), (low, high), (0, 0)], constant_values=start)
    counts = ((x.shape[1] - 3) // stride + 1, x.shape[2] - 2)
    result = np.full((x.shape[0], *counts), start, x.dtype)
    for i, j in itertools.product(*map(range, counts)):
        result[:, i, j] = join.reduce(x[:, i * stride : i * stride + 3, j : j + 3 : 2], axis=(1, 2), initial=start)
    return result


LOSS = -(X * np.log(X[::-1]) + (1 - X) * np.log(1 - X[::-1]))
WINDOW: dict[str, Any] = {"window_dimensions": (1, 3, 2), "window_dilations": (1, 1, 2)}
CASES: list[tuple[type[Op], list[Any], dict[str, Any], Array]] = [
    (ops.Broadcast, [STEPS], {"broadcast_sizes": (5, 1)}, np.broadcast_to(STEPS, (5, 1, 2, 3, 4))),
    (
        ops.BroadcastInDim,
        [STEPS[0, :, 0]],
        {"broadcast_dimensions": (1,), "shape": (2, 3, 2)},
        np.broadcast_to(STEPS[0, :, :1], (2, 3, 2)),
    ),
    (
        ops.DynamicBroadcastInDim,
        [STEPS[:, :1], np.asarray([2, 6, 5, 4])],
        {"broadcast_dimensions": (0, 2, 3)},
        np.broadcast_to(STEPS[:, None, :1], (2, 6, 5, 4)),
    ),
    (ops.Iota, [], {"shape": (2, 3), "iota_dimension": 1, "dtype": DType.INT32}, np.asarray([[0, 1, 2]] * 2, np.int32)),
    (ops.DynamicIota, [np.asarray([2, 3])], {"iota_dimension": 0}, np.asarray([[0] * 3, [1] * 3])),
    (
        ops.DynamicPad,
        [STEPS[0], np.asarray([1, 0, 0, 2]), np.float32(9)],
        {},
        np.pad(STEPS[0], [(1, 0), (0, 2)], constant_values=9),
    ),
    (
        ops.InteriorPad,
        [np.asarray([[1, 2], [3, 4]], np.float32), np.float32(9)],
        {"interior_padding": (1, 2)},
        np.asarray([[1, 9, 9, 2], [9, 9, 9, 9], [3, 9, 9, 4]], np.float32),
    ),
    (ops.DynamicReshape, [STEPS, np.asarray([0, -1])], {}, STEPS.reshape(2, -1)),
    (ops.DynamicSlice, [STEPS, np.asarray([1, 5, -3])], {"slice_sizes": (1, 2, 2)}, STEPS[1:, 1:, :2]),
    (ops.RealDynamicSlice, [STEPS, *map(np.asarray, ([3], [-9], [-2], [-1]))], {}, STEPS[:, :, 3::-2]),
    (ops.SliceInDim, [STEPS], {"dimension": -1, "start_index": 1, "stride": 2}, STEPS[..., 1::2]),
    (ops.SetDimensionSize, [STEPS, np.asarray(2)], {"dimension": 1}, STEPS[:, :2]),
    (ops.Squeeze, [STEPS[:1, :, :1], np.asarray([-1])], {}, STEPS[:1, :, 0]),
    (ops.Squeeze, [STEPS[:1, :, :1]], {}, STEPS[0, :, 0]),
    (ops.Unsqueeze, [STEPS, np.asarray([0, -1])], {}, STEPS[None, ..., None]),
    (ops.Dot, [V, V], {}, np.asarray(V @ V)),
    (ops.Dot, [X, V], {}, X @ V),
    (ops.Dot, [X, X.T], {}, X @ X.T),
    (ops.Dot, [V, X.T], {}, V @ X.T),
    (ops.Gemm, [X, X, X[:, 0]], {"transB": True, "alpha": 0.5, "beta": 2.0}, 0.5 * X @ X.T + 2 * X[:, 0]),
    (ops.Gemm, [X, X], {"transA": True}, X.T @ X),
    (ops.GlobalAveragePool, [IMAGE], {"dims": (2, 3)}, IMAGE.mean((2, 3), keepdims=True)),
    (ops.GlobalMaxPool, [IMAGE], {"dims": (1, 2)}, IMAGE.max((1, 2), keepdims=True)),
    (ops.GroupNorm, [IMAGE, uniform(6), V[[0, 1, 2, 3, 0, 1]]], {"num_groups": 3},
     group_norm(IMAGE, uniform(6), V[[0, 1, 2, 3, 0, 1]])),
    (ops.GroupNorm, [IMAGE.transpose(0, 2, 3, 1), uniform(6), uniform(6)], {"num_groups": 3, "feature_index": -1},
     group_norm(IMAGE, uniform(6), uniform(6)).transpose(0, 2, 3, 1)),
    (ops.Dropout, [X], {}, X),
    (ops.BCELoss, [X[::-1], X], {"reduction": "none"}, LOSS),
    (ops.BCELoss, [X[::-1], X, V], {"reduction": "sum"}, np.asarray((LOSS * V).sum())),
    (ops.BCELoss, [np.float32([0, 1]), np.float32([1, 0])], {}, np.asarray(100, np.float32)),
    (ops.ReduceWindow, [INTS], {"kind": "sum", **WINDOW}, windows(np.add, INTS, 0, 0, 0, 1)),
    (ops.ReduceWindow, [INTS, np.asarray(3, np.int32)], {"kind": "max", "window_strides": (1, 2, 1), **WINDOW},
     windows(np.maximum, INTS, 3, 0, 0, 2)),
    (ops.ReduceWindow, [INTS], {"kind": "min", "padding": (0, 1, 0, 0, 2, 0), **WINDOW},
     windows(np.minimum, INTS, 2**31 - 1, 1, 2, 1)),
    (ops.ReduceWindow, [INTS[:, :6]],
     {"kind": "sum", "window_strides": (1, 2, 1), "padding": (0, 0, 0, 0, 1, 0), **WINDOW},
     windows(np.add, INTS[:, :6], 0, 0, 1, 2)),
]  # fmt: skip
CONSTANT_VECTORS = (ops.Squeeze, ops.Unsqueeze, ops.RealDynamicSlice)
"""Ops whose vectors have to be known before run time."""


@pytest.mark.parametrize(("op", "operands", "attributes", "wanted"), CASES, ids=lambda c: getattr(c, "name", ""))
def test_expands_to_what_it_means(op: type[Op], operands: list[Any], attributes: dict[str, Any], wanted: Array) -> None:
    graph = Graph()
    arrays = [np.asarray(v) for v in operands]
    values = [value(graph, a, i > 0 and op in CONSTANT_VECTORS) for i, a in enumerate(arrays)]
    given = [a for a, v in zip(arrays, values, strict=True) if not v.is_constant]
    graph.outputs = Builder(graph).many(op, *values, **attributes)[:1]
    check(graph, given, wanted, 1e-4)
    (meant,) = run(graph, given)
    legalize(graph, TfliteTarget())
    assert all(node.op.core for node in graph.nodes)
    check(graph, given, meant, 1e-5)


def value(graph: Graph, array: Array, fixed: bool) -> Value:
    dtype = dtype_of(array.dtype)
    return constant(array, dtype) if fixed else graph.add_input(TensorType(dtype, array.shape))


def check(graph: Graph, given: list[Array], wanted: Array, rtol: float) -> None:
    """Integers have to be equal; so have floats that are only moved."""
    found = run(graph, given)[0]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-6)
