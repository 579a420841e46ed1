"""Matmuls, einsums and convolutions: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, infer
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import tensor
from onnxtfl.pipeline import Options, inspect
from tests.conformance.cases import Case
from tests.unit.lifting import TFLITE, cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel
from tests.unit.tiny_models import onnx_model

_FAMILY = "MatMul MatMulInteger Gemm Einsum Conv ConvInteger ConvTranspose DeformConv"


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    check_lifted(case)


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
def test_dot_general_relabels(lhs: Any, rhs: Any, attributes: Mapping[str, Any]) -> None:
    rng = np.random.default_rng(0)
    operands = [rng.integers(-9, 9, shape).astype(np.float64) for shape in (lhs, rhs)]
    result = ops.DotGeneral.evaluate({**ops.DotGeneral.defaults, **attributes}, *operands)
    for index, rank in ((0, len(lhs)), (1, len(rhs)), (-1, np.ndim(result))):
        for permutation in list(itertools.permutations(range(rank)))[1:24]:
            assert check_relabel(ops.DotGeneral, operands, attributes, index, permutation)


def test_matmul_offers_its_flags_and_swapped_operands() -> None:
    attributes = dot((0,), (0,), (2,), (1,))
    arrays = [floats(2, 3, 4), floats(2, 4, 5, seed=1)]
    node = Node(ops.DotGeneral, [constant(a) for a in arrays], attributes)
    offers = list(ops.DotGeneral.offers(node))
    assert len(offers) == 8
    (wanted,) = evaluate_node(node, arrays)
    for offer in offers:
        moved = [a if p is None else a.transpose(p) for a, p in zip(arrays, offer.operands, strict=True)]
        again = Node(ops.DotGeneral, [constant(a) for a in moved], {**attributes, **offer.attributes})
        (found,) = evaluate_node(again, moved)
        label = offer.results[0]
        np.testing.assert_allclose(found, wanted if label is None else wanted.transpose(label), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_wrap_as_numpy_does(dtype: str) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    x, y = (rng.integers(limits.min, limits.max, shape, dtype=dtype) for shape in ((2, 3, 4), (2, 4, 5)))
    wanted = np.matmul(x, y)
    found = ops.DotGeneral.evaluate(dot((0,), (0,), (2,), (1,)), x, y)
    np.testing.assert_array_equal(found, wanted)
    if dtype != "uint8":
        check_legalized(ops.DotGeneral, [x, y], attributes=dot((0,), (0,), (2,), (1,)))


def conv(x: int, **changed: Any) -> dict[str, Any]:
    """The attributes of a channels-first Conv over `x` axes."""
    spatial = tuple(range(2, x + 2))
    numbers = {f"{side}_spatial_dimensions": spatial for side in ("input", "kernel", "output")}
    window = {"window_strides": (1,) * x, "padding": (0,) * (2 * x), "rhs_dilation": (1,) * x}
    return {**numbers, **window, **changed}


_CONVS = [
    ((2, 3, 9), (4, 3, 3), conv(1, padding=(1, 2), window_strides=(2,))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 1, 1, 1))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 0, 2, 1), window_strides=(2, 3), rhs_dilation=(1, 2))),
    ((2, 4, 9, 8), (8, 1, 3, 3), conv(2, feature_group_count=4, padding=(0, 1, 0, 0))),
    ((2, 4, 9, 8), (6, 2, 3, 3), conv(2, feature_group_count=2)),
    ((2, 4, 5, 6, 7), (6, 2, 2, 3, 2), conv(3, feature_group_count=2, padding=(1, 1, 1, 0, 0, 0))),
    ((1, 2, 7, 8), (3, 2, 3, 3), conv(2, auto_pad="SAME_UPPER", window_strides=(2, 2))),
]
_TRANSPOSED = [
    ((2, 4, 9), (4, 3, 3), conv(1, window_strides=(2,), padding=(1, 0))),
    ((2, 4, 5, 6), (4, 3, 3, 3), conv(2, window_strides=(2, 3), padding=(1, 0, -1, 1))),
    ((2, 4, 5, 6), (4, 3, 3, 2), conv(2, rhs_dilation=(2, 3))),
    ((2, 4, 5, 6), (4, 3, 4, 4), conv(2, feature_group_count=2, window_strides=(2, 2), padding=(0, 0, -1, -1))),
    ((2, 4, 5, 6), (4, 1, 3, 3), conv(2, feature_group_count=4, padding=(1, 1, 1, 1))),
    ((2, 3, 4, 3, 5), (3, 2, 2, 3, 2), conv(3, window_strides=(1, 2, 2), padding=(0, 0, 0, 0, -1, 0))),
    ((2, 4, 5, 6), (4, 3, 3, 3), conv(2, padding=(0, 0, -2, 1))),
]
_ALL = [(ops.Conv, *each) for each in _CONVS] + [(ops.ConvTranspose, *each) for each in _TRANSPOSED]


@pytest.mark.parametrize(("op", "x", "kernel", "attributes"), _ALL)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(13)], ids=["tfl", "onnx"])
def test_convolutions_in_every_form(op: type[Op], x: Any, kernel: Any, attributes: Any, target: Any) -> None:
    features = kernel[0] if op is ops.Conv else kernel[1] * attributes.get("feature_group_count", 1)
    bias = constant(floats(features, seed=2))
    for last in (None, bias):
        operands = [floats(*x), constant(floats(*kernel, seed=1)), last]
        check_legalized(op, operands, target=target, attributes=attributes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "x", "kernel", "attributes"), _ALL)
@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_read_the_same_as_preferred(
    op: type[Op], x: Any, kernel: Any, attributes: Any, channels_last: bool
) -> None:
    arrays = [floats(*x), floats(*kernel, seed=1)]
    node = Node(op, [constant(a) for a in arrays], attributes)
    preferred = op.prefers(node, channels_last)
    assert preferred is not None
    moved = [a if p is None else a.transpose(p) for a, p in zip(arrays, preferred.operands, strict=False)]
    again = Node(op, [constant(a) for a in moved], {**attributes, **preferred.attributes})
    again.add_result(infer(again)[0])
    settled = op.prefers(again, channels_last)
    assert settled is not None and not any(settled.operands) and not any(settled.results)
    (wanted,), (found,) = evaluate_node(node, arrays), evaluate_node(again, moved)
    label = preferred.results[0]
    np.testing.assert_array_equal(found, wanted if label is None else wanted.transpose(label))
    assert again.result.shape == found.shape


def test_open_sizes_keep_their_symbols() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 3, "h", "w"))
    kernel = constant(floats(8, 3, 3, 3))
    attributes = conv(2, padding=(1, 1, 1, 1), window_strides=(2, 1))
    result = Builder(graph)(ops.Conv, x, kernel, None, **attributes)
    assert str(result.type) == "tensor<[n]x8x[(h - 1)//2 + 1]x[w]xfloat32>"


def test_misfits_are_named() -> None:
    node = helper.make_node("MatMul", ["x", "y"], ["z"])
    specs = [("x", TensorProto.FLOAT, (2, 3)), ("y", TensorProto.FLOAT, (4, 5))]
    model = onnx_model([node], specs, [("z", TensorProto.FLOAT, ("a", "b"))])
    with pytest.raises(InvalidModelError, match="3 and 4"):
        inspect(model.SerializeToString(), "lifted", Options())


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("...ij,jk->...ik", ((2, 3, 4), (4, 5))),
        ("bxi,oij,byj->boxy", ((2, 3, 4), (5, 4, 6), (2, 7, 6))),
        ("...ii->...i", ((2, 3, 3),)),
        ("ij,ij", ((3, 4), (3, 4))),
        ("i,j->ji", ((3,), (4,))),
    ],
)
def test_einsum_is_numpys(equation: str, shapes: Any) -> None:
    from onnxtfl.ir.interpret import run

    arrays = [floats(*shape, seed=i) for i, shape in enumerate(shapes)]
    specs = [(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)]
    wanted = np.einsum(equation, *arrays)
    node = helper.make_node("Einsum", [name for name, _, _ in specs], ["y"], equation=equation)
    model = onnx_model([node], specs, [("y", TensorProto.FLOAT, wanted.shape)])
    (found,) = run(inspect(model.SerializeToString(), "lifted", Options()), arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
