"""Reshape to the shape of its result type."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.reshape import Reshape


@document_form(Reshape, Operand("input"))
def _reshape(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`shape`: that of the declared type of the result."""
    return b(Reshape, x, list(shape))
