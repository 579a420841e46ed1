"""Activations with a scale for each feature, between a convolution and a depthwise one, get one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import DType, tensor
from onnxtfl.passes.quantize import FEATURE_SCALES, fuse_quantized, read_quantized_types
from onnxtfl.targets.tflite import TfliteTarget

FEATURES = 4
SCALES = np.asarray([0.01, 0.02, 0.015, 0.005], np.float32)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized(b: Builder, x: Value, scales: np.ndarray, zeros: np.ndarray, axis: int = 1) -> Value:
    """`x` quantized and dequantized."""
    zero = constant(zeros)
    stored = b(ops.QuantizeLinear, x, constant(scales), zero, axis=axis, dtype=zero.dtype)
    return b(ops.DequantizeLinear, stored, constant(scales), zero, axis=axis)


def weights(b: Builder, *shape: int, each: bool = True) -> Value:
    """Weights in int8, with a scale for each output feature or one."""
    stored = np.random.default_rng(1).integers(-127, 128, shape).astype(np.int8)
    scales = np.full(shape[0], 0.01, np.float32) if each else np.asarray(0.01, np.float32)
    return b(ops.DequantizeLinear, constant(stored), constant(scales), None, axis=0)


def conv(b: Builder, x: Value, kernel: Value, groups: int = 1) -> Value:
    numbered = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    sizes = {"window_strides": (1, 1), "rhs_dilation": (1, 1), "padding": (0, 0, 0, 0)}
    bias = constant(numbers(kernel.size(0), seed=2))
    return b(ops.Conv, x, kernel, bias, feature_group_count=groups, **numbered, **sizes)


def model(
    *,
    clamp: tuple[float, float] | None = None,
    relu: bool = False,
    zeros: Any = 0,
    dtype: Any = np.uint8,
    multiple: int = 1,
    groups: int = FEATURES,
    each: bool = True,
    read_twice: bool = False,
    clamped_twice: bool = False,
    before: type[ops.Op] | None = None,
) -> Graph:
    """A convolution, an activation, and a convolution in groups of activations with a scale for each feature."""
    graph = Graph()
    b, one = Builder(graph), np.asarray(0.02, np.float32)
    x = quantized(b, graph.add_input(tensor(DType.FLOAT32, 1, 3, 6, 6)), one, np.asarray(3, np.int8), axis=0)
    y = conv(b, x, weights(b, FEATURES, 3, 3, 3, each=each))
    y = y if before is None else b(before, y)
    y = b(ops.Clamp, y, *(np.asarray(v, np.float32) for v in clamp)) if clamp else y
    y = b(ops.Relu, y) if relu else y
    real = y
    y = quantized(b, real, SCALES, np.broadcast_to(np.asarray(zeros, dtype), SCALES.shape))
    z = conv(b, y, weights(b, multiple * FEATURES, FEATURES // groups, 1, 1, each=each), groups)
    more = [*([y] if read_twice else []), *([real] if clamped_twice else [])]
    graph.outputs = [quantized(b, z, one, np.asarray(-5, np.int8), axis=0), *more]
    return graph


def integer_convolutions(graph: Graph) -> int:
    """The number of convolutions on integers after the pass, which must not change the numbers."""
    x = numbers(1, 3, 6, 6)
    wanted = run(graph, [x])
    target = TfliteTarget()
    read_quantized_types(graph, target)
    FEATURE_SCALES.apply(graph)
    fuse_quantized(graph)
    for got, want in zip(run(graph, [x]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    found = [node for node in graph.nodes if node.op is ops.Conv]
    return sum(node.operand(0).is_quantized and node.result.is_quantized for node in found)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"relu": True},
        {"clamp": (0, 6)},
        {"clamp": (0, 6), "zeros": -128, "dtype": np.int8},
        {"relu": True, "zeros": 0, "dtype": np.int8},  # the lowest integers are not used
        {"clamp": (-8, 8), "zeros": 3, "dtype": np.int8},
        {"relu": True, "multiple": 2},
        {"relu": True, "each": False},
    ],
)
def test_both_convolutions_compute_on_integers(given: dict[str, Any]) -> None:
    assert integer_convolutions(model(**given)) == 2


@pytest.mark.parametrize(
    "given",
    [
        {"zeros": [0, 1, 0, 0]},
        {"relu": True, "groups": 1},
        {"relu": True, "read_twice": True},
        {"relu": True, "clamped_twice": True},
        {"clamp": (0, 1)},  # a feature stores up to 5.1
        {"clamp": (0.5, 6)},
        {"before": ops.Tanh},
    ],
)
def test_others_stay(given: dict[str, Any]) -> None:
    graph = model(**given)
    assert integer_convolutions(graph) == 0
    assert any(node.op is ops.QuantizeLinear and not node.operand(1).is_single for node in graph.nodes)
