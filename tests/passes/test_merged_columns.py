"""Quantized convolutions of few features and a stride: neighboring columns become features."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType, tensor
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical.merged_columns import merge_columns
from tests.passes.helpers import only_node, op_counts

LAST = {
    "input_feature_dimension": 3,
    "input_spatial_dimensions": (1, 2),
    "kernel_output_feature_dimension": 0,
    "kernel_input_feature_dimension": 3,
    "kernel_spatial_dimensions": (1, 2),
    "output_feature_dimension": 3,
    "output_spatial_dimensions": (1, 2),
}


def convolution(
    size: tuple[int, int],
    kernel: tuple[int, int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    storage: str = "uint8",
    features: int = 3,
) -> Graph:
    """A quantized convolution, channels last, with a Pad before it."""
    random, graph = np.random.default_rng(0), Graph()
    zero = 7 if storage == "uint8" else -5
    on = Quantization(storage, (0.5,), (zero,))
    several = storage == "int8"
    scales = tuple(0.25 + i / 8 for i in range(kernel[0])) if several else (0.25,)
    of_kernel = Quantization(storage, scales, (0 if several else 100,) * len(scales), 0 if several else None)
    x = graph.add_input(tensor("float32", 1, *size, features).stored_as(on), "x")
    b, shape = Builder(graph), (*kernel, features)
    low, high = (0, 255) if storage == "uint8" else (-127, 127)
    stored = random.integers(low, high, shape).astype(storage)
    weights = constant(ArrayData(stored), type_=tensor("float32", *shape).stored_as(of_kernel))
    top, left, bottom, right = padding
    pads = np.asarray([[0, 0], [top, bottom], [left, right], [0, 0]])
    padded = b(ops.Pad, x, pads) if pads.any() else x
    window = {"window_strides": strides, "padding": (0, 0, 0, 0), "rhs_dilation": (1, 1)}
    y = b(ops.Conv, padded, weights, **{**LAST, **window})
    assert isinstance(y.type, TensorType)
    y.type = y.type.stored_as(Quantization(storage, (40.0,), (zero,)))
    graph.outputs = [y]
    return graph


def stored_input(graph: Graph) -> np.ndarray:
    storage = graph.inputs[0].tensor_type.storage.numpy
    info = np.iinfo(storage)
    return np.random.default_rng(1).integers(info.min, info.max, graph.inputs[0].shape).astype(storage)


@pytest.mark.parametrize(
    ("size", "kernel", "strides", "padding", "storage", "merged"),
    [
        ((8, 8), (4, 7, 7), (2, 2), (3, 3, 3, 3), "uint8", (7, 4, 6)),
        ((8, 8), (4, 7, 7), (2, 2), (3, 2, 2, 4), "int8", (7, 4, 6)),
        ((9, 8), (4, 5, 5), (2, 2), (0, 0, 1, 1), "int8", (5, 3, 6)),
        ((8, 12), (4, 5, 5), (1, 4), (2, 1, 2, 2), "uint8", (5, 3, 6)),
        ((8, 8), (4, 4, 4), (4, 4), (0, 0, 0, 0), "int8", (4, 1, 12)),
        ((1, 33), (4, 1, 7), (1, 4), (0, 0, 0, 0), "int8", (1, 2, 12)),
        ((1, 33), (4, 1, 9), (1, 4), (0, 3, 0, 0), "uint8", (1, 5, 6)),
        ((5, 9), (4, 5, 5), (2, 2), (1, 1, 1, 1), "int8", (5, 3, 6)),
    ],
)
def test_neighboring_columns_become_features(
    size: tuple[int, int],
    kernel: tuple[int, int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    storage: str,
    merged: tuple[int, int, int],
) -> None:
    graph = convolution(size, kernel, strides, padding, storage)
    x = stored_input(graph)
    wanted = run(graph, [x])
    merge_columns(graph)
    verify(graph, "after")
    assert np.array_equal(run(graph, [x])[0], wanted[0])
    assert only_node(graph, "Conv").operand(1).shape[1:] == merged


@pytest.mark.parametrize(
    ("size", "strides", "features", "taps"),
    [((8, 8), (1, 1), 3, 5), ((8, 8), (2, 2), 8, 5), ((8, 8), (2, 2), 3, 3)],
    ids=["stride 1", "eight features", "few taps"],
)
def test_others_stay(size: tuple[int, int], strides: tuple[int, int], features: int, taps: int) -> None:
    graph = convolution(size, (4, taps, taps), strides, (1, 1, 1, 1), features=features)
    before = op_counts(graph)
    merge_columns(graph)
    assert op_counts(graph) == before
    assert only_node(graph, "Conv").operand(1).shape[1:] == (taps, taps, features)
