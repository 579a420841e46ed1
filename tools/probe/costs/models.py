"""Models to time: the form between two Adds, and the Adds only. The difference is the cost of the form."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tools.probe.costs.nodes import Sample

from onnxtfl.errors import OnnxtflError
from onnxtfl.formats.onnx import writer as onnx_writer
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import DType, TensorType, tensor
from onnxtfl.rewriting.lower import emit, lower
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets import Target


@dataclass(frozen=True)
class Candidate:
    """One form of a sample's node.

    `models`: the form with an Add before each computed operand and after each float result; the Adds of the operands
    alone; the Adds of the results alone.
    """

    op: str
    node: Node
    form: Form
    models: tuple[bytes, bytes, bytes]


def candidates(sample: Sample, target: Target) -> Iterator[Candidate]:
    """The forms of a sample that the target accepts."""
    node = _node(sample)
    if node is None:
        return
    for index, form in enumerate(target.forms(node)):
        if target.refuses(node, form) is None:
            operands = [v.type for v in node.present_operands if not v.is_constant]
            results = [r.type for r in node.results if _is_float(r)]
            result_adds = _adds_only(results, target) if results else minimal(target)
            models = _with_adds(sample, index, target), _adds_only(operands, target), result_adds
            yield Candidate(form.op, node, form, models)


def _node(sample: Sample) -> Node | None:
    """The node of a sample; None if its operands are invalid."""
    graph = Graph()
    operands = [graph.add_input(tensor("float32", *x)) if isinstance(x, tuple) else x for x in sample.operands]
    try:
        made = Builder(graph).many(sample.op, *operands, **sample.attributes)
    except OnnxtflError:
        return None
    return made[0].producer


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.FLOAT32


def _with_adds(sample: Sample, index: int, target: Target) -> bytes:
    graph = Graph()
    b = Builder(graph)
    operands = [_input(b, tensor("float32", *x)) if isinstance(x, tuple) else x for x in sample.operands]
    node = b.many(sample.op, *operands, **sample.attributes)[0].producer
    assert node is not None
    graph.outputs = [_added(b, r) if _is_float(r) else r for r in node.results]
    form = target.forms(node)[index]
    emit(graph, node, form, target)
    return _written(graph, target)


def _adds_only(types: Sequence[Any], target: Target) -> bytes:
    graph = Graph()
    b = Builder(graph)
    graph.outputs = [_input(b, type_) for type_ in types]
    return _written(graph, target)


def minimal(target: Target) -> bytes:
    """A model with one Add of one element."""
    return _adds_only([tensor("float32", 1)], target)


def _input(b: Builder, type_: TensorType) -> Value:
    return _added(b, b.graph.add_input(type_, f"x{len(b.graph.inputs)}"))


def _added(b: Builder, value: Value) -> Value:
    return b(ops.Add, value, np.float32(1.5))


def _written(graph: Graph, target: Target) -> bytes:
    lower(graph, target)
    for i, value in enumerate(graph.outputs):
        value.name = f"y{i}"
    file = io.BytesIO()
    if target.name == "tfl":
        tflite_writer.write(Model(graph), file)
    else:
        onnx_writer.write(Model(graph), file, opset=target.opset)
    return file.getvalue()
