"""The ops of the family contraction: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.targets.layouts import alternatives
from tests.unit.lifting import TFLITE, check_legalized, floats, lifted_onnx, onnx_target
from tests.unit.permuting import check_permuted
from tests.unit.tiny_models import onnx_model


def dot(lhs_batch: Any, rhs_batch: Any, lhs: Any, rhs: Any, order: Any = ()) -> dict[str, Any]:
    return {
        "lhs_batching_dimensions": tuple(lhs_batch),
        "rhs_batching_dimensions": tuple(rhs_batch),
        "lhs_contracting_dimensions": tuple(lhs),
        "rhs_contracting_dimensions": tuple(rhs),
        "output_permutation": tuple(order),
    }


_DOTS = [
    ((2, 3), (3, 4), dot((), (), (1,), (0,))),
    ((2, 3, 4), (4, 5), dot((), (), (2,), (0,), (2, 0, 1))),
    ((3, 2), (3,), dot((), (), (0,), (0,))),
    ((4,), (4,), dot((), (), (0,), (0,))),
    ((2, 3, 4), (2, 5, 4), dot((0,), (0,), (2,), (2,))),
    ((3, 2, 4, 5), (2, 5, 3, 6), dot((1, 0), (0, 2), (3,), (1,), (1, 0, 3, 2))),
    ((2, 1, 3, 4), (1, 5, 4, 2), dot((0, 1), (0, 1), (3,), (2,))),
    ((2, 3, 4, 5), (6, 3, 4, 5), dot((), (), (1, 2, 3), (1, 2, 3))),
    ((2, 2, 2, 2, 3, 4), (2, 2, 2, 2, 4, 3), dot(range(4), range(4), (5,), (4,))),
]


@pytest.mark.parametrize(("lhs", "rhs", "attributes"), _DOTS)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(17)], ids=["tfl", "onnx"])
def test_dot_general_in_every_form(lhs: Any, rhs: Any, attributes: Mapping[str, Any], target: Any) -> None:
    x, y = floats(*lhs), floats(*rhs, seed=1)
    for operands in ([x, y], [x, constant(y)], [constant(x), y]):
        check_legalized(ops.DotGeneral, operands, target=target, attributes=attributes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lhs", "rhs", "attributes"), _DOTS)
def test_dot_general_permuted(lhs: Any, rhs: Any, attributes: Mapping[str, Any]) -> None:
    rng = np.random.default_rng(0)
    operands = [rng.integers(-9, 9, shape).astype(np.float64) for shape in (lhs, rhs)]
    result = ops.DotGeneral.evaluate({**ops.DotGeneral.defaults, **attributes}, *operands)
    for index, rank in ((0, len(lhs)), (1, len(rhs)), (-1, np.ndim(result))):
        for permutation in list(itertools.permutations(range(rank)))[1:24]:
            assert check_permuted(ops.DotGeneral, operands, attributes, index, permutation)


def test_matmul_offers_its_flags_and_swapped_operands() -> None:
    attributes = dot((0,), (0,), (2,), (1,))
    arrays = [floats(2, 3, 4), floats(2, 4, 5, seed=1)]
    node = Node(ops.DotGeneral, [constant(a) for a in arrays], attributes)
    ways = list(alternatives(node))
    assert len(ways) == 8
    (wanted,) = evaluate_node(node, arrays)
    for way in ways:
        moved = [a if p is None else a.transpose(p) for a, p in zip(arrays, way.operands, strict=True)]
        again = Node(ops.DotGeneral, [constant(a) for a in moved], {**attributes, **way.attributes})
        (found,) = evaluate_node(again, moved)
        label = way.results[0]
        np.testing.assert_allclose(found, wanted if label is None else wanted.transpose(label), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "int16"])
def test_integers_wrap_as_numpy_does(dtype: str) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    x, y = (rng.integers(limits.min, limits.max, shape, dtype=dtype) for shape in ((2, 3, 4), (2, 4, 5)))
    wanted = np.matmul(x, y)
    found = ops.DotGeneral.evaluate(dot((0,), (0,), (2,), (1,)), x, y)
    np.testing.assert_array_equal(found, wanted)
    check_legalized(ops.DotGeneral, [x, y], attributes=dot((0,), (0,), (2,), (1,)))


def test_misfits_are_named() -> None:
    node = helper.make_node("MatMul", ["x", "y"], ["z"])
    specs = [("x", TensorProto.FLOAT, (2, 3)), ("y", TensorProto.FLOAT, (4, 5))]
    model = onnx_model([node], specs, [("z", TensorProto.FLOAT, ("a", "b"))])
    with pytest.raises(InvalidModelError, match="3 and 4"):
        inspect(model.SerializeToString(), "lifted", Options())


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 11, 13])
def test_gemm(opset: int) -> None:
    a, b, c = floats(4, 3), floats(5, 4), floats(5)
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}
    if opset < 7:
        attributes["broadcast"] = 1
    found = lifted_onnx("Gemm", opset, [a, b, c], **attributes)
    np.testing.assert_allclose(found, 0.5 * (a.T @ b.T) + 2 * c, rtol=1e-5, atol=1e-5)
