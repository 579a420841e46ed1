"""What is written as the delegate computes it fastest is read as one op."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical import row_pairs
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.few_axes import leave_out_unit_axes
from onnxtfl.passes.canonical.fold import fold
from onnxtfl.passes.canonical.merged_columns import merge_columns
from onnxtfl.passes.canonical.merged_pads import pad_rows
from onnxtfl.passes.canonical.row_pairs import compute_pairs_of_rows
from onnxtfl.passes.recognize.delegate_forms import DELEGATE_FORMS
from tests.passes import test_merged_columns, test_merged_pads, test_row_pairs
from tests.passes.helpers import only_node, op_counts, transformed


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are rewritten too."""
    monkeypatch.setattr(row_pairs, "LEAST_PRODUCTS", (1, 1))


def read(graph: Graph) -> Graph:
    DELEGATE_FORMS.apply(graph)
    fold(graph)
    remove_dead(graph)
    verify(graph, "after")
    return graph


@pytest.mark.parametrize("has_few_axes", [True, False])
@pytest.mark.parametrize(("rows", "groups"), [(6, 1), (7, 1), (6, 2)])
def test_pairs_of_rows_are_one_convolution(has_few_axes: bool, rows: int, groups: int) -> None:
    shape = (1, 64 * groups, rows, 5)
    graph = test_row_pairs.convolution(shape, groups=groups)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (before,) = [node.operand(1).numpy() for node in graph.nodes if node.op is ops.Conv]
    wanted = run(graph, [x])[0]
    assert compute_pairs_of_rows(graph)
    if has_few_axes:
        leave_out_unit_axes(graph)
    fold(graph)
    read(graph)
    convolution = only_node(graph, "Conv")
    assert convolution.attr("feature_group_count") == groups
    assert np.abs(convolution.operand(1).numpy() - before).max() <= 1e-6
    assert np.abs(run(graph, [x])[0] - wanted).max() <= 1e-6 * np.abs(wanted).max()
    assert op_counts(graph)["Slice"] == 0


def test_pairs_that_are_transposed_before_their_axes_are_merged() -> None:
    graph = test_row_pairs.convolution((1, 64, 6, 2))  # two columns are no pairs
    x = np.random.default_rng(1).standard_normal((1, 64, 6, 2)).astype(np.float32)
    wanted = run(graph, [x])[0].transpose(0, 2, 3, 1)
    compute_pairs_of_rows(graph)
    fold(graph)
    (merged,) = [node for node in graph.nodes if node.result is graph.outputs[0]]
    b = Builder(graph)
    turned = b(ops.Transpose, merged.operand(0), permutation=(0, 2, 3, 4, 1))
    graph.outputs = [reshape(b, turned, (1, 6, 2, 64)), *graph.outputs[1:]]
    read(graph)
    counts = op_counts(graph)
    assert (counts["Conv"], counts["Transpose"], counts["Reshape"]) == (1, 1, 0)
    assert np.abs(run(graph, [x])[0] - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_products_of_other_kernels_stay() -> None:
    graph = test_row_pairs.convolution((1, 64, 6, 2))  # two columns are no pairs
    compute_pairs_of_rows(graph)
    fold(graph)
    last = [node for node in graph.nodes if node.op is ops.Conv and node.attr("feature_group_count") == 1][-1]
    last.set_operand(1, constant(2 * last.operand(1).numpy()))
    before = op_counts(graph)
    DELEGATE_FORMS.apply(graph)
    assert op_counts(graph) == before


@pytest.mark.parametrize("padding", [(3, 3, 3, 3), (3, 2, 2, 4)])
@pytest.mark.parametrize("storage", ["uint8", "int8"])
def test_merged_columns_are_read_one_by_one(padding: tuple[int, int, int, int], storage: str) -> None:
    graph = test_merged_columns.convolution((8, 8), (4, 7, 7), (2, 2), padding, storage)
    x = test_merged_columns.stored_input(graph)
    wanted, kernel = run(graph, [x])[0], only_node(graph, "Conv").operand(1).numpy()
    merge_columns(graph)
    assert only_node(graph, "Conv").attr("window_strides") == (2, 1)
    read(graph)
    convolution = only_node(graph, "Conv")
    assert convolution.attr("window_strides") == (2, 2)
    assert np.array_equal(convolution.operand(1).numpy(), kernel)
    assert np.array_equal(run(graph, [x])[0], wanted)
    assert op_counts(graph)["Reshape"] == 0


@pytest.mark.parametrize("shape", ["1x6x5x4", "2x6x5x1"])
def test_pads_of_rows_are_pads_of_the_axes(shape: str) -> None:
    graph = test_merged_pads.padded(shape, "0, 0, 1, 2, 3, 0, 0, 0")
    assert op_counts(graph)["Reshape"] == 2
    read(graph)
    assert op_counts(graph) == {"Pad": 1, "Relu": 1}
    assert pad_rows(graph) is None


def test_groups_of_a_concatenation_are_joined() -> None:
    """A group along another axis, and one that is read twice, stay."""
    text = """graph main(%a: tensor<2x2xfloat32>, %b: tensor<2x2xfloat32>) -> (%y, %d) {
      %c = Concatenate(%a, %b) {axis = 1}
      %d = Concatenate(%b, %b) {axis = -1}
      %g = Concatenate(%a, %a) {axis = 1}
      %e = Concatenate(%c, %g, %d) {axis = 1}
      %f = Concatenate(%d, %c, %c) {axis = -1}
      %y = Concatenate(%e, %f) {axis = 0}
    }"""
    graph = transformed(text, DELEGATE_FORMS.apply)
    sizes = [len(node.operands) for node in graph.nodes if node.op is ops.Concatenate]
    assert sorted(sizes) == [2, 2, 2, 3, 4]


@pytest.mark.parametrize(("along", "kind", "count"), [("[1]", "sum", 1), ("[2]", "sum", 0), ("[1]", "mean", 0)])
def test_softmax_by_its_formula(along: str, kind: str, count: int) -> None:
    lines = [
        "graph main(%x: tensor<1x3x40x40xfloat32>) -> (%y) {",
        " %a = constant tensor<1xint64> [1]",
        f" %b = constant tensor<1xint64> {along}",
        ' %m = Reduce(%x, %a) {kind = "max", keepdims = true}',
        " %s = Sub(%x, %m)",
        " %e = Exp(%s)",
        f' %t = Reduce(%e, %b) {{kind = "{kind}", keepdims = true}}',
        " %y = Div(%e, %t)",
        "}",
    ]
    assert op_counts(transformed("\n".join(lines), read))["Softmax"] == count


@pytest.mark.parametrize(
    ("order", "counts"), [("[0, 2, 1]", {"ArgMax": 1}), ("[2, 0, 1]", {"Transpose": 1, "ArgMax": 1})]
)
def test_positions_along_an_axis_that_is_moved(order: str, counts: dict[str, int]) -> None:
    lines = [
        "graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {",
        f" %t = Transpose(%x) {{permutation = {order}}}",
        " %y = ArgMax(%t) {axis = 2, keepdims = false}",
        "}",
    ]
    assert op_counts(transformed("\n".join(lines), read)) == counts
