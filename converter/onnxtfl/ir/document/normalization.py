"""LayerNorm with the statistics as results."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.normalization import LayerNorm, standardized
from onnxtfl.ir.shapes import normalize_axis


@document_form(LayerNorm, Operand("input"), Operand("scale"), Operand("bias", optional=True), results=3)
def _layer_norm(
    b: Builder, x: Value, scale: Value, bias: Value | None, axis: int = -1, epsilon: float = 1e-5
) -> list[Value]:
    """Also the mean, and rstd = 1 / sqrt(variance + epsilon); the axes from `axis` on stay in both, with size 1."""
    _, mean, rstd = standardized(Term(b, x), range(normalize_axis(axis, x.rank), x.rank), epsilon)
    return [b(LayerNorm, x, scale, bias, axis=axis, epsilon=epsilon), mean.value, rstd.value]
