"""Constant outputs, for targets whose kernels need a computed operand: joined to an element of an input, then sliced.

::

    %y = RESHAPE(%c)     ->     %j = CONCATENATION(%c, CAST(SLICE(%x)))    %y = RESHAPE(SLICE(%j))
"""

from __future__ import annotations

import math

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value, take_name
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.tflite import TfliteTarget


def join_constant_outputs(graph: Graph, target: TfliteTarget) -> None:
    """Rewrite each output that is a RESHAPE of a constant.

    UnsupportedError for an empty input or output, and for a graph without inputs, if no other target runs it.
    """
    source = next(filter(_has_elements, graph.inputs), None)
    for value in graph.inputs:
        is_empty = isinstance(value.type, TensorType) and 0 in (value.type.shape or ())
        if is_empty and (value.uses or value.rank > 1):  # LiteRT has buffers for other empty vectors
            _refuse("an empty input", value, target)
    builder = Builder(graph, maker="constant outputs")
    for i, value in enumerate(graph.outputs):
        known, node = _constant_of(value), value.producer
        if known is None or node is None:
            continue
        if source is None or 0 in known.shape:
            what = "an output of a model without inputs" if source is None else "an empty output"
            _refuse(what, value, target)
            continue
        builder.cause = node
        made = _joined(builder, known, source, value)
        take_name(value, made)
        graph.outputs[i] = made
        if not value.uses and not graph.is_output(value):
            graph.remove(node)
    if builder.created:
        legalize(graph, target, late=True)
        lower(graph, target)


def _has_elements(value: Value) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and type_.is_static and 0 not in (type_.shape or ()) and not type_.quantization


def _constant_of(value: Value) -> Value | None:
    """The constant of which `value` is a RESHAPE; None for other values."""
    node = value.producer
    if node is None or node.lowered_from not in (ops.Reshape, ops.Copy) or not node.operand(0).is_constant:
        return None
    return node.operand(0)


def _refuse(what: str, value: Value, target: TfliteTarget) -> None:
    if target.fallback is None:
        message = f"{target.title} cannot run a model with {what}, {value.name!r}"
        raise UnsupportedError(message, hint=target.table.advice, code="E-OP-002")


def _joined(b: Builder, known: Value, source: Value, like: Value) -> Value:
    rank, count = source.rank, math.prod(known.shape)
    first = b(ops.Slice, source, [0] * rank, [1] * rank, [1] * rank) if rank else source
    one = reshape(b, first, (1, 1))
    one = one if one.dtype is known.dtype else b(ops.Convert, one, dtype=known.dtype)
    joined = b(ops.Concatenate, reshape(b, known, (1, count)), one, axis=1)
    return reshape(b, b(ops.Slice, joined, [0, 0], [1, count], [1, 1]), like.shape)
