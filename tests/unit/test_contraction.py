"""The ops of the family contraction: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.formats import files
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.targets.layouts import alternatives
from tests.fuzz.both_ways import assert_converts_both_ways
from tests.unit.lifting import TFLITE, check_legalized, floats, lifted_onnx, onnx_target
from tests.unit.onnx_nodes import converted_node
from tests.unit.permuting import check_permuted
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import assert_converts_alike
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
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


FLOAT = TensorProto.FLOAT


INT8 = TensorProto.INT8


INT32 = TensorProto.INT32


def test_integer_matrices_of_which_one_has_an_open_depth() -> None:
    inputs = [("b", INT8, ["K", 3])]
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = onnx_model([node], inputs, [("y", INT32, None)], {"a": np.arange(8, dtype=np.uint8).reshape(2, 4)})
    assert onnxtfl.onnx_to_tflite(model, check=False, input_shapes={"b": [4, 3]})
    assert onnxtfl.onnx_to_tflite(model, check=False)


def test_a_transposed_matrix_beside_a_vector() -> None:
    inputs = [("x", FLOAT, [5]), ("m", FLOAT, [3, 5])]
    assert converted_node("FusedMatMul", inputs, (FLOAT, [3]), domain="com.microsoft", transB=1)


def test_open_weights_of_a_product_convert_back() -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    model = onnx_model([node], [("w", FLOAT, [4, "K"])], [("y", FLOAT, [1, 4])], {"x": np.ones((1, 8), np.float32)})
    assert onnxtfl.tflite_to_onnx(onnxtfl.onnx_to_tflite(model, check=False).data, check=False).data


@pytest.mark.parametrize(("axis", "kept"), [(0, True), (0, False), (1, False)])
def test_rows_of_features_whose_number_only_a_run_knows(axis: int, kept: bool) -> None:
    """Without keep_num_dims, the kernel makes a row of 3 features of [3, 1] as well."""

    def build(g: TfliteGraph) -> Any:
        (rows,) = g.op("MEAN", [g.constant(SAMPLE[0, :3, :3]), g.given([axis], np.int32)], keep_dims=True)
        return g.op("FULLY_CONNECTED", [rows, g.given(SAMPLE[:, 0, :3]), ""], keep_num_dims=kept)

    assert_same_as_litert(build)


def test_a_product_with_open_weights_keeps_its_axes() -> None:
    text = """
    graph main(%x: tensor<1x1x2xfloat32>, %w: tensor<[n]x[k]xfloat32>) -> (%y) {
      %y = tfl.FULLY_CONNECTED@6(%x, %w) {keep_num_dims = true} : tensor<1x1x[n]xfloat32>
    }"""
    x, weights = np.asarray([[[1, 2]]], np.float32), np.asarray([[1, 0], [0, 1], [3, 4]], np.float32)
    assert_converts_alike(tflite(text), x, weights, tolerance=1e-6)


def test_a_matrix_product_of_open_batches() -> None:
    text = "g (float[1, 4, h, w] x) => (float y) { y = MatMul (x, k) }"
    assert_converts_both_ways(text, {"k": (4, 2)}, [{"h": 3, "w": 4}])


@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_fully_connected_reads_a_matrix(batch: int | str) -> None:
    """LiteRT's GPU accelerator computes other values for an operand of rank 4, which the CPU's kernels flatten."""
    model = onnx_model(
        [helper.make_node("Flatten", ["x"], ["rows"]), helper.make_node("Gemm", ["rows", "w"], ["y"])],
        [("x", TensorProto.FLOAT, [batch, 2, 3, 4])],
        [("y", TensorProto.FLOAT, [batch, 5])],
        {"w": floats(24, 5)},
    )
    data = onnxtfl.onnx_to_tflite(model, check="require").data
    (node,) = [n for n in files.read(data).main.nodes if n.op.name == "tfl.FULLY_CONNECTED"]
    assert node.operand(0).rank == 2
