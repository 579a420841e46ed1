"""Softmax with `accurate`, `logarithmic` and `epsilon`."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.softmax import LogSoftmax, Softmax
from onnxtfl.ir.shapes import normalize_axis


@document_form(Softmax, Operand("input"))
def _softmax(
    b: Builder, x: Value, axis: int = -1, accurate: bool = False, logarithmic: bool = False, epsilon: float = 0.0
) -> Value:
    """exp(input) / max(sum(exp(input)), epsilon), and its logarithm if `logarithmic`.

    `accurate`: the largest element is subtracted before. Without `epsilon` it always is, since the result is the same.
    """
    if epsilon <= 0.0:
        return b(LogSoftmax if logarithmic else Softmax, x, axis=axis)
    term, along = Term(b, x), [normalize_axis(axis, x.rank)]
    powers = (term - term.reduce("max", along) if accurate else term).exp()
    result = powers / powers.reduce("sum", along).max(epsilon)
    return (result.log() if logarithmic else result).value
