"""Ops with real constants between dequantized operands and quantized results, as integer kernels take them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.quantize import STORED_CLAMPS, fuse_quantized, read_quantized_types, use_integer_constants
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import only_node, op_counts, simplify

CONVERT = "{dtype = !float32}"


def _fused(text: str) -> Graph:
    graph = parse_graph(text)
    use_integer_constants(graph)
    fuse_quantized(graph)
    STORED_CLAMPS.apply(graph)
    simplify(graph)
    return graph


def _every_integer(*shape: int) -> np.ndarray:
    return np.resize(np.arange(-128, 128), shape).astype(np.int8)


def _steps(got: Graph, want: Graph, *inputs: np.ndarray) -> float:
    """The largest difference of the outputs."""
    ((a,), (b,)) = (run(graph, list(inputs)) for graph in (got, want))
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())


@pytest.mark.parametrize("shape", ["1x2x8x16", "1x2x128", "128x2"])
@pytest.mark.parametrize("clamp", ["", "%r = Relu(%n)"])
def test_a_batch_normalization_is_a_convolution_of_each_feature(shape: str, clamp: str) -> None:
    text = f"""graph main(%q: tensor<{shape}xfloat32, quant<int8 0.5:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %scale = constant tensor<2xfloat32> [0.3, -2.0]
      %bias = constant tensor<2xfloat32> [10.0, -0.01]
      %mean = constant tensor<2xfloat32> [1.0, 0.5]
      %variance = constant tensor<2xfloat32> [4.0, 0.25]
      %n = BatchNormInference(%x, %scale, %bias, %mean, %variance) {{feature_index = 1}}
      {clamp}
      %y = Convert(%{"r" if clamp else "n"}) {CONVERT} : tensor<{shape}xfloat32, quant<int8 0.75:-128>>
    }}"""
    graph, x = _fused(text), _every_integer(*map(int, shape.split("x")))
    assert op_counts(graph) - Counter({"Reshape": 2}) == {"Conv": 1}
    assert _steps(graph, parse_graph(text), x) <= 1


@pytest.mark.parametrize(("step", "wanted"), [(0.05, {"PRelu": 1}), (0.001, {"Convert": 2, "PRelu": 1})])
def test_slopes_are_rounded_to_8_bits_where_the_result_is_coarse_enough(step: float, wanted: dict[str, int]) -> None:
    text = f"""graph main(%q: tensor<1x2x128xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %slope = constant tensor<2x1xfloat32> [0.251, 0.013]
      %p = PRelu(%x, %slope)
      %y = Convert(%p) {CONVERT} : tensor<1x2x128xfloat32, quant<int8 {step}:-100>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph) == wanted
    assert _steps(graph, parse_graph(text), _every_integer(1, 2, 128)) <= 1


@pytest.mark.parametrize(
    ("formula", "values", "step", "wanted"),
    [
        ("Div(%x, %c)", "[3.0]", 0.02, {"Mul": 1}),
        ("Mul(%x, %c)", "[0.1, 0.37]", 0.05, {"Mul": 1}),
        ("Mul(%x, %c)", "[0.1, 0.37]", 0.001, {"Convert": 2, "Mul": 1}),
        ("Sub(%c, %x)", "[0.5, 79.5]", 0.01, {"Sub": 1}),  # multiples of 0.5 are exact
        ("Add(%x, %c)", "[0.3, 79.4]", 0.01, {"Add": 1, "Convert": 2}),
    ],
)
def test_operands_are_rounded_to_8_bits_where_the_result_is_coarse_enough(
    formula: str, values: str, step: float, wanted: dict[str, int]
) -> None:
    size = "1x1" if "," not in values else "2x1"
    text = f"""graph main(%q: tensor<1x2x128xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %c = constant tensor<{size}xfloat32> {values}
      %p = {formula}
      %y = Convert(%p) {CONVERT} : tensor<1x2x128xfloat32, quant<int8 {step}:-100>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph) == wanted
    assert _steps(graph, parse_graph(text), _every_integer(1, 2, 128)) <= 1


@pytest.mark.parametrize(("high", "wanted"), [(1.0, ["Clamp", "Convert"]), (0.3, ["Convert", "Clamp"])])
def test_stored_integers_are_clamped_where_the_bounds_are_stored(high: float, wanted: list[str]) -> None:
    """1.0 is more than all that is stored, 0.3 is between two stored numbers."""
    text = f"""graph main(%q: tensor<256xfloat32, quant<int8 0.0078125:10>>) -> (%y) {{
      %low = constant tensor<float32> [0.0]
      %high = constant tensor<float32> [{high}]
      %x = Convert(%q) {CONVERT}
      %y = Clamp(%x, %low, %high)
    }}"""
    graph = _fused(text)
    assert [node.op.name for node in graph.nodes] == wanted
    assert _steps(graph, parse_graph(text), _every_integer(256)) == 0


@pytest.mark.parametrize("padding", ["padding = [1, 1, 1, 1], count_include_pad = true", "padding = [0, 0, 0, 0]"])
def test_an_average_in_finer_steps_is_a_convolution(padding: str) -> None:
    sides = "kernel_shape = [3, 3], strides = [1, 1], dilations = [1, 1], dims = [2, 3]"
    size = 8 if "true" in padding else 6
    text = f"""graph main(%q: tensor<1x4x8x8xfloat32, quant<int8 0.5:3>>) -> (%y) {{
      %y = AveragePool(%q) {{{sides}, {padding}}}
        : tensor<1x4x{size}x{size}xfloat32, quant<int8 0.1:0>>
    }}"""
    graph = parse_graph(text)
    legalize(graph, TfliteTarget())
    assert "Conv" in op_counts(graph) and "Convert" not in op_counts(graph)
    assert _steps(graph, parse_graph(text), _every_integer(1, 4, 8, 8)) <= 1


def test_an_interpolation_of_stored_integers_is_one_of_what_they_represent() -> None:
    """Rounded to the same steps afterwards."""
    text = """graph main(%x: tensor<1x2x4x4xfloat32>) -> (%y) {
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<uint8> [128]
      %q = QuantizeLinear(%x, %s, %z) {dtype = !uint8, axis = 0}
      %sizes = constant tensor<2xint64> [8, 8]
      %r = Resize(%q, %sizes, _, _) {dims = [2, 3], mode = "linear", coordinate_transformation_mode = "half_pixel"}
      %y = DequantizeLinear(%r, %s, %z) {axis = 0}
    }"""
    graph = parse_graph(text)
    read_quantized_types(graph, TfliteTarget())
    fuse_quantized(graph)
    simplify(graph)
    resize = only_node(graph, "Resize")
    assert resize.operand(0).is_quantized and resize.result.is_quantized
    x = np.random.default_rng(0).normal(scale=20, size=(1, 2, 4, 4)).astype(np.float32)
    assert _steps(graph, parse_graph(text), x) <= 0.5


@pytest.mark.parametrize("step", [0.00390625, 0.01])
def test_a_hard_sigmoid_is_a_convolution_of_each_feature(step: float) -> None:
    """1 is the greatest stored number, or stored itself."""
    text = f"""graph main(%q: tensor<1x2x8x16xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %h = HardSigmoid(%x) {{slope = 0.1666667, offset = 0.5}}
      %y = Convert(%h) {CONVERT} : tensor<1x2x8x16xfloat32, quant<int8 {step}:-128>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph) - Counter({"Clamp": 1}) == {"Conv": 1}
    assert _steps(graph, parse_graph(text), _every_integer(1, 2, 8, 16)) <= 1


def test_a_negation_is_a_product() -> None:
    text = f"""graph main(%q: tensor<256xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %n = Neg(%x)
      %y = Convert(%n) {CONVERT} : tensor<256xfloat32, quant<int8 0.04:-10>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph) == {"Mul": 1}
    assert _steps(graph, parse_graph(text), _every_integer(256)) <= 1


def test_a_constant_that_is_selected_is_stored_as_the_result() -> None:
    text = f"""graph main(%p: tensor<256xbool>, %q: tensor<256xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %c = constant tensor<float32> [0.33]
      %s = Select(%p, %x, %c)
      %y = Convert(%s) {CONVERT} : tensor<256xfloat32, quant<int8 0.04:-10>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph) == {"Select": 1}
    legalize(graph, TfliteTarget())
    assert op_counts(graph) == {"Convert": 1, "Select": 1}
    assert _steps(graph, parse_graph(text), np.arange(256) % 3 == 0, _every_integer(256)) == 0


@pytest.mark.parametrize("divisor", ["%c", "%q"])
def test_a_quotient_is_computed_on_integers_where_no_divisor_is_zero(divisor: str) -> None:
    """The kernel ends the run at a stored zero."""
    text = f"""graph main(%q: tensor<256xfloat32, quant<int8 0.05:3>>) -> (%y) {{
      %c = constant tensor<float32, quant<int8 0.01:0>> [50]
      %y = Div(%q, {divisor}) : tensor<256xfloat32, quant<int8 0.04:-10>>
    }}"""
    graph = parse_graph(text)
    legalize(graph, TfliteTarget())
    node = only_node(graph, "Div")
    assert node.result.is_quantized == (divisor == "%c")


def test_constants_that_no_kernel_dequantizes_become_arithmetic_on_wider_ones() -> None:
    """16 bits without a sign; 4 bits with negative scales."""
    text = """graph main(%x: tensor<2xfloat32>) -> (%a, %b) {
      %s = constant tensor<float32> [0.5]
      %n = constant tensor<float32> [-0.5]
      %z = constant tensor<uint16> [7]
      %wide = constant tensor<2xuint16> [5, 65535]
      %small = constant tensor<2xint4> [-8, 7]
      %c = DequantizeLinear(%wide, %s, %z) {axis = 0}
      %d = DequantizeLinear(%small, %n, _) {axis = 0}
      %a = Add(%x, %c)
      %b = Add(%x, %d)
    }"""
    graph, x = parse_graph(text), np.zeros(2, np.float32)
    read_quantized_types(graph, TfliteTarget())
    assert not any(v is not None and v.is_quantized for node in graph.nodes for v in node.operands)
    legalize(graph, TfliteTarget())
    np.testing.assert_array_equal(run(graph, [x]), [[-1.0, 32764.0], [4.0, -3.5]])


@pytest.mark.parametrize(("addend", "stays"), [(0.2, False), (-0.2, False), (0.3, True)])
@pytest.mark.parametrize("result", ["0.5:3", "0.25:3"])
def test_an_addend_of_less_than_half_a_step_is_left_out(addend: float, stays: bool, result: str) -> None:
    text = f"""graph main(%q: tensor<2x128xfloat32, quant<int8 0.5:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %epsilon = constant tensor<1xfloat32> [{addend}]
      %a = Add(%x, %epsilon)
      %y = Convert(%a) {CONVERT} : tensor<2x128xfloat32, quant<int8 {result}>>
    }}"""
    graph = _fused(text)
    assert op_counts(graph)["Add"] == (stays or result != "0.5:3")
    assert _steps(graph, parse_graph(text), _every_integer(2, 128)) == 0
