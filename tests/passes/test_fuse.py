"""Fusing: what exporters spread out becomes one op, and the numbers stay."""

import pytest

from onnxtfl.passes.canonical.fuse import FUSE
from tests.passes.helpers import CONV2D, op_counts, simplify, transformed

HEAD = f"""graph main(%x: tensor<1x3x5x5xfloat32>) -> (%y) {{
  %w = constant tensor<2x3x1x1xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  %b = constant tensor<2xfloat32> [0.5, -0.5]
  %v = constant tensor<2x1x1xfloat32> [2.0, 3.0]
  %c = Conv(%x, %w, %b) {{{CONV2D}}}
"""


@pytest.mark.parametrize("op", ["Add(%c, %v)", "Add(%v, %c)", "Mul(%c, %v)", "Sub(%c, %v)", "Div(%c, %v)"])
def test_arithmetic_by_feature_goes_into_the_convolution(op: str) -> None:
    graph = transformed(f"{HEAD}  %y = {op}\n}}", FUSE.apply)
    assert op_counts(graph) == {"Conv": 1}


@pytest.mark.parametrize("op", ["Sub(%v, %c)", "Div(%v, %c)"])
def test_the_other_order_stays(op: str) -> None:
    graph = transformed(f"{HEAD}  %y = {op}\n}}", FUSE.apply)
    assert op_counts(graph)["Conv"] == 1 and len(op_counts(graph)) == 2


def test_batch_norm_after_a_convolution_vanishes() -> None:
    text = f"""{HEAD}  %m = Sub(%c, %v)
  %n = Mul(%m, %v)
  %y = Add(%n, %v)
}}"""
    assert op_counts(transformed(text, simplify)) == {"Conv": 1}


NORM = """  %s = constant tensor<2xfloat32> [1.5, 0.5]
  %m = constant tensor<2xfloat32> [0.1, -0.2]
  %q = constant tensor<2xfloat32> [0.9, 2.0]
"""


def test_batch_norm_goes_into_the_convolution() -> None:
    text = f"{HEAD}{NORM}  %y = BatchNormInference(%c, %s, %b, %m, %q) {{feature_index = 1}}\n}}"
    assert op_counts(transformed(text, simplify)) == {"Conv": 1}


def test_batch_norm_goes_into_the_matmul() -> None:
    text = f"""graph main(%x: tensor<4x3xfloat32>) -> (%y) {{
      %w = constant tensor<3x2xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %b = constant tensor<2xfloat32> [0.5, -0.5]
      {NORM}
      %a = DotGeneral(%x, %w) {{lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}}
      %c = Add(%a, %b)
      %y = BatchNormInference(%c, %s, %b, %m, %q) {{feature_index = 1}}
    }}"""
    assert op_counts(transformed(text, simplify)) == {"DotGeneralBias": 1}


def test_batch_norm_elsewhere_stays() -> None:
    text = f"""graph main(%x: tensor<4x2xfloat32>) -> (%y) {{
      %b = constant tensor<2xfloat32> [0.5, -0.5]
      {NORM}
      %y = BatchNormInference(%x, %s, %b, %m, %q) {{feature_index = 1}}
    }}"""
    assert op_counts(transformed(text, simplify)) == {"BatchNormInference": 1}


def test_a_convolution_that_others_read_is_not_changed() -> None:
    text = f"""{HEAD}  %z = Add(%c, %v)
  %y = Mul(%c, %z)
}}"""
    assert op_counts(transformed(text, FUSE.apply))["Add"] == 1


def test_a_constant_along_another_axis_stays() -> None:
    text = f"""{HEAD}  %k = constant tensor<5xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0]
  %y = Add(%c, %k)
}}"""
    assert op_counts(transformed(text, FUSE.apply)) == {"Conv": 1, "Add": 1}


def test_pad_goes_into_the_convolution() -> None:
    text = f"""graph main(%x: tensor<1x3x5x5xfloat32>) -> (%y) {{
      %w = constant tensor<1x3x1x1xfloat32> [1.0, 2.0, 3.0]
      %p = constant tensor<4x2xint64> [0, 0, 0, 0, 1, 2, 0, 1]
      %a = Pad(%x, %p)
      %y = Conv(%a, %w) {{{CONV2D}}}
    }}"""
    graph = transformed(text, FUSE.apply)
    assert [n.attr("padding") for n in graph.nodes] == [(1, 0, 2, 1)]


@pytest.mark.parametrize("pads", ["0, 0, 0, 0, -1, 2, 0, 1", "0, 0, 0, 1, 0, 0, 0, 0"])
def test_other_pads_stay(pads: str) -> None:
    channels = 4 if pads.startswith("0, 0, 0, 1") else 3
    text = f"""graph main(%x: tensor<1x3x5x5xfloat32>) -> (%y) {{
      %w = constant tensor<1x{channels}x1x1xfloat32> [{", ".join("1" * channels)}]
      %p = constant tensor<4x2xint64> [{pads}]
      %a = Pad(%x, %p)
      %y = Conv(%a, %w) {{{CONV2D}}}
    }}"""
    assert op_counts(transformed(text, FUSE.apply))["Pad"] == 1


def test_bias_of_a_matmul() -> None:
    text = """graph main(%x: tensor<2x7x3xfloat32>) -> (%y) {
      %w = constant tensor<3x2xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %b = constant tensor<2xfloat32> [0.5, -0.5]
      %a = DotGeneral(%x, %w) {lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]}
      %y = Add(%b, %a)
    }"""
    assert op_counts(transformed(text, FUSE.apply)) == {"DotGeneralBias": 1}


def test_flatten_before_a_matmul_is_contracted_with_it() -> None:
    text = f"""graph main(%x: tensor<[n]x2x1x3xfloat32>) -> (%y) {{
      %s = constant tensor<2xint64> [-1, 6]
      %f = Reshape(%x, %s)
      %w = constant tensor<4x6xfloat32> [{", ".join(map(str, range(24)))}]
      %y = DotGeneral(%f, %w) {{lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]}}
    }}"""
    graph = transformed(text, simplify)
    assert [n.attr("lhs_contracting_dimensions") for n in graph.nodes] == [(1, 2, 3)]


GELU = {
    "x * (0.5 * (1 + erf))": "%p = Mul(%e1, %half)\n %y = Mul(%x, %p)",
    "(x * (1 + erf)) * 0.5": "%p = Mul(%x, %e1)\n %y = Mul(%p, %half)",
    "(x * 0.5) * (1 + erf)": "%p = Mul(%x, %half)\n %y = Mul(%p, %e1)",
    "(x * (1 + erf)) / 2": "%p = Mul(%x, %e1)\n %y = Div(%p, %two)",
}


@pytest.mark.parametrize("order", GELU)
@pytest.mark.parametrize("scaled", ["Mul(%x, %root)", "Div(%x, %sqrt2)"])
def test_gelu_however_it_is_bracketed(order: str, scaled: str) -> None:
    text = f"""graph main(%x: tensor<2x7xfloat32>) -> (%y) {{
      %half = constant tensor<float32> [0.5]
      %one = constant tensor<float32> [1.0]
      %two = constant tensor<float32> [2.0]
      %root = constant tensor<float32> [0.70710678]
      %sqrt2 = constant tensor<float32> [1.41421356]
      %z = {scaled}
      %e = Erf(%z)
      %e1 = Add(%e, %one)
      {GELU[order]}
    }}"""
    assert op_counts(transformed(text, simplify)) == {"Gelu": 1}


@pytest.mark.parametrize("cubic", ["Pow", "Mul"])
def test_gelu_by_tanh(cubic: str) -> None:
    cube = "%c3 = Pow(%x, %three)" if cubic == "Pow" else "%c2 = Mul(%x, %x)\n %c3 = Mul(%c2, %x)"
    text = f"""graph main(%x: tensor<2x7xfloat32>) -> (%y) {{
      %half = constant tensor<float32> [0.5]
      %one = constant tensor<float32> [1.0]
      %three = constant tensor<float32> [3.0]
      %k = constant tensor<float32> [0.044715]
      %s = constant tensor<float32> [0.7978845608]
      {cube}
      %d = Mul(%c3, %k)
      %i = Add(%x, %d)
      %z = Mul(%i, %s)
      %t = Tanh(%z)
      %t1 = Add(%t, %one)
      %h = Mul(%x, %half)
      %y = Mul(%h, %t1)
    }}"""
    graph = transformed(text, simplify)
    assert [(n.op.name, n.attr("approximate")) for n in graph.nodes] == [("Gelu", "tanh")]


def test_what_is_nearly_gelu_stays() -> None:
    text = """graph main(%x: tensor<2x7xfloat32>, %w: tensor<2x7xfloat32>) -> (%y) {
      %half = constant tensor<float32> [0.5]
      %one = constant tensor<float32> [1.0]
      %root = constant tensor<float32> [0.70710678]
      %z = Mul(%w, %root)
      %e = Erf(%z)
      %e1 = Add(%e, %one)
      %p = Mul(%x, %e1)
      %y = Mul(%p, %half)
    }"""
    assert op_counts(transformed(text, simplify))["Erf"] == 1


@pytest.mark.parametrize(
    "steps",
    [
        "%a = Add(%x, %three)\n %c = Clamp(%a, %zero, %six)\n %p = Mul(%x, %c)\n %y = Div(%p, %six)",
        "%a = Add(%three, %x)\n %c = Clamp(%a, %zero, %six)\n %p = Div(%c, %six)\n %y = Mul(%p, %x)",
        "%a = Mul(%x, %sixth)\n %h = Add(%a, %half)\n %c = Clamp(%h, %zero, %one)\n %y = Mul(%x, %c)",
    ],
)
def test_hard_swish(steps: str) -> None:
    text = f"""graph main(%x: tensor<2x7xfloat32>) -> (%y) {{
      %zero = constant tensor<float32> [0.0]
      %half = constant tensor<float32> [0.5]
      %one = constant tensor<float32> [1.0]
      %three = constant tensor<float32> [3.0]
      %six = constant tensor<float32> [6.0]
      %sixth = constant tensor<float32> [0.16666667]
      {steps}
    }}"""
    assert op_counts(transformed(text, simplify)) == {"HardSwish": 1}


def _on_points(features: int, kernel: str, product: str) -> str:
    """Two features of each of 2 x 3 points, and `features` of all points."""
    return f"""graph main(%x: tensor<1x2x2x3xfloat32>, %g: tensor<1x{features}x1x1xfloat32>) -> (%y) {{
      %s = constant tensor<4xint64> [1, {features}, 2, 3]
      %b = constant tensor<2xfloat32> [0.5, -0.5]
      %w = constant {kernel} {[float(i) for i in range(2 * (features + 2))]}
      %r = BroadcastTo(%g, %s)
      %j = Concatenate(%x, %r) {{axis = 1}}
      %y = {product}
    }}"""


@pytest.mark.parametrize(
    ("kernel", "product"),
    [
        ("tensor<2x{}x1x1xfloat32>", f"Conv(%j, %w, %b) {{{CONV2D}}}"),
        (
            "tensor<{}x2xfloat32>",
            "DotGeneralBias(%j, %w, %b) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}",
        ),
    ],
)
def test_features_that_repeat_are_multiplied_once(kernel: str, product: str) -> None:
    counts = op_counts(transformed(_on_points(8, kernel.format(10), product), simplify))
    linear = product.partition("(")[0].removesuffix("Bias")
    assert counts["BroadcastTo"] == counts["Concatenate"] == 0 and counts["Add"] == 1
    assert sum(count for op, count in counts.items() if op.startswith(linear)) == 2


def test_few_features_that_repeat_stay() -> None:
    text = _on_points(2, "tensor<2x4x1x1xfloat32>", f"Conv(%j, %w, %b) {{{CONV2D}}}")
    assert op_counts(transformed(text, simplify)) == {"BroadcastTo": 1, "Concatenate": 1, "Conv": 1}


HEADS = """graph main(%x: tensor<1x4x6xfloat32>, %k: tensor<1x2x3x4xfloat32>) -> (%y) {
  %w = constant tensor<6x6xfloat32> [WEIGHTS]
  %c = constant tensor<float32> [0.5]
  %shape = constant tensor<4xint64> [1, 4, 2, 3]
  %p = DotGeneral(%x, %w) {lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]}
  %r = Reshape(%p, %shape)
  %t = Transpose(%r) {permutation = [0, 2, 1, 3]}
  %s = DotGeneral(%t, %k) {lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], AXES}
""".replace("WEIGHTS", ", ".join(map(str, range(36)))).replace(
    "AXES", "lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [2]"
)


@pytest.mark.parametrize("op", ["Mul(%s, %c)", "Mul(%c, %s)", "Div(%s, %c)"])
def test_the_scale_of_scores_goes_into_the_weights_of_a_projection(op: str) -> None:
    counts = op_counts(transformed(f"{HEADS}  %y = {op}\n}}", FUSE.apply))
    assert counts == {"DotGeneral": 2, "Reshape": 1, "Transpose": 1}


def test_a_scale_stays_where_scores_are_read_twice() -> None:
    text = f"{HEADS}  %m = Mul(%s, %c)\n  %y = Add(%m, %s)\n}}"
    assert op_counts(transformed(text, FUSE.apply))["Mul"] == 1


def test_a_dividend_stays() -> None:
    assert op_counts(transformed(f"{HEADS}  %y = Div(%c, %s)\n}}", FUSE.apply))["Div"] == 1
