"""IsFinite with results of the declared type."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.comparison import IsFinite
from onnxtfl.ir.types import DType


@document_form(IsFinite, Operand("input"))
def _is_finite(b: Builder, x: Value, dtype: DType) -> Value:
    """Whether each element is finite, as 0 and 1 of `dtype`: that of the declared type of the result."""
    return b(Convert, b(IsFinite, x), dtype=dtype)
