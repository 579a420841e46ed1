"""Graphs as GraphProto messages: unique names, captured values by name, weights collected for the main graph."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from onnx import GraphProto, NodeProto

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.onnx.definitions import schema
from onnxtfl.formats.onnx.encode import ValueWriter
from onnxtfl.formats.onnx.message import Message
from onnxtfl.formats.onnx.metadata import documented
from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.ops.custom import Custom

EMPTY: Mapping[str, Any] = MappingProxyType({})
_PREFIX = "onnx."


class GraphWriter:
    """Writes the graphs of one model.

    `weights`: the constants so far, by name; `names`: the name of each value; `domains`: newest op version by domain.
    The types of values that are no inputs or outputs are written if the model was read from ONNX, or the value is
    documented.
    """

    def __init__(self, model: Model) -> None:
        self.weights: dict[str, TensorData] = {}
        self.domains: dict[str, int] = {}
        self._value_info = model.format == "onnx"
        self._metadata = model.metadata
        self._constant_names = model.constant_names
        self._values = ValueWriter(model.dim_names)
        self.names: dict[Value, str] = {}
        self._by_key: dict[Hashable, str] = {}
        self._unique = UniqueNames()
        self._node_names = UniqueNames()

    def main(self, graph: Graph) -> Message:
        """The main graph without initializers. Inputs and outputs are named first, so that they keep their names."""
        for value in [*graph.inputs, *graph.outputs]:
            if value not in self.names:
                self.names[value] = self._unique.fresh(self._wanted(value, "value"))
                if value.data is not None:
                    self._add_weight(self.names[value], value.data)
        for value in (result for node in graph.nodes for result in node.results if result.name):
            self._name(value)  # before constants, which would take the name
        metadata = self._metadata
        message = self._nodes(graph, documented(metadata.graph_description, metadata.graph_properties))
        return self._boundary(message, graph.inputs, [(self.names[v], v) for v in graph.outputs])

    def _nodes(self, graph: Graph, documentation: Mapping[str, Any] = EMPTY) -> Message:
        """The graph without inputs and outputs; `documentation`: further fields."""
        message = Message(GraphProto(name=graph.name, **documentation).SerializeToString())
        described = self._metadata.descriptions.keys() | self._metadata.tensor_properties.keys()
        outputs = set(graph.outputs)
        for node in graph.nodes:
            message.field(GraphProto.NODE_FIELD_NUMBER, self._node(node))
            is_told = self._value_info or node.lowered_from is Custom  # no one can infer the types of a user's op
            for value in node.results:
                name = self.names.get(value, "")
                if value.type is not None and value not in outputs and (is_told or name in described):
                    message.field(GraphProto.VALUE_INFO_FIELD_NUMBER, self._info(self._name(value), value))
        return message

    def _info(self, name: str, value: Value) -> bytes:
        found = self._metadata
        text, properties = found.descriptions.get(name, ""), found.tensor_properties.get(name)
        return self._values.value_info(name, value.type, documented(text, properties))

    def _boundary(self, message: Message, inputs: Sequence[Value], outputs: Sequence[tuple[str, Value]]) -> Message:
        for value in inputs:
            message.field(GraphProto.INPUT_FIELD_NUMBER, self._info(self._name(value), value))
        for name, value in outputs:
            message.field(GraphProto.OUTPUT_FIELD_NUMBER, self._info(name, value))
        return message

    def _subgraph(self, captured: Sequence[Value], graph: Graph) -> Message:
        """A subgraph; its last inputs are captured values, which have their names in the outer graph."""
        own = graph.inputs[: len(graph.inputs) - len(captured)]
        for inner, outer in zip(graph.inputs[len(own) :], captured, strict=True):
            self.names[inner] = self._name(outer)
        for value in own:
            self._name(value)
        message = self._nodes(graph)
        outputs: dict[str, Value] = {}
        for value in graph.outputs:
            name = self._name(value)
            if value.producer is None or name in outputs:  # ONNX: an output is a result of the subgraph, listed once
                copy = self._unique.fresh(name)
                identity = NodeProto(
                    op_type="Identity", name=self._node_names.fresh("Identity"), input=[name], output=[copy]
                )
                message.field(GraphProto.NODE_FIELD_NUMBER, bytes(identity.SerializeToString()))
                name = copy
            outputs[name] = value
        return self._boundary(message, own, list(outputs.items()))

    def _node(self, node: Node) -> Message:
        op = self._op(node)
        graphs = node.regions
        count = node.attributes.get("captures", 0) if graphs else 0
        own = len(node.operands) - count
        captured = [node.operand(i) for i in range(own, len(node.operands))]
        inputs = [self._name(v) if v is not None else "" for v in node.operands[:own]]
        results = [self._result(node, i, op) for i in range(len(node.results))]
        proto = NodeProto(
            op_type=op[0],
            domain=op[2],
            name=self._node_names.fresh(node.name or op[0]),
            input=_stripped(inputs),
            output=_stripped(results),
            **self._documented(results[0] if results else ""),
        )
        message = Message(proto.SerializeToString())
        write_graph = functools.partial(self._subgraph, captured)
        for name, value in node.attributes.items():
            if value is not None and not (graphs and name == "captures"):
                message.field(NodeProto.ATTRIBUTE_FIELD_NUMBER, self._values.attribute(op, name, value, write_graph))
        return message

    def _documented(self, result: str) -> dict[str, Any]:
        """The documentation of the node with this first result."""
        return documented(self._metadata.node_descriptions.get(result, ""), self._metadata.node_properties.get(result))

    def _op(self, node: Node) -> tuple[str, int, str]:
        """Name, version and domain of the op of `node`."""
        if node.op.dialect != "onnx":
            raise UnsupportedError("not an ONNX op", node=node.name, op=node.op.name, code="E-OP-002")
        domain = node.op.domain
        self.domains[domain] = max(self.domains.get(domain, 1), node.op.version)
        return node.op.name.removeprefix(_PREFIX), node.op.version, domain

    def _result(self, node: Node, index: int, op: tuple[str, int, str]) -> str:
        """The name of a result; "" for an unused one that ONNX marks optional."""
        value = node.results[index]
        if value.name is None and not value.uses and value not in self.names:
            definition = schema(*op)
            outputs = definition.outputs if definition is not None else ()
            if definition is None or (index < len(outputs) and outputs[index].option.name == "Optional"):
                return ""
        return self._name(value, op[0])

    def _name(self, value: Value, hint: str = "value") -> str:
        if value not in self.names:
            if value.data is not None:
                return self._weight(value, value.data)
            self.names[value] = self._unique.fresh(self._wanted(value, hint))
        return self.names[value]

    def _wanted(self, value: Value, hint: str) -> str:
        origin = next((origin.tensor for origin in value.origins if origin.shape is None), "")
        return value.name or origin or self._constant_names.get(value) or hint

    def _weight(self, value: Value, data: TensorData) -> str:
        key = _key(data)
        if key not in self._by_key:
            self._add_weight(self._unique.fresh(self._wanted(value, "constant")), data)
        self.names[value] = self._by_key[key]
        return self.names[value]

    def _add_weight(self, name: str, data: TensorData) -> None:
        self.weights[name] = data
        self._by_key.setdefault(_key(data), name)


def _key(data: TensorData) -> Hashable:
    """A key that is equal for tensors with the same bytes, dtype and shape, which share an initializer."""
    return data.key, data.dtype, data.shape


def _stripped(names: list[str]) -> list[str]:
    """`names` without trailing empty ones."""
    while names and not names[-1]:
        names.pop()
    return names
