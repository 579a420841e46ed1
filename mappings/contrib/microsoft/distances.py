"""com.microsoft CDist: the distances of rows."""

from __future__ import annotations

from onnxtfl.mappings.math.contraction import contracted

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import unsqueezed
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("CDist", since=(1,), domain=MICROSOFT)
def _distances(b: Builder, node: Node) -> Value:
    """The Euclidean distance, or its square, of each row of A [m, k] to each row of B [n, k]: [m, n].

    Computed as a . a - 2 a . b + b . b, as in ONNX Runtime.
    """
    lhs, rhs = (Term(b, node.operand(i)) for i in (0, 1))
    product = Term(b, contracted(b, lhs.value, rhs.value, 1, 1))
    rows = (lhs * lhs).reduce("sum", [1])
    columns = Term(b, unsqueezed(b, (rhs * rhs).reduce("sum", [1], keepdims=False).value, [0]))
    squares = (rows - product * 2.0 + columns).max(0.0)
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedError(f"metric is {metric!r}, not euclidean or sqeuclidean")
    return squares.value if metric == "sqeuclidean" else squares.sqrt().value
