"""Passes after the reader on models that no exporter writes: no InternalError, no endless legalization, no large
intermediates.
"""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest
from onnxtfl.mappings.math.reductions_by_halving import by_halving

import onnxtfl
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import UnknownInputError, make_input
from onnxtfl.inputs.sizes import open_shapes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import SymDim, fresh_symbol, sum_of
from onnxtfl.ir.facts import MOST_VISITS, max_magnitude, never_negative
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.reshape import reshaped_constant
from onnxtfl.ir.spatial import MOST_BETWEEN, pad_spatial
from onnxtfl.ir.types import DType, tensor
from onnxtfl.options import Options
from onnxtfl.passes.canonical.templates import constants_equal
from onnxtfl.passes.canonical.unit_axes import sink_reshapes
from onnxtfl.pipeline import onnx_to_tflite
from onnxtfl.rewriting.regions import condition_value
from tests.harness.rounds import parsed
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import tflite_file

_REFUSED = {
    "the condition of a loop is a number": (
        "g (int64 n, float x) => (float y) { y = Loop <body = b (int64 i, float c, float a) => (float d, float e) "
        "{ d = Identity (c) e = Add (a, c) }> (n, x, x) }",
        "the condition of an iteration is",
    ),
    "a diagonal of matrices that are not square": (
        'g (float[3,5,0] x) => (float[3,5] y) { y = Einsum <equation = "...ii->...i"> (x) }',
        "no diagonal of matrices of 5 x 0",
    ),
    "a diagonal of 2^32 matrices": (
        'g (float[4294967296,5,5] x) => (float[4294967296,5] y) { y = Einsum <equation = "...ii->...i"> (x) }',
        "an axis of more than 2147483647 elements",
    ),
    "an LSTM whose weights are of two widths, where the rows of one are open": (
        "g (float[M,1,2] x, float[1,28,2] w, float[1,M,1] r) => (float y) { y = LSTM <hidden_size = 7> (x, w, r) }",
        "28 rows of weights, but 4 in another operand",
    ),
    "a Resize of an axis of 1 to 2^24": (
        f'g (float[1,2,7,5] x) => (float y) <int64[4] s = {{{1 << 24},2,7,5}}> {{ y = Resize <mode = "linear"> '
        '(x, "", "", s) }',
        "the positions along an axis would be a constant of 16777216 elements",
    ),
    "a sequence of sequences": (
        "g (float x) => (seq(float) y) { a = SequenceConstruct (x, x) b = SequenceInsert (a, a) "
        "y = SequenceInsert (b, b) }",
        "an element of a sequence is not a tensor but another sequence",
    ),
    "a cropping Resize without its roi": (
        "g (float[1,1,4,4] x, int64[4] s) => (float y) { y = Resize <coordinate_transformation_mode = "
        '"tf_crop_and_resize", mode = "linear"> (x, "", "", s) }',
        "roi has to have 8 elements",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    text, message = _REFUSED[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError), match=message):
        onnxtfl.onnx_to_tflite(parsed(text, 21), check=False)


def test_more_axes_than_kernels_take_end_with_the_kernel_that_refuses() -> None:
    """Reshapes of booleans to 9 axes are not cast to integers, which would need reshapes of booleans again."""
    steps = " ".join(f"y{i + 1} = OneHot <axis = 1> (y{i}, depth, values)" for i in range(7))
    text = f"g (float[2,2] y0) => (float y7) <float depth = {{10}}, float[2] values = {{1, 3}}> {{ {steps} }}"
    with pytest.raises(onnxtfl.UnsupportedError, match="ranks up to 8, not 9"):
        onnxtfl.onnx_to_tflite(parsed(text, 19), check=False)


def test_only_operands_of_refused_types_are_cast() -> None:
    """A Reshape of booleans by sizes of int64: the sizes are cast, not the booleans."""
    text = "g (bool[N, 6] x, int64[3] s) => (bool[A, B, C] y) { y = Reshape (x, s) }"
    found = onnxtfl.inspect(onnxtfl.onnx_to_tflite(parsed(text, 21), check=False).data)
    assert found.to_json()["ops"]["CAST"] == 1


def test_integers_that_are_declared_quantized_stay_integers() -> None:
    """Kernels store indices and sizes as they are, whatever scale the file gives them."""
    declared = tensor("float32", 2, 1).stored_as(Quantization("int32", (0.5,), (0,)))
    data = tflite_file("EXPAND_DIMS", [tensor("int32", 2), np.asarray(1, np.int32)], declared)
    assert onnxtfl.tflite_to_onnx(data).data


def test_a_constant_of_another_number_of_elements() -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="of 0 elements cannot have the shape"):
        reshaped_constant(constant(np.zeros(0, np.int64)), [])


def test_inputs_of_gigabytes_are_not_drawn() -> None:
    info = TensorInfo("x", "int64", (1 << 28,))
    with pytest.raises(UnknownInputError, match="no values are drawn for the 2048 MB of input 'x'"):
        make_input(info, (1 << 28,), None, (0,))


def test_open_sizes_are_smaller_where_one_input_has_many() -> None:
    info = TensorInfo("x", "float16", ("n", "m", "m", "n"))
    shapes = list(open_shapes([info], {}))
    assert shapes and all(np.prod(shape) <= 1 << 26 for (shape,) in shapes)


def test_integers_of_few_bits_are_drawn() -> None:
    info = TensorInfo("x", "int4", (4, 9), Quantization("int4", (0.02,), (-5,)))
    values, _ = make_input(info, (4, 9), None, (0,), noisy=True)
    assert int(values.astype(int).min()) >= -8 and int(values.astype(int).max()) <= 7


def test_a_state_of_four_axes() -> None:
    b = Builder(Graph())
    given = [constant(np.zeros(shape, np.float32)) for shape in ((5, 1, 4), (24, 4), (24, 6), (1, 6, 6, 6))]
    x, weights, recurrent, cell = given
    with pytest.raises(onnxtfl.InvalidModelError, match="not of \\[batch, elements\\]"):
        b.many(ops.Lstm, x, weights, recurrent, None, None, None, cell)


@pytest.mark.parametrize(("keep", "shape"), [(True, "[n]x1x2"), (False, "[n]x2")])
def test_products_of_halves_beside_an_open_axis(keep: bool, shape: str) -> None:
    graph = Graph()
    b = Builder(graph)
    product = b(ops.Reduce, graph.add_input(tensor("float32", "n", 5, 2), "x"), [1], kind="prod", keepdims=keep)
    assert product.producer is not None
    halved = by_halving(b, product.producer)
    assert halved is not None and str(halved.type) == f"tensor<{shape}xfloat32>"


def test_more_keys_than_values_in_an_attention_of_many_lengths() -> None:
    text = """g (float[3,2,6,8] q, float[3,2,6,8] k, float[3,2,2,8] v, int64[3] n) => (float[3,2,6,8] y) {
      y = Attention <is_causal = 1> (q, k, v, "", "", "", n) }"""
    with pytest.raises(onnxtfl.InvalidModelError, match="dimensions 6 and 2 do not broadcast"):
        onnx_to_tflite(parsed(text, 24), io.BytesIO(), Options(debug=True))


def test_a_cycle_of_ops_whose_names_are_not_utf_8() -> None:
    model = parsed("g (float x) => (float y) { a = Softplus (b) b = Softplus (a) y = Softplus (b) }", 21)
    with pytest.raises(onnxtfl.InvalidModelError, match="the graph has a cycle"):
        onnxtfl.onnx_to_tflite(model.replace(b"Softplus", b"Soft\xff\x7fus"), check=False)


def test_a_quantized_sum_with_nan() -> None:
    text = """g (int8[4] x) => (int8[4] y) <float s = {0.5}, int8 z = {0}, float n = {0}> {
      r = DequantizeLinear (x, s, z) a = Add (r, n) y = QuantizeLinear (a, s, z) }"""
    model = onnx.load_from_string(parsed(text, 21))
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.float32(np.nan), "n"))
    assert onnxtfl.onnx_to_tflite(model, check=False).data


def test_an_overload_with_a_null_character() -> None:
    model = onnx.load_from_string(parsed("g (float x) => (float y) { y = Softplus (x) }", 21))
    model.graph.node[0].overload = "a\0b"
    with pytest.raises(onnxtfl.UnsupportedError, match="there is no conversion for this op"):
        onnxtfl.onnx_to_tflite(model, check=False)


_CONVOLUTION = """{padding = "VALID", stride_h = 1, stride_w = 1, fused_activation_function = "NONE",
  quantized_bias_type = "FLOAT32", dilation_h_factor = 1, dilation_w_factor = 1}"""
_REFUSED_TFLITE = {
    "a bias of several axes that has too many elements for the batch that a filter fixes": (
        f"""graph main(%x: tensor<[n]x4x4x2xfloat32>) -> (%y) {{
          %w = constant tensor<2x1x1x2xfloat32> [1.0, 2.0, 3.0, 4.0]
          %a = tfl.CONV_2D@1(%x, %w, %x) {_CONVOLUTION} : tensor<[n]x4x4x2xfloat32>
          %b = tfl.CONV_2D@1(%a, %a, _) {_CONVOLUTION} : tensor<[n]x1x1x2xfloat32>
          %y = tfl.CONV_2D@1(%b, %w, _) {_CONVOLUTION} : tensor<[n]x1x1x2xfloat32>
        }}""",
        "a bias of 64 elements for 2 output features",
    ),
    "indices that are dequantized, beyond the result": (
        """graph main(%u: tensor<2xfloat32>) -> (%y) {
          %i = constant tensor<2xfloat32, quant<int32 0.5:0>> [0, 1649940802]
          %n = constant tensor<int32> [4]
          %y = tfl.UNSORTED_SEGMENT_PROD@1(%u, %i, %n) : tensor<4xfloat32>
        }""",
        "the index 1649940802 is out of range",
    ),
}


@pytest.mark.parametrize("name", _REFUSED_TFLITE)
def test_refused_of_tflite(name: str) -> None:
    text, message = _REFUSED_TFLITE[name]
    with pytest.raises(onnxtfl.InvalidModelError, match=message):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)


def test_the_sum_of_many_open_sizes_is_unknown() -> None:
    """In time linear in them: a Concat of 60,000 operands of open sizes has to find it."""
    unknown = sum_of(fresh_symbol() for _ in range(100_000))
    assert isinstance(unknown, SymDim) and len(unknown.terms) == 1
    size = fresh_symbol()
    assert sum_of([size, 3, size, 4]) == size * 2 + 7


def test_images_between_padding_and_windows_have_a_largest_size() -> None:
    with pytest.raises(NotImplementedError):
        pad_spatial(np.zeros((1, 2)), (0, MOST_BETWEEN), 0.0)
    assert pad_spatial(np.zeros((1, 2)), (-1, 0), 0.0).shape == (1, 1)


def test_transposed_convolutions_of_constants_with_huge_strides_stay() -> None:
    """The folded image would have 2^30 elements, of which padding leaves 4."""
    text = "g (float[1,1,4] z) => (float[1,1,4] y) <float[1,1,2] x = {1, 2}, float[1,1,1] w = {3}> {"
    text += f" c = ConvTranspose <strides = [{1 << 30}], pads = [0, {(1 << 30) - 3}]> (x, w) y = Add (c, z) }}"
    with pytest.raises(onnxtfl.UnsupportedError):
        onnxtfl.onnx_to_tflite(parsed(text, 21), check=False)


@pytest.mark.parametrize(("size", "known"), [(8, True), (1 << 20, None)])
def test_conditions_are_computed_early_where_all_on_the_way_is_small(size: int, known: bool | None) -> None:
    b = Builder(Graph())
    rows = b(ops.BroadcastTo, constant(np.asarray(1, np.int32)), [size])
    condition = b(ops.Convert, b(ops.Reduce, rows, [0], kind="max", keepdims=False), dtype=DType.BOOL)
    assert condition_value(condition) is known


F = np.float32


def test_signs_and_bounds_of_wide_graphs_are_found_in_bounded_time() -> None:
    graph = Graph()
    b = Builder(graph)
    wide: Value = graph.add_input(tensor("int64", 1), "x")
    for _ in range(8):
        parts = [b(ops.Slice, wide, [0], [1], [1]) for _ in range(30)]
        wide = b(ops.Concatenate, *(b(ops.Add, part, part) for part in parts), axis=0)
    assert not never_negative(wide) and max_magnitude(wide) is None


def test_an_analysis_visits_a_bounded_number_of_values() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", 1), "x")
    few, many = ([b(ops.Exp, b(ops.Neg, x)) for _ in range(n)] for n in (10, MOST_VISITS + 10))
    assert never_negative(b(ops.Concatenate, *few, axis=0)) and not never_negative(b(ops.Concatenate, *many, axis=0))


def test_the_bound_of_the_least_integer() -> None:
    assert max_magnitude(constant(np.asarray([-(2**63), 5]))) == 2**63


def test_reshapes_do_not_sink_through_results_with_scales_along_an_axis() -> None:
    graph = Graph()
    b = Builder(graph)
    y = b(ops.Abs, b(ops.Reshape, graph.add_input(tensor("float32", 2, 4), "x"), [2, 1, 4]))
    y.type = y.tensor_type.stored_as(Quantization("int8", (0.1, 0.2), (0, 0), axis=0))
    graph.outputs = [y]
    sink_reshapes(graph)
    assert [n.op for n in graph.nodes] == [ops.Reshape, ops.Abs]


def test_constants_of_other_shapes_do_not_match_a_template() -> None:
    assert not constants_equal(np.ones((4, 1, 64), F), np.ones((4, 64, 1), F), 1e-5)
    assert constants_equal(np.ones((64, 1), F), np.ones((4, 64, 1), F), 1e-5)
