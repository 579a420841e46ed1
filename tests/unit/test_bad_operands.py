"""Operands that no valid model has: one clear error, never an internal one, and soon."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser

import onnxtfl
from onnxtfl import InvalidModelError, UnsupportedError
from tests.unit.onnx_nodes import named_node, onnx_file
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


F = np.float32


_RNN = {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F)}
_REFUSED_ONNX: dict[str, tuple[Any, ...]] = {
    "an axis of 2^40 elements": (named_node("Identity", "x"), [2**40], {}),
    "40 axes": (named_node("Relu", "x"), [1] * 40, {}),
    "a Resize to 2^40": (
        named_node("Resize", "x e e s", mode="nearest"),
        [1, 1, 2, 2],
        {"e": np.zeros(0, F), "s": np.asarray([1, 1, 2, 2**40])},
    ),
    "a wrapped Pad by 2^32": (named_node("Pad", "x p", mode="wrap"), [3], {"p": np.asarray([0, 2**31 - 9])}),
    "pools with negative padding": (named_node("MaxPool", "x", kernel_shape=[2], pads=[-2, 1]), [1, 1, 9], {}),
    "blocks of -2 elements": (
        named_node("QuantizeLinear", "x s z", axis=1, block_size=-2),
        [2, 4],
        {"s": F(1), "z": np.int8(0)},
    ),
    "blocks with one scale": (
        named_node("QuantizeLinear", "x s z", axis=1, block_size=2),
        [2, 4],
        {"s": F(1), "z": np.int8(0)},
    ),
    "scales of two axes for a tensor of none": (
        named_node("DequantizeLinear", "c s z", axis=0),
        [1],
        {"c": np.int8(1), "s": np.ones((1, 1), F), "z": np.zeros((1, 1), np.int8)},
    ),
    "columns of 2^40 blocks": (
        named_node("Col2Im", "x i b", strides=[1, 1]),
        [1, 5, 5],
        {"i": np.asarray([2**40, 5]), "b": np.asarray([1, 5])},
    ),
    "lengths of fewer sequences": (
        named_node("ReverseSequence", "x l", batch_axis=0, time_axis=1),
        [16, 4],
        {"l": np.asarray([1, 2, 3, 4])},
    ),
    "a norm of 3 channels on 1": (
        named_node("InstanceNormalization", "x s t"),
        [1, 1, 5],
        {"s": np.ones(3, F), "t": np.ones(3, F)},
    ),
    "a group norm of 3 channels on 1": (
        named_node("GroupNormalization", "x s t", num_groups=1),
        [1, 1, 5],
        {"s": np.ones(3, F), "t": np.ones(3, F)},
    ),
    "a layer norm whose bias is larger than its input": (
        named_node("LayerNormalization", "x s t"),
        [2, 1],
        {"s": np.ones(1, F), "t": np.ones(4, F)},
    ),
    "slopes of more channels": (named_node("PRelu", "x s"), [1, 1, 2], {"s": np.ones((3, 1), F)}),
    "a Gemm whose C is larger than the product": (
        named_node("Gemm", "x w c"),
        [1, 2],
        {"w": np.ones((2, 3), F), "c": np.ones((4, 3), F)},
    ),
    "samples at 2^31 places": (
        named_node("DeformConv", "x w o"),
        [1, 1, 3, 3],
        {"w": np.ones((1, 1, 1, 1), F), "o": np.ones((1, 2, 0, 2**31 - 1), F)},
    ),
    "a grid of another rank": (named_node("AffineGrid", "x s"), [1, 2, 3], {"s": np.asarray([1, 1, 4])}),
    "regions of 2^30 cells": (
        named_node("RoiAlign", "x r i", output_height=2**15, output_width=1, sampling_ratio=2**15),
        [1, 1, 4, 4],
        {"r": np.ones((1, 4), F), "i": np.zeros(1, np.int64)},
    ),
    "updates of another shape": (
        named_node("ScatterND", "x i u", reduction="min"),
        [4, 4],
        {"i": np.asarray([[0], [1]]), "u": np.ones((3, 4), F)},
    ),
    "a mel matrix that is wider than its spectrum": (
        named_node("MelWeightMatrix", "b l r m n"),
        [1],
        {"b": np.asarray(4), "l": np.asarray(8), "r": np.asarray(1), "m": F(0), "n": F(1e9)},
    ),
    "a table without keys": (named_node("LabelEncoder", "x", domain="ai.onnx.ml", values_floats=[1.0]), [3], {}),
    "a Split into 2^31 parts of one result": (named_node("Split", "x", num_outputs=2**31), [2**31], {}),
    "an affine grid of 2^40 places": (
        named_node("AffineGrid", "x s"),
        [1, 2, 3],
        {"s": np.asarray([1, 1, 2**20, 2**20])},
    ),
    "100,000 new axes": (named_node("Unsqueeze", "x a"), [1], {"a": np.arange(100_000)}),
    "antialiasing of 10^5 elements to half": (
        named_node("Resize", "x e e s", mode="cubic", antialias=1),
        [1, 1, 10**5, 2],
        {"e": np.zeros(0, F), "s": np.asarray([1, 1, 50_000, 1])},
    ),
    "states of other sequences": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["", "y"], name="n", hidden_size=1),
        [3, 0, 1],
        {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F), "h": np.ones((1, 1, 1), F)},
    ),
    "cells of other sequences": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "", "c"], ["", "y"], name="n", hidden_size=1),
        [3, 1, 1],
        {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F), "c": np.ones((1, 5, 1), F)},
    ),
    "weights of fewer gates": (
        helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], name="n", hidden_size=1),
        [3, 2, 1],
        {"w": np.ones((1, 1, 1), F), "r": np.ones((1, 4, 1), F)},
    ),
    "recurrent weights of no gates": (
        helper.make_node("GRU", ["x", "w", "r"], ["", "y"], name="n", hidden_size=7),
        [3, 2, 1],
        {"w": np.ones((1, 0, 1), F), "r": np.ones((1, 0, 7), F)},
    ),
    "a grid of one axis, of a map of unknown rank": (named_node("GridSample", "x g"), None, {"g": np.ones(17, F)}),
    "a copy of 2^31 elements": (
        named_node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2]),
        [1, 1, 4, 2**31],
        {},
        "with an axis of more than 2147483647 elements",
    ),
    "2^40 columns of n-grams": (
        named_node(
            *("TfIdfVectorizer", "x"),
            mode="TF",
            pool_int64s=[2, 3],
            ngram_counts=[0],
            ngram_indexes=[0, 2**40],
            min_gram_length=1,
            max_gram_length=1,
            max_skip_count=0,
        ),
        [5],
        {},
        "the columns of the n-grams would be a constant of",
    ),
    "complex indices": (
        named_node("ScatterElements", "x i x"),
        [2],
        {"i": np.ones(2, np.complex64)},
        "indices cannot be complex64",
    ),
    "first states of no direction": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["y"], name="n", hidden_size=1),
        [1, 2, 1],
        {**_RNN, "h": np.ones((0, 2, 1), F)},
        "an operand of type tensor<0x2x1xfloat32> for 1 directions",
    ),
    "2^31 more rows of a transposed convolution": (
        named_node("ConvTranspose", "x w", output_padding=[2**31, 1], output_shape=[10, 8], strides=[3, 2]),
        [1, 1, 3, 3],
        {"w": np.ones((1, 2, 3, 3), F)},
        r"output_padding is \[2147483648, 1\]",
    ),
}


@pytest.mark.parametrize("name", _REFUSED_ONNX)
def test_refused_onnx(name: str) -> None:
    found, shape, constants, *message = _REFUSED_ONNX[name]
    file = onnx_file([found], shape, constants)
    if found.op_type == "TfIdfVectorizer":
        model = onnx.load_from_string(file)
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
        file = model.SerializeToString()
    expected = pytest.raises((InvalidModelError, UnsupportedError), match=message[0] if message else None)
    with warnings.catch_warnings(), expected as error:
        warnings.simplefilter("error")
        onnxtfl.onnx_to_tflite(file, check=False)
    assert "\n" not in str(error.value) and error.value.code != "E-RUN-005"


def test_an_unknown_op_of_an_opset_beyond_32_bits() -> None:
    with pytest.raises(onnxtfl.OnnxtflError, match="sum"):
        onnxtfl.onnx_to_tflite(onnx_file([named_node("sum", "x")], [2], {}, 1 << 40), check=False)


@pytest.mark.parametrize("shape", [[2, 0], [2, 3]])
def test_determinants_of_no_square(shape: list[int]) -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="the determinant of a"):
        onnxtfl.onnx_to_tflite(onnx_file([named_node("Det", "x")], shape, {}), check=False)


def test_a_diagonal_without_a_number() -> None:
    model = onnx_file([named_node("Trilu", "x k")], [4, 5], {"k": np.zeros(0, np.int64)})
    with pytest.raises(onnxtfl.UnsupportedError, match="of Trilu is empty"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_a_vector_of_sizes_that_has_millions() -> None:
    count = named_node("ConstantOfShape", "n", value=numpy_helper.from_array(np.ones(1, np.int64)))
    count.output[0] = "s"
    model = onnx_file(
        [count, named_node("Resize", "x e e s")], [1, 1, 2], {"n": np.asarray([1 << 40]), "e": np.zeros(0, F)}
    )
    with pytest.raises(onnxtfl.OnnxtflError, match="sizes or scales of type tensor<1099511627776xint64> for 3 axes"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_the_error_names_the_node_and_the_number() -> None:
    with pytest.raises(onnxtfl.OnnxtflError, match=r"1 results for num_outputs=2147483648.*node 'n'"):
        onnxtfl.onnx_to_tflite(onnx_file([named_node("Split", "x", num_outputs=2**31)], [4], {}), check=False)


def test_the_condition_of_a_round_is_one_element() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        g (int64 n, bool[0] c, float[2] x) => (float[2] y) {
            y = Loop (n, c, x) <body = b (int64 i, bool[0] go, float[2] z) => (bool[0] on, float[2] w) {
                on = Identity(go)
                w = Neg(z)
            }>
        }""")
    with pytest.raises(onnxtfl.InvalidModelError, match="the condition of an iteration is tensor<0xbool>"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_a_scalar_less_its_zero_point() -> None:
    """Its known value is an array of rank 0."""
    constants = {"w": np.ones((2, 1, 2, 2), np.uint8), "z": np.uint8(1)}
    with pytest.raises(onnxtfl.InvalidModelError, match="input of rank 0"):
        onnxtfl.onnx_to_tflite(onnx_file([named_node("ConvInteger", "z w z")], [1], constants), check=False)


def test_more_boxes_than_a_constant_can_place() -> None:
    model = onnx.load_from_string(
        onnx_file([named_node("NonMaxSuppression", "x s n")], [1, 2**31, 4], {"n": np.asarray([3])})
    )
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 1, 2**31]))
    with pytest.raises(onnxtfl.UnsupportedError, match="the positions along an axis would be a constant of"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (named_node("BiasSplitGelu", "x", domain="com.microsoft"), "operand 1 is absent"),
        (
            named_node("NhwcMaxPool", "x", domain="com.microsoft", kernel_shape=[2], strides=[1.0]),
            "the attribute 'strides' is of type floats, not ints",
        ),
    ],
)
def test_ops_that_onnx_does_not_define(made: NodeProto, message: str) -> None:
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4]), helper.make_empty_tensor_value_info("y")
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([made], "g", [x], [y]), opset_imports=imports, ir_version=10)
    with pytest.raises(onnxtfl.InvalidModelError, match=message):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_a_zero_point_of_another_type() -> None:
    constants = {"s": F(0.1), "z": np.int8(3), "u": np.uint8(3)}
    made = named_node("QLinearSigmoid", "x s z s u", domain="com.microsoft")
    model = onnx.load_from_string(onnx_file([made], [3], constants))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(onnxtfl.InvalidModelError, match="a zero point of type tensor<int8> for elements of type"):
        onnxtfl.onnx_to_tflite(model, check=False)
