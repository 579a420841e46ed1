"""Activation fusion, tfl to tfl.

::

    %a = tfl.CONV_2D(%x, %w, %b) fused_activation_function="NONE"
    %y = tfl.RELU6(%a)
      ->
    %y = tfl.CONV_2D(%x, %w, %b) fused_activation_function="RELU6"
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.matching import single_use
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets.tflite import TfliteTarget, fused_activation_of

FIELD = "fused_activation_function"


def fuse_activations(graph: Graph, target: TfliteTarget) -> None:
    """Fuse each activation into the producer of its operand, if that op has the option.

    The op may need a newer version; if `target` does not have it, the activation stays.
    """
    for node in graph.nodes:
        name = fused_activation_of(node.op.name_in_file)
        if name is not None and _fusable(graph, node, name, target):
            producer = node.operand(0).producer
            assert producer is not None
            if _fused(producer, name, target):
                producer.result.origin = producer.result.name = None
                producer.add_history(node, made_by="fuse activations")
                graph.replace(node, producer.results)


def _fused(producer: Node, name: str, target: TfliteTarget) -> bool:
    """Set the activation of `producer`; return False, without a change, if the target does not accept it."""
    op, attributes = producer.op.name_in_file, {**producer.attributes, FIELD: name}
    form = Form(op, tuple(producer.operands), attributes)
    if target.refuses(producer, form) is not None:
        return False
    producer.attributes, producer.op = attributes, foreign_op("tfl", op, target.version(producer, form))
    return True


def _fusable(graph: Graph, node: Node, name: str, target: TfliteTarget) -> bool:
    value = node.operand(0)
    producer = value.producer
    if producer is None or producer.attributes.get(FIELD, "NONE") != "NONE" or not single_use(value, graph):
        return False
    if not target.fuses(name, producer.op.name_in_file):
        return False
    return isinstance(value.type, TensorType) and value.type.dtype.is_float and value.type == node.result.type
