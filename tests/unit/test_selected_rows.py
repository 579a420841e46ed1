"""Models that select rows by their values: sizes that only a run knows, other ones in each run of one interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.formats import files
from tests.harness.litert import Array, invoke

F = TensorProto.FLOAT
RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.standard_normal((16, 64)), "v": RNG.standard_normal((64, 4)), "zero": np.zeros(()), "half": 0.5}


def model() -> onnx.ModelProto:
    """A product of all rows, one of those that are selected, and all elements above 0.5."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["all"]),
        helper.make_node("Gather", ["all", "first"], ["key"], axis=1),
        helper.make_node("Greater", ["key", "zero"], ["chosen"]),
        helper.make_node("NonZero", ["chosen"], ["found"]),
        helper.make_node("Reshape", ["found", "flat"], ["rows"]),
        helper.make_node("Gather", ["all", "rows"], ["some"], axis=0),
        helper.make_node("MatMul", ["some", "v"], ["y"]),
        helper.make_node("Greater", ["all", "half"], ["large"]),
        helper.make_node("NonZero", ["large"], ["places"]),
        helper.make_node("Transpose", ["places"], ["at"], perm=[1, 0]),
        helper.make_node("GatherND", ["all", "at"], ["elements"]),
    ]
    constants = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in WEIGHTS.items()]
    constants += [numpy_helper.from_array(np.array(v), name) for name, v in (("first", 0), ("flat", [-1]))]
    x = helper.make_tensor_value_info("x", F, [20, 16])
    outputs = [helper.make_tensor_value_info("y", F, ["n", 4]), helper.make_tensor_value_info("elements", F, ["m"])]
    return helper.make_model(helper.make_graph(nodes, "g", [x], outputs, constants), ir_version=8)


def expected(x: Array) -> list[Array]:
    """What the model computes, in the order of its outputs."""
    every = x @ WEIGHTS["w"].astype(np.float32)
    return [every[every[:, 0] > 0] @ WEIGHTS["v"].astype(np.float32), every[every > 0.5]]


@pytest.mark.parametrize("kernels", [OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES])
def test_one_interpreter_and_another_number_of_rows_in_each_run(kernels: Any) -> None:
    """XNNPACK copies what a FULLY_CONNECTED reads that does not keep its dims, and it no longer does so once memory
    that a run has released becomes its own: the results of all later runs are then of old values.
    """
    data = onnxtfl.onnx_to_tflite(model(), check=False).data
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kernels)
    sizes = set()
    for number in range(6):
        x = RNG.standard_normal((20, 16)).astype(np.float32)
        found = invoke(interpreter, [x], allocate=number == 0)
        for got, wanted in zip(found, expected(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        sizes.add(found[0].shape)
    assert len(sizes) > 2


def test_a_product_of_matrices_keeps_its_dims() -> None:
    """So XNNPACK has no copy to leave out; whether it does depends on where memory happens to begin."""
    graph = files.read(onnxtfl.onnx_to_tflite(model(), check=False).data).main
    kept = [node.attr("keep_num_dims") for node in graph.nodes if node.op.name == "tfl.FULLY_CONNECTED"]
    assert kept == [True, True]
