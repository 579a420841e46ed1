"""What the passes of the package quantize do: quantized types, storage, saturation, and the kernels that are chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from onnxtfl.options import Options
from onnxtfl.passes.quantize import (
    QuantizedIo,
    fuse_quantized,
    read_quantized_types,
    saturate_quantized,
    set_quantized_io,
    store_as_int8,
    store_real_constants,
)
from onnxtfl.pipeline import inspect
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts
from tests.unit.tiny_models import Array, onnx_model

F, TARGET = TensorProto.FLOAT, TfliteTarget()
CONVERT = "{dtype = !float32}"


def tfl_ops(model: onnx.ModelProto) -> Counter[str]:
    """The tfl ops that are written for `model`."""
    return op_counts(inspect(model.SerializeToString(), "lower", Options()))


def stored(graph: Graph, *inputs: Array) -> list[list[float]]:
    """The outputs for `inputs`, as nested lists."""
    return [np.asarray(y).tolist() for y in run(graph, inputs)]


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "zero", "typed"), [("int8", 3, True), ("uint16", 3, False), ("int16", 3, False)])
def test_only_what_kernels_convert_becomes_a_quantized_type(dtype: str, zero: int, typed: bool) -> None:
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<{dtype}> [{zero}]
      %q = QuantizeLinear(%x, %s, %z) {{dtype = !{dtype}, axis = 0}}
      %y = DequantizeLinear(%q, %s, %z) {{axis = 0}}
    }}"""
    graph = parse_graph(text)
    read_quantized_types(graph, TARGET)
    assert any(r.is_quantized for n in graph.nodes for r in n.results) == typed
    found = stored(graph, np.asarray([0.2, 0.3, 100, -1], np.float32))
    assert found == [[0.0, 0.5, 62.0 if typed else 100.0, -1.0]]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("dtype", "zero"), [("uint16", 3), ("int16", -3)])
def test_what_no_kernel_stores_is_rounded(dtype: str, zero: int, axis: int) -> None:
    """To the bit, also zeros and what is clamped; one scale, or one for each index of an axis."""
    scales, zeros, shape = ("0.5", str(zero), "") if axis else ("0.5, 0.3", f"{zero}, 0", "2x")
    text = f"""graph main(%x: tensor<2x5xfloat32>) -> (%y) {{
      %s = constant tensor<{shape}float32> [{scales}]
      %z = constant tensor<{shape}{dtype}> [{zeros}]
      %q = QuantizeLinear(%x, %s, %z) {{dtype = !{dtype}, axis = 0}}
      %y = DequantizeLinear(%q, %s, %z) {{axis = 0}}
    }}"""
    graph, x = parse_graph(text), np.asarray([[0.7, -0.2, 1e9, -1e9, 0.25], [-0.2, 7, 0.0, 3e4, -3e4]], np.float32)
    wanted = np.asarray(run(graph, [x])[0])
    read_quantized_types(graph, TARGET)
    names = [n.op.name for n in graph.nodes]
    assert names == ["Div", "RoundNearestEven", "Add", "Clamp", "Sub", "Mul"]
    found = np.asarray(run(graph, [x])[0])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_uint16_around_its_middle_is_int16() -> None:
    text = """graph main(%x: tensor<4xfloat32>) -> (%y) {
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<uint16> [32768]
      %q = QuantizeLinear(%x, %s, %z) {dtype = !uint16, axis = 0}
      %y = DequantizeLinear(%q, %s, %z) {axis = 0}
    }"""
    graph = parse_graph(text)
    read_quantized_types(graph, TARGET)
    (kept,) = [r.tensor_type.quantization for n in graph.nodes for r in n.results if r.is_quantized]
    assert kept is not None and (kept.storage, kept.scales, kept.zero_points) == ("int16", (0.5,), (0,))
    assert stored(graph, np.asarray([0.2, 0.3, 1e6, -1e6], np.float32)) == [[0.0, 0.5, 16383.5, -16384.0]]


@pytest.mark.parametrize(
    "quantization",
    ["int8 0.0123:3", "uint8 0.7:200", "int16 1e-05:0", "int8 axis=1 0.1:0 0.3:0 0.7:0", "int8 axis=0 0.1:0 0.3:4"],
)
def test_dequantized_constants_become_real(quantization: str) -> None:
    """To the bit, computed when they are read or at once."""
    first = "100" if quantization.startswith("uint8") else "-100"
    text = f"""graph main(%x: tensor<2x3xfloat32>) -> (%y) {{
      %w = constant tensor<2x3xfloat32, quant<{quantization}>> [{first}, 1, 2, 3, 4, 127]
      %r = Convert(%w) {CONVERT}
      %y = Mul(%x, %r)
    }}"""
    graph, x = parse_graph(text), np.ones((2, 3), np.float32)
    wanted = np.asarray(run(graph, [x])[0])
    assert store_real_constants(graph)
    assert [n.op.name for n in graph.nodes] == ["Mul"]
    np.testing.assert_array_equal(np.asarray(run(graph, [x])[0]), wanted)
    assert not store_real_constants(graph)


# --- fused ------------------------------------------------------------------------------------------------------------


def test_the_largest_of_stored_integers_for_several_users() -> None:
    window = "dims = [2, 3], kernel_shape = [2, 2], strides = [2, 2], padding = [0, 0, 0, 0], dilations = [1, 1]"
    text = f"""graph main(%q: tensor<1x1x4x4xfloat32, quant<int8 0.5:3>>) -> (%y, %z) {{
      %x = Convert(%q) {CONVERT}
      %m = MaxPool(%x) {{{window}}}
      %n = Neg(%m)
      %y = Convert(%n) {CONVERT} : tensor<1x1x2x2xfloat32, quant<int8 0.5:0>>
      %z = Exp(%m)
    }}"""
    graph = parse_graph(text)
    fuse_quantized(graph)
    pool = next(n for n in graph.nodes if n.op is ops.MaxPool)
    assert pool.result.tensor_type.quantization == Quantization("int8", (0.5,), (3,))


@pytest.mark.parametrize(("bounds", "clamps"), [("%zero, _", 1), ("%zero, %low", 1), ("_, %high", 0)])
def test_a_clamp_with_one_bound(bounds: str, clamps: int) -> None:
    text = f"""graph main(%q: tensor<4xfloat32, quant<int8 0.5:0>>) -> (%y) {{
      %zero = constant tensor<float32> [0.0]
      %low = constant tensor<float32> [2.0]
      %high = constant tensor<float32> [70.0]
      %x = Convert(%q) {CONVERT}
      %n = Neg(%x)
      %c = Clamp(%n, {bounds})
      %y = Convert(%c) {CONVERT} : tensor<4xfloat32, quant<int8 0.5:0>>
    }}"""
    graph, wanted = parse_graph(text), parse_graph(text)
    fuse_quantized(graph)
    assert op_counts(graph)["Clamp"] == clamps
    x = np.asarray([-100, -1, 0, 7], np.int8)
    assert stored(graph, x) == stored(wanted, x)


def test_an_op_whose_result_is_a_real_output_stays_real() -> None:
    text = f"""graph main(%q: tensor<4xfloat32, quant<int8 0.5:0>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %y = Tanh(%x)
    }}"""
    graph = parse_graph(text)
    fuse_quantized(graph)
    assert not graph.outputs[0].producer.operand(0).is_quantized


# --- integers of fewer bits than they are stored in (Brevitas) --------------------------------------------------------


def test_clamped_integers_are_quantized_after_the_clamp() -> None:
    text = """graph main(%x: tensor<6xfloat32>) -> (%y) {
      %s = constant tensor<float32> [0.1]
      %z = constant tensor<uint8> [3]
      %q = QuantizeLinear(%x, %s, %z) {dtype = !uint8, axis = 0}
      %low = constant tensor<uint8> [1]
      %high = constant tensor<uint8> [15]
      %c = Clamp(%q, %low, %high)
      %y = DequantizeLinear(%c, %s, %z) {axis = 0}
    }"""
    graph = parse_graph(text)
    read_quantized_types(graph, TARGET)
    assert [n.op for n in graph.nodes] == [ops.Clamp, ops.Convert, ops.Convert]
    x = np.asarray([-100.0, -0.15, 0.7, 1.14, 1.16, 100.0], np.float32)
    assert stored(graph, x) == stored(parse_graph(text), x)


@pytest.mark.parametrize("features", [(), (64,)], ids=["one scale", "a scale for each feature"])
def test_constants_are_clamped_and_transposed_before_they_are_weights(features: tuple[int, ...]) -> None:
    """Also with a bias that is added to the product, as exporters write products of more than two axes."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-127, 128, (64, 32)).astype(np.int8),
        "low": np.int8(-127),
        "high": np.int8(127),
        "b": rng.integers(-1000, 1000, 64).astype(np.int32),
        **{f"{name}_s": np.full(shape, s, np.float32) for name, s, shape in (("x", 0.5, ()), ("y", 16.0, ()))},
        **{f"{name}_s": np.full(features, s, np.float32) for name, s in (("w", 0.25), ("b", 0.125))},
        **{f"{name}_z": np.zeros(shape, np.int8) for name, shape in (("x", ()), ("y", ()), ("w", features))},
        "b_z": np.zeros(features, np.int32),
    }
    made = [
        ("QuantizeLinear", "x x_s x_z", "x_q"),
        ("DequantizeLinear", "x_q x_s x_z", "x_f"),
        ("Clip", "w low high", "w_q"),
        ("DequantizeLinear", "w_q w_s w_z", "w_f"),
        ("Transpose", "w_f", "w_t"),
        ("MatMul", "x_f w_t", "p"),
        ("DequantizeLinear", "b b_s b_z", "b_f"),
        ("Add", "b_f p", "r"),
        ("QuantizeLinear", "r y_s y_z", "y_q"),
        ("DequantizeLinear", "y_q y_s y_z", "y"),
    ]
    axis = {"axis": 0} if features else {}
    nodes = [helper.make_node(op, given.split(), [y], **(axis if y in ("w_f", "b_f") else {})) for op, given, y in made]
    model = onnx_model(nodes, [("x", F, [2, 7, 32])], [("y", F, [2, 7, 64])], constants, opset=17)
    found = tfl_ops(model)
    found.pop("tfl.RESHAPE", None)
    assert found == {"tfl.QUANTIZE": 1, "tfl.FULLY_CONNECTED": 1, "tfl.DEQUANTIZE": 1}


# --- storage ----------------------------------------------------------------------------------------------------------


def convolution(weights: Sequence[int], zero: int, dtype: str = "uint8") -> Graph:
    text = f"""graph main(%x: tensor<1x1x4x4xfloat32, quant<uint8 0.5:100>>) -> (%y) {{
      %w = constant tensor<2x1x1x1xfloat32, quant<{dtype} 0.25:{zero}>> {list(weights)}
      %b = constant tensor<2xfloat32, quant<int32 0.125:0>> [1, 2]
      %y = Conv(%x, %w, %b) {{{CONV2D}}} : tensor<1x2x4x4xfloat32, quant<uint8 2.0:7>>
    }}"""
    return parse_graph(text)


@pytest.mark.parametrize(
    ("weights", "zero", "dtype", "storage"),
    [
        ([100, 150], 120, "uint8", "int8"),  # -20 and 30 with zero point 0
        ([0, 255], 120, "uint8", "uint8"),  # 135 does not fit
        ([0, 255], 128, "uint8", "int8"),
        ([-100, 50], -20, "int8", "int8"),
        ([0, 15], 3, "uint4", "int8"),
        ([-8, 7], -2, "int4", "int8"),
        ([-8, 7], 0, "int4", "int4"),
    ],
)
def test_weights_with_a_zero_point(weights: list[int], zero: int, dtype: str, storage: str) -> None:
    graph, wanted = convolution(weights, zero, dtype), convolution(weights, zero, dtype)
    store_as_int8(graph)
    found = next(n for n in graph.nodes if n.op is ops.Conv).operand(1).tensor_type.quantization
    assert found is not None
    assert found.storage == storage
    assert storage == "uint8" or set(found.zero_points) == {0}
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 4, 4)).astype(np.uint8)
    assert stored(graph, x) == stored(wanted, x)


def test_a_quantized_output_keeps_its_type() -> None:
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %y = Convert(%x) {CONVERT} : tensor<4xfloat32, quant<uint8 0.5:100>>
    }}"""
    graph = parse_graph(text)
    store_as_int8(graph)
    quantization = graph.outputs[0].tensor_type.quantization
    assert quantization is not None and quantization.storage == "uint8"


# --- saturation -------------------------------------------------------------------------------------------------------


def saturated(body: str, *inputs: Array) -> tuple[Graph, list[list[float]]]:
    graph = parse_graph(f"""graph main(%x: tensor<4xfloat32>, %p: tensor<4xbool>) -> (%y) {{
      {body}
      %y = Convert(%r) {CONVERT} : tensor<4xfloat32, quant<int8 0.5:3>>
    }}""")
    wanted = stored(graph, *inputs)
    saturate_quantized(graph, TARGET)
    assert stored(graph, *inputs) == wanted
    return graph, wanted


X, P = np.asarray([1.0, 0.0, -1.0, 4.0], np.float32), np.asarray([True, False, True, False])
MASK = """%low = constant tensor<float32> [-inf]
      %zero = constant tensor<float32> [0.0]
      %mask = Select(%p, %zero, %low)"""


def test_ordinary_values_are_quantized_as_they_are() -> None:
    body = """%one = constant tensor<float32> [1.0]
      %square = Mul(%x, %x)
      %positive = Add(%square, %one)
      %root = Sqrt(%positive)
      %r = Div(%x, %root)"""
    assert op_counts(saturated(body, X, P)[0]) == {"Mul": 1, "Add": 1, "Sqrt": 1, "Div": 1, "Convert": 1}


def test_masks_are_clamped_and_nan_is_the_lowest_value() -> None:
    graph, (result,) = saturated(f"{MASK}\n %r = Add(%x, %mask)", X, P)
    assert result == [5, -128, 1, -128]
    assert op_counts(graph)["Max"] == op_counts(graph)["Min"] == 1
    assert op_counts(graph)["Compare"] == 1
    graph, (result,) = saturated(f"{MASK}\n %r = Mul(%zero, %mask)", X, P)
    assert result == [3, -128, 3, -128]


@pytest.mark.parametrize("division", ["%r = Div(%x, %x)", "%r = Sqrt(%x)", "%r = Log(%x)"])
def test_operations_that_may_be_undefined(division: str) -> None:
    assert op_counts(saturated(division, X, P)[0])["Compare"] == 1


def test_zero_by_zero_is_the_lowest_value_without_a_test() -> None:
    """Divisors of 0 come from quantized variances; XNNPACK has no kernel for tests of NaN."""
    body = f"""%step = Convert(%x) {CONVERT} : tensor<4xfloat32, quant<int8 0.5:0>>
      %real = Convert(%step) {CONVERT} : tensor<4xfloat32>
      %zero = constant tensor<float32> [0.0]
      %none = Sub(%real, %real)
      %left = Select(%p, %none, %real)
      %squares = Mul(%none, %none)
      %root = Sqrt(%squares)
      %r = Div(%left, %root)"""
    graph, (result,) = saturated(body, X, P)
    assert result == [-128, -128, -128, 127] and X[1] == 0
    assert op_counts(graph)["Add"] == 1 and "Compare" not in op_counts(graph)


def test_what_replaces_nan_is_not_nan() -> None:
    body = "%q = Div(%x, %x)\n%n = IsNaN(%q)\n%zero = constant tensor<float32> [0.0]\n%r = Select(%n, %zero, %q)"
    assert "Compare" not in op_counts(saturated(body, X, P)[0])


# --- kernels ----------------------------------------------------------------------------------------------------------


def quantized_add(scale: float, result: float) -> onnx.ModelProto:
    """x + y of scales 0.5 and `scale` to the scale `result`, all int8."""
    names = {"a": 0.5, "b": scale, "y": result}
    nodes = [helper.make_node("QuantizeLinear", [n, f"{n}_scale", "zero"], [f"{n}_q"]) for n in "ab"]
    nodes += [helper.make_node("DequantizeLinear", [f"{n}_q", f"{n}_scale", "zero"], [f"{n}_r"]) for n in "ab"]
    nodes.append(helper.make_node("Add", ["a_r", "b_r"], ["sum"]))
    nodes.append(helper.make_node("QuantizeLinear", ["sum", "y_scale", "zero"], ["y_q"]))
    nodes.append(helper.make_node("DequantizeLinear", ["y_q", "y_scale", "zero"], ["y"]))
    constants = {f"{n}_scale": np.asarray(s, np.float32) for n, s in names.items()} | {"zero": np.asarray(0, np.int8)}
    return onnx_model(nodes, [("a", F, [4]), ("b", F, [4])], [("y", F, [4])], constants)


def test_sums_of_very_different_scales_are_computed_in_float() -> None:
    """A mask of float32's lowest number makes scales of 1e36, on which the integer kernel ends the process."""
    assert tfl_ops(quantized_add(0.25, 0.5))["tfl.QUANTIZE"] == 2
    assert tfl_ops(quantized_add(1e36, 1e36))["tfl.QUANTIZE"] == 3
    assert tfl_ops(quantized_add(2.0**20, 0.5))["tfl.QUANTIZE"] == 3


# --- inputs and outputs -----------------------------------------------------------------------------------------------

EDGES = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
  %q = Convert(%x) {CONVERT} : tensor<4xfloat32, quant<int8 0.5:3>>
  %n = Neg(%q) : tensor<4xfloat32, quant<int8 0.25:0>>
  %y = Convert(%n) {CONVERT}
}}"""


@pytest.mark.parametrize(("kind", "offset"), [("int8", 0), ("uint8", 128)])
def test_inputs_and_outputs_in_8_bits(kind: QuantizedIo, offset: int) -> None:
    graph = parse_graph(EDGES)
    set_quantized_io(graph, kind)
    types = [v.tensor_type.quantization for v in (*graph.inputs, *graph.outputs)]
    assert types == [Quantization(kind, (0.5,), (3 + offset,)), Quantization(kind, (0.25,), (offset,))]
    x = np.asarray([3, 4, 5, 1]) + offset
    assert stored(graph, x.astype(kind)) == [[offset, offset - 2, offset - 4, offset + 4]]


def test_float_inputs_and_outputs_of_a_quantized_model() -> None:
    graph = parse_graph(EDGES)
    set_quantized_io(graph, "uint8")
    set_quantized_io(graph, "float")
    assert not any(v.is_quantized for v in (*graph.inputs, *graph.outputs))
    x = np.asarray([0.5, 0.2, 100.0, -1.0], np.float32)
    assert stored(graph, x) == stored(parse_graph(EDGES), x)


def test_a_quantized_constant_as_an_output() -> None:
    quantization = Quantization("int8", (0.5,), (3,))
    graph, stored_as = Graph(), tensor("float32", 2).stored_as(quantization)
    graph.outputs = [constant(np.asarray([3, 5], np.int8), type_=stored_as)]
    set_quantized_io(graph, "float")
    assert not graph.outputs[0].is_quantized
    assert stored(graph) == [[0.0, 1.0]]


def test_inputs_that_are_read_in_float_stay() -> None:
    graph = parse_graph(EDGES.replace("%y = Convert(%n)", "%f = Convert(%n)").replace("\n}", "\n%y = Add(%f, %x)\n}"))
    set_quantized_io(graph, "int8")
    assert not any(v.is_quantized for v in (*graph.inputs, *graph.outputs))


@pytest.mark.parametrize(("dtype", "low", "high"), [("int4", -4.0, 3.5), ("uint4", 0.0, 7.5)])
def test_activations_of_4_bits_are_stored_in_8_and_clamped(dtype: str, low: float, high: float) -> None:
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<{dtype}> [0]
      %q = QuantizeLinear(%x, %s, %z) {{dtype = !{dtype}, axis = 0}}
      %y = DequantizeLinear(%q, %s, %z) {{axis = 0}}
    }}"""
    graph = parse_graph(text)
    read_quantized_types(graph, TARGET)
    storage = {q.storage for n in graph.nodes for r in n.results if (q := r.tensor_type.quantization)}
    assert storage == {dtype.replace("4", "8")}
    x = np.asarray([-100.0, 0.7, 100.0, 2.0], np.float32)
    assert stored(graph, x) == stored(parse_graph(text), x) == [[low, 0.5, high, 2.0]]
