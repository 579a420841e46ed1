"""Shape with `start` and `end`."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.types import DType


def _printed(node: Node) -> Statement | None:
    axes = node.attr("axes")
    if axes is None or not axes or list(axes) != [*range(axes[0], axes[0] + len(axes))]:
        return None
    others = {name: value for name, value in node.attributes.items() if name != "axes"}
    return Statement(node.operands, {**others, "start": axes[0], "end": axes[-1] + 1})


@document_form(Shape, Operand("input"), printed=_printed)
def _shape(b: Builder, x: Value, start: int = 0, end: int = 1024, dtype: DType = DType.INT64) -> Value:
    """The sizes of the axes from `start` up to `end`; negative ones count from the end."""
    return b(Shape, x, axes=tuple(range(x.rank)[start:end]), dtype=dtype)
