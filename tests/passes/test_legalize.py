"""Legalization: casts that keep values, merged axes, and errors that name what cannot be done."""

import numpy as np
import pytest

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.rewriting.legalize import Target, legalize
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed

TARGET = TfliteTarget()
CHANNELS_LAST = (
    "input_feature_dimension = 3, input_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 3, "
    "kernel_spatial_dimensions = [1, 2], output_feature_dimension = 3, output_spatial_dimensions = [1, 2], "
    "window_strides = [1, 1], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]"
)


def legal(graph: Graph) -> None:
    legalize(graph, TARGET)
    assert all(TARGET.accepted(node) for node in graph.nodes)


def test_narrow_integers_are_added_in_wider_ones() -> None:
    text = """graph main(%x: tensor<3xint8>, %z: tensor<3xint8>) -> (%y) {
      %y = Add(%x, %z)
    }"""
    graph = transformed(text, legal)
    assert graph.outputs[0].dtype.value == "int8"
    assert op_counts(graph)["Convert"] == 3


def test_int64_is_never_narrowed() -> None:
    text = """graph main(%x: tensor<3xint64>) -> (%y) {
      %y = Abs(%x)
    }"""
    graph = transformed(text, legal)
    assert all(v.dtype.value != "int32" for n in graph.nodes for v in n.results)


def test_axes_are_merged_where_a_kernel_takes_fewer() -> None:
    """After layout assignment, in the order that it chose."""

    def late(graph: Graph) -> None:
        legalize(graph, TARGET)
        assert op_counts(graph)["Reshape"] == 0
        legalize(graph, TARGET, late=True)

    text = """graph main(%x: tensor<2x1x2x3x2x3x2x2xfloat32>, %z: tensor<1x1x1x3x2x3x2x2xfloat32>) -> (%y) {
      %y = SquaredDifference(%x, %z)
    }"""
    graph = transformed(text, late)
    assert max(v.rank for n in graph.nodes for v in n.results if n.op.name != "Reshape") < 8
    assert graph.outputs[0].shape == (2, 1, 2, 3, 2, 3, 2, 2)


def test_ops_without_a_kernel_are_decomposed() -> None:
    graph = transformed("graph main(%x: tensor<2x3xfloat32>) -> (%y) {\n %y = Erf(%x)\n}", legal)
    assert op_counts(graph)["Erf"] == 0


def test_what_cannot_be_done_is_named() -> None:
    graph = parse_graph("""graph main(%x: tensor<2xfloat8e4m3fn>) -> (%broken) {
      %broken = Convert(%x) {dtype = !float8e5m2}
    }""")
    with pytest.raises(UnsupportedError) as caught:
        legalize(graph, TARGET)
    assert "broken" in str(caught.value) and "float8e4m3fn" in str(caught.value)


def test_it_is_idempotent() -> None:
    graph = transformed("graph main(%x: tensor<2x3xfloat32>) -> (%y) {\n %y = Erf(%x)\n}", legal)
    before = list(graph.nodes)
    legalize(graph, TARGET)
    assert list(graph.nodes) == before


def written(graph: Graph, target: Target) -> list[str]:
    """The ops after late legalization; the ones of the target are those that it spells in another way."""
    legalize(graph, target)
    assert all(node.op.dialect == "neutral" for node in graph.nodes)
    legalize(graph, target, late=True)
    verify(graph, "after")
    return [node.op.name for node in graph.nodes]


def test_rows_of_indices_are_transposed_after_layout() -> None:
    graph = parse_graph("graph main(%x: tensor<2x3xbool>) -> (%y) {\n %y = NonZero(%x)\n}")
    assert written(graph, TARGET) == ["tfl.WHERE", "Transpose"]
    assert graph.outputs[0].shape[0] == 2


def test_the_shape_that_a_kernel_wants_is_computed_after_layout() -> None:
    spatial = ", ".join(f"{side}_spatial_dimensions = [1, 2]" for side in ("input", "kernel", "output"))
    last = "input_feature_dimension = 3, output_feature_dimension = 3"
    kernel = "kernel_input_feature_dimension = 3, kernel_output_feature_dimension = 0"
    window = "window_strides = [2, 2], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]"
    text = f"""graph main(%x: tensor<1x[n]x4x3xfloat32>, %k: tensor<5x2x2x3xfloat32>) -> (%y) {{
      %y = ConvTranspose(%x, %k) {{{spatial}, {last}, {kernel}, {window}}}
    }}"""
    names = written(parse_graph(text), TARGET)
    assert names[0] == "Shape" and names[-1] == "tfl.TRANSPOSE_CONV"


def test_padding_known_at_run_time_is_flat_in_onnx() -> None:
    text = "graph main(%x: tensor<2x3xfloat32>, %p: tensor<2x2xint64>) -> (%y) {\n %y = Pad(%x, %p)\n}"
    assert written(parse_graph(text), OnnxTarget()) == ["Transpose", "Reshape", "onnx.Pad"]


def test_gather_with_all_batch_dims_is_gather_elements() -> None:
    graph = parse_graph("""graph main(%x: tensor<2x5xfloat32>) -> (%y) {
      %i = constant tensor<2x3xint64> [0, 4, 1, 2, 2, 3]
      %y = Gather(%x, %i) {axis = 1, batch_dims = 1}
    }""")
    form = OnnxTarget().accepted(next(iter(graph.nodes)))
    assert form is not None and form.op == "GatherElements"


RUN = """graph main(%x: tensor<2x5x3xfloat32>) -> (%y) {
  %i = constant tensor<2xint32> [1, 2]
  %y = Gather(%x, %i) {axis = 1}
}"""
CLAMP = """graph main(%x: tensor<2x5xfloat32>) -> (%y) {
  %l = constant tensor<float32> [0.0]
  %h = constant tensor<float32> [1.0]
  %y = Clamp(%x, %l, %h)
}"""
PRODUCT = """graph main(%x: tensor<2x3xfloat32>) -> (%y, %z) {
  %w = constant tensor<5x3xfloat32> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
  %b = constant tensor<5xfloat32> [0.5, 1.5, 2.5, 3.5, 4.5]
  %p = DotGeneralBias(%x, %w, %b) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]}
  %s = constant tensor<2xint64> [2, 3]
  %y, %z = Split(%p, %s) {axis = 1}
}"""
TRANSPOSED = """graph main(%x: tensor<2x3xfloat32>) -> (%y, %z) {
  %w = constant tensor<3x5xfloat32> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
  %p = DotGeneral(%x, %w) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}
  %s = constant tensor<2xint64> [2, 3]
  %y, %z = Split(%p, %s) {axis = 1}
}"""
VOLUME = """graph main(%x: tensor<1x2x4x3x3xfloat32>) -> (%y) {
  %w = constant tensor<2x2x3x1x1xfloat32> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %y = Conv(%x, %w) {input_spatial_dimensions = [2, 3, 4], kernel_spatial_dimensions = [2, 3, 4],
    output_spatial_dimensions = [2, 3, 4], window_strides = [1, 1, 1], padding = [1, 0, 0, 1, 0, 0],
    rhs_dilation = [1, 1, 1]}
}"""
PLANES = VOLUME.replace("2x2x3x1x1", "2x2x3x2x1").replace("9, 10, 11, 12]", f"9, 10, 11, 12, {str([2] * 12)[1:]}")
STRIDED = PLANES.replace("window_strides = [1, 1, 1]", "window_strides = [2, 1, 1]")
"""Three taps, every second plane: XNNPACK has no slices with strides."""
PADDED = """graph main(%x: tensor<1x4x4x2xfloat32>) -> (%y) {
  %a = constant tensor<4x2xint64> [0, 0, 1, 1, 0, 1, 0, 0]
  %v = constant tensor<float32> [-1.0]
  %y = Pad(%x, %a, %v)
}"""


@pytest.mark.parametrize("text", [RUN, CLAMP, PADDED, PRODUCT, TRANSPOSED, VOLUME, PLANES, STRIDED])
def test_forms_that_the_delegate_computes_are_preferred(text: str) -> None:
    graph = transformed(text, legal)
    forms = [(node, TARGET.accepted(node)) for node in graph.nodes]
    assert all(form is not None and TARGET.delegates(node, form) for node, form in forms)


def test_what_the_delegate_cannot_compute_stays() -> None:
    graph = transformed(RUN.replace("2xint32> [1, 2]", "10xint32> [4, 3, 2, 1, 0, 4, 3, 2, 1, 0]"), legal)
    assert op_counts(graph) == {"Gather": 1}


def test_a_convolution_along_the_depth_of_a_volume_reads_it_once() -> None:
    counts = op_counts(transformed(VOLUME.replace("window_strides = [1", "window_strides = [2"), legal))
    assert counts["Conv"] == 1 and not counts.keys() & {"Slice", "Concatenate"}


def test_a_convolution_over_points_of_a_volume_reads_it_as_it_is() -> None:
    points = VOLUME.replace("2x2x3x1x1", "2x2x1x1x1").replace("5, 6, 7, 8, 9, 10, 11, 12", "")
    counts = op_counts(transformed(points.replace("4, ]", "4]").replace("[1, 0, 0, 1", "[0, 0, 0, 0"), legal))
    assert counts["Conv"] == 1 and not counts.keys() & {"Slice", "Concatenate", "Pad"}


@pytest.mark.parametrize(
    ("before", "after"),
    [("-> (%y, %z)", "-> (%y, %z, %p)"), ("{axis = 1}", "{axis = 0}"), ("[2, 3]\n", "[1, 4]\n  %q = Neg(%p)\n")],
)
def test_a_product_stays_whole_if_others_read_it_or_its_rows_are_split(before: str, after: str) -> None:
    rows = PRODUCT.replace("[2, 3]", "[1, 1]") if "axis" in before else PRODUCT
    graph = transformed(rows.replace(before, after), legal)
    assert op_counts(graph)["DotGeneralBias"] == 1


def test_elements_of_other_scales_are_rounded_before_they_are_joined() -> None:
    graph = parse_graph("""graph main(%x: tensor<1x2xfloat32, quant<int8 0.5:3>>,
                                   %z: tensor<1x2xfloat32, quant<int8 0.25:3>>) -> (%y) {
      %y = Concatenate(%x, %z) {axis = 1} : tensor<1x4xfloat32, quant<int8 0.5:3>>
    }""")
    legalize(graph, TARGET)
    assert op_counts(graph) == {"Convert": 1, "Concatenate": 1}
    assert {v.tensor_type.storage.value for node in graph.nodes for v in node.results} == {"int8"}


@pytest.mark.parametrize(
    ("x", "weights", "y", "converted"),
    [
        ("uint8 0.5:100", "int8 0.25:0", "uint8 2.0:7", 0),  # the weights become uint8 with zero point 128
        ("uint8 0.5:100", "int8 axis=0 0.25:0 0.25:0", "uint8 2.0:7", 2),
        ("int8 0.5:-28", "uint8 0.25:120", "int8 2.0:-121", 2),
        ("uint8 0.5:100", "int8 0.25:0", "int8 2.0:-121", 1),
        ("int8 0.5:-28", "int8 0.25:0", "uint8 2.0:7", 1),
    ],
)
def test_kernels_for_one_type_compute_on_int8_and_uint8(x: str, weights: str, y: str, converted: int) -> None:
    several = "axis=0 0.125:0 0.125:0" if "axis" in weights else "0.125:0"
    text = f"""graph main(%x: tensor<1x4x4x1xfloat32, quant<{x}>>) -> (%y) {{
      %w = constant tensor<2x1x1x1xfloat32, quant<{weights}>> [100, 20]
      %b = constant tensor<2xfloat32, quant<int32 {several}>> [1, 2]
      %y = Conv(%x, %w, %b) {{{CHANNELS_LAST}}} : tensor<1x4x4x2xfloat32, quant<{y}>>
    }}"""
    graph = parse_graph(text)
    legalize(graph, TARGET)
    (conv,) = (node for node in graph.nodes if node.op is ops.Conv)
    assert conv.operand(0).is_quantized and conv.result.is_quantized
    assert op_counts(graph).get("Convert", 0) == converted
    stored = np.random.default_rng(0).integers(0, 100, (1, 4, 4, 1)).astype(x.partition(" ")[0])
    np.testing.assert_array_equal(run(graph, [stored])[0], run(parse_graph(text), [stored])[0])


@pytest.mark.parametrize(
    ("x", "weights", "y"),
    [("int8 0.5:-28", "int8 0.25:0", "int16 0.25:0"), ("int16 0.0123:0", "int8 0.25:0", "int8 1.9:-121")],
)
def test_kernels_for_int16_read_and_write_8_bits(x: str, weights: str, y: str) -> None:
    text = f"""graph main(%x: tensor<1x4x4x1xfloat32, quant<{x}>>) -> (%y) {{
      %w = constant tensor<2x1x1x1xfloat32, quant<{weights}>> [100, 20]
      %y = Conv(%x, %w) {{{CHANNELS_LAST}}} : tensor<1x4x4x2xfloat32, quant<{y}>>
    }}"""
    graph = parse_graph(text)
    legalize(graph, TARGET)
    (conv,) = (node for node in graph.nodes if node.op is ops.Conv)
    assert conv.operand(0).is_quantized and conv.result.is_quantized
    stored = np.random.default_rng(0).integers(0, 100, (1, 4, 4, 1)).astype(x.split(maxsplit=1)[0])
    np.testing.assert_array_equal(run(graph, [stored])[0], run(parse_graph(text), [stored])[0])


def test_constants_of_8_bits_are_widened_beside_int16() -> None:
    text = """graph main(%x: tensor<2x3xfloat32, quant<int16 0.01:0>>) -> (%y) {
      %c = constant tensor<3xfloat32, quant<int8 0.25:3>> [100, 20, -128]
      %y = Mul(%x, %c) : tensor<2x3xfloat32, quant<int16 0.1:0>>
    }"""
    graph = parse_graph(text)
    legalize(graph, TARGET)
    assert op_counts(graph) == {"Mul": 1}
    stored = np.random.default_rng(0).integers(-1000, 1000, (2, 3)).astype(np.int16)
    np.testing.assert_array_equal(run(graph, [stored])[0], run(parse_graph(text), [stored])[0])


def test_products_of_quantized_rows_keep_their_bias_in_onnx() -> None:
    """ONNX Runtime fuses a Gemm with its bias between conversions, but no Add of a bias."""
    text = """graph main(%x: tensor<2x3x4xfloat32, quant<int8 0.5:3>>) -> (%y) {
      %w = constant tensor<5x4xfloat32, quant<int8 0.25:0>> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
18, 19, 20]
      %b = constant tensor<5xfloat32, quant<int32 0.125:0>> [1, 2, 3, 4, 5]
      %y = DotGeneralBias(%x, %w, %b) {lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]}
: tensor<2x3x5xfloat32, quant<int8 2.0:7>>
    }""".replace(",\n", ", ").replace("\n:", " :")
    graph = parse_graph(text)
    legalize(graph, OnnxTarget())
    assert op_counts(graph).keys() <= {"Reshape", "Convert", "DotGeneralBias"}
    (product,) = (node for node in graph.nodes if node.op is ops.DotGeneralBias)
    assert [user.result.is_quantized for user in product.result.users()] == [True]
    stored = np.random.default_rng(0).integers(-128, 128, (2, 3, 4)).astype(np.int8)
    np.testing.assert_array_equal(run(graph, [stored])[0], run(parse_graph(text), [stored])[0])


def test_rewrites_that_undo_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one chain of them, before as many steps as the whole graph may take."""
    depths: list[int] = []

    def undone(graph: Graph, node: Node, _target: Target, _late: bool, depth: int) -> list[Node]:
        depths.append(depth)
        builder = Builder(graph, node)
        graph.replace(node, builder.remade(node, *node.operands))
        return builder.created

    monkeypatch.setattr("onnxtfl.rewriting.legalize._step", undone)
    with pytest.raises(UnsupportedError, match="does not terminate"):
        legal(parse_graph("graph main(%x: tensor<2xfloat32>) -> (%y) {\n %y = Neg(%x)\n}"))
    assert len(depths) <= 300
