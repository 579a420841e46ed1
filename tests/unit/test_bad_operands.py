"""Operands that no valid model has: one clear error, never an internal one, and soon."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl import InvalidModelError, UnsupportedError
from tests.unit.tiny_models import onnx_model, tflite_model

FLOAT, HUGE = TensorProto.FLOAT, 2**31 - 1


def to_tflite(nodes: list, inputs: list, *constants: tuple[str, object], opset: int = 21) -> None:
    model: ModelProto = onnx_model(nodes, inputs, [("y", FLOAT, None)])
    model.opset_import[0].version = opset
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants)
    onnxtfl.onnx_to_tflite(model, check=False, load=False)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_without_elements(policy: str) -> None:
    """By scales the result has none either, by sizes it would have some."""
    x = [("x", FLOAT, (1, 3, 0, 4))]
    scaled = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")
    to_tflite([scaled], x, ("s", np.float32([1, 1, 2, 2])))
    sized = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="nearest", keep_aspect_ratio_policy=policy)
    if policy == "stretch":
        with pytest.raises(InvalidModelError, match="has no elements to make 5 of"):
            to_tflite([sized], x, ("s", np.int64([1, 3, 5, 5])))


def test_a_sequence_as_the_number_of_elements() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["k", "k"], ["s"]),
        helper.make_node("TopK", ["x", "s"], ["y", "i"]),
    ]
    with pytest.raises((InvalidModelError, UnsupportedError), match="'s'"):
        to_tflite(nodes, [("x", FLOAT, (3, 4)), ("k", TensorProto.INT64, (1,))])


@pytest.mark.parametrize(
    ("axis", "block", "scale", "message"),
    [
        (5, 2, (2, 6), "axis 5 is outside of rank 2"),
        (0, 2, (), "rank 0 for blocks of a tensor of rank 2"),
        (0, 2, (6,), "rank 1 for blocks of a tensor of rank 2"),
        (0, -1, (4, 6), "blocks of -1 elements"),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_blocks(axis: int, block: int, scale: tuple[int, ...], message: str, constant: bool) -> None:
    nodes = [helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=axis, block_size=block)]
    constants: list = [("s", np.ones(scale, np.float32))]
    constants += [("x", np.ones((4, 6), np.int8))] if constant else []
    with pytest.raises(InvalidModelError, match=message):
        to_tflite(nodes, [] if constant else [("x", TensorProto.INT8, (4, 6))], *constants)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_affine_grid_3d(align_corners: int, known: bool) -> None:
    """Also where its sizes are known only at run time, so that its reader must find the rank elsewhere."""
    nodes = [
        helper.make_node("AffineGrid", ["t", "s"], ["g"], align_corners=align_corners),
        helper.make_node("Mul", ["g", "g"], ["y"]),
    ]
    inputs = [("t", FLOAT, (2, 3, 4)), *([] if known else [("s", TensorProto.INT64, (5,))])]
    to_tflite(nodes, inputs, *([("s", np.int64([2, 3, 4, 5, 6]))] if known else []))


@pytest.mark.parametrize("kind", ["ADD", "RESHAPE", "CONV_2D"])
def test_sizes_whose_product_overflows(kind: str) -> None:
    """Times zero; NumPy has no such array."""
    shape = (HUGE, HUGE, HUGE, 0)
    data = tflite_model(kind, [("x", (1, 1, 1, 1), None), ("c", shape, np.zeros(0, np.float32))], ("y", shape))
    with pytest.raises(InvalidModelError, match="sizes are too large"):
        onnxtfl.tflite_to_onnx(data, check=False)
