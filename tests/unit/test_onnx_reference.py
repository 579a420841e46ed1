"""Ops of ONNX that move elements, lifted and legalized, compared with onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtfl.ir.data import Array
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget

R = np.random.default_rng(0)
X = R.integers(-9, 9, (2, 3, 4)).astype(np.float32)
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("Gather", [X, np.asarray([[0, -1], [1, 2]])], {"axis": 1}),
    ("Gather", [X, np.asarray(-2)], {"axis": -1}),
    ("GatherND", [X, np.asarray([[0, 2], [-1, -3]])], {}),
    ("GatherND", [X, np.asarray([[[2], [0]], [[-1], [1]]])], {"batch_dims": 1}),
    ("GatherND", [X[None], np.asarray([[[0, 2, 3], [1, 0, -1]]])], {"batch_dims": 1}),
    ("GatherElements", [X, R.integers(-3, 3, (2, 3, 4))], {"axis": 1}),
    ("GatherElements", [X, R.integers(-2, 2, (1, 3, 4))], {"axis": 0}),
    ("ScatterND", [X, np.asarray([[1, 2], [0, -1]]), X[0, :2]], {}),
    ("ScatterND", [X, np.asarray([[1, 2], [1, 2]]), X[0, :2]], {"reduction": "add"}),
    ("ScatterND", [X, np.asarray([[1, 2], [1, 2]]), X[0, :2]], {"reduction": "mul"}),
    ("ScatterND", [X, np.asarray([[1, 2], [1, 2]]), X[0, :2]], {"reduction": "max"}),
    ("ScatterElements", [X, np.argsort(X, 2), X * 2], {"axis": 2}),
    ("ScatterElements", [X, R.integers(-3, 3, (2, 2, 4)), X[:, :2]], {"axis": 1, "reduction": "add"}),
    ("ScatterElements", [X, R.integers(0, 2, (1, 3, 4)), X[:1]], {"axis": 0, "reduction": "min"}),
    ("NonZero", [X * (X > 2)], {}),
    ("TopK", [X, np.asarray([2])], {"axis": 1}),
    ("TopK", [X, np.asarray([3])], {"largest": 0}),
    ("OneHot", [np.asarray([0, -1, 5, -9]), np.asarray(5), np.asarray([2, 7], np.float32)], {"axis": 0}),
    ("Compress", [X, np.asarray([True, False, True])], {"axis": 1}),
    ("Compress", [X, np.asarray([False, True, True])], {}),
    ("Unique", [X], {}),
    ("Unique", [X.reshape(-1)], {"sorted": 0}),
    ("Unique", [np.sign(X).reshape(6, 4)], {"axis": 0}),
    ("TensorScatter", [X[:, None], X[:, None, :1] + 9, np.asarray([1, 2])], {}),
    ("Trilu", [X, np.asarray(-1)], {"upper": 0}),
    ("ReverseSequence", [X, np.asarray([1, 2, 0])], {"batch_axis": 1, "time_axis": 0}),
    ("Range", [np.asarray(5, np.int64), np.asarray(-4, np.int64), np.asarray(-2, np.int64)], {}),
    ("CenterCropPad", [X, np.asarray([5, 1])], {"axes": [1, 2]}),
]
RESULTS = {"TopK": 2, "Unique": 4}


def model(op: str, arrays: list[Array], frozen: bool, **attributes: Any) -> tuple[onnx.ModelProto, list[Array]]:
    names = [f"x{i}" for i in range(len(arrays))]
    fixed = range(1, len(arrays)) if frozen else range(0)
    given = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, (n, a) in enumerate(zip(names, arrays, strict=True))
        if i not in fixed
    ]
    weights = [onnx.numpy_helper.from_array(arrays[i], names[i]) for i in fixed]
    results = [onnx.helper.make_empty_tensor_value_info(f"y{i}") for i in range(RESULTS.get(op, 1))]
    node = onnx.helper.make_node(op, names, [r.name for r in results], **attributes)
    graph = onnx.helper.make_graph([node], "g", given, results, weights)
    opset = onnx.helper.make_opsetid("", 24)
    return onnx.helper.make_model(graph, opset_imports=[opset]), [a for i, a in enumerate(arrays) if i not in fixed]


@pytest.mark.parametrize("frozen", [False, True], ids=["computed", "frozen"])
@pytest.mark.parametrize(("op", "arrays", "attributes"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_means_the_same_lifted_and_legal(
    op: str, arrays: list[Array], attributes: dict[str, Any], frozen: bool
) -> None:
    source, given = model(op, arrays, frozen, **attributes)
    feeds = {f"x{i}": a for i, a in enumerate(given)}
    wanted = ReferenceEvaluator(source).run(None, feeds)
    graph = inspect(source.SerializeToString(), "lifted", Options())
    _same(run(graph, given), wanted)
    legalize(graph, TfliteTarget())
    _same(run(graph, given), wanted)


def _same(found: list[Array], wanted: Any) -> None:
    for have, want in zip(found, wanted, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
