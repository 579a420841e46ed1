"""The ops of the family space_to_depth: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import tensor
from onnxtfl.targets import layouts
from tests.unit.onnx_nodes import agrees_on
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_go_there_and_back(mode: str) -> None:
    x = np.random.default_rng(0).integers(0, 99, (2, 3, 5, 12))
    attributes = {"block_size": 2, "mode": mode, "depth_dim": 3, "space_dims": (1, 2)}
    y = ops.DepthToSpace.evaluate(attributes, x)
    assert y.shape == (2, 6, 10, 3)
    assert (ops.SpaceToDepth.evaluate(attributes, y) == x).all()


def test_blocks_prefer_the_depth_where_kernels_want_it() -> None:
    graph = Graph()
    node = Node(ops.DepthToSpace, [graph.add_input(tensor("float32", 1, 8, 3, 3))], {"block_size": 2})
    node.add_result(tensor("float32", 1, 2, 6, 6))
    preferred = layouts.preferred(node, channels_last=True)
    assert preferred is not None
    assert preferred.operands == ((0, 2, 3, 1),)
    assert preferred.attributes["depth_dim"] == 3


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_col2im_of_an_open_batch(batch: int) -> None:
    sizes = {"i": np.asarray([4, 4], np.int64), "k": np.asarray([2, 2], np.int64)}
    node = helper.make_node("Col2Im", ["x", *sizes], ["y"])
    model = onnx_model([node], [("x", FLOAT, ["N", 8, 9])], [("y", FLOAT, None)], sizes, opset=18)
    x = np.random.default_rng(0).standard_normal((batch, 8, 9)).astype(np.float32)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)
