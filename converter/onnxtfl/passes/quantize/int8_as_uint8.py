"""Stores int8 activations as uint8 for ONNX Runtime: values and zero point plus 128.

::

    %y = Relu(%x) : int8 0.25:0    ->    %y = Relu(%x) : uint8 0.25:128

On x86, ONNX Runtime has integer kernels for uint8 activations, and changes int8 ones to uint8 only if one op reads them
(its optimizer QDQS8ToU8Transformer, 1.31): if two ops read them, all ops around compute in float. Weights, inputs and
outputs keep their type, and so do values that are only moved between them.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, output_instead
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantization import UINT8_OFFSET, shifted_to_uint8
from onnxtfl.ir.types import DType, TensorType, Type

_MAKER = "uint8 storage"


def store_as_uint8(graph: Graph) -> None:
    """Store the int8 tensors that ops compute with as uint8, if there is more than one such op."""
    if sum(map(_computes_with_int8, graph.nodes)) < 2:
        return
    unsigned = _Unsigned(graph)
    for node in list(graph.nodes):
        if node.regions:
            unsigned.restore_operands(node)
        elif node.op.moves is None or unsigned.is_moved(node):
            unsigned.change_operands(node)
            unsigned.change_results(node)


class _Unsigned:
    """The values that are stored as uint8 so far, with their former types, and conversions of others."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.outputs = graph, graph.output_set()
        self._before: dict[Value, TensorType] = {}
        self._converted: dict[Value, Value] = {}

    def is_moved(self, node: Node) -> bool:
        """Whether `node` moves elements that are already stored as uint8."""
        return any(v in self._before for v in node.moved_operands)

    def restore_operands(self, node: Node) -> None:
        """Let `node`, whose regions have the types of its operands, read the operands in their former types."""
        for i, value in enumerate(node.operands):
            if value is not None and value in self._before:
                node.set_operand(
                    i,
                    convert_quantization(
                        Builder(self.graph, node, maker=_MAKER), value, self._before[value].quantization
                    ),
                )

    def change_operands(self, node: Node) -> None:
        """Let `node` read uint8."""
        for i, value in enumerate(node.operands if node.op is not ops.Convert else ()):
            wanted = None if value is None or _is_weight(node, i) else _unsigned(value.type)
            if value is None or wanted is None:
                continue
            if value.data is not None:
                self._converted[value] = constant(value.data.cast(DType.UINT8, UINT8_OFFSET), type_=wanted)
            elif value not in self._converted:
                b = Builder(self.graph, node, maker=_MAKER)
                self._converted[value] = convert_quantization(b, value, wanted.quantization)
            node.set_operand(i, self._converted[value])

    def change_results(self, node: Node) -> None:
        """Change the types of the results; outputs are converted back."""
        for result in node.results:
            wanted = _unsigned(result.type)
            if wanted is None or (node.op is ops.Convert and result in self.outputs):
                continue
            result.type, self._before[result] = wanted, result.tensor_type
            if result in self.outputs:
                b = Builder(self.graph, node.next, cause=node, maker=_MAKER)
                output_instead(self.graph, result, convert_quantization(b, result, self._before[result].quantization))


def _computes_with_int8(node: Node) -> bool:
    if node.op.moves is not None or node.op is ops.Convert or node.regions:
        return False
    values = (v for v in (*node.operands, *node.results) if v is not None and not v.is_constant)
    return any(_unsigned(v.type) is not None for v in values)


def _is_weight(node: Node, index: int) -> bool:
    """Whether kernels multiply uint8 activations by this operand as int8."""
    multiplies = issubclass(node.op, ops.Convolution) or node.op in (ops.DotGeneral, ops.DotGeneralBias)
    return multiplies and index == 1 and node.operand(1).is_constant


def _unsigned(type_: Type | None) -> TensorType | None:
    """The type with uint8 instead of int8 storage; None for other types and for several scales."""
    if not isinstance(type_, TensorType) or type_.quantization is None or type_.storage is not DType.INT8:
        return None
    return type_.stored_as(shifted_to_uint8(type_.quantization)) if type_.quantization.per_tensor else None
