"""Normalization over groups of features: read from reshapes, and written so that only statistics are grouped."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.passes.canonical.fuse import FUSE
from onnxtfl.passes.recognize.normalization import NORMALIZATION
from tests.passes.helpers import only_node, op_counts, transformed
from tests.unit.tiny_models import onnx_model


def grouped(groups: int, before: str = "2x6x3x5", after: str = "2x6x3x5", sizes: str = "") -> str:
    rows = sizes or f"2, {groups}, {90 // groups}"
    return (
        f"graph main(%x: tensor<{before}xfloat32>) -> (%y) {{\n"
        f" %s = constant tensor<{groups}xfloat32> {[0.5 + i for i in range(groups)]}\n"
        f" %b = constant tensor<{groups}xfloat32> {[1.0 - i for i in range(groups)]}\n"
        f" %r = constant tensor<{rows.count(',') + 1}xint64> [{rows}]\n"
        f" %t = constant tensor<{after.count('x') + 1}xint64> [{after.replace('x', ', ')}]\n"
        " %g = Reshape(%x, %r)\n %n = InstanceNorm(%g, %s, %b)\n %y = Reshape(%n, %t)\n}"
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_reshapes_around_instances_are_groups(groups: int) -> None:
    graph = transformed(grouped(groups), FUSE.apply)
    assert only_node(graph, "GroupNorm").attr("num_groups") == groups and op_counts(graph)["Reshape"] == 0


@pytest.mark.parametrize(
    ("groups", "before", "after", "sizes"),
    [
        (4, "2x6x2x2", "2x6x2x2", "2, 4, 6"),  # one and a half features in a group
        (3, "2x6x3x5", "2x6x5x3", "2, 3, 30"),  # another shape afterwards
        (6, "2x6x3x5", "2x6x3x5", "1, 6, 30"),  # features of two samples
    ],
)
def test_other_reshapes_stay(groups: int, before: str, after: str, sizes: str) -> None:
    assert op_counts(transformed(grouped(groups, before, after, sizes), FUSE.apply))["GroupNorm"] == 0


@pytest.mark.parametrize(("groups", "few"), [(1, 0), (2, 4), (8, 0)])
@pytest.mark.parametrize("opset", [17, 21])
def test_only_statistics_are_grouped_and_read_as_instances(groups: int, few: int, opset: int) -> None:
    """Reshapes of the image would be copied; ONNX Runtime has a kernel for instances of reshaped groups."""
    rng = np.random.default_rng(0)
    vectors = {name: rng.standard_normal((8, 1, 1), np.float32) for name in ("scale", "bias")}
    rows = {"one": np.ones(groups, np.float32), "none": np.zeros(groups, np.float32), "rows": [0, groups, -1]}
    shape = (1, 8, 6, 4)
    if opset < 21:
        nodes = [
            helper.make_node("Reshape", ["x", "rows"], ["g"]),
            helper.make_node("InstanceNormalization", ["g", "one", "none"], ["i"]),
            helper.make_node("Reshape", ["i", "shape"], ["n"]),
            helper.make_node("Mul", ["n", "scale"], ["p"]),
            helper.make_node("Add", ["p", "bias"], ["y"]),
        ]
        given = {**vectors, **rows, "shape": shape}
    else:
        nodes = [helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=groups)]
        given = {name: vector.reshape(-1) for name, vector in vectors.items()}
    constants = {name: np.asarray(value) for name, value in given.items()}
    image = (TensorProto.FLOAT, shape)
    model = onnx_model(nodes, [("x", *image)], [("y", *image)], constants, opset)
    found = onnxtfl.onnx_to_tflite(model, check="require")
    assert found.report.ops_after.get("RESHAPE", 0) == few
    back = onnxtfl.tflite_to_onnx(found.data, check="require").report.ops_after
    assert Counter(back)["InstanceNormalization"] == 1 and "GlobalAveragePool" not in back


@pytest.mark.parametrize(("wide", "found"), [("1x2x3", 1), ("3x2x1", 0)])
def test_statistics_that_alternate_are_not_of_groups(wide: str, found: int) -> None:
    """Features 0, 2, 4 in one group: the statistics are spread along another axis."""
    group = (
        ' %{0}f = Reduce(%{1}, %axes) {{kind = "mean", keepdims = true}}\n'
        " %{0}r = Reshape(%{0}f, %rows)\n"
        ' %{0}g = Reduce(%{0}r, %last) {{kind = "mean", keepdims = true}}\n'
        " %{0}w = BroadcastTo(%{0}g, %wide)\n %{0} = Reshape(%{0}w, %one)\n"
    )
    graph = transformed(
        "graph main(%x: tensor<1x6x3x5xfloat32>) -> (%y) {\n %axes = constant tensor<2xint64> [2, 3]\n"
        " %rows = constant tensor<3xint64> [1, 2, 3]\n %last = constant tensor<1xint64> [2]\n"
        f" %wide = constant tensor<3xint64> [{wide.replace('x', ', ')}]\n"
        " %one = constant tensor<4xint64> [1, 6, 1, 1]\n %e = constant tensor<float32> [0.5]\n"
        + group.format("m", "x")
        + " %d = Sub(%x, %m)\n %q = Mul(%d, %d)\n"
        + group.format("v", "q")
        + " %a = Add(%v, %e)\n %i = Rsqrt(%a)\n %y = Mul(%d, %i)\n}",
        NORMALIZATION.apply,
    )
    assert op_counts(graph)["GroupNorm"] == found
