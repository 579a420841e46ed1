"""What a file spells out becomes the one op that ONNX has; the numbers stay."""

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.recognize.tfl_formulas import FUNCTIONS
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts, recognize, transformed

NORM = """graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {
  %axes = constant tensor<1xint64> [2]
  %e = constant tensor<float32> [0.001]
  %g = constant tensor<4xfloat32> [1.0, 2.0, 3.0, 4.0]
  %h = constant tensor<1x1x4xfloat32> [0.5, -0.5, 1.0, 2.0]
  %f = constant tensor<3x1xfloat32> [0.5, -0.5, 1.0]
  %m = Reduce(%x, %axes) {kind = "mean", keepdims = true}
  %d = Sub(%x, %m)
  %q = Mul(%d, %d)
  %v = Reduce(%q, %axes) {kind = "mean", keepdims = true}
  %t = Add(%v, %e)
"""
BY_RSQRT = f"{NORM}  %r = Rsqrt(%t)\n  %n = Mul(%r, %d)\n"
BY_SQRT = f"{NORM}  %r = Sqrt(%t)\n  %n = Div(%d, %r)\n"


@pytest.mark.parametrize("head", [BY_RSQRT, BY_SQRT])
def test_layer_norm_with_scale_and_bias(head: str) -> None:
    graph = transformed(f"{head}  %s = Mul(%n, %g)\n  %y = Add(%h, %s)\n}}", recognize)
    assert op_counts(graph) == {"LayerNorm": 1}


@pytest.mark.parametrize("head", [BY_RSQRT, BY_SQRT])
def test_layer_norm_without_scale_has_ones(head: str) -> None:
    graph = transformed(f"{head}  %y = Relu(%n)\n}}", recognize)
    assert op_counts(graph)["Reduce"] == 0


def test_layer_norm_as_keras_writes_it() -> None:
    text = f"""{NORM}  %r = Rsqrt(%t)
      %k = Mul(%r, %g)
      %a = Mul(%x, %k)
      %b = Mul(%m, %k)
      %c = Sub(%h, %b)
      %y = Add(%a, %c)
    }}"""
    assert op_counts(transformed(text, recognize)) == {"LayerNorm": 1}


def test_instance_norm_takes_scale_and_bias() -> None:
    graph = transformed(f"{BY_RSQRT}  %s = Mul(%n, %f)\n  %y = Add(%s, %f)\n}}", recognize)
    assert op_counts(graph) == {"InstanceNorm": 1}


def test_statistics_over_other_axes_than_the_squares_are_none() -> None:
    text = BY_RSQRT.replace("%axes = ", "%other = constant tensor<1xint64> [1]\n  %axes = ")
    text = text.replace("%v = Reduce(%q, %axes)", "%v = Reduce(%q, %other)")
    graph = transformed(f"{text}  %y = Mul(%n, %g)\n}}", recognize)
    assert "LayerNorm" not in op_counts(graph)


def test_scale_and_bias_by_feature_are_a_batch_norm() -> None:
    text = """graph main(%x: tensor<1x2x3x3xfloat32>) -> (%y) {
      %g = constant tensor<2x1x1xfloat32> [2.0, 3.0]
      %h = constant tensor<1x2x1x1xfloat32> [0.5, -0.5]
      %m = Mul(%x, %g)
      %a = Sub(%m, %h)
      %y = Relu(%a)
    }"""
    graph = transformed(text, recognize)
    assert op_counts(graph) == {"BatchNormInference": 1, "Relu": 1}


def test_numbers_are_no_batch_norm() -> None:
    text = """graph main(%x: tensor<1x2x3x3xfloat32>) -> (%y) {
      %g = constant tensor<float32> [2.0]
      %m = Mul(%x, %g)
      %y = Add(%m, %g)
    }"""
    assert op_counts(transformed(text, recognize)) == {"Mul": 1, "Add": 1}


@pytest.mark.parametrize(
    "body",
    [
        '%a = Mul(%x, %x)\n %b = Reduce(%a, %axes) {kind = "sum"}\n %y = Sqrt(%b)',
        '%a = Abs(%x)\n %y = Reduce(%a, %axes) {kind = "sum", keepdims = true}',
        '%a = Sigmoid(%x)\n %b = Reduce(%a, %axes) {kind = "sum"}\n %y = Log(%b)',
        '%m = Reduce(%x, %axes) {kind = "max", keepdims = true}\n %a = Sub(%x, %m)\n %e = Exp(%a)\n'
        '%b = Reduce(%e, %axes) {kind = "sum", keepdims = true}\n %l = Log(%b)\n %y = Add(%l, %m)',
        '%m = Reduce(%x, %axes) {kind = "max", keepdims = true}\n %a = Sub(%x, %m)\n %e = Exp(%a)\n'
        '%b = Reduce(%e, %axes) {kind = "sum"}\n %l = Log(%b)\n %r = Reshape(%m, %two)\n %y = Add(%l, %r)',
    ],
)
def test_reductions_of_functions(body: str) -> None:
    text = f"""graph main(%x: tensor<2x3xfloat32>) -> (%y) {{\n %axes = constant tensor<1xint64> [1]\n
      %two = constant tensor<1xint64> [2]\n {body}\n}}"""
    counts = op_counts(transformed(text, recognize))
    assert counts["FunctionReduce"] == 1 and counts["Reduce"] == 0


ACTIVATION = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
  %zero = constant tensor<float32> [0.0]
  %one = constant tensor<float32> [1.0]
  %half = constant tensor<float32> [0.5]
  %two = constant tensor<float32> [2.0]
"""


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("%a = Mul(%x, %half)\n %b = Add(%a, %half)\n %y = Clamp(%b, %zero, %one)", "HardSigmoid"),
        ("%a = Relu(%x)\n %b = Min(%x, %zero)\n %c = Elu(%b)\n %d = Mul(%c, %half)\n %y = Add(%a, %d)", "Elu"),
        ("%a = Elu(%x) {alpha = 1.5}\n %y = Mul(%a, %two)", "Selu"),
        ("%a = Div(%x, %two)\n %b = Elu(%a)\n %y = Mul(%b, %two)", "Celu"),
        ('%a = Compare(%x, %half) {comparison_direction = "GT"}\n %y = Select(%a, %x, %zero)', "ThresholdedRelu"),
    ],
)
def test_activations_with_parameters(body: str, op: str) -> None:
    assert op_counts(transformed(f"{ACTIVATION} {body}\n}}", recognize)) == {op: 1}


WHATEVER_SIGN = [entry for entry in FUNCTIONS if not entry[2].get("sizes")]


@pytest.mark.parametrize(("op", "dtypes", "attributes"), WHATEVER_SIGN, ids=lambda v: getattr(v, "__name__", ""))
def test_what_tflite_lacks_is_found_in_its_formula(op: type, dtypes: tuple, attributes: dict) -> None:
    graph = Graph()
    operands = [graph.add_input(TensorType(d, (4, 5))) for d in dtypes]
    said = {name: value for name, value in attributes.items() if name not in ("sizes", "parameters")}
    graph.outputs = [Builder(graph)(op, *operands, **said)]
    legalize(graph, TfliteTarget())
    recognize(graph)
    assert [n.op for n in graph.nodes] == [op]


@pytest.mark.parametrize("op", [ops.Div, ops.Rem])
@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
def test_quotients_by_a_constant_are_found(op: type, dtype: DType) -> None:
    """Its sign is known, so the formula is shorter."""
    graph = Graph()
    x = graph.add_input(TensorType(dtype, (4, 5)))
    graph.outputs = [Builder(graph)(op, x, np.asarray(3, dtype.numpy))]
    legalize(graph, TfliteTarget())
    recognize(graph)
    assert [n.op for n in graph.nodes] == [op]


def test_softplus_of_something_else_stays() -> None:
    """The formula on two tensors."""
    text = """graph main(%x: tensor<2x3xfloat32>, %z: tensor<2x3xfloat32>) -> (%y) {
      %a = Sin(%x)
      %b = Cos(%z)
      %y = Div(%a, %b)
    }"""
    assert op_counts(transformed(text, recognize)) == {"Sin": 1, "Cos": 1, "Div": 1}


def test_convolution_over_a_unit_axis() -> None:
    text = f"""graph main(%x: tensor<2x3x7xfloat32>) -> (%y) {{
      %s = constant tensor<4xint64> [2, 3, 1, 7]
      %t = constant tensor<3xint64> [2, 2, 5]
      %w = constant tensor<2x3x1x3xfloat32> [{", ".join(str(i / 7) for i in range(18))}]
      %r = Reshape(%x, %s)
      %c = Conv(%r, %w) {{{CONV2D}}}
      %a = Relu(%c)
      %y = Reshape(%a, %t)
    }}"""
    graph = transformed(text, recognize)
    assert [n.op.name for n in graph.nodes] == ["Conv", "Relu"]
    assert next(iter(graph.nodes)).attr("window_strides") == (1,)


def test_pool_over_a_unit_axis() -> None:
    text = """graph main(%x: tensor<2x3x8xfloat32>) -> (%y) {
      %s = constant tensor<4xint64> [2, 1, 3, 8]
      %t = constant tensor<3xint64> [2, 3, 4]
      %r = Reshape(%x, %s)
      %c = MaxPool(%r) {dims = [1, 3], kernel_shape = [1, 2], strides = [1, 2], padding = [0, 0, 0, 0],
        dilations = [1, 1]}
      %y = Reshape(%c, %t)
    }""".replace(",\n       ", ",")
    graph = transformed(text, recognize)
    assert [(n.op.name, n.attr("dims")) for n in graph.nodes] == [("MaxPool", (2,))]


def test_pad_before_a_reshape_to_channels_last_goes_into_the_convolution() -> None:
    text = """graph main(%x: tensor<1x1x5x5xfloat32>) -> (%y) {
      %p = constant tensor<4x2xint64> [0, 0, 0, 0, 1, 2, 0, 1]
      %s = constant tensor<4xint64> [1, 8, 6, 1]
      %w = constant tensor<2x1x1x1xfloat32> [1.0, 2.0]
      %a = Pad(%x, %p)
      %r = Reshape(%a, %s)
      %y = Conv(%r, %w) {input_feature_dimension = 3, input_spatial_dimensions = [1, 2], output_feature_dimension = 3, \
output_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 3, kernel_spatial_dimensions = [1, 2], \
window_strides = [1, 1], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]}
    }"""
    assert op_counts(transformed(text, recognize)) == {"Conv": 1}


POOL = "{dims = [2], kernel_shape = [3], strides = [2], padding = [0, 0], dilations = [1]}"


@pytest.mark.parametrize(
    ("before", "fill", "op", "folds"),
    [
        ("Neg", "0.0", "AveragePool", True),
        ("Neg", "1.0", "AveragePool", False),
        ("Neg", "0.0", "MaxPool", False),
        ("Relu", "0.0", "MaxPool", True),
        ("Neg", "-3.4028235e38", "MaxPool", True),
    ],
)
def test_padding_goes_into_pools(before: str, fill: str, op: str, folds: bool) -> None:
    text = f"""graph main(%x: tensor<1x2x8xfloat32>) -> (%y) {{
      %p = constant tensor<3x2xint64> [0, 0, 0, 0, 1, 2]
      %f = constant tensor<float32> [{fill}]
      %n = {before}(%x)
      %a = Pad(%n, %p, %f)
      %y = {op}(%a) {POOL}
    }}"""
    assert op_counts(transformed(text, recognize)) == {before: 1, op: 1} | ({} if folds else {"Pad": 1})


def test_a_quotient_in_int32_is_one_in_int64() -> None:
    text = """graph main(%x: tensor<2x9xfloat32>) -> (%y) {
      %k = constant tensor<1xint64> [4]
      %three = constant tensor<int32> [3]
      %v, %i = TopK(%x, %k) {axis = 1}
      %n = Convert(%i) {dtype = !int32}
      %q = Div(%n, %three)
      %y = Convert(%q) {dtype = !int64}
    }"""
    assert op_counts(transformed(text, recognize)) == {"TopK": 1, "Div": 1}


def test_templates_are_not_mistaken_for_other_constants() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(DType.FLOAT32, (4,)))
    b = Builder(graph)
    shifted = b(ops.Softplus, x, threshold=np.inf)
    graph.outputs = [shifted]
    legalize(graph, TfliteTarget())
    inputs = [np.linspace(-30, 30, 4, dtype=np.float32)]
    for node in graph.nodes:
        for i, value in enumerate(node.operands):
            if value is not None and value.is_constant and value.numpy().size == 1 and value.numpy() > 1.9:
                node.set_operand(i, b.scalar(float(value.numpy()) * 1.01, value))
    wanted = run(graph, inputs)
    recognize(graph)
    assert "Softplus" not in op_counts(graph)
    np.testing.assert_allclose(run(graph, inputs)[0], wanted[0], rtol=1e-5)


DOT = "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]"
MATRIX = f"%w = constant tensor<6x4xfloat32> [{', '.join(str(i % 5) for i in range(24))}]"


def test_split_columns_and_a_transpose_are_one_contraction() -> None:
    text = f"""graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {{
      {MATRIX}
      %s = constant tensor<4xint64> [2, 3, 2, 3]
      %d = DotGeneral(%x, %w) {{{DOT}}}
      %r = Reshape(%d, %s)
      %y = Transpose(%r) {{permutation = [0, 2, 1, 3]}}
    }}"""
    assert op_counts(transformed(text, recognize)) == {"Contraction": 1, "Transpose": 1}


def test_columns_that_are_only_reshaped_stay() -> None:
    text = f"""graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {{
      {MATRIX}
      %s = constant tensor<4xint64> [2, 3, 2, 3]
      %d = DotGeneral(%x, %w) {{{DOT}}}
      %r = Reshape(%d, %s)
      %y = Relu(%r)
    }}"""
    assert op_counts(transformed(text, recognize))["Reshape"] == 1


def test_merged_heads_are_summed_one_by_one() -> None:
    text = f"""graph main(%x: tensor<2x2x3x2xfloat32>) -> (%y) {{
      {MATRIX}
      %s = constant tensor<3xint64> [2, 3, 4]
      %t = Transpose(%x) {{permutation = [0, 2, 1, 3]}}
      %r = Reshape(%t, %s)
      %y = DotGeneral(%r, %w) {{{DOT}}}
    }}"""
    assert op_counts(transformed(text, recognize)) == {"Contraction": 1, "Transpose": 1}


def test_a_sum_over_columns_goes_into_the_matrix() -> None:
    text = f"""graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {{
      {MATRIX}
      %s = constant tensor<4xint64> [2, 3, 2, 3]
      %a = constant tensor<1xint64> [3]
      %d = DotGeneral(%x, %w) {{{DOT}}}
      %r = Reshape(%d, %s)
      %y = Reduce(%r, %a) {{kind = "sum"}}
    }}"""
    assert op_counts(transformed(text, recognize)) == {"Contraction": 1}


def test_diagonal() -> None:
    text = """graph main(%x: tensor<2x3x3xfloat32>) -> (%y) {
      %s = constant tensor<2xint64> [2, 9]
      %a = constant tensor<2xint64> [0, 0]
      %e = constant tensor<2xint64> [2, 9]
      %n = constant tensor<2xint64> [1, 4]
      %r = Reshape(%x, %s)
      %y = Slice(%r, %a, %e, %n)
    }"""
    assert op_counts(transformed(text, recognize)) == {"Diagonal": 1}


def test_bounds_of_integers_are_a_clamp() -> None:
    text = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
      %low = constant tensor<float32> [-1.0]
      %high = constant tensor<float32> [2.0]
      %a = Max(%x, %low)
      %y = Min(%a, %high)
    }"""
    assert op_counts(transformed(text, recognize)) == {"Clamp": 1}


PHASES = """graph main(%x: tensor<1x8x6x2xfloat32>) -> (%y) {
  %p = constant tensor<2x2xint64> [2, 2, 2, 4]
  %c = constant tensor<2x2xint64> [0, 0, 0, 2]
  %w = constant tensor<3x3x3x2xfloat32> [NUMBERS]
  %v = constant tensor<3xfloat32> [0.5, 1.0, 2.0]
  %s = SpaceToBatch(%x, %p) {blocks = [2, 2]}
  %k = Conv(%s, %w) {input_feature_dimension = 3, input_spatial_dimensions = [1, 2], output_feature_dimension = 3, \
output_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 3, kernel_spatial_dimensions = [1, 2], \
window_strides = [STRIDE, STRIDE], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]}
""".replace("NUMBERS", ", ".join(str(i % 7 / 7) for i in range(54)))


def test_a_convolution_of_phases_is_a_dilated_one() -> None:
    head = PHASES.replace("STRIDE", "1")
    text = f"{head}  %a = Add(%k, %v)\n  %r = Relu(%a)\n  %y = BatchToSpace(%r, %c) {{blocks = [2, 2]}}\n}}"
    graph = transformed(text, recognize)
    assert op_counts(graph) == {"Conv": 1, "Relu": 1}
    conv = next(iter(graph.nodes))
    assert (conv.attr("rhs_dilation"), conv.attr("padding")) == ((2, 2), (2, 2, 2, 2))


def test_a_strided_convolution_of_phases_stays() -> None:
    head = PHASES.replace("STRIDE", "2").replace("[0, 0, 0, 2]", "[0, 0, 0, 0]")
    text = f"{head}  %y = BatchToSpace(%k, %c) {{blocks = [2, 2]}}\n}}"
    assert op_counts(transformed(text, recognize)) == {"SpaceToBatch": 1, "Conv": 1, "BatchToSpace": 1}
