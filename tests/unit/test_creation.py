"""The ops of the family creation: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import parse_dim
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import DType, TensorType, tensor
from onnxtfl.rewriting.lift import lift
from tests.unit.lifting import lifted_onnx, lifted_tfl
from tests.unit.onnx_nodes import converted_node


def test_range_counts() -> None:
    b = Builder(Graph())
    n = Value(tensor("int64"))
    n.known = np.asarray(parse_dim("n"), object)
    zero, two = constant(0), constant(2)
    assert b(ops.Range, zero, n, two).shape == (parse_dim("-((-n)//2)"),)
    floats = [constant(v, DType.FLOAT32) for v in (1.0, 5.0, 0.5)]
    assert b(ops.Range, *floats).shape == (8,)


def test_constant_fill() -> None:
    """An experimental op of the first opsets."""
    shape, x = np.asarray([2, 3]), np.ones((4, 1), np.float32)
    found = lifted_onnx("ConstantFill", 6, [shape], input_as_shape=1, value=1.5)
    np.testing.assert_array_equal(found, np.full((2, 3), 1.5, np.float32))
    np.testing.assert_array_equal(lifted_onnx("ConstantFill", 6, [x], extra_shape=[2]), np.zeros((4, 1, 2), np.float32))
    assert lifted_onnx("ConstantFill", 6, [], shape=[5], dtype=7).dtype == np.int64


def test_zeros_like() -> None:
    x = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(lifted_tfl("ZEROS_LIKE", x), x * 0)


def test_zeros_like_a_tensor_of_unknown_rank() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(DType.FLOAT32, None))
    graph.outputs = Builder(graph).foreign("tfl", "ZEROS_LIKE", [x], [x.type])
    lift(graph, lambda node: None)
    (found,) = run(graph, [np.ones((2, 3), np.float32)])
    np.testing.assert_array_equal(found, np.zeros((2, 3), np.float32))


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("step", [1, -1])
def test_a_range_whose_limit_is_before_its_start(step: int) -> None:
    inputs = [("start", FLOAT, []), ("limit", FLOAT, [])]
    result = converted_node("Range", inputs, (FLOAT, None), {"step": np.asarray(step, np.float32)}, check=False)
    from tests.harness.litert import run_tflite

    bounds = {"start": np.float32(3 * step).reshape(()), "limit": np.float32(step).reshape(())}
    ((_, found),) = run_tflite(result.data, bounds)
    assert found.shape == (0,)
