"""A float32 version of a model that computes in float16 or bfloat16, or rounds operands of products to int8.

Such a model rounds after each op, and each runtime differently: two correct runs differ by more than a float32
tolerance. A conversion to float32 has to agree with the float32 version.
"""

from __future__ import annotations

from pathlib import Path

from onnxtfl.formats import files
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.canonical.inline import inline_functions

HALF = 4 * 2.0**-10
"""The tolerance of ops that one of the models computes in float16."""
HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})
_CODES = {10: 1, 16: 1}
"""TensorProto.DataType of float16 and bfloat16, and of float32."""
_ACCURACY = "accuracy_level"
_EXACT = (0, 1)
"""Values of `accuracy_level`: unset, and float32."""
_FLOAT32, _INT8 = 1, 4
_FEW_BITS = {"K", "N", "bits"}
"""Attributes of products with weights of few bits, which may round the other operand to int8."""
_DTYPES = ("to", "dtype")
"""Attributes that are a TensorProto.DataType."""


def may_round_operands(source: Path) -> bool:
    """Whether an op of the ONNX model `source` allows its kernel to round the operand of a product.

    ONNX Runtime's kernels for weights of few bits do so: `accuracy_level` is their least accuracy.
    """
    return any(node.attributes.get(_ACCURACY, 0) not in _EXACT for node in files.read(source).main.walk())


def write_widened(source: Path, target: Path, rounding: bool = False) -> None:
    """Write the ONNX model `source` with float32 for float16 and bfloat16, also in inputs, outputs and attributes.

    No op may round its operands; with `rounding`, all products with weights of few bits round the other one to int8.
    Weights are streamed. Raises `OnnxtflError`.
    """
    model = files.read(source)
    inline_functions(model)
    _widen(model.main)
    for node in model.main.walk():
        if node.attributes.get(_ACCURACY, 0) not in _EXACT or (rounding and node.attributes.keys() >= _FEW_BITS):
            node.attributes[_ACCURACY] = _INT8 if rounding else _FLOAT32
    files.write(model, target)


def _widen(graph: Graph) -> None:
    seen = {*graph.inputs, *graph.outputs}
    for node in graph.walk():
        seen.update(v for v in (*node.operands, *node.results) if v is not None)
        seen.update(v for region in node.regions for v in (*region.inputs, *region.outputs))
        _widen_attributes(node)
    for value in seen:
        _widen_value(value)


def _widen_value(value: Value) -> None:
    if isinstance(value.type, TensorType) and value.type.dtype in HALVES:
        value.type = value.type.with_dtype(DType.FLOAT32)
        if value.data is not None:
            value.data = value.data.cast(DType.FLOAT32)


def _widen_attributes(node: Node) -> None:
    for name, attribute in node.attributes.items():
        if isinstance(attribute, TensorData) and attribute.dtype in HALVES:
            node.attributes[name] = attribute.cast(DType.FLOAT32)
        elif name in _DTYPES and attribute in _CODES:
            node.attributes[name] = _CODES[attribute]
