"""Layout: transposes are where a hand would write them, and nowhere else."""

import gc
import itertools
from typing import cast

import pytest

from onnxtfl.errors import UsageError
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.layout import IoLayout, IoLayouts, assign_layouts, program
from onnxtfl.targets import Target
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts, transformed


def channels_last(graph: Graph) -> None:
    assign_layouts(graph, TfliteTarget())


def moved(graph: Graph) -> None:
    assign_layouts(graph, TfliteTarget(), io_layout="channels-last")


CHAIN = f"""graph main(%x: tensor<2x8x12x12xfloat32>, %w: tensor<16x8x3x3xfloat32>, %v: tensor<16x16x1x1xfloat32>)
    -> (%y) {{
  %a = Conv(%x, %w) {{{CONV2D}}}
  %b = Conv(%a, %v) {{{CONV2D}}}
  %c = Concatenate(%a, %b) {{axis = 1}}
  %s = constant tensor<4xint64> [0, 1, 0, 0]
  %e = constant tensor<4xint64> [2, 31, 10, 10]
  %t = constant tensor<4xint64> [1, 2, 1, 1]
  %y = Slice(%c, %s, %e, %t)
}}"""


def test_a_program_whose_relaxation_is_not_integral() -> None:
    """Two of three columns are 1 if one of each pair is; without integrality, each is a half."""
    triangle = program._Program()
    columns = [triangle.column(1.0, True) for _ in range(3)]
    for left, right in itertools.combinations(columns, 2):
        triangle.at_least(1.0, {left: 1.0, right: 1.0})
    assert sorted(round(value, 3) for value in triangle.solve()) == [0, 1, 1]


@pytest.mark.parametrize("narrow", ["float16", "uint16"])
def test_transposes_are_where_a_kernel_takes_the_type(narrow: str) -> None:
    """Of half as many bytes, but the target would convert them to be transposed, and back."""
    wide = {"float16": "float32", "uint16": "int32"}[narrow]
    graph = transformed(
        f"graph main(%x: tensor<1x8x6x6x{narrow}>) -> (%y) {{\n"
        f"  %a = Convert(%x) {{dtype = !{wide}}}\n"
        '  %b = DepthToSpace(%a) {block_size = 2, mode = "DCR"}\n'
        f"  %y = Convert(%b) {{dtype = !{narrow}}}\n}}",
        channels_last,
    )
    moves = [n for n in graph.nodes if n.op.name == "Transpose"]
    assert [n.operand(0).dtype.value for n in moves] == [wide, wide]


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """What is printed is the report of a conversion, which may be JSON."""
    transformed(CHAIN, channels_last)
    assert capfd.readouterr() == ("", "")


def test_a_chain_of_convolutions_moves_at_its_ends_only() -> None:
    graph = transformed(CHAIN, channels_last)
    moves = [n for n in graph.nodes if n.op.name == "Transpose" and n.operand(0).name not in ("w", "v")]
    assert [n.attr("permutation") for n in moves] == [(0, 2, 3, 1), (0, 3, 1, 2)]


def test_moved_inputs_and_outputs_need_no_transpose() -> None:
    graph = parse_graph(CHAIN)
    moved(graph)
    assert op_counts(graph)["Transpose"] == 0
    assert [v.shape for v in graph.inputs] == [(2, 12, 12, 8), (16, 3, 3, 8), (16, 1, 1, 16)]
    assert graph.outputs[0].shape == (2, 10, 10, 15)


def test_flatten_before_a_matmul_takes_the_permutation_into_the_weight() -> None:
    text = f"""graph main(%x: tensor<2x3x2x2xfloat32>) -> (%y) {{
      %w = constant tensor<2x3x1x1xfloat32> [1, 2, 3, 4, 5, 6]
      %a = Conv(%x, %w) {{{CONV2D}}}
      %m = constant tensor<2x2x2x3xfloat32> [{", ".join(map(str, range(24)))}]
      %y = DotGeneral(%a, %m) {{lhs_contracting_dimensions = [1, 2, 3], rhs_contracting_dimensions = [0, 1, 2]}}
    }}"""
    assert op_counts(transformed(text, channels_last))["Transpose"] == 1


def test_transposes_of_the_model_cancel_with_those_of_the_layout() -> None:
    text = f"""graph main(%x: tensor<2x8x8x3xfloat32>, %w: tensor<4x3x1x1xfloat32>) -> (%y) {{
      %t = Transpose(%x) {{permutation = [0, 3, 1, 2]}}
      %a = Conv(%t, %w) {{{CONV2D}}}
      %y = Transpose(%a) {{permutation = [0, 2, 3, 1]}}
    }}"""
    graph = transformed(text, channels_last)
    assert op_counts(graph)["Transpose"] == 0


def test_a_transpose_is_paid_once_for_all_readers() -> None:
    text = f"""graph main(%x: tensor<2x3x8x8xfloat32>, %w: tensor<4x3x1x1xfloat32>, %v: tensor<4x3x1x1xfloat32>)
        -> (%a, %b) {{
      %a = Conv(%x, %w) {{{CONV2D}}}
      %b = Conv(%x, %v) {{{CONV2D}}}
    }}"""
    graph = transformed(text, channels_last)
    assert sum(n.op.name == "Transpose" and n.operand(0).name == "x" for n in graph.nodes) == 1


def test_the_cheaper_side_of_a_concatenation_moves() -> None:
    """The big tensor stays as the convolution made it; the small one, which came as it is, is transposed."""
    text = f"""graph main(%x: tensor<1x8x32x32xfloat32>, %s: tensor<1x1x32x32xfloat32>) -> (%y) {{
      %w = constant tensor<8x8x1x1xfloat32> [{", ".join("1" * 64)}]
      %a = Conv(%x, %w) {{{CONV2D}}}
      %c = Concatenate(%a, %s) {{axis = 1}}
      %k = constant tensor<1x9x1x1xfloat32> [{", ".join("1" * 9)}]
      %y = Conv(%c, %k) {{{CONV2D}}}
    }}"""
    graph = transformed(text, channels_last)
    assert [n.operand(0).name for n in graph.nodes if n.op.name == "Transpose"] == ["x"]


def test_symbolic_batch_is_kept() -> None:
    text = f"""graph main(%x: tensor<[n]x3x8x8xfloat32>, %w: tensor<4x3x1x1xfloat32>) -> (%y) {{
      %a = Conv(%x, %w) {{{CONV2D}}}
      %s = constant tensor<3xint64> [-1, 4, 64]
      %y = Reshape(%a, %s)
    }}"""
    graph = transformed(text, channels_last)
    assert str(graph.outputs[0].shape[0]) == "n"


def test_a_model_without_a_preference_is_left_alone() -> None:
    text = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
      %y = Concatenate(%x, %x) {axis = 1}
    }"""
    graph = transformed(text, channels_last)
    assert op_counts(graph) == {"Concatenate": 1}


@pytest.mark.parametrize("rank", [3, 5])
def test_other_ranks(rank: int) -> None:
    n = rank - 2
    axes = ", ".join(str(i + 2) for i in range(n))
    conv = (
        f"input_spatial_dimensions = [{axes}], kernel_spatial_dimensions = [{axes}], "
        f"output_spatial_dimensions = [{axes}], "
        f"window_strides = [{', '.join('1' * n)}], padding = [{', '.join('0' * 2 * n)}], "
        f"rhs_dilation = [{', '.join('1' * n)}]"
    )
    text = f"""graph main(%x: tensor<2x3{"x4" * n}xfloat32>, %w: tensor<5x3{"x2" * n}xfloat32>) -> (%y) {{
      %y = Conv(%x, %w) {{{conv}}}
    }}"""
    assert op_counts(transformed(text, channels_last))["Conv"] == 1


def test_the_operand_of_a_transpose_of_unknown_rank_keeps_its_order() -> None:
    text = """graph main(%x: tensor<*xfloat32>) -> (%y) {
      %e = Exp(%x)
      %t = Transpose(%e) {permutation = [2, 0, 1]}
      %y = Transpose(%t) {permutation = [0, 2, 1]}
    }"""
    graph = parse_graph(text)
    channels_last(graph)
    assert op_counts(graph)["Exp"] == 1


FIRST, LAST = (1, 3, 8, 4), (1, 8, 4, 3)


def convolved(*, transposed: bool, rank: int = 4) -> str:
    """An image that a convolution reads as it is, or transposed to channels-first; the result in the same order."""
    spatial = ", ".join(map(str, range(2, rank)))
    ones, zeros = ", ".join("1" * (rank - 2)), ", ".join("0" * (2 * rank - 4))
    attributes = (
        f"input_spatial_dimensions = [{spatial}], kernel_spatial_dimensions = [{spatial}], "
        f"output_spatial_dimensions = [{spatial}], window_strides = [{ones}], padding = [{zeros}], "
        f"rhs_dilation = [{ones}]"
    )
    sizes = [1, 3, 8, 4, 5][:rank]
    first = ", ".join(map(str, [0, rank - 1, *range(1, rank - 1)]))
    last = ", ".join(map(str, [0, *range(2, rank), 1]))
    shape = "x".join(map(str, [sizes[0], *sizes[2:], sizes[1]] if transposed else sizes))
    filter_ = "x".join(["2", "3", *["1"] * (rank - 2)])
    lines = [
        f"%t = Transpose(%r) {{permutation = [{first}]}}" if transposed else "%t = Relu(%r)",
        f"%w = constant tensor<{filter_}xfloat32> [1, 2, 3, 4, 5, 6]",
        f"%c = Conv(%t, %w) {{{attributes}}}",
        f"%y = Transpose(%c) {{permutation = [{last}]}}" if transposed else "%y = Relu(%c)",
    ]
    return f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n  %r = Abs(%x)\n  " + "\n  ".join(lines) + "\n}"


TARGETS = pytest.mark.parametrize("target", [TfliteTarget(), OnnxTarget(21)], ids=["tflite", "onnx"])


@TARGETS
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("transposed", [False, True], ids=["channels-first", "channels-last"])
@pytest.mark.parametrize("layout", ["channels-first", "channels-last"])
def test_inputs_and_outputs_have_a_layout_whatever_they_had(
    target: Target, rank: int, transposed: bool, layout: IoLayout
) -> None:
    graph = parse_graph(convolved(transposed=transposed, rank=rank))
    assign_layouts(graph, target, io_layout=layout)
    batch, channels, *spatial = [1, 3, 8, 4, 5][:rank]
    first = layout == "channels-first"
    assert list(graph.inputs[0].shape) == ([batch, channels, *spatial] if first else [batch, *spatial, channels])
    assert list(graph.outputs[0].shape) == ([batch, 2, *spatial] if first else [batch, *spatial, 2])
    kernels_want_it = target.channels_last != first
    assert "Transpose" not in op_counts(graph) or not kernels_want_it


@pytest.mark.parametrize(
    ("target", "layout", "moved"),
    [
        (TfliteTarget(), "channels-last", LAST),
        (TfliteTarget(), "channels-first", FIRST),
        (OnnxTarget(21), "channels-last", FIRST),
        (OnnxTarget(21), "channels-first", (1, 4, 3, 8)),
    ],
)
def test_where_no_op_says_which_axis_holds_channels(target: Target, layout: IoLayout, moved: tuple[int, ...]) -> None:
    """An image of ONNX is channels-first, one of TFLite is channels-last; a sequence of tokens stays."""
    text = "graph main(%x: tensor<1x3x8x4xfloat32>, %s: tensor<1x16x8xfloat32>) -> (%y, %z) {\n  %y = Abs(%x)\n"
    graph = parse_graph(text + "  %z = Abs(%s)\n}")
    assign_layouts(graph, target, io_layout=layout)
    assert graph.inputs[0].shape == graph.outputs[0].shape == moved
    assert graph.inputs[1].shape == graph.outputs[1].shape == (1, 16, 8)


def test_only_the_named_inputs_and_outputs_are_moved() -> None:
    text = """graph main(%x: tensor<1x8x4x3xfloat32>, %m: tensor<1x16x8xfloat32>) -> (%y, %z) {
      %y = Abs(%x)
      %z = Neg(%m)
    }"""
    moved = {}
    for names in ({"x": "channels-first"}, {"m": "channels-first"}, {"*": "channels-first", "m": "source"}):
        graph = parse_graph(text)
        assign_layouts(graph, OnnxTarget(21), io_layout=cast(IoLayouts, names))
        moved[(*names,)] = [v.shape for v in (*graph.inputs, *graph.outputs)]
    image, first = (1, 8, 4, 3), (1, 3, 8, 4)
    assert moved["x",] == [first, (1, 16, 8), image, (1, 16, 8)]
    assert moved["m",] == [image, (1, 8, 16), image, (1, 16, 8)]
    assert moved["*", "m"] == [first, (1, 16, 8), first, (1, 16, 8)]


@pytest.mark.parametrize(("name", "message"), [("X", "no input or output 'X'"), ("v", "no axis order")])
def test_a_name_that_cannot_be_moved_is_an_error(name: str, message: str) -> None:
    graph = parse_graph("graph main(%v: tensor<2x3xfloat32>) -> (%y) {\n  %y = Abs(%v)\n}")
    with pytest.raises(UsageError, match=message):
        assign_layouts(graph, OnnxTarget(21), io_layout={name: "channels-first"})


def test_nodes_that_the_target_was_asked_about_are_freed() -> None:
    """At once: garbage is not collected during a conversion."""
    graph = parse_graph(CHAIN)
    before = nodes_outside_of_graphs()
    gc.disable()
    try:
        channels_last(graph)
        assert nodes_outside_of_graphs() <= before
    finally:
        gc.enable()


def nodes_outside_of_graphs() -> int:
    """How many nodes are in memory and in no graph."""
    return sum(isinstance(found, Node) and found.graph is None for found in gc.get_objects())
