"""Quantized types where values have several users, are outputs, or belong to regions; and what must not be rounded."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.options import Options
from onnxtfl.passes.quantize import fuse_quantized
from onnxtfl.pipeline import inspect
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts
from tests.unit.tiny_models import Array

TARGET = TfliteTarget()
Q, FINE, COARSE = "quant<int8 0.5:3>", "quant<int8 0.125:-3>", "quant<int8 2.0:-3>"
PARAMETERS = "float s = {0.5}, int8 z = {3}, float s2 = {0.25}, int8 z2 = {-3}"


def integers(*shape: int, seed: int = 0) -> Array:
    """Stored integers over the whole range."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def onnx_graph(text: str, stage: str = "lower", opset: int = 17) -> Graph:
    """The graph of an ONNX model in ONNX's text form after a pass, the verifier running after each."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(model, full_check=True)
    return inspect(model.SerializeToString(), stage, Options(debug=True))


def lowered(text: str) -> Counter[str]:
    """The tfl ops that are written for an ONNX model in ONNX's text form."""
    return op_counts(onnx_graph(text))


def stored(graph: Graph, *inputs: Array) -> list[Any]:
    """The outputs for `inputs`, as nested lists."""
    return [np.asarray(y).tolist() for y in run(graph, inputs)]


# --- types ------------------------------------------------------------------------------------------------------------


def test_padding_of_stored_integers_is_not_padding_of_real_values() -> None:
    """The stored 0 that Pad inserts is the real value -1.5."""
    text = f"""g (int8[1,2] x) => (float[1,4] y) <{PARAMETERS}, int64[4] p = {{0,1,0,1}}> {{
      a = Pad(x, p)
      y = DequantizeLinear(a, s, z)
    }}"""
    graph = onnx_graph(text, "legalize")
    assert stored(graph, np.asarray([[3, 5]], np.int8)) == [[[-1.5, 0.0, 1.0, -1.5]]]


def test_an_input_that_is_dequantized_twice() -> None:
    """The first user of %x in order is not the first that was added to its uses."""
    text = f"""g (int8[2,3] x) => (float[6] y, float[2,3] w) <{PARAMETERS}, int64[1] p = {{6}}> {{
      a = Reshape(x, p)
      y = DequantizeLinear(a, s, z)
      w = DequantizeLinear(x, s, z)
    }}"""
    x = integers(2, 3)
    y, w = run(onnx_graph(text, "legalize"), [x])
    np.testing.assert_array_equal(w, (x - np.float32(3)) * np.float32(0.5))
    np.testing.assert_array_equal(y, w.reshape(6))


@pytest.mark.parametrize("second", ["s2, z2", "s, z"])
def test_integers_with_other_parameters_are_no_quantized_type(second: str) -> None:
    text = f"""g (int8[2,3] x) => (float[2,3] y, float[2,3] w) <{PARAMETERS}> {{
      y = DequantizeLinear(x, s, z)
      w = DequantizeLinear(x, {second})
    }}"""
    graph = onnx_graph(text, "quantized types")
    assert graph.inputs[0].is_quantized == (second == "s, z")
    x = integers(2, 3)
    y, w = run(graph, [x])
    np.testing.assert_array_equal(y, (x - np.float32(3)) * np.float32(0.5))
    np.testing.assert_array_equal(w, y if second == "s, z" else (x + np.float32(3)) * np.float32(0.25))


def test_constants_with_several_scales_are_several_constants() -> None:
    text = f"""g (float[2] x) => (float[2] y, float[2] v) <{PARAMETERS}, int8[2] c = {{1, 2}}> {{
      a = DequantizeLinear(c, s, z)
      b = DequantizeLinear(c, s2, z2)
      y = Add(x, a)
      v = Mul(x, b)
    }}"""
    graph = onnx_graph(text, "quantized types")
    assert stored(graph, np.asarray([1, 1], np.float32)) == [[0.0, 0.5], [1.0, 1.25]]


def test_integers_that_something_else_reads_stay_integers() -> None:
    text = f"""g (float[4] x) => (int8[4] q, int32[4] w) <{PARAMETERS}> {{
      q = QuantizeLinear(x, s, z)
      w = Cast<to=6>(q)
    }}"""
    graph = onnx_graph(text, "quantized types")
    assert not graph.outputs[0].is_quantized
    assert stored(graph, np.asarray([0, 0.2, 0.3, 99], np.float32)) == [[3, 3, 4, 127]] * 2


@pytest.mark.parametrize("captures", [True, False])
def test_inputs_and_outputs_of_regions_keep_their_types(captures: bool) -> None:
    """What the If captures and returns is typed by its operands and results, which the region does not see."""
    if captures:
        text = f"""g (int8[2,3] x, bool c) => (float[2,3] y) <{PARAMETERS}> {{
          y = If(c) <then_branch = t () => (float[2,3] a) {{ a = DequantizeLinear(x, s, z) }},
            else_branch = e () => (float[2,3] b) {{ d = DequantizeLinear(x, s, z) b = Relu(d) }}>
        }}"""
    else:
        text = f"""g (float[2,3] x, bool c) => (float[2,3] y) <{PARAMETERS}> {{
          q = If(c) <then_branch = t () => (int8[2,3] a) {{ a = QuantizeLinear(x, s, z) }},
            else_branch = e () => (int8[2,3] b) {{ d = Relu(x) b = QuantizeLinear(d, s, z) }}>
          y = DequantizeLinear(q, s, z)
        }}"""
    x = integers(2, 3)
    real = (x - np.float32(3)) * np.float32(0.5)
    graph = onnx_graph(text, "legalize")
    (y,) = run(graph, [x if captures else real, np.asarray(True)])
    np.testing.assert_array_equal(y, real)


def test_integers_that_a_loop_carries_keep_their_type() -> None:
    text = f"""g (int8[2] x, int64 n) => (float[2] y) <{PARAMETERS}, bool c = {{1}}> {{
      q = Loop(n, c, x) <body = b (int64 i, bool k, int8[2] v) => (bool ko, int8[2] vo) {{
        ko = Identity(k)
        d = DequantizeLinear(v, s, z)
        r = Add(d, d)
        vo = QuantizeLinear(r, s, z)
      }}>
      y = DequantizeLinear(q, s, z)
    }}"""
    graph = onnx_graph(text, "quantized types")
    assert not graph.inputs[0].is_quantized
    edges = [v for n in graph.nodes for region in n.regions for v in (*region.inputs, *region.outputs)]
    assert edges and not any(v.is_quantized for v in edges)


@pytest.mark.parametrize("scale", ["0.0", "-0.5", "inf"])
def test_scales_that_are_not_positive_and_finite_are_arithmetic(scale: str) -> None:
    text = f"""g (int8[2] x) => (float[2] y) <float s = {{{scale}}}, int8 z = {{3}}> {{
      y = DequantizeLinear(x, s, z)
    }}"""
    graph = onnx_graph(text, "legalize")
    assert not graph.inputs[0].is_quantized
    assert stored(graph, np.asarray([5, 1], np.int8)) == [[2 * float(scale), -2 * float(scale)]]


_OPEN_OR_EMPTY = """g (int8[{0}] x) => (int8[{0}] y) <{1}> {{
  d = DequantizeLinear(x, s, z)
  r = Relu(d)
  y = QuantizeLinear(r, s2, z2)
}}"""


def test_symbolic_tensors() -> None:
    text = _OPEN_OR_EMPTY.format("N,3", PARAMETERS)
    assert lowered(text) == {"tfl.DEQUANTIZE": 1, "tfl.RELU": 1, "tfl.QUANTIZE": 1}  # faster than on integers
    x = integers(4, 3)
    (y,) = run(onnx_graph(text, "legalize"), [x])
    np.testing.assert_array_equal(y, np.clip(np.maximum(x - 3.0, 0) * 2 - 3, -128, 127))


def test_a_tensor_without_elements_is_a_constant() -> None:
    assert lowered(_OPEN_OR_EMPTY.format("0,3", PARAMETERS)) == {"tfl.RESHAPE": 1}


def test_a_negative_axis_and_an_axis_of_size_one() -> None:
    text = """g (int8[1,3] x) => (float[1,3] y) <float[3] s = {0.5, 0.25, 2}, int8[3] z = {1, 2, 3}> {
      y = DequantizeLinear<axis=-1>(x, s, z)
    }"""
    graph = onnx_graph(text, "quantized types")
    assert graph.inputs[0].tensor_type.quantization is not None
    assert graph.inputs[0].tensor_type.quantization.axis == 1
    text = """g (int8[1,3] x) => (float[1,3] y) <float[1] s = {0.5}, int8[1] z = {1}> {
      y = DequantizeLinear<axis=0>(x, s, z)
    }"""
    quantization = onnx_graph(text, "quantized types").inputs[0].tensor_type.quantization
    assert quantization is not None and quantization.per_tensor


# --- fused ------------------------------------------------------------------------------------------------------------


def fused(text: str) -> Graph:
    """The graph of `text` after the pass, which changes no stored integer."""
    graph = parse_graph(text)
    verify(graph, "before")
    inputs = [integers(*map(int, v.shape)) for v in graph.inputs]
    wanted = run(graph, inputs)
    fuse_quantized(graph)
    verify(graph, "after")
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return graph


@pytest.mark.parametrize(
    ("scale", "bias", "fuses"), [("0.5", "0.75", True), ("0.000001", "5.0", False), ("8.0", "5.0", False)]
)
def test_a_bias_that_cannot_be_stored_exactly_enough_stays_real(scale: str, bias: str, fuses: bool) -> None:
    """Its steps are input scale times weight scale: 5.0 is beyond 2**31 steps of 1e-12, and no multiple of 64."""
    text = f"""graph main(%x: tensor<1x1x2x2xfloat32, quant<int8 {scale}:0>>) -> (%y) {{
      %w = constant tensor<1x1x1x1xfloat32, quant<int8 {scale}:0>> [2]
      %b = constant tensor<1xfloat32> [{bias}]
      %dx = Convert(%x) {{dtype = !float32}} : tensor<1x1x2x2xfloat32>
      %dw = Convert(%w) {{dtype = !float32}} : tensor<1x1x1x1xfloat32>
      %m = Conv(%dx, %dw, %b) {{{CONV2D}}}
      %y = Convert(%m) {{dtype = !float32}} : tensor<1x1x2x2xfloat32, {Q}>
    }}"""
    (conv,) = (node for node in fused(text).nodes if node.op is ops.Conv)
    assert conv.result.is_quantized == fuses


def test_what_is_dequantized_and_quantized_is_requantized_in_one_step() -> None:
    text = f"""graph main(%x: tensor<4xfloat32, {Q}>) -> (%y) {{
      %a = Convert(%x) {{dtype = !float32}} : tensor<4xfloat32>
      %y = Convert(%a) {{dtype = !float32}} : tensor<4xfloat32, {COARSE}>
    }}"""
    graph = fused(text)
    assert [n.operand(0).is_quantized and n.result.is_quantized for n in graph.nodes][-1]
    assert graph.outputs[0].producer is not None and graph.outputs[0].producer.operand(0) is graph.inputs[0]


def test_the_third_of_several_operands_has_a_scale_for_each_index() -> None:
    text = f"""graph main(%x: tensor<2x2xfloat32, quant<int8 axis=1 0.5:1 2.0:2>>) -> (%y) {{
      %v = constant tensor<1x2xfloat32> [1.0, 2.0]
      %a = Convert(%x) {{dtype = !float32}} : tensor<2x2xfloat32>
      %c = Concatenate(%v, %v, %a) {{axis = 0}}
      %y = Convert(%c) {{dtype = !float32}} : tensor<4x2xfloat32, {Q}>
    }}"""
    assert op_counts(fused(text)) == {"Convert": 2, "Concatenate": 1}


# --- legalized: what is rounded to another quantization first ---------------------------------------------------------

POOL = "dims = [2, 3], kernel_shape = [2, 2], strides = [1, 1], padding = [0, 0, 0, 0], dilations = [1, 1]"
CASES = {
    "average, finer result": (f"AveragePool(%x) {{{POOL}}}", "1x2x3x3", FINE, True),
    "average, coarser result": (f"AveragePool(%x) {{{POOL}}}", "1x2x3x3", COARSE, True),
    "greatest, finer result": (f"MaxPool(%x) {{{POOL}}}", "1x2x3x3", FINE, True),
    "softmax, fine result": ("Softmax(%x) {axis = 3}", "1x2x4x4", "quant<int8 0.0001:-128>", False),
    "softmax, faster in float": ("Softmax(%x) {axis = 3}", "1x2x4x4", "quant<int8 0.003:-128>", False),
    "sigmoid, fine result": ("Sigmoid(%x)", "1x2x4x4", "quant<int8 0.001:-128>", False),
    "sigmoid": ("Sigmoid(%x)", "1x2x4x4", "quant<int8 0.003:-128>", True),
    "logarithms in the kernel's range": ("LogSoftmax(%x) {axis = 3}", "1x2x4x4", "quant<int8 0.06:127>", True),
    "logarithms beyond the kernel's range": ("LogSoftmax(%x) {axis = 3}", "1x2x4x4", "quant<int8 0.12:127>", False),
    "pad with a value between steps": ("Pad(%x, %p, %third)", "1x2x6x6", FINE, True),
    "pad with a value out of range": ("Pad(%x, %p, %big)", "1x2x6x6", COARSE, True),
    "product": ("Mul(%x, %x)", "1x2x4x4", COARSE, True),
    "sum of very different scales": ("Add(%x, %x)", "1x2x4x4", "quant<int8 0.00001:0>", False),
    "an op without a kernel on integers": ("Erf(%x)", "1x2x4x4", FINE, False),
}


@pytest.mark.parametrize("name", CASES)
def test_requantizing_loses_at_most_a_step(name: str) -> None:
    call, shape, quantization, on_integers = CASES[name]
    text = f"""graph main(%x: tensor<1x2x4x4xfloat32, {Q}>) -> (%y) {{
      %p = constant tensor<4x2xint64> [0, 0, 0, 0, 1, 1, 1, 1]
      %third = constant tensor<float32> [0.3]
      %big = constant tensor<float32> [100.0]
      %y = {call} : tensor<{shape}xfloat32, {quantization}>
    }}"""
    graph = parse_graph(text)
    verify(graph, "before")
    x = integers(1, 2, 4, 4)
    (wanted,) = run(graph, [x])
    legalize(graph, TARGET)
    verify(graph, "after")
    (found,) = run(graph, [x])
    assert np.abs(found.astype(int) - wanted).max() <= 1
    real = [v for n in graph.nodes for v in n.results if v.dtype.is_float and not v.is_quantized]
    assert bool(real) != on_integers


def test_a_pad_with_a_real_value_has_fewer_axes() -> None:
    shapes = "2x1x3x4x6xfloat32", "2x1x3x4x9xfloat32"
    text = f"""graph main(%x: tensor<{shapes[0]}, {Q}>) -> (%y) {{
      %p = constant tensor<5x2xint64> [0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
      %third = constant tensor<float32> [0.3]
      %y = Pad(%x, %p, %third) : tensor<{shapes[1]}, {Q}>
    }}"""
    graph, x = parse_graph(text), integers(2, 1, 3, 4, 6)
    (wanted,) = run(graph, [x])
    legalize(graph, TARGET)
    verify(graph, "after")
    assert np.array_equal(run(graph, [x])[0], wanted)
    assert [n.result.shape for n in graph.nodes if n.op is ops.Pad] == [(1, 24, 9)]


ROWS = "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]"


@pytest.mark.parametrize("size", ["2", "[n]"])
def test_rows_with_a_scale_and_a_bias_for_each_feature_are_multiplied_on_integers(size: str) -> None:
    """Kernels of 2.14 with a scale for each feature keep no axes; other rows are merged before, and moved after."""
    text = f"""graph main(%x: tensor<{size}x3x4xfloat32, {Q}>) -> (%y) {{
      %w = constant tensor<2x4xfloat32, quant<int8 axis=0 0.5:0 0.25:0>> [1, -2, 3, 4, 5, 6, -7, 8]
      %v = constant tensor<2xfloat32, quant<int32 axis=0 0.25:0 0.125:0>> [9, -8]
      %y = DotGeneralBias(%x, %w, %v) {{{ROWS}}} : tensor<{size}x3x2xfloat32, {COARSE}>
    }}"""
    graph, x = parse_graph(text), integers(2, 3, 4)
    (wanted,) = run(graph, [x])
    legalize(graph, TARGET)
    verify(graph, "after")
    assert np.array_equal(run(graph, [x])[0], wanted)
    assert {"Convert", "DotGeneral"}.isdisjoint(op_counts(graph))


def test_the_shape_of_stored_integers_is_read_without_dequantizing_them() -> None:
    graph = parse_graph(f"""graph main(%x: tensor<[n]x3xfloat32, {Q}>) -> (%y) {{
      %y = Shape(%x) {{dtype = !int64}} : tensor<2xint64>
    }}""")
    legalize(graph, TARGET)
    assert op_counts(graph) == {"Shape": 1}
