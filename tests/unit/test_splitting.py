"""The ops of the family splitting: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import tensor
from tests.harness.litert import run_tflite
from tests.harness.rounds import floats, there_and_back
from tests.unit.lifting import inferred
from tests.unit.onnx_nodes import onnx_file
from tests.unit.tflite_graphs import SAMPLE, assert_same_as_litert


def test_split_and_its_misfits() -> None:
    assert inferred(ops.Split, tensor("int8", "n", 6), [1, 5], axis=1) == "tensor<[n]x1xint8>"
    assert inferred(ops.Split, tensor("int8", "2*n"), None, axis=0, count=2) == "tensor<[n]xint8>"
    with pytest.raises(InvalidModelError):
        inferred(ops.Split, tensor("int8", 6), [1, 4], axis=0)
    with pytest.raises(InvalidModelError):
        inferred(ops.Split, tensor("int8", 7), None, axis=0, count=2)


def test_general_split() -> None:
    graph = Graph()
    parts = Builder(graph).many(ops.GeneralSplit, graph.add_input(tensor("int8", "n", 6)), axis=1, sizes=(2, 4))
    assert [str(p.type) for p in parts] == ["tensor<[n]x2xint8>", "tensor<[n]x4xint8>"]


def test_halves_of_an_open_axis_of_int64() -> None:
    """TFLite's SPLIT has no kernel for int64; slices have."""
    text = """<ir_version: 8, opset_import: ["" : 13]>
      halves (int64[3,"n"] x) => (int64[3,?] a, int64[3,?] b) { a, b = Split <axis = 1> (x) }"""
    made = onnxtfl.onnx_to_tflite(onnx.parser.parse_model(text), check=False).data
    x = np.arange(18).reshape(3, 6)
    found = run_tflite(made, [x], kernels="builtin")
    np.testing.assert_array_equal(np.concatenate([part for _, part in found], axis=1), x)


def test_a_split_into_more_parts_than_a_tensor_has_axes() -> None:
    parts = helper.make_node("Split", ["x", "s"], [f"y{i}" for i in range(300)], name="n", axis=0)
    model = onnx_file([parts, helper.make_node("Neg", ["y7"], ["y"])], [600], {"s": np.full(300, 2)})
    assert onnxtfl.onnx_to_tflite(model).data


def test_sizes_of_parts_known_at_run_time() -> None:
    """-1 is what the others leave."""
    assert_same_as_litert(
        lambda g: g.op(
            "SPLIT_V",
            [g.given(SAMPLE, open_axes=[1]), g.given([1, -1], "int32"), g.constant(1, "int32")],
            *("float32", "float32"),
            num_splits=2,
        )
    )


@pytest.mark.parametrize("count", [3, 6, 100])
def test_more_parts_than_xnnpack_makes_are_slices_there_and_a_split_again(count: int) -> None:
    """Very many stay one op."""
    parts = [f"p{i}" for i in range(count)]
    text = f"""g (float[{2 * count}, 3] x) => (float[2, 3] y) <int64[{count}] s = {{{", ".join("2" * count)}}}> {{
      {", ".join(parts)} = Split <axis = 0> (x, s)  y = Sum ({", ".join(parts)}) }}"""
    there, back = there_and_back(text, {"x": floats(2 * count, 3)})
    assert (there["SPLIT"], there["SLICE"]) == ((0, count) if count == 6 else (1, 0))
    assert (back["Split"], back["Slice"]) == (1, 0)
