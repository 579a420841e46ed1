"""A conversion leaves no garbage: graphs and tables, which have cycles, are freed without the garbage collector."""

from __future__ import annotations

import gc

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.formats.tflite.model_tables import _Subgraph
from onnxtfl.ir.graph import Graph, Node, Value


def a_model() -> bytes:
    """An If with an addition in one branch."""
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    branches = {}
    for name, op in (("then_branch", "Add"), ("else_branch", "Mul")):
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        branches[name] = helper.make_graph([helper.make_node(op, ["x", "w"], [name])], name, [], [output])
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    weights = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], **branches)], "g", inputs, [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def objects_in_memory() -> int:
    return sum(isinstance(found, Graph | Node | Value | _Subgraph) for found in gc.get_objects())


def test_a_conversion_leaves_no_garbage() -> None:
    model = a_model()
    there = onnxtfl.onnx_to_tflite(model, check=False, load=False).data
    assert there is not None
    onnxtfl.tflite_to_onnx(there, check=False, load=False)
    gc.collect()
    gc.disable()
    try:
        before = objects_in_memory()
        onnxtfl.onnx_to_tflite(model, check=False, load=False)
        assert objects_in_memory() == before
        onnxtfl.tflite_to_onnx(there, check=False, load=False)
        assert objects_in_memory() == before
    finally:
        gc.enable()
