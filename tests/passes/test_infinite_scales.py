"""Quantization by infinite scales, and tests for infinities and NaN of quantized values."""

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from tests.passes.helpers import op_counts, simplify, transformed

PARAMETERS = """
  %s = constant tensor<float32> [inf]
  %z = constant tensor<int8> [0]"""
HEAD = f"""graph main(%x: tensor<2x3xfloat32>, %c: tensor<2x3xbool>) -> (%y) {{{PARAMETERS}
  %none = constant tensor<float32> [0.0]
  %mask = constant tensor<float32> [-inf]
  %m = Select(%c, %none, %mask) : tensor<2x3xfloat32>
"""
Q = "QuantizeLinear(%v, %s, %z) {dtype = !int8, axis = 0}"
EQUALS_LOW = 'Compare(%a, %mask) {comparison_direction = "EQ"}'
DQ = "DequantizeLinear(%q, %s, %z) {axis = 0}"


def test_quantized_by_infinity() -> None:
    """Finite values become the zero point, infinite ones and NaN the lowest integer, as in ONNX Runtime."""
    text = f"graph main(%v: tensor<4xfloat32>) -> (%q, %y) {{{PARAMETERS}\n %q = {Q}\n %y = {DQ}\n}}"
    graph = parse_graph(text)
    simplify(graph)
    assert set(op_counts(graph)) == {"IsFinite", "Select"}
    q, y = run(graph, [np.array([1.5, -np.inf, np.inf, np.nan], np.float32)])
    assert q.tolist() == [0, -128, -128, -128]
    np.testing.assert_array_equal(y, np.float32([np.nan, -np.inf, -np.inf, -np.inf]))


def test_dequantized_by_infinity() -> None:
    graph = parse_graph(f"graph main(%q: tensor<3xint8>) -> (%y) {{{PARAMETERS}\n %y = {DQ}\n}}")
    simplify(graph)
    assert op_counts(graph) == {"Compare": 2, "Select": 2}
    (y,) = run(graph, [np.array([0, -3, 7], np.int8)])
    np.testing.assert_array_equal(y, np.float32([np.nan, -np.inf, np.inf]))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        # A mask of -infinity, quantized by infinity and dequantized, is a choice by the same condition.
        (f"%q = {Q}\n %y = {DQ}", {"Select": 1}),
        # No sum with it is finite: what is computed from its quantized values is constant.
        (f"%q = {Q}\n %n = {DQ}\n %a = Add(%x, %n)\n %y = IsFinite(%a)", {}),
        # The same sum with a mask that is partly finite is tested.
        ("%a = Add(%x, %m)\n %y = IsFinite(%a)", {"Select": 1, "Add": 1, "IsFinite": 1}),
        ("%y = IsFinite(%m)", {}),
        ("%y = IsInf(%m)", {"Not": 1}),
        # So is a sum with a mask before it is compared with -infinity, which kernels make the lowest number.
        (f"%a = Add(%x, %m)\n %y = {EQUALS_LOW}", {"Compare": 1, "Not": 1, "Or": 1}),
        (
            f"%f = constant tensor<2xint64> [1, 6]\n %r = Reshape(%m, %f)\n %h = Reshape(%x, %f)\n"
            f" %s = Add(%r, %h)\n %e = constant tensor<1xint64> [1]\n"
            f' %a = Reduce(%s, %e) {{kind = "max", keepdims = true}}\n %y = {EQUALS_LOW}',
            {"Compare": 1, "Not": 1, "Or": 1, "Reduce": 1, "Reshape": 2},
        ),
        (f"%a = Abs(%x)\n %y = {EQUALS_LOW}", {"Abs": 1, "Compare": 1}),
    ],
)
def test_masks(body: str, left: dict[str, int]) -> None:
    graph = parse_graph(f"{HEAD} {body.replace('%v', '%m')}\n}}")
    simplify(graph)
    assert op_counts(graph) == left


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        # The rows are those in which all elements of the mask are; products are never -infinity.
        ("%m = Select(%c, %none, %low) : tensor<3x3xfloat32>", {"DotGeneral": 1, "Add": 1, "Softmax": 1, "Not": 2,
         "Select": 1, "Reduce": 1, "Convert": 1, "Mul": 1}),
        # Masks of large numbers hide no row.
        ("%f = constant tensor<float32> [-3e38]\n %m = Select(%c, %none, %f) : tensor<3x3xfloat32>",
         {"DotGeneral": 1, "Add": 1, "Softmax": 1, "Select": 1}),
        # A causal mask hides no row.
        ("%m = constant tensor<3x3xfloat32> [0, -inf, -inf, 0, 0, -inf, 0, 0, 0]",
         {"DotGeneral": 1, "Add": 1, "Softmax": 1}),
    ],
)  # fmt: skip
def test_rows_that_masks_hide(mask: str, left: dict[str, int]) -> None:
    """PyTorch's attention asks the softmax, which LiteRT's kernels compute from the lowest number: it is not NaN."""
    text = f"""graph main(%x: tensor<3x3xfloat32>, %c: tensor<3x3xbool>) -> (%y) {{
      %none = constant tensor<float32> [0.0]
      %low = constant tensor<float32> [-inf]
      {mask}
      %q = DotGeneral(%x, %x) {{lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}}
      %a = Add(%q, %m)
      %s = Softmax(%a) {{axis = 1}}
      %t = IsNaN(%s)
      %y = Select(%t, %none, %s)
    }}"""
    graph = parse_graph(text)
    simplify(graph)
    assert op_counts(graph) == left
    x, c = np.eye(3, dtype=np.float32), np.asarray([[True, False, True], [False] * 3, [True] * 3])
    (found,) = run(graph, [x, c])
    (wanted,) = run(parse_graph(text), [x, c])
    np.testing.assert_array_equal(found, wanted)


def test_quantized_values_are_finite() -> None:
    """What PyTorch's attention does about rows without any key is needless after quantization."""
    text = """graph main(%q: tensor<2x3xfloat32, quant<int8 0.5:3>>) -> (%y) {
      %none = constant tensor<float32> [0.0]
      %x = Convert(%q) {dtype = !float32} : tensor<2x3xfloat32>
      %t = IsNaN(%x)
      %y = Select(%t, %none, %x)
    }"""
    assert op_counts(transformed(text, simplify)) == {"Convert": 1}
