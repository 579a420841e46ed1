"""The names that plugins import: the decorators that register rules, the graph, the neutral ops, and helpers for
shapes.

Plugins are described in docs/api.md; mappings of this package import each name from where it is.
"""

from onnxtfl.build.rows import row
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import broadcast, dim_value, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints
from onnxtfl.ir.types import DType, TensorType, Type, tensor
from onnxtfl.rewriting.registry import (
    Form,
    append_operand,
    decompose,
    decompose_late,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)

__all__ = [
    "Array",
    "Builder",
    "DType",
    "Form",
    "Graph",
    "InvalidModelError",
    "Node",
    "Operand",
    "TensorType",
    "Term",
    "Type",
    "UnsupportedError",
    "Value",
    "append_operand",
    "broadcast",
    "constant",
    "decompose",
    "decompose_late",
    "dim_value",
    "lift_onnx",
    "lift_tfl",
    "lower_onnx",
    "lower_tfl",
    "normalize_axes",
    "normalize_axis",
    "ops",
    "reshape",
    "row",
    "slice_axes",
    "static_ints",
    "tensor",
    "transposed",
    "unsqueezed",
    "upgrade",
]
