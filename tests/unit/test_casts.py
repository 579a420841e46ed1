"""The ops of the family casts: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType, tensor
from tests.unit.lifting import INTEGERS, check_legalized, integers, lifted_onnx, lifted_tfl
from tests.unit.tflite_graphs import assert_same_as_litert


@pytest.mark.parametrize("before", [*INTEGERS, "bool", "float32"])
@pytest.mark.parametrize("after", [*INTEGERS, "bool", "float32"])
def test_conversions(before: str, after: str) -> None:
    if before == "bool":
        x: Array = np.asarray([True, False])
    elif before == "float32":
        x = np.asarray([0, 1, 1.5, 100.7, *([] if after.startswith("u") else [-1.5, -100.2])], np.float32)
    else:
        x = integers(before)
    check_legalized(ops.Convert, [x], attributes={"dtype": DType(after)})


def test_large_floats_become_uint64() -> None:
    x = np.asarray([0, 1, 1.8e19, 9.3e18, 4e18], np.float32)
    check_legalized(ops.Convert, [x], attributes={"dtype": DType.UINT64})


def test_cast_by_name() -> None:
    x = np.asarray([1.5, -2.5], np.float32)
    found = lifted_onnx("Cast", 1, [x], to="INT32")
    assert found.dtype == np.int32 and found.tolist() == [1, -2]


def test_bits_of_another_width_are_a_new_axis() -> None:
    graph = Graph()
    x = graph.add_input(tensor("int64", "n", 3))
    b = Builder(graph)
    words = b(ops.BitcastConvert, x, dtype=DType.INT32)
    assert str(words.type) == "tensor<[n]x3x2xint32>"
    assert str(b(ops.BitcastConvert, words, dtype=DType.INT64).type) == "tensor<[n]x3xint64>"
    numbers = np.asarray([[1, -1, 1 << 40]])
    halves = ops.BitcastConvert.evaluate({"dtype": DType.INT32}, numbers)
    np.testing.assert_array_equal(halves, [[[1, 0], [-1, -1], [0, 256]]])


def test_sizes_are_followed_through_conversions() -> None:
    graph = Graph()
    b = Builder(graph)
    sizes = b(ops.Shape, graph.add_input(tensor("float32", "n", 8)))
    narrow = b(ops.Convert, sizes, dtype=DType.INT32)
    doubled = b(ops.Mul, narrow, np.asarray([2, 2], np.int32))
    assert [str(d) for d in doubled.known] == ["2*n", "16"]  # type: ignore[union-attr]


X = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)


def test_casts_go_to_the_type_of_the_result() -> None:
    np.testing.assert_array_equal(lifted_tfl("CAST", X, result=DType.INT32), X.astype(np.int32))
    words = lifted_tfl("BITCAST", np.asarray([1 << 40, -1]), result=DType.INT32)
    np.testing.assert_array_equal(words, [[0, 256], [-1, -1]])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "uint32"])
def test_casts_of_floats_saturate(dtype: str) -> None:
    assert_same_as_litert(lambda g: g.op("CAST", [g.given([-70000, -200.5, -1, 0.5, 70])], dtype))
