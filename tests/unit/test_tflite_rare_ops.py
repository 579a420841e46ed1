"""Rare TFLite builtins in ONNX: bits of floats, random bits, sparse lookups, random values of computed shapes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, dtype_of, tensor
from tests.harness.litert import run_onnx


def one_op(
    op: str, inputs: list[Array], constants: list[Array], results: list[TensorType], **options: Any
) -> tuple[bytes, dict[str, Array]]:
    """A .tflite of one op, and values for its inputs."""
    graph = Graph()
    values: list[Any] = [
        graph.add_input(TensorType(dtype_of(a.dtype), a.shape), f"in{i}") for i, a in enumerate(inputs)
    ]
    graph.outputs = Builder(graph).foreign("tfl", op, [*values, *constants], results, 1, **options)
    for i, value in enumerate(graph.outputs):
        value.name = f"out{i}"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue(), {f"in{i}": array for i, array in enumerate(inputs)}


def converted(model: bytes) -> bytes:
    data = onnxtfl.tflite_to_onnx(model, check=False).data
    assert data is not None
    return data


def test_bits_as_floats_before_onnx_had_bitcast() -> None:
    floats = np.asarray([0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38], np.float32)
    bits = np.concatenate([floats.view(np.int32), np.random.default_rng(0).integers(-(2**31), 2**31, 90)])
    bits = bits.astype(np.int32)
    model, feed = one_op("BITCAST", [bits], [], [tensor("float32", 100)])
    found, wanted = run_onnx(converted(model), feed)["out0"], bits.view(np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(wanted)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
@pytest.mark.parametrize(("algorithm", "size"), [("THREEFRY", 2), ("PHILOX", 2), ("PHILOX", 3)])
def test_random_bits_are_those_of_litert(algorithm: str, size: int, dtype: str) -> None:
    """The low word of the counter overflows in the first block."""
    state = np.asarray([0xFEDCBA9876543210, 0xFFFFFFFF, 0x8000000180000001][:size], np.uint64)
    types = [tensor("uint64", size), tensor(dtype, 3, 3)]
    model, feed = one_op("STABLEHLO_RNG_BIT_GENERATOR", [state], [], types, algorithm=algorithm)
    assert onnxtfl.check(model, converted(model), inputs=feed).ok


@pytest.mark.parametrize("combiner", ["SUM", "MEAN", "SQRTN"])
def test_a_sparse_lookup(combiner: str) -> None:
    """Two rows of the table at one place, none at others."""
    table = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    places = np.asarray([[0, 1, 0], [0, 1, 1], [1, 0, 0]], np.int32)
    inputs = [np.asarray([1, 3, 0], np.int32), places, np.asarray([2, 2, 2], np.int32)]
    weights = np.asarray([1, 2, 4], np.float32)
    graph_type = tensor("float32", 2, 2, 3, 2)
    model, feed = one_op(
        "EMBEDDING_LOOKUP_SPARSE", inputs[:1], [*inputs[1:], weights, table], [graph_type], combiner=combiner
    )
    assert onnxtfl.check(model, converted(model), inputs=feed).ok


@pytest.mark.parametrize("op", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_random_values_of_a_shape_that_a_run_computes(op: str) -> None:
    shape = np.asarray([3, 400], np.int32)
    model, feed = one_op(op, [shape], [], [TensorType(dtype_of(np.dtype("float32")), None)])
    found = run_onnx(converted(model), feed)["out0"]
    assert found.shape == (3, 400)
    assert abs(float(found.mean()) - 0.5 * (op == "RANDOM_UNIFORM")) < 0.2 < float(found.std()) < 1.2


def test_a_reshape_with_an_empty_shape_beside_its_options() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model, feed = one_op("RESHAPE", [x], [np.zeros(0, np.int32)], [tensor("float32", 6, 4)], new_shape=[6, 4])
    np.testing.assert_array_equal(run_onnx(converted(model), feed)["out0"], x.reshape(6, 4))


def test_a_strided_slice_with_limits_counted_from_the_starts() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    vectors = [np.int32(v) for v in ([0, 1, 2], [1, 2, 1], [1, 1, 1])]
    model, feed = one_op("STRIDED_SLICE", [x], vectors, [tensor("float32", 1, 2, 1)], offset=True)
    assert onnxtfl.check(model, converted(model), inputs=feed).ok
