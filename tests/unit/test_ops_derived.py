"""Ops of ir/ops/derived.py: types, meaning, and that legalization writes them with core ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, TensorType, dtype_of, tensor
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CASES: list[tuple[type[Op], list[Any], dict[str, Any], Array]] = [
    (ops.Broadcast, [X], {"broadcast_sizes": (5, 1)}, np.broadcast_to(X, (5, 1, 2, 3, 4))),
    (
        ops.BroadcastInDim,
        [X[0, :, 0]],
        {"broadcast_dimensions": (1,), "shape": (2, 3, 2)},
        np.broadcast_to(X[0, :, :1], (2, 3, 2)),
    ),
    (
        ops.DynamicBroadcastInDim,
        [X[:, :1], np.asarray([2, 6, 5, 4])],
        {"broadcast_dimensions": (0, 2, 3)},
        np.broadcast_to(X[:, None, :1], (2, 6, 5, 4)),
    ),
    (ops.Iota, [], {"shape": (2, 3), "iota_dimension": 1, "dtype": DType.INT32}, np.asarray([[0, 1, 2]] * 2, np.int32)),
    (ops.DynamicIota, [np.asarray([2, 3])], {"iota_dimension": 0}, np.asarray([[0] * 3, [1] * 3])),
    (
        ops.DynamicPad,
        [X[0], np.asarray([1, 0, 0, 2]), np.float32(9)],
        {},
        np.pad(X[0], [(1, 0), (0, 2)], constant_values=9),
    ),
    (ops.DynamicReshape, [X, np.asarray([0, -1])], {}, X.reshape(2, -1)),
    (ops.DynamicSlice, [X, np.asarray([1, 5, -3])], {"slice_sizes": (1, 2, 2)}, X[1:, 1:, :2]),
    (ops.RealDynamicSlice, [X, *map(np.asarray, ([3], [-9], [-2], [-1]))], {}, X[:, :, 3::-2]),
    (ops.SliceInDim, [X], {"dimension": -1, "start_index": 1, "stride": 2}, X[..., 1::2]),
    (ops.SetDimensionSize, [X, np.asarray(2)], {"dimension": 1}, X[:, :2]),
    (ops.Squeeze, [X[:1, :, :1], np.asarray([-1])], {}, X[:1, :, 0]),
    (ops.Squeeze, [X[:1, :, :1]], {}, X[0, :, 0]),
    (ops.Unsqueeze, [X, np.asarray([0, -1])], {}, X[None, ..., None]),
]


@pytest.mark.parametrize(("op", "operands", "attributes", "wanted"), CASES, ids=lambda c: getattr(c, "name", ""))
def test_is_what_its_rule_says(op: type[Op], operands: list[Any], attributes: dict[str, Any], wanted: Array) -> None:
    graph = Graph()
    arrays = [np.asarray(v) for v in operands]
    fixed = op in (ops.Squeeze, ops.Unsqueeze, ops.RealDynamicSlice)
    values = [_value(graph, a, i > 0 and fixed) for i, a in enumerate(arrays)]
    given = [a for a, v in zip(arrays, values, strict=True) if not v.is_constant]
    graph.outputs = [Builder(graph)(op, *values, **attributes)]
    _check(graph, given, wanted)
    legalize(graph, TfliteTarget())
    assert all(node.op.core for node in graph.nodes)
    _check(graph, given, wanted)


def _value(graph: Graph, array: Array, fixed: bool) -> Value:
    dtype = dtype_of(array.dtype)
    return constant(array, dtype) if fixed else graph.add_input(TensorType(dtype, array.shape))


def _check(graph: Graph, given: list[Array], wanted: Array) -> None:
    found = run(graph, given)[0]
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_general_split() -> None:
    graph = Graph()
    parts = Builder(graph).many(ops.GeneralSplit, graph.add_input(tensor("int8", "n", 6)), axis=1, sizes=(2, 4))
    assert [str(p.type) for p in parts] == ["tensor<[n]x2xint8>", "tensor<[n]x4xint8>"]


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 1, "2*w"))
    b = Builder(graph)
    assert str(b(ops.Squeeze, x, [1]).type) == "tensor<[n]x[2*w]xfloat32>"
    assert str(b(ops.Unsqueeze, x, [0]).type) == "tensor<1x[n]x1x[2*w]xfloat32>"
    assert str(b(ops.SliceInDim, x, dimension=0, start_index=1).type) == "tensor<[n - 1]x1x[2*w]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.Squeeze, graph.add_input(tensor("float32", 2)), [0])
