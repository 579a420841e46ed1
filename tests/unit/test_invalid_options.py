"""Options and attributes that no valid model has end as an error of the model that names the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import InvalidModelError
from onnxtfl.ir.types import tensor
from tests.unit.test_custom_ops import custom_model, flexible, floats
from tests.unit.tiny_models import onnx_model

F = TensorProto.FLOAT
ROTARY = [("x", F, (1, 4, 16)), ("p", TensorProto.INT64, (1, 4)), ("c", F, (8, 4)), ("s", F, (8, 4))]
EXPERTS = [("x", F, (3, 8)), ("b", F, (8,))]
STATE = (F, (1, 2, 8, 4))
GROUPS = [
    ("q", F, (1, 1, 33)),
    ("k", *STATE),
    ("v", *STATE),
    ("n", TensorProto.INT32, (1,)),
    ("t", TensorProto.INT32, (1,)),
]


@pytest.mark.parametrize(
    ("op", "inputs", "operands", "attributes", "message"),
    [
        ("RotaryEmbedding", ROTARY, "x p c s", {"rotary_embedding_dim": 8}, "needs num_heads"),
        ("MoEGroupRouter", EXPERTS, "x b", {"n_group": 0, "top_k": 2}, "8 experts cannot be split into n_group = 0"),
        ("MoEGroupRouter", EXPERTS, "x b", {"n_group": 3, "top_k": 2}, "8 experts cannot be split into n_group = 3"),
        ("MoEGroupRouter", EXPERTS, "x b", {"n_group": 1}, "the option 'top_k' is missing"),
        ("GroupQueryAttention", GROUPS, "q - - k v n t", {"num_heads": 4, "kv_num_heads": 2}, "for an axis of 33"),
        ("GroupQueryAttention", GROUPS, "q - - k v n t", {"num_heads": 0, "kv_num_heads": 0}, "factor is 0"),
    ],
)
def test_attributes_of_microsoft_ops(
    op: str, inputs: list[Any], operands: str, attributes: dict[str, int], message: str
) -> None:
    names = ["" if name == "-" else name for name in operands.split()]
    outputs = ["y", "k2", "v2"] if op == "GroupQueryAttention" else ["y"]
    node = helper.make_node(op, names, outputs, "the_node", domain="com.microsoft", **attributes)
    model = onnx_model([node], inputs, [("y", F, None)])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(InvalidModelError, match=f"{message}.*the_node"):
        onnxtfl.onnx_to_tflite(model, check=False, load=False)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("MaxPoolWithArgmax", {"padding": "SAME", "strides": [1, 2, 2, 1]}),
        ("MaxPoolWithArgmax", {"padding": "SAME", "ksize": [1, 2], "strides": [1, 2, 2, 1]}),
        ("MaxPoolWithArgmax", {"padding": "SAME", "ksize": [1, 2, 2, 1], "strides": [1, 0, 0, 1]}),
        ("MaxPoolWithArgmax", {}),
        ("Landmarks2TransformMatrix", {}),
        ("Landmarks2TransformMatrix", {"input_hw": [4, 4], "output_hw": [4]}),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_options_of_mediapipe(op: str, options: dict[str, Any], version: int) -> None:
    x = floats(1, 4, 4, 3) if op == "MaxPoolWithArgmax" else floats(1, 18)
    types = [tensor("float32", 1, 2, 2, 3), tensor("int32", 1, 2, 2, 3)][: 2 if op == "MaxPoolWithArgmax" else 1]
    model = custom_model(op, [np.asarray(x)], 1, types, flexible(options), version)
    with pytest.raises(InvalidModelError, match="out0"):
        onnxtfl.tflite_to_onnx(model, check=False)


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e30])
def test_scales_of_sizes_that_are_no_numbers(scale: float) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], "the_node")
    scales = np.asarray([1, 1, scale, 1], np.float32)
    model = onnx_model([node], [("x", F, (1, 1, 4, 4))], [("y", F, None)], {"s": scales})
    with pytest.raises(InvalidModelError, match=r"a number is not finite, or too large.*the_node"):
        onnxtfl.onnx_to_tflite(model, check=False, load=False)
