"""The smallest models of what single faults in valid ones showed: each is refused in one line that names the node."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser

import onnxtfl
from tests.fuzz.test_mutants_found import node, onnx_file
from tests.harness.litert import run_onnx, run_tflite

F = np.float32
_RNN = {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F)}
_REFUSED: dict[str, tuple[NodeProto, list[int | str], dict[str, Any], str]] = {
    "a copy of 2^31 elements": (
        node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2]),
        [1, 1, 4, 2**31],
        {},
        "with an axis of more than 2147483647 elements",
    ),
    "2^40 columns of n-grams": (
        node(
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
        node("ScatterElements", "x i x"),
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
        node("ConvTranspose", "x w", output_padding=[2**31, 1], output_shape=[10, 8], strides=[3, 2]),
        [1, 1, 3, 3],
        {"w": np.ones((1, 2, 3, 3), F)},
        r"output_padding is \[2147483648, 1\]",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    found, shape, constants, message = _REFUSED[name]
    file = onnx_file([found], shape, constants)
    if found.op_type == "TfIdfVectorizer":
        model = onnx.load_from_string(file)
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
        file = model.SerializeToString()
    with warnings.catch_warnings(), pytest.raises(onnxtfl.OnnxtflError, match=message) as error:
        warnings.simplefilter("error")
        onnxtfl.onnx_to_tflite(file, check=False)
    assert not isinstance(error.value, onnxtfl.InternalError) and "\n" not in str(error.value)


def test_the_condition_of_a_round_is_one_element() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        g (int64 n, bool[0] c, float[2] x) => (float[2] y) {
            y = Loop (n, c, x) <body = b (int64 i, bool[0] go, float[2] z) => (bool[0] on, float[2] w) {
                on = Identity(go)
                w = Neg(z)
            }>
        }""")
    with pytest.raises(onnxtfl.InvalidModelError, match="the condition of a round is tensor<0xbool>"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_tests_for_minus_infinity_read_real_constants_only() -> None:
    """Strings and complex numbers are compared too."""
    strings = helper.make_tensor("c", TensorProto.STRING, [1], [b"a"])
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    graph = helper.make_graph([node("Equal", "x c")], "g", [x], [helper.make_empty_tensor_value_info("y")], [strings])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    assert onnxtfl.onnx_to_tflite(model, check=False).data
    model.graph.initializer[0].CopyFrom(helper.make_tensor("c", TensorProto.COMPLEX64, [1], [1j]))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(onnxtfl.UnsupportedError, match="not complex64"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_a_scalar_less_its_zero_point() -> None:
    """Its known value is an array of rank 0."""
    constants = {"w": np.ones((2, 1, 2, 2), np.uint8), "z": np.uint8(1)}
    with pytest.raises(onnxtfl.InvalidModelError, match="input of rank 0"):
        onnxtfl.onnx_to_tflite(onnx_file([node("ConvInteger", "z w z")], [1], constants), check=False)


def test_more_boxes_than_a_constant_can_place() -> None:
    model = onnx.load_from_string(
        onnx_file([node("NonMaxSuppression", "x s n")], [1, 2**31, 4], {"n": np.asarray([3])})
    )
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 1, 2**31]))
    with pytest.raises(onnxtfl.UnsupportedError, match="the places of boxes would be a constant of"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_the_vocabulary_of_maps_is_a_list() -> None:
    made = helper.make_node("DictVectorizer", ["x"], ["y"], name="n", domain="ai.onnx.ml", int64_vocabulary=3)
    value = onnx.TypeProto()
    value.tensor_type.elem_type = TensorProto.FLOAT
    x = helper.make_value_info("x", helper.make_map_type_proto(TensorProto.INT64, value))
    graph = helper.make_graph([made], "g", [x], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    with pytest.raises(onnxtfl.InvalidModelError, match="another type than DictVectorizer declares"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node("BiasSplitGelu", "x", domain="com.microsoft"), "operand 1 is absent"),
        (
            node("NhwcMaxPool", "x", domain="com.microsoft", kernel_shape=[2], strides=[1.0]),
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
    made = node("QLinearSigmoid", "x s z s u", domain="com.microsoft")
    model = onnx.load_from_string(onnx_file([made], [3], constants))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(onnxtfl.InvalidModelError, match="a zero point of type tensor<int8> for elements of type"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(("block", "message"), [(2**40, ""), (0, "block_size is 0")])
def test_blocks_of_4_bits(block: int, message: str) -> None:
    """A block that is larger than the weights takes no memory."""
    constants = {"w": np.arange(8, dtype=np.uint8), "s": np.ones(1, F)}
    made = node("MatMulBnb4", "x w s", domain="com.microsoft", K=4, N=4, block_size=block, quant_type=0)
    model = onnx.load_from_string(onnx_file([made], [2, 4], constants))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    if not message:
        assert onnxtfl.onnx_to_tflite(model, check=False).data
        return
    with pytest.raises(onnxtfl.InvalidModelError, match=message):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(
    "body",
    [
        "r = Expand (d, sizes)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "r = Gather (d, ids)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "r = Concat <axis = 0> (xd, d)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "y = Gather (d, ids)",
    ],
    ids=["Expand", "Gather", "Concat", "real"],
)
def test_int32_constants_are_not_moved_as_integers(body: str) -> None:
    """A bias of which another op reads the elements: no kernel dequantizes int32, other than as a constant."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3] x, int64[2] ids) => (float[?] p, float y)
      <int32[3] b = {{1000, -20, 3}}, float sb = {{0.001}}, float s = {{0.01}}, int8 z = {{3}},
       int64[2] sizes = {{2, 3}}> {{
        xq = QuantizeLinear (x, s, z)  xd = DequantizeLinear (xq, s, z)  p = Identity (xd)
        d = DequantizeLinear (b, sb)  {body} }}"""
    model = parser.parse_model(text)
    model.graph.output[1].type.tensor_type.ClearField("shape")
    conversion = onnxtfl.onnx_to_tflite(model)
    assert conversion.check is not None and conversion.check.status == "passed"


LOWEST = [("int8", 127, 0), ("uint8", 255, 255), ("uint16", 65535, 65535)]


@pytest.mark.parametrize(("storage", "count", "zero"), LOWEST)
@pytest.mark.parametrize("form", ["QDQ", "QLinearMul"])
def test_masks_of_the_lowest_float(storage: str, count: int, zero: int, form: str) -> None:
    """The lowest float as an integer times a scale is -infinity: times 0 it is NaN, which QuantizeLinear makes the
    lowest integer; QLinearMul multiplies the integers first, and has 0."""
    if form == "QLinearMul" and storage == "uint16":
        pytest.skip("no such op")
    low = -count if storage == "int8" else 0
    body = "q = com.microsoft.QLinearMul (xq, s, z, c, h, cz, s, z)"
    if form == "QDQ":
        body = "d = DequantizeLinear (c, h, cz)  m = Mul (xd, d)  q = QuantizeLinear (m, s, z)"
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[4] x) => (float[4] p, float[4] y)
      <float s = {{1}}, {storage} z = {{5}}, {storage} c = {{{low}}}, {storage} cz = {{{zero}}}, float h = {{1}}> {{
        xq = QuantizeLinear (x, s, z)  xd = DequantizeLinear (xq, s, z)  p = Identity (xd)
        {body}  y = DequantizeLinear (q, s, z) }}"""
    model = parser.parse_model(text)
    lowest = np.nextafter(np.float32(np.finfo(np.float32).max / count), np.float32(np.inf))
    model.graph.initializer[4].CopyFrom(numpy_helper.from_array(lowest, "h"))
    x = np.asarray([0, 1, 0, 2], np.float32)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    wanted = run_onnx(model.SerializeToString(), {"x": x}, optimized=False)["y"]
    for kernels in ("default", "builtin"):
        np.testing.assert_array_equal(run_tflite(conversion.data or b"", [x], kernels=kernels)[1][1], wanted)


@pytest.mark.parametrize("storage", ["float8e4m3fn", "int4"])
def test_a_relu_that_onnxruntime_drops(storage: str) -> None:
    """ONNX Runtime's optimizer takes a zero point of 0 for the lowest value, also of types with negative ones."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[64] x) => (float[64] y) <float s = {1}> {
      r = Relu (x)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(helper.make_tensor("z", getattr(TensorProto, storage.upper()), [], [0]))
    check = onnxtfl.onnx_to_tflite(model).check
    assert check is not None and check.status == "passed"
    assert any("drop a Relu" in note for note in check.notes)
