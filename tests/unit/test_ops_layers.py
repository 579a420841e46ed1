"""Ops of ir/ops/layers.py: what they give, and that legalization writes them with core ops that give the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import evaluate_node, run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import TensorType, dtype_of, tensor
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).random(shape, np.float32) * 0.9 + 0.05


X, V, IMAGE = floats(3, 4), floats(4), floats(2, 6, 5, 4)
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
CASES: list[tuple[type[Op], list[Array], dict[str, Any], Array]] = [
    (ops.Dot, [V, V], {}, np.asarray(V @ V)),
    (ops.Dot, [X, V], {}, X @ V),
    (ops.Dot, [X, X.T], {}, X @ X.T),
    (ops.Dot, [V, X.T], {}, V @ X.T),
    (ops.Gemm, [X, X, X[:, 0]], {"transB": True, "alpha": 0.5, "beta": 2.0}, 0.5 * X @ X.T + 2 * X[:, 0]),
    (ops.Gemm, [X, X], {"transA": True}, X.T @ X),
    (ops.GlobalAveragePool, [IMAGE], {"dims": (2, 3)}, IMAGE.mean((2, 3), keepdims=True)),
    (ops.GlobalMaxPool, [IMAGE], {"dims": (1, 2)}, IMAGE.max((1, 2), keepdims=True)),
    (ops.GroupNorm, [IMAGE, floats(6), V[[0, 1, 2, 3, 0, 1]]], {"num_groups": 3},
     group_norm(IMAGE, floats(6), V[[0, 1, 2, 3, 0, 1]])),
    (ops.GroupNorm, [IMAGE.transpose(0, 2, 3, 1), floats(6), floats(6)], {"num_groups": 3, "feature_index": -1},
     group_norm(IMAGE, floats(6), floats(6)).transpose(0, 2, 3, 1)),
    (ops.Dropout, [X], {}, X),
    (ops.BCELoss, [X[::-1], X], {"reduction": "none"}, LOSS),
    (ops.BCELoss, [X[::-1], X, V], {"reduction": "sum"}, np.asarray((LOSS * V).sum())),
    (ops.BCELoss, [np.float32([0, 1]), np.float32([1, 0])], {}, np.asarray(100, np.float32)),
    (ops.ReduceWindow, [INTS], {"kind": "sum", **WINDOW}, windows(np.add, INTS, 0, 0, 0, 1)),
    (ops.ReduceWindow, [INTS, np.asarray(3, np.int32)], {"kind": "max", "window_strides": (1, 2, 1), **WINDOW},
     windows(np.maximum, INTS, 3, 0, 0, 2)),
    (ops.ReduceWindow, [INTS], {"kind": "min", "padding": (0, 1, 0, 0, 2, 0), **WINDOW},
     windows(np.minimum, INTS, 2**31 - 1, 1, 2, 1)),
    (ops.ReduceWindow, [INTS[:, :6]], {"kind": "sum", "window_strides": (1, 2, 1), "ceil_mode": True, **WINDOW},
     windows(np.add, INTS[:, :6], 0, 0, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arrays", "attributes", "wanted"), CASES, ids=lambda c: getattr(c, "name", ""))
def test_is_what_its_rule_says(op: type[Op], arrays: list[Array], attributes: dict[str, Any], wanted: Array) -> None:
    graph = Graph()
    values = [graph.add_input(TensorType(dtype_of(a.dtype), a.shape)) for a in arrays]
    results = Builder(graph).many(op, *values, **attributes)
    graph.outputs = results[:1]
    assert results[0].producer is not None
    (found, *_) = evaluate_node(results[0].producer, arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    legalize(graph, TfliteTarget())
    assert op not in {node.op for node in graph.nodes}
    np.testing.assert_allclose(run(graph, arrays)[0], found, rtol=1e-5, atol=1e-6)


def test_nothing_is_dropped() -> None:
    (_, mask) = ops.Dropout.evaluate({"ratio": 0.5}, X)
    assert mask.dtype == bool
    assert mask.shape == X.shape
    assert mask.all()


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x, c = graph.add_input(tensor("float32", "n", 6, "w")), graph.add_input(tensor("float32", 6))
    b = Builder(graph)
    assert str(b(ops.GroupNorm, x, c, c, num_groups=2).type) == "tensor<[n]x6x[w]xfloat32>"
    window = b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1, 3))
    assert str(window.type) == "tensor<[n]x6x[w - 2]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.GroupNorm, x, c, c, num_groups=4)
    with pytest.raises(InvalidModelError):
        b(ops.ReduceWindow, x, kind="max", window_dimensions=(1, 1, 3), ceil_mode=True)
