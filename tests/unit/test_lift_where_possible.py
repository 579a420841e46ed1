"""Lifting for analysis: what has no conversion stays as it is in the file, and hides nothing but itself."""

from __future__ import annotations

from onnx import parser

from onnxtfl.formats.onnx.reader import read
from onnxtfl.pipeline import lifted_where_possible

HEAD = '<ir_version: 8, opset_import: ["" : 17, "other" : 1]>\n'


def ops(text: str) -> list[str]:
    """The ops of a model of ONNX nodes after lifting, those of regions too; constants and functions inlined."""
    graph = lifted_where_possible(read(parser.parse_model(HEAD + text)))
    return [node.op.name for node in graph.walk()]


def test_the_other_nodes_are_lifted() -> None:
    assert ops("""
        main (float[2] x) => (float[2] y) { a = Relu (x) b = other.Mystery (a) c = Neg (x) y = Add (b, c) }
    """) == ["Relu", "onnx.Mystery", "Neg", "onnx.Add"]


def test_the_nodes_of_its_regions_are_lifted() -> None:
    assert ops("""
        main (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = one () => (float[2] p) { a = Relu (x) p = other.Mystery (a) },
                else_branch = two () => (float[2] q) { q = Neg (x) }
            >
        }
    """) == ["onnx.If", "Relu", "onnx.Mystery", "Neg"]


def test_nothing_is_left_of_an_attempt() -> None:
    """Slice with axes that are no constant, of a tensor of unknown rank: its rule fails after its first ops."""
    found = ops("""
        main (float[2] x, int64[1] s, int64[1] e, int64[1] a) => (float[n] y) {
            b = other.Mystery (x) y = Slice (b, s, e, a)
        }
    """)
    assert found == ["onnx.Mystery", "onnx.Slice"]


def test_ops_that_are_defined_by_others() -> None:
    """A function that holds an op without a conversion is inlined, and lifted but for that."""
    assert ops(
        """
        main (float[2] x) => (float[2] y) { y = local.f (x) }
        <opset_import: ["" : 17, "other" : 1], domain: "local">
        f (a) => (c) { b = Exp (a) c = other.Mystery (b) }
    """
    ) == ["Exp", "onnx.Mystery"]


def test_branches_that_are_both_invalid_stay_whole() -> None:
    """The products do not fit their operands: what an analysis sees of them is what the file has."""
    text = """
        main (bool c, float[1,7] x, float[8,2] a, float[6,2] b) => (float[1,2] y) {
            y = If (c) <
                then_branch = one () => (float[1,2] p) { p = MatMul (x, a) },
                else_branch = two () => (float[1,2] q) { q = MatMul (x, b) }
            >
        }
    """
    found = lifted_where_possible(read(parser.parse_model(HEAD + text)))
    products = [node for node in found.walk() if node.op.name == "onnx.MatMul"]
    assert [[v is not None for v in node.operands] for node in products] == [[True, True], [True, True]]
