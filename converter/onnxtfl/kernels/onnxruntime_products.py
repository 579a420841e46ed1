"""ONNX Runtime's products of uint8 activations and int8 weights, whose sums saturate on x86 without VNNI.

The kernel adds two products of 8 bits in int16: 255 * 127 + 255 * 127 becomes 32767. Products of uint8 by uint8 are
exact. A copy of the model with uint8 weights has the same meaning: each element and zero point is 128 more.
Source: ONNX Runtime core/mlas/lib/amd64/QgemmU8X8KernelAvx2.asm,
core/optimizer/qdq_transformer/avx2_weight_s8_to_u8.cc.
Test: tests/unit/test_saturating_products.py (test_a_copy_with_uint8_weights_computes_the_same).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.types import DType, TensorType, shape_of
from onnxtfl.rewriting.registry import append_operand

_OFFSET = 128
_MICROSOFT = "com.microsoft"
_Places = tuple[int, int]
"""The operands that are elements and their zero point."""
_OPS: dict[tuple[str, str], tuple[_Places | None, tuple[_Places, ...]]] = {
    ("", "DequantizeLinear"): (None, ((0, 2),)),
    ("", "MatMulInteger"): ((0, 2), ((1, 3),)),
    ("", "QLinearConv"): ((0, 2), ((3, 5),)),
    ("", "QLinearMatMul"): ((0, 2), ((3, 5),)),
    (_MICROSOFT, "DequantizeLinear"): (None, ((0, 2),)),
    (_MICROSOFT, "DynamicQuantizeLSTM"): (None, ((1, 9), (2, 11))),
    (_MICROSOFT, "DynamicQuantizeMatMul"): (None, ((1, 3),)),
    (_MICROSOFT, "MatMulIntegerToFloat"): ((0, 4), ((1, 5),)),
    (_MICROSOFT, "QAttention"): ((0, 6), ((1, 7),)),
    (_MICROSOFT, "QGemm"): ((0, 2), ((3, 5),)),
    (_MICROSOFT, "QLinearConv"): ((0, 2), ((3, 5),)),
}
"""By domain and op: the activations (None: real ones, or none), and the weights."""
LARGEST_OPERANDS = ((255, 255),)
"""Input of `saturating_model`: uint8 [1, 2]."""
_LARGEST_WEIGHT = 127
EXACT_SUM = 2 * 255 * _LARGEST_WEIGHT


def use_unsigned_weights(model: Model) -> bool:
    """Store constant int8 weights of an ONNX model as uint8 where its ops allow both; return whether any were.

    Weights of int8 activations stay: these products are exact, and some kernels take no others.
    """
    changed = [_store_unsigned(node) for graph in model.graphs() for node in graph.walk()]
    return any(changed)


def _store_unsigned(node: Node) -> bool:
    activations, places = _OPS.get((node.op.domain, node.op.name_in_file), (None, ()))
    if activations is not None and any(_dtype(node.optional(i)) is DType.INT8 for i in activations):
        return False
    shifted = [_shifted(node, *place) for place in places]
    if not shifted or None in shifted:
        return False
    for place, found in zip(places, shifted, strict=True):
        for index, value in zip(place, found or (), strict=True):
            while len(node.operands) <= index:
                append_operand(node, None)
            node.set_operand(index, value)
    return True


def _shifted(node: Node, elements: int, zero: int) -> tuple[Value, Value] | None:
    """Return uint8 weights and zero point; None if they are not constant int8."""
    weights, point = _data(node.operand(elements)), node.optional(zero)
    if weights is None or weights.dtype is not DType.INT8:
        return None
    if point is None:
        shape = _shape_of_zero_point(node)
        return None if shape is None else (_unsigned(weights), constant(np.full(shape, _OFFSET, np.uint8)))
    offset = _data(point)
    return None if offset is None else (_unsigned(weights), _unsigned(offset))


def _shape_of_zero_point(node: Node) -> tuple[int, ...] | None:
    """Return the shape of a zero point where the node has none: that of the scale; None if unknown."""
    if not node.op.name.endswith("DequantizeLinear"):
        return ()
    shape = shape_of(node.operand(1).type)
    return shape if shape is not None and is_static(shape) else None


def _unsigned(data: TensorData) -> Value:
    return constant(data.cast(DType.UINT8, _OFFSET))


def _data(value: Value) -> TensorData | None:
    """Return the elements of an initializer or of a Constant node."""
    producer = value.producer
    stored = value.data if producer is None else producer.attributes.get("value")
    return stored if isinstance(stored, TensorData) else None


def _dtype(value: Value | None) -> DType | None:
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def saturating_model() -> Model:
    """Return a model with one MatMulInteger, [1, 2] by [2, 1], whose sum is `EXACT_SUM` unless it saturates."""
    graph = Graph()
    x = graph.add_input(TensorType(DType.UINT8, (1, 2)), "x")
    weights = constant(np.full((2, 1), _LARGEST_WEIGHT, np.int8))
    node = graph.insert(Node(foreign_op("onnx", "MatMulInteger", 10), [x, weights], {}))
    graph.outputs, graph.output_names = [node.add_result(TensorType(DType.INT32, (1, 1)), "y")], ["y"]
    return Model(graph, format="onnx", opsets={"": 13})
