"""Quantization: the arithmetic, and how parameters follow transposes and reshapes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.ops import Relu, Transpose
from onnxtfl.ir.quantization import Quantization, dequantize, quantize
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.types import DType, TensorType, compatible, tensor
from onnxtfl.rewriting.declared import as_declared

Q = Quantization("int8", (0.5,), (3,))


def blocks(storage: str, *shape: int, axis: int, block: int) -> Quantization:
    """Different scales and zero points for each block."""
    count = math.prod(-(-d // block) if i == axis else d for i, d in enumerate(shape))
    return Quantization(storage, tuple(0.5 + i for i in range(count)), tuple(range(count)), axis, block)


def test_halves_are_rounded_to_even_before_the_zero_point_is_added() -> None:
    real = np.asarray([0.25, 0.75, 1.25, -0.25, -0.75], np.float32)
    assert quantize(real, Q).tolist() == [3, 5, 5, 3, 1]
    assert quantize(real, Q).dtype == np.int8


@pytest.mark.parametrize(
    ("storage", "low", "high"),
    [("int4", -8, 7), ("int8", -128, 127), ("uint8", 0, 255), ("int16", -32768, 32767), ("int32", -(2**31), 2**31 - 1)],
)
def test_what_is_out_of_range_is_the_last_number(storage: str, low: int, high: int) -> None:
    stored = quantize(np.asarray([-1e12, 1e12], np.float64), Quantization(storage, (0.5,), (1,)))
    assert [int(n) for n in stored] == [low, high]
    assert stored.dtype == DType(storage).numpy


@pytest.mark.parametrize("storage", ["int4", "uint4", "int8", "uint8", "int16", "uint16"])
def test_stored_numbers_come_back(storage: str) -> None:
    rng = np.random.default_rng(0)
    dtype = DType(storage)
    stored = np.arange(-(1 << dtype.bits - 1) if dtype.is_signed else 0, 1 << dtype.bits - dtype.is_signed)
    for scale in np.float32(rng.uniform(1e-6, 10, 20)):
        zero = int(rng.integers(stored[0], stored[-1] + 1))
        quantization = Quantization(storage, (float(scale),), (zero,))
        real = dequantize(stored.astype(dtype.numpy), quantization)
        assert real.dtype == np.float32
        np.testing.assert_array_equal(quantize(real, quantization).astype(np.int64), stored)


def test_scales_along_an_axis_and_for_blocks() -> None:
    stored = np.arange(12, dtype=np.int8).reshape(2, 6)
    along = Quantization("int8", (0.5, 2.0), (1, -1), 0)
    np.testing.assert_array_equal(dequantize(stored, along), (stored - [[1], [-1]]) * [[0.5], [2.0]])
    blocked = blocks("int8", 2, 6, axis=1, block=4)
    scales, zeros = np.asarray(blocked.scales).reshape(2, 2), np.asarray(blocked.zero_points).reshape(2, 2)
    each = [0, 0, 0, 0, 1, 1]
    np.testing.assert_array_equal(dequantize(stored, blocked), (stored - zeros[:, each]) * scales[:, each])
    np.testing.assert_array_equal(quantize(dequantize(stored, blocked), blocked), stored)


@pytest.mark.parametrize(
    "quantization",
    [Q, Quantization("int8", (0.5, 1.0, 2.0), (0, 1, 2), 1), blocks("int8", 2, 3, 4, axis=2, block=2)],
)
def test_parameters_follow_a_transpose(quantization: Quantization) -> None:
    stored = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    type_ = TensorType(DType.FLOAT32, (2, 3, 4), quantization)
    for permutation in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        moved = type_.permuted(permutation).quantization
        assert moved is not None
        expected = dequantize(stored, quantization).transpose(permutation)
        np.testing.assert_array_equal(dequantize(stored.transpose(permutation), moved), expected)


def test_parameters_follow_a_reshape_that_keeps_their_axis() -> None:
    along = Quantization("int8", (0.5, 1.0, 2.0), (0, 1, 2), 1)
    type_ = TensorType(DType.FLOAT32, (2, 3, 4), along)
    for shape, axis in (((2, 3, 2, 2), 1), ((1, 2, 3, 4), 2), ((2, 1, 3, 4), 2)):
        after = type_.reshaped(shape)
        assert after is not None and after.quantization is not None and after.quantization.axis == axis
    assert type_.reshaped((6, 4)) is None and type_.reshaped((3, 2, 4)) is None
    assert TensorType(DType.FLOAT32, (2, 3), Q).reshaped((6,)) == TensorType(DType.FLOAT32, (6,), Q)
    assert type_.reshaped((2, 3, 4)) == type_


def test_parameters_fit_a_shape() -> None:
    along = Quantization("int8", (0.5, 1.0, 2.0), (0, 1, 2), 1)
    assert along.fits((2, 3)) and along.fits(tensor("float32", "n", "m").shape) and along.fits(None)
    assert not along.fits((3, 2)) and not along.fits((3,))
    assert blocks("int4", 2, 5, axis=1, block=2).fits((2, 5)) and not blocks("int4", 2, 5, axis=1, block=2).fits((2, 9))


def test_types_are_compatible_where_all_but_open_sizes_is_equal() -> None:
    a = TensorType(DType.FLOAT32, tensor("float32", "n", 3).shape, Q)
    assert compatible(a, a.with_shape((2, 3))) and compatible(a, a.with_shape(None))
    assert not compatible(a, a.with_shape((2, 4))) and not compatible(a, a.stored_as(None))
    assert not compatible(a, a.stored_as(Quantization("int8", (0.5,), (2,)))) and not compatible(a, None)


def test_quantized_constants_read_back() -> None:
    scales = tuple(float(np.float32(1 / (i + 3))) for i in range(40))
    many = Quantization("int8", scales, (0,) * 40, 0)
    weights = constant(np.arange(40, dtype=np.int8), type_=TensorType(DType.FLOAT32, (40,), many))
    graph = Graph()
    graph.outputs = [Builder(graph)(Transpose, weights, permutation=(0,))]
    again = parse_graph(print_graph(graph))
    assert print_graph(again) == print_graph(graph)
    assert again.outputs[0].type == graph.outputs[0].type == weights.type


def test_contents_are_real_or_stored() -> None:
    value = constant(np.asarray([2, 4], np.int8), type_=TensorType(DType.FLOAT32, (2,), Q))
    assert value.numpy().tolist() == [-0.5, 0.5] and value.stored().tolist() == [2, 4]
    assert value.is_quantized and value.known is None


def test_results_are_stored_as_declared() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 2), "x")
    b = Builder(graph)
    wanted = TensorType(DType.FLOAT32, (2,), Q)
    made = as_declared(b, b(Relu, x), wanted)
    assert made.type == wanted and [n.op.name for n in graph.nodes] == ["Relu"]
    moved = as_declared(b, b(Transpose, x, permutation=(0,)), wanted)
    assert moved.type == wanted and moved.producer is not None and moved.producer.op.name == "Convert"
    assert as_declared(b, made, wanted) is made
    assert as_declared(b, x, x.type) is x
    real = as_declared(b, made, tensor("float32", 2))
    assert real is not made and not real.is_quantized and made.is_quantized
