"""Neutral ops without an ONNX namesake that evaluates them, against formulas written here."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import TensorType, dtype_of
from tests.unit.lifting import floats


def evaluated(op: type[Op], *arrays: Array, **attributes: Any) -> list[Array]:
    graph = Graph()
    b = Builder(graph)
    inputs = [graph.add_input(TensorType(dtype_of(x.dtype), x.shape)) for x in arrays]
    graph.outputs = b.many(op, *inputs, **attributes)
    return run(graph, list(arrays))


@pytest.mark.parametrize("axis", [1, 3, -2])
def test_batch_norm_by_its_own_statistics(axis: int) -> None:
    x = floats(2, 4, 3, 4)
    count, axes = x.shape[axis], tuple(a for a in range(4) if a != axis % 4)
    scale, bias = floats(count, seed=1), floats(count, seed=2)
    result, mean, variance = evaluated(ops.BatchNormTraining, x, scale, bias, epsilon=1e-3, feature_index=axis)
    np.testing.assert_allclose(mean, x.mean(axes), atol=1e-6)
    np.testing.assert_allclose(variance, x.var(axes), atol=1e-6)
    along = [1] * 4
    along[axis] = count
    m, v, s, t = (y.reshape(along) for y in (x.mean(axes), x.var(axes), scale, bias))
    np.testing.assert_allclose(result, (x - m) / np.sqrt(v + 1e-3) * s + t, atol=1e-5)


def test_the_gradient_of_batch_norm_is_that_of_differences() -> None:
    x, scale, bias, weights = (
        floats(*s, seed=i).astype(np.float64) for i, s in enumerate(((3, 2, 2), (2,), (2,), (3, 2, 2)))
    )

    def loss(x: Array, scale: Array, bias: Array) -> float:
        result, *_ = evaluated(ops.BatchNormTraining, x, scale, bias)
        return float((result * weights).sum())

    _, mean, variance = evaluated(ops.BatchNormTraining, x, scale, bias)
    found = evaluated(ops.BatchNormGrad, x, scale, mean, variance, weights)
    for index, gradient in enumerate(found):
        for place in np.ndindex(gradient.shape):
            moved = [[v.copy() for v in (x, scale, bias)] for _ in range(2)]
            moved[0][index][place] += 1e-5
            moved[1][index][place] -= 1e-5
            slope = (loss(*moved[0]) - loss(*moved[1])) / 2e-5
            assert abs(gradient[place] - slope) < 1e-6


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (2, 1, 5, 5), (0, 2, 2)])
def test_cholesky(shape: tuple[int, ...], lower: bool) -> None:
    half = floats(*shape)
    x = (half @ half.swapaxes(-1, -2) + np.eye(shape[-1])).astype(np.float32)
    other = np.triu(x) if not lower else np.tril(x)  # the other triangle is not read
    (found,) = evaluated(ops.Cholesky, other, lower=lower)
    wanted = np.linalg.cholesky(x)
    np.testing.assert_allclose(found, wanted if lower else wanted.swapaxes(-1, -2), atol=1e-5)


def test_cholesky_of_a_matrix_without_one_is_nan() -> None:
    (found,) = evaluated(ops.Cholesky, np.float32([[-1, 0], [0, 1]]))
    assert np.isnan(found[0, 0])


COMPARE = {"GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}
COMBINE = {
    "ADD": operator.add,
    "SUB": operator.sub,
    "MUL": operator.mul,
    "MIN": min,
    "MAX": max,
    "UPDATE": lambda old, new: new,
    "DIV": operator.truediv,
    "L2": math.hypot,
    "COUNT": lambda old, new: old + 1,
}


def scattered(x: Array, source: Array, start: float, select: str, combine: str, padding: tuple[int, int]) -> Array:
    """SelectAndScatter of a matrix by windows 3 x 2 and strides 2 x 2; `padding`: of the first axis."""
    result = np.full(x.shape, start, x.dtype)
    for window in np.ndindex(source.shape):
        best: tuple[int, ...] | None = None
        for tap in np.ndindex(3, 2):
            place = (2 * window[0] + tap[0] - padding[0], 2 * window[1] + tap[1])
            if 0 <= place[0] < x.shape[0] and (best is None or not COMPARE[select](x[best], x[place])):
                best = place
        if best is not None:
            result[best] = COMBINE[combine](result[best], source[window])
    return result


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("select", COMPARE)
@pytest.mark.parametrize(("padding", "rows"), [((0, 0), 2), ((1, 2), 4), ((3, 0), 4)])
def test_select_and_scatter(select: str, combine: str, padding: tuple[int, int], rows: int) -> None:
    """Among equal elements; with a window over padding only for (3, 0)."""
    x, source = np.round(floats(6, 4) * 2), floats(rows, 2, seed=3)
    given = {"window_dimensions": (3, 2), "window_strides": (2, 2), "padding": (padding[0], 0, padding[1], 0)}
    (found,) = evaluated(
        ops.SelectAndScatter, x, source, np.asarray(0.5, np.float32), select_type=select, computation=combine, **given
    )
    np.testing.assert_allclose(found, scattered(x, source, 0.5, select, combine, padding), atol=1e-6)


def test_ctc_loss_is_the_sum_over_all_paths() -> None:
    x = floats(5, 3, 3).astype(np.float64)
    x = (x - np.log(np.exp(x).sum(axis=2, keepdims=True))).astype(np.float32)
    targets, steps, lengths = (
        np.asarray([[1, 2, 1], [2, 2, 1], [1, 1, 2]]),
        np.asarray([5, 4, 2]),
        np.asarray([3, 2, 0]),
    )
    loss, alpha = evaluated(ops.CTCLoss, x, targets, steps, lengths)
    assert alpha.shape == (3, 5, 7)
    for n in range(3):
        total = 0.0
        for path in itertools.product(range(3), repeat=int(steps[n])):
            if [k for k, _ in itertools.groupby(path) if k] == targets[n, : lengths[n]].tolist():
                total += np.exp(sum(x[t, n, k] for t, k in enumerate(path)))
        assert abs(loss[n] + np.log(total)) < 1e-4
    (alone, _) = evaluated(ops.CTCLoss, x[:, 0], targets[0], steps[0], lengths[0])
    assert alone.shape == () and abs(alone - loss[0]) < 1e-6


def test_ctc_loss_without_an_alignment_is_infinite() -> None:
    loss, _ = evaluated(
        ops.CTCLoss, np.zeros((2, 1, 3), np.float32), np.asarray([[1, 1]]), np.asarray([2]), np.asarray([2])
    )
    assert np.isinf(loss[0])
