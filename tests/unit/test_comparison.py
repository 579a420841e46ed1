"""The ops of the family comparison: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType, TensorType, tensor
from tests.unit.lifting import INTEGERS, check_legalized, integers, lifted_tfl
from tests.unit.onnx_nodes import named_node
from tests.unit.permuting import check_permuted


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_comparisons_of_integers(direction: str, dtype: str) -> None:
    lhs, rhs = integers(dtype), integers(dtype, 1)
    for other in (lhs, rhs):
        check_legalized(ops.Compare, [lhs, other], attributes={"comparison_direction": direction})


def test_directions_are_known_ones() -> None:
    b = Builder(Graph())
    x = b.graph.add_input(tensor("float32", 2))
    with pytest.raises(InvalidModelError):
        b(ops.Compare, x, x, comparison_direction="==")


def test_permuted_axes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    assert check_permuted(ops.Select, [x > 0, x, np.asarray(1, np.float32)], {}, 1, (2, 0, 1))


X = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)


def test_a_condition_of_one_axis_chooses_along_the_first() -> None:
    condition = np.asarray([True, False])
    found = lifted_tfl("SELECT", condition, X, -X, result=DType.FLOAT32)
    np.testing.assert_array_equal(found, np.where(condition[:, None, None], X, -X))


def test_tests_for_minus_infinity_read_real_constants_only() -> None:
    """Strings and complex numbers are compared too."""
    strings = helper.make_tensor("c", TensorProto.STRING, [1], [b"a"])
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    graph = helper.make_graph(
        [named_node("Equal", "x c")], "g", [x], [helper.make_empty_tensor_value_info("y")], [strings]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    assert onnxtfl.onnx_to_tflite(model, check=False).data
    model.graph.initializer[0].CopyFrom(helper.make_tensor("c", TensorProto.COMPLEX64, [1], [1j]))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(onnxtfl.UnsupportedError, match="not complex64"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(
    ("direction", "limit", "wanted"),
    [("GE", 0, True), ("LT", 0, False), ("GT", -1, True), ("LE", -1, False), ("EQ", -1, False), ("NE", -1, True)]
    + [(direction, 1, None) for direction in ("GE", "LT", "GT", "LE", "EQ", "NE")],
)
def test_sizes_compare_as_they_do_for_all_sizes(direction: str, limit: int, wanted: bool | None) -> None:
    graph = Graph()
    size = graph.add_input(TensorType(DType.INT64, ()))
    size.known = np.asarray(fresh_symbol(), object)
    found = Builder(graph)(ops.Compare, size, np.asarray(limit), comparison_direction=direction)
    assert (bool(found.numpy()) if found.is_constant else None) is wanted
