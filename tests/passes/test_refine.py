"""Work on merged axes is done on the axes that they were merged from."""

import pytest

from onnxtfl.passes.canonical.refine import common_refinement, refine
from onnxtfl.passes.layout import assign_layouts
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts, simplify, transformed

GROUP_NORM = f"""graph main(%x: tensor<2x3x4x4xfloat32>) -> (%y) {{
  %w = constant tensor<6x3x1x1xfloat32> [{", ".join(map(str, range(18)))}]
  %a = Conv(%x, %w) {{{CONV2D}}}
  %s = constant tensor<3xint64> [2, 3, 32]
  %r = Reshape(%a, %s)
  %axes = constant tensor<1xint64> [2]
  %m = Reduce(%r, %axes) {{kind = "mean", keepdims = true}}
  %d = Sub(%r, %m)
  %g = constant tensor<1x3x1xfloat32> [1.0, 2.0, 3.0]
  %n = Mul(%d, %g)
  %t = constant tensor<4xint64> [2, 6, 4, 4]
  %b = Reshape(%n, %t)
  %y = Conv(%b, %v) {{{CONV2D}}}
}}""".replace("%y = Conv", "%v = constant tensor<1x6x1x1xfloat32> [1, 2, 3, 4, 5, 6]\n  %y = Conv")

ONE_GROUP = GROUP_NORM.replace("[2, 3, 32]", "[2, 1, 96]").replace(
    "tensor<1x3x1xfloat32> [1.0, 2.0, 3.0]", "tensor<1x1x1xfloat32> [2.0]"
)


@pytest.mark.parametrize("text", [GROUP_NORM, ONE_GROUP], ids=["groups", "one group"])
def test_group_normalization_takes_the_layout_of_its_convolutions(text: str) -> None:
    def step(graph):
        simplify(graph)
        assign_layouts(graph, TfliteTarget())

    graph = transformed(text, step)
    assert [n.operand(0).name for n in graph.nodes if n.op.name == "Transpose"] == ["x"]


def test_it_is_idempotent() -> None:
    graph = transformed(GROUP_NORM, refine)
    assert not refine(graph)


@pytest.mark.parametrize("reader", ["%z = Softmax(%n) {axis = 2}", "%z = Mul(%n, %n)"])
def test_other_readers_prevent_it(reader: str) -> None:
    text = GROUP_NORM.replace("-> (%y)", "-> (%y, %z)").replace("  %t = ", f"  {reader}\n  %t = ")
    graph = transformed(text, refine)
    assert op_counts(graph)["Reshape"] == 2
    assert [n.result.rank for n in graph.nodes if n.op.name == "Reshape"] == [3, 4]


def test_refinements() -> None:
    found = common_refinement((1, 32, 8, 8), (1, 4, 512))
    assert found is not None and found.fine == (1, 4, 8, 64) and found.axes == ((0,), (1,), (2, 3))
    assert found.shape((4, 1)) == (1, 4, 1, 1)
    assert common_refinement((6, 4), (4, 6)) is None
    features = common_refinement((2, 3, 4, 5), (2, 60))
    assert features is not None and features.fine == (2, 3, 20) and features.axes == ((0,), (1, 2))
    same = common_refinement((2, 3, 4, 5), (2, 3, 20))
    assert same is not None and same.fine == (2, 3, 20)
