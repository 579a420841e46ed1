"""What passes do with quantized tensors: the same stored integers come out, or the graph is left alone.

Beside the texts here, every test that compares a float graph before and after a pass does so with its tensors quantized
(see :mod:`tests.passes.quantized`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from onnxtfl.errors import InternalError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import run
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.types import DType, tensor
from onnxtfl.ir.verify import VerifyError, verify
from onnxtfl.passes.boundary.parts import separate_outputs
from onnxtfl.passes.canonical.canonicalize import CANONICAL
from onnxtfl.passes.canonical.fold import fold
from onnxtfl.passes.canonical.merge_equal import merge_equal
from onnxtfl.passes.canonical.refine import refine
from onnxtfl.passes.canonical.unit_axes import sink_reshapes
from onnxtfl.passes.layout import assign_layouts
from onnxtfl.passes.tfl.fuse_activations import fuse_activations
from onnxtfl.passes.tfl.shared_memory import copy_overwritten
from onnxtfl.passes.types.floats import compute_in_float32, narrow_float64
from onnxtfl.rewriting.collapse import collapse
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, only_node, op_counts, random_inputs, recognize, simplify

Q = "quant<int8 0.5:0>"
HALF = "quant<int8 0.25:0>"
X = f"tensor<2x3x4xfloat32, {Q}>"


def same_integers(text: str, step: Callable[[Graph], object]) -> Graph:
    """The graph of `text` after `step`, whose outputs are exactly the same stored numbers of the same types."""
    graph = parse_graph(text)
    verify(graph, "before")
    inputs, types = random_inputs(graph), [v.type for v in graph.outputs]
    wanted = run(graph, inputs)
    step(graph)
    verify(graph, "after")
    assert [v.type for v in graph.outputs] == types
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return graph


def folded(body: str, step: Callable[[Graph], object] = fold) -> Value:
    """The constant that becomes of %y."""
    graph = parse_graph(f"graph main() -> (%y) {{\n{body}\n}}")
    step(graph)
    verify(graph, "after")
    return graph.outputs[0]


# --- canonical forms --------------------------------------------------------------------------------------------------

NOTHING = {
    "transposes that undo each other": (
        "%a = Transpose(%x) {permutation = [1, 2, 0]}\n %y = Transpose(%a) {permutation = [2, 0, 1]}"
    ),
    "reshape there and back": (
        "%s = constant tensor<2xint64> [6, 4]\n %t = constant tensor<3xint64> [2, 3, 4]\n"
        " %a = Reshape(%x, %s)\n %y = Reshape(%a, %t)"
    ),
    "convert to the same type": f"%y = Convert(%x) {{dtype = !float32}} : {X}",
    "plus zero": f"%z = constant tensor<float32> [0.0]\n %y = Add(%x, %z) : {X}",
    "slice of everything": (
        "%s = constant tensor<3xint64> [0, 0, 0]\n %e = constant tensor<3xint64> [2, 3, 4]\n"
        " %t = constant tensor<3xint64> [1, 1, 1]\n %y = Slice(%x, %s, %e, %t)"
    ),
    "concatenation of one": "%y = Concatenate(%x) {axis = 1}",
    "pad by nothing": f"%p = constant tensor<3x2xint64> [0, 0, 0, 0, 0, 0]\n %y = Pad(%x, %p) : {X}",
    "a choice that is known": f"%c = constant tensor<bool> [true]\n %y = Select(%c, %x, %x) : {X}",
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_left_where_the_scales_are_the_same(name: str) -> None:
    graph = same_integers(f"graph main(%x: {X}) -> (%y) {{\n {NOTHING[name]}\n}}", simplify)
    assert op_counts(graph) == {}


ROUNDING = {
    "convert": f"%y = Convert(%x) {{dtype = !float32}} : tensor<2x3x4xfloat32, {HALF}>",
    "dequantize": "%y = Convert(%x) {dtype = !float32} : tensor<2x3x4xfloat32>",
    "plus zero": f"%z = constant tensor<float32> [0.0]\n %y = Add(%x, %z) : tensor<2x3x4xfloat32, {HALF}>",
    "times one": "%z = constant tensor<float32> [1.0]\n %y = Mul(%x, %z) : tensor<2x3x4xfloat32>",
    "a choice that is known": (
        "%c = constant tensor<bool> [true]\n %z = constant tensor<float32> [0.0]\n"
        f" %y = Select(%c, %x, %z) : tensor<2x3x4xfloat32, {HALF}>"
    ),
    "by way of another scale": (
        f"%a = Convert(%x) {{dtype = !float32}} : tensor<2x3x4xfloat32, quant<int8 2.0:0>>\n"
        f" %y = Convert(%a) {{dtype = !float32}} : {X}"
    ),
    "by way of another type": (
        f"%a = Convert(%x) {{dtype = !float64}} : tensor<2x3x4xfloat64, quant<int8 2.0:0>>\n"
        f" %y = Convert(%a) {{dtype = !float32}} : {X}"
    ),
}


@pytest.mark.parametrize("name", ROUNDING)
def test_what_rounds_stays(name: str) -> None:
    text = f"graph main(%x: {X}) -> (%y) {{\n {ROUNDING[name]}\n}}"
    before = op_counts(parse_graph(text))
    after = op_counts(same_integers(text, simplify))
    assert after == before or (name == "plus zero" and after == {"Convert": 1})


def test_transposes_between_other_scales_are_not_a_graph_and_stay() -> None:
    text = f"""graph main(%x: {X}) -> (%y) {{
      %a = Transpose(%x) {{permutation = [1, 2, 0]}} : tensor<3x4x2xfloat32, {HALF}>
      %y = Transpose(%a) {{permutation = [2, 0, 1]}} : tensor<2x3x4xfloat32, {HALF}>
    }}"""
    graph = parse_graph(text)
    assert not CANONICAL.apply(graph)
    assert op_counts(graph) == {"Transpose": 2}
    with pytest.raises(VerifyError, match="Transpose"):
        verify(graph)


def test_scales_along_an_axis_move_with_it() -> None:
    text = """graph main(%x: tensor<2x3x1xfloat32, quant<int8 axis=1 0.5:0 0.25:1 2.0:0>>) -> (%y, %z, %w) {
      %a = Transpose(%x) {permutation = [1, 2, 0]}
      %y = Transpose(%a) {permutation = [1, 0, 2]}
      %z = Transpose(%x) {permutation = [0, 2, 1]}
      %s = constant tensor<2xint64> [2, 3]
      %w = Reshape(%x, %s)
    }"""
    graph = same_integers(text, simplify)
    axes = [v.tensor_type.quantization.axis for v in graph.outputs if v.tensor_type.quantization is not None]
    assert axes == [1, 2, 1]
    assert op_counts(graph) == {"Transpose": 1, "Reshape": 2}


def test_a_reshape_that_tears_the_axis_gives_real_numbers() -> None:
    text = """graph main(%x: tensor<2x3xfloat32, quant<int8 axis=1 0.5:0 0.25:1 2.0:0>>) -> (%y) {
      %s = constant tensor<1xint64> [6]
      %t = constant tensor<2xint64> [2, 3]
      %a = Reshape(%x, %s)
      %y = Reshape(%a, %t)
    }"""
    graph = same_integers(text, simplify)
    assert op_counts(graph) == {"Reshape": 2} and not graph.outputs[0].is_quantized


# --- folding and merging ----------------------------------------------------------------------------------------------


def test_folding_computes_with_real_numbers() -> None:
    constants = f"%a = constant tensor<2xfloat32, {Q}> [2, 4]\n %one = constant tensor<float32> [1.0]\n"
    y = folded(f"{constants} %y = Add(%a, %one)")
    assert y.numpy().tolist() == [2.0, 3.0] and not y.is_quantized
    y = folded(f"{constants} %y = Add(%a, %one) : tensor<2xfloat32, {Q}>")
    assert y.stored().tolist() == [4, 6] and y.numpy().tolist() == [2.0, 3.0]
    y = folded(f"{constants} %y = Add(%a, %one) : tensor<2xfloat32, quant<uint8 0.0625:3>>")
    assert y.stored().tolist() == [35, 51]


def test_constants_move_with_their_scales() -> None:
    stored = "tensor<2x3xfloat32, quant<int8 axis=0 0.5:0 0.25:1>>"
    y = folded(f"%a = constant {stored} [1, 2, 3, 4, 5, 6]\n %y = Transpose(%a) {{permutation = [1, 0]}}")
    assert y.tensor_type.quantization == Quantization("int8", (0.5, 0.25), (0, 1), 1)
    assert y.numpy().tolist() == [[0.5, 0.75], [1.0, 1.0], [1.5, 1.25]]


def test_big_weights_stay_lazy_and_quantized() -> None:
    text = """graph main(%x: tensor<256x300xfloat32, quant<int8 axis=0 SCALES>>) -> (%y) {
      %y = Transpose(%x) {permutation = [1, 0]}
    }""".replace("SCALES", " ".join(f"{i + 1}.0:0" for i in range(256)))
    graph = parse_graph(text)
    (x,) = graph.inputs
    stored = np.random.default_rng(0).integers(-128, 128, (256, 300), np.int8)
    weight = Builder(graph).value(stored)
    assert weight is not None
    weight.type = x.type
    graph.substitute(x, weight)
    graph.inputs = []
    fold(graph)
    (y,) = graph.outputs
    assert y.is_constant and y.tensor_type.quantization is not None and y.tensor_type.quantization.axis == 1
    np.testing.assert_array_equal(y.numpy(), weight.numpy().T)


def test_equal_bytes_of_other_scales_are_not_equal() -> None:
    text = f"""graph main(%x: tensor<2xfloat32>) -> (%y, %z) {{
      %a = constant tensor<2xfloat32, {Q}> [2, 4]
      %b = constant tensor<2xfloat32, {HALF}> [2, 4]
      %c = constant tensor<2xfloat32, {HALF}> [2, 4]
      %p = Add(%x, %a)
      %q = Add(%x, %b)
      %r = Add(%x, %c)
      %s = Exp(%x) : tensor<2xfloat32, {Q}>
      %t = Exp(%x) : tensor<2xfloat32, {HALF}>
      %u = Exp(%x) : tensor<2xfloat32, {HALF}>
      %y = Concatenate(%p, %q, %r) {{axis = 0}}
      %z = Concatenate(%s, %t, %u) {{axis = 0}}
    }}"""
    assert op_counts(same_integers(text, merge_equal)) == {"Add": 2, "Exp": 2, "Concatenate": 2}


# --- fusing and recognizing -------------------------------------------------------------------------------------------


def test_a_rounded_convolution_keeps_what_comes_after_it() -> None:
    text = f"""graph main(%x: tensor<1x1x4x4xfloat32>) -> (%y, %z) {{
      %w = constant tensor<1x1x1x1xfloat32> [0.3]
      %k = constant tensor<1x1x1x1xfloat32, {Q}> [3]
      %c = constant tensor<float32> [0.7]
      %a = Conv(%x, %w) {{{CONV2D}}} : tensor<1x1x4x4xfloat32, {Q}>
      %y = Mul(%a, %c)
      %b = Conv(%x, %k) {{{CONV2D}}}
      %z = Mul(%b, %c)
    }}"""
    assert op_counts(same_integers(text, simplify)) == {"Conv": 2, "Mul": 2}


def test_a_rounded_sum_keeps_its_formula() -> None:
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %three = constant tensor<float32> [3.0]
      %zero = constant tensor<float32> [0.0]
      %six = constant tensor<float32> [6.0]
      %a = Add(%x, %three) : tensor<4xfloat32, {Q}>
      %c = Clamp(%a, %zero, %six)
      %p = Mul(%x, %c)
      %y = Div(%p, %six)
    }}"""
    assert op_counts(same_integers(text, simplify)) == {"Add": 1, "Clamp": 1, "Mul": 1, "Div": 1}


def test_rounded_statistics_are_no_normalization() -> None:
    text = f"""graph main(%x: tensor<2x4xfloat32>) -> (%y) {{
      %axes = constant tensor<1xint64> [1]
      %e = constant tensor<float32> [0.001]
      %m = Reduce(%x, %axes) {{kind = "mean", keepdims = true}} : tensor<2x1xfloat32, {Q}>
      %d = Sub(%x, %m)
      %s = Mul(%d, %d)
      %v = Reduce(%s, %axes) {{kind = "mean", keepdims = true}}
      %t = Add(%v, %e)
      %r = Rsqrt(%t)
      %y = Mul(%d, %r)
    }}"""
    before = op_counts(parse_graph(text))
    assert op_counts(same_integers(text, recognize)) == before


def test_a_formula_with_a_rounded_part_is_not_recognized() -> None:
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %two = constant tensor<float32> [2.0]
      %a = Elu(%x) {{alpha = 1.5}} : tensor<4xfloat32, {Q}>
      %y = Mul(%a, %two)
    }}"""
    assert op_counts(same_integers(text, recognize)) == {"Elu": 1, "Mul": 1}


# --- shape arithmetic, conditions, regions ----------------------------------------------------------------------------


def test_stored_integers_are_no_sizes() -> None:
    text = f"""graph main(%x: tensor<6xfloat32, {Q}>) -> (%y, %z) {{
      %v = constant tensor<3xfloat32, {Q}> [2, 3, 1]
      %p = constant tensor<2xint64> [0, 1]
      %q = constant tensor<1xint64> [1]
      %a = Gather(%x, %p) {{axis = 0}}
      %y = Gather(%a, %q) {{axis = 0}}
      %z = Gather(%v, %p) {{axis = 0}}
    }}"""
    graph = same_integers(text, simplify)
    assert graph.outputs[1].is_constant and graph.outputs[1].known is None
    assert graph.outputs[1].numpy().tolist() == [1.0, 1.5]


def test_unsigned_storage_may_mean_negative_numbers() -> None:
    text = """graph main(%x: tensor<4xfloat32, quant<uint8 0.5:128>>) -> (%y, %z) {
      %zero = constant tensor<float32> [0.0]
      %y = Compare(%x, %zero) {comparison_direction = "LT"}
      %a = Compare(%x, %zero) {comparison_direction = "EQ"}
      %z = Not(%a)
    }"""
    graph = same_integers(text, simplify)
    assert not any(v.is_constant for v in graph.outputs)


BRANCH = """graph one(%a: tensor<4xfloat32, quant<int8 0.5:0>>) -> (%r) {
    %two = constant tensor<float32> [2.0]
    %r = Mul(%a, %two) : tensor<4xfloat32, quant<int8 0.25:0>>
  }"""


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_keeps_how_its_results_are_stored(known: bool) -> None:
    condition = "%c = constant tensor<bool> [true]" if known else "%c = Not(%p)"
    text = f"""graph main(%p: tensor<bool>, %x: tensor<4xfloat32, {Q}>) -> (%y) {{
      {condition}
      %y = If(%c, %x) {{then_branch = {BRANCH}, else_branch = {BRANCH.replace("graph one", "graph two")}}}
    }}"""
    graph = same_integers(text, simplify)
    assert op_counts(graph)["If"] == (not known)


# --- axes and layout --------------------------------------------------------------------------------------------------


def test_merged_axes_that_are_rounded_stay() -> None:
    text = f"""graph main(%x: tensor<1x32x8x8xfloat32>) -> (%y) {{
      %s = constant tensor<3xint64> [1, 4, 512]
      %t = constant tensor<4xint64> [1, 32, 8, 8]
      %axes = constant tensor<1xint64> [2]
      %r = Reshape(%x, %s)
      %m = Reduce(%r, %axes) {{kind = "mean", keepdims = true}} : tensor<1x4x1xfloat32, {Q}>
      %d = Sub(%r, %m)
      %y = Reshape(%d, %t)
    }}"""
    graph = same_integers(text, refine)
    assert [n.result.rank for n in graph.nodes if n.op is ops.Reshape] == [3, 4]


def test_unit_reshapes_sink_through_quantized_ops() -> None:
    text = f"""graph main(%x: tensor<1x4x1x9xfloat32, {Q}>) -> (%y) {{
      %s = constant tensor<3xint64> [1, 4, 9]
      %t = constant tensor<4xint64> [1, 4, 1, 11]
      %p = constant tensor<3x2xint64> [0, 0, 0, 0, 2, 0]
      %k = constant tensor<1x4x1xfloat32, quant<int8 axis=1 0.5:0 0.25:0 1.0:0 2.0:1>> [1, 2, 3, 4]
      %r = Reshape(%x, %s)
      %m = Mul(%r, %k) : tensor<1x4x9xfloat32, {HALF}>
      %q = Pad(%m, %p) : tensor<1x4x11xfloat32, {HALF}>
      %y = Reshape(%q, %t)
    }}"""
    graph = same_integers(text, sink_reshapes)
    assert op_counts(graph) == {"Mul": 1, "Pad": 1}


def channels_last(graph: Graph) -> None:
    assign_layouts(graph, TfliteTarget())


def test_layout_moves_scales_with_their_axes() -> None:
    text = f"""graph main(%x: tensor<2x3x8x8xfloat32, {Q}>) -> (%y) {{
      %w = constant tensor<2x3x1x1xfloat32, quant<int8 axis=0 0.5:0 0.125:0>> [1, -2, 3, 4, 5, -6]
      %a = Conv(%x, %w) {{{CONV2D}}} : tensor<2x2x8x8xfloat32, {HALF}>
      %b = Relu(%a) : tensor<2x2x8x8xfloat32, {HALF}>
      %c = constant tensor<2x1x1xfloat32, quant<int8 axis=0 0.5:0 0.25:1>> [7, 9]
      %d = Add(%b, %c) : tensor<2x2x8x8xfloat32, {Q}>
      %y = Concatenate(%d, %d) {{axis = 1}}
    }}"""
    graph = same_integers(text, channels_last)
    assert op_counts(graph)["Transpose"] == 2
    conv = only_node(graph, "Conv")
    kernel = conv.operand(1).tensor_type
    assert kernel.quantization is not None
    assert kernel.quantization.axis == conv.attr("kernel_output_feature_dimension")
    assert kernel.shape is not None and kernel.shape[kernel.quantization.axis] == 2


def test_blocks_are_permuted() -> None:
    text = f"""graph main(%x: tensor<1x2x2x2xfloat32>) -> (%y) {{
      %w = constant tensor<2x4x1x1xfloat32, quant<int8 axis=1 block=2 0.5:0 0.25:0 2.0:0 1.0:1>>
        [1, 2, 3, 4, 5, 6, 7, 8]
      %t = constant tensor<4xint64> [0, 2, 3, 1]
      %c = Concatenate(%x, %x) {{axis = 1}}
      %y = Conv(%c, %w) {{{CONV2D}}}
    }}"""
    graph = same_integers(text, channels_last)
    conv = only_node(graph, "Conv")
    assert conv.operand(1).tensor_type.quantization is not None
    verify(graph)


# --- tfl to tfl, floats -----------------------------------------------------------------------------------------------


def test_fused_activations_leave_integer_kernels_alone() -> None:
    text = f"""graph main(%x: tensor<4xfloat32, {Q}>) -> (%y) {{
      %a = tfl.ADD@1(%x, %x) {{fused_activation_function = "NONE"}} : tensor<4xfloat32, {Q}>
      %y = tfl.RELU6@1(%a) : tensor<4xfloat32, {HALF}>
    }}"""
    graph = parse_graph(text)
    fuse_activations(graph, TfliteTarget())
    assert print_graph(graph) == print_graph(parse_graph(text))


def test_copies_are_stored_as_the_original() -> None:
    t = f"tensor<2x3x6xfloat32, {Q}>"
    text = f"""graph main(%x: {t}) -> (%y, %z) {{
      %s = constant tensor<2xint32> [6, 6]
      %a = tfl.NEG@1(%x) : {t}
      %t = tfl.ADD@1(%a, %x) : {t}
      %r = tfl.RESHAPE@1(%t, %s) : tensor<6x6xfloat32, {Q}>
      %d = tfl.DIV@1(%r, %r) : tensor<6x6xfloat32, {Q}>
      %y = tfl.NEG@1(%d) : tensor<6x6xfloat32, {Q}>
      %z = tfl.NEG@1(%t) : {t}
    }}"""
    graph = parse_graph(text)
    copy_overwritten(graph, TfliteTarget())
    quantized = {str(v.type) for n in graph.nodes for v in n.results}
    assert all(Q in type_ for type_ in quantized)


def test_narrowed_floats_stay_stored_as_they_are() -> None:
    text = f"""graph main(%x: tensor<4xDTYPE, {Q}>) -> (%y) {{
      %c = constant tensor<4xDTYPE, {HALF}> [1, 2, 3, 4]
      %y = Add(%x, %c) : tensor<4xDTYPE, {Q}>
    }}"""
    for dtype, step in (("float64", lambda g: narrow_float64(g, "narrow")), ("float16", compute_in_float32)):
        graph = parse_graph(text.replace("DTYPE", dtype))
        wanted = run(graph, random_inputs(graph))
        step(graph)
        verify(graph)
        values = [*graph.inputs, *graph.outputs, *(v for n in graph.nodes for v in n.present_operands)]
        assert {v.dtype for v in values} == {DType.FLOAT32} and all(v.is_quantized for v in values)
        np.testing.assert_array_equal(run(graph, random_inputs(graph))[0], wanted[0])


# --- the driver and the verifier --------------------------------------------------------------------------------------


def test_a_rewrite_to_another_type_is_an_error_of_the_driver() -> None:
    patterns = Patterns()

    @patterns.on(ops.Relu, quantized=True)
    def _forgets(b: Builder, node: Node) -> Value:
        return b(ops.Abs, node.operand(0))

    def applied(type_: str) -> None:
        patterns.apply(parse_graph(f"graph main(%x: tensor<4xfloat32>) -> (%y) {{\n %y = Relu(%x) : {type_}\n}}"))

    applied("tensor<[n]xfloat32>")
    with pytest.raises(InternalError, match=r"quant<int8 0.5:0>> would be replaced by tensor<4xfloat32>.*'y' Relu"):
        applied(f"tensor<4xfloat32, {Q}>")


def test_patterns_see_quantized_nodes_only_where_they_ask() -> None:
    patterns, seen = Patterns(), []

    @patterns.on(ops.Relu)
    def _plain(b: Builder, node: Node) -> None:
        seen.append("plain")

    @patterns.on(ops.Relu, quantized=True)
    def _asking(b: Builder, node: Node) -> None:
        seen.append("asking")

    patterns.apply(parse_graph(f"graph main(%x: tensor<4xfloat32, {Q}>) -> (%y) {{\n %y = Relu(%x)\n}}"))
    assert seen == ["asking"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"%y = Transpose(%x) {{permutation = [1, 0]}} : tensor<3x2xfloat32, {HALF}>", "Transpose"),
        ("%y = Transpose(%x) {permutation = [1, 0]} : tensor<3x2xfloat32>", "Transpose"),
        (f"%y = Concatenate(%x, %x) {{axis = 0}} : tensor<4x3xfloat32, {HALF}>", "Concatenate"),
        ("%y = Relu(%x) : tensor<2x3xfloat32, quant<int8 axis=1 0.5:0 0.25:0>>", "scales"),
        (f'%y = Compare(%x, %x) {{comparison_direction = "LT"}} : tensor<2x3xbool, {Q}>', "scales"),
    ],
)
def test_the_verifier_compares_whole_types(body: str, message: str) -> None:
    graph = parse_graph(f"graph main(%x: tensor<2x3xfloat32, {Q}>) -> (%y) {{\n {body}\n}}")
    with pytest.raises(VerifyError, match=message):
        verify(graph)


def test_what_is_not_moved_declares_how_it_is_stored() -> None:
    text = f"""graph main(%x: tensor<2x3xfloat32, {Q}>, %z: tensor<2x3xfloat32, {HALF}>) -> (%a, %b, %c, %d) {{
      %a = Relu(%x) : tensor<2x3xfloat32, {HALF}>
      %b = Relu(%x)
      %c = Concatenate(%x, %z) {{axis = 0}} : tensor<4x3xfloat32, quant<uint8 0.125:7>>
      %d = Concatenate(%x, %x) {{axis = 0}}
    }}"""
    graph = parse_graph(text)
    verify(graph)
    assert [v.is_quantized for v in graph.outputs] == [True, False, True, True]
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_moved_integers_are_exact() -> None:
    text = """graph main(%x: tensor<2x2xfloat32, quant<int32 0.001:0>>) -> (%y, %z) {
      %p = constant tensor<2xint64> [1, 0]
      %a = Transpose(%x) {permutation = [1, 0]}
      %y = Gather(%a, %p) {axis = 0}
      %z = Concatenate(%a, %x) {axis = 0}
    }"""
    x = np.asarray([[2**31 - 1, -(2**31)], [123456789, 16777217]], np.int32)
    y, z = run(parse_graph(text), [x])
    np.testing.assert_array_equal(y, x.T[[1, 0]])
    np.testing.assert_array_equal(z, np.concatenate([x.T, x]))


def test_rounded_formulas_are_not_recognized() -> None:
    """What TFLite has for Softplus, each intermediate tensor of it quantized in turn."""
    x = np.linspace(-4, 4, 8, dtype=np.float32)

    def formula() -> Graph:
        graph = Graph()
        graph.outputs = [Builder(graph)(ops.Softplus, graph.add_input(tensor("float32", 8), "x"), threshold=np.inf)]
        legalize(graph, TfliteTarget())
        return graph

    for i, node in enumerate(formula().nodes):
        graph = formula()
        value = list(graph.nodes)[i].result
        assert node.result.type == value.type
        value.type = value.tensor_type.stored_as(Quantization("int8", (0.125,), (0,)))
        verify(graph)
        (wanted,) = run(graph, [x])
        recognize(graph)
        assert "Softplus" not in op_counts(graph)
        np.testing.assert_array_equal(run(graph, [x])[0], wanted)


def test_merged_axes_of_quantized_arithmetic() -> None:
    text = f"""graph main(%x: tensor<2x3x4x5xfloat32, {Q}>, %z: tensor<1x1x4x5xfloat32, {HALF}>) -> (%y) {{
      %y = Add(%x, %z) : tensor<2x3x4x5xfloat32, quant<uint8 0.75:9>>
    }}"""

    def collapsed(graph: Graph) -> None:
        (node,) = graph.nodes
        graph.replace(node, collapse(Builder(graph, node), node, 2) or [])

    assert op_counts(same_integers(text, collapsed)) == {"Reshape": 3, "Add": 1}


def test_outputs_of_their_own_are_stored_alike() -> None:
    graph = parse_graph(f"graph main(%x: {X}) -> (%x, %x) {{\n}}")
    types = [v.type for v in graph.outputs]
    separate_outputs(graph)
    verify(graph)
    assert op_counts(graph) == {"Copy": 2} and [v.type for v in graph.outputs] == types


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_decompositions_of_quantized_ops_declare_their_results(alpha: float) -> None:
    """What a target does not accept is a formula over real numbers, whose last op rounds; kernels may be missing."""
    text = f"""graph main(%x: tensor<2x3xfloat32, {Q}>) -> (%y) {{
      %y = Celu(%x) {{alpha = {alpha}}} : tensor<2x3xfloat32, {HALF}>
    }}"""
    graph = parse_graph(text)
    inputs = random_inputs(graph)
    wanted = run(graph, inputs)
    with contextlib.suppress(UnsupportedError):
        legalize(graph, TfliteTarget())
    verify(graph)
    assert "Celu" not in op_counts(graph)
    assert sum(v.is_quantized for n in graph.nodes for v in n.results) == 1
    assert np.abs(run(graph, inputs)[0].astype(int) - wanted[0]).max() <= 1
