"""Graphs of `onnx` ops from GraphProto and from the bodies of model-local functions; subgraphs are closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats.onnx.attributes import FIELDS, ITEMS, attribute_kind
from onnxtfl.formats.onnx.definitions import (
    check_signature,
    implied_domain,
    imported_since,
    model_opsets,
    normal_domain,
    opset_versions,
    since_version,
)
from onnxtfl.formats.onnx.flags import read_flags_of_attention, read_values
from onnxtfl.formats.onnx.maps import Vector, vectors_of
from onnxtfl.formats.onnx.names import (
    all_nodes,
    decoded,
    derived_names,
    display_name,
    free_names,
    graphs_of,
    has_graphs,
    name_of,
    text_of,
    topological_order,
)
from onnxtfl.formats.onnx.tensors import Tensors
from onnxtfl.formats.onnx.value_types import ValueTypes
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.model import FunctionKey
from onnxtfl.ir.op import Op, foreign_op
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.types import Type

_ReadOp = tuple[type[Op], dict[str, Any], Sequence[Value]]
"""The op of a node, its attributes, and the values that its subgraphs capture."""
_PLAIN = frozenset(
    {
        *(AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING),
        *(AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS),
    }
)
"""The kinds of attributes that are small, and the same in every node with the same bytes."""


@dataclass
class _Scope:
    """The graph that nodes are added to, its values by name (None: an absent operand of a function), and the context.

    `arguments`: in the body of a function, the attributes of the call; else None. `captured`: the values that graphs
    among these attributes capture where the function is called, which are the last inputs of the body. `plain`: the ops
    of nodes by `_plain_key`; a deep network has few.
    """

    graph: Graph
    imports: Mapping[str, int]
    arguments: Mapping[str, Any] | None = None
    captured: Sequence[Value] = ()
    values: dict[str, Value | None] = field(default_factory=dict)
    types: dict[str, Type | None] = field(default_factory=dict)
    plain: dict[Hashable, _ReadOp] = field(default_factory=dict)

    def define(self, name: str, value: Value | None) -> None:
        """Enter `value` under its name. Raises InvalidModelError if the name is used already."""
        if not name:
            raise InvalidModelError(f"a value of graph {self.graph.name!r} has no name")
        if name_of(name) in self.values:
            raise InvalidModelError(f"two values of graph {self.graph.name!r} have the name {name!r}")
        self.values[name] = value

    def value(self, name: str, user: str) -> Value | None:
        """The value of that name; "" is an absent operand."""
        if not name:
            return None
        if name not in self.values:
            raise InvalidModelError(f"{user} uses {name!r}, which no node produces")
        return self.values[name]


class GraphReader:
    """Reads the graphs of one model."""

    def __init__(self, model: ModelProto, tensors: Tensors) -> None:
        self.tensors = tensors
        self.types = ValueTypes()
        self.functions: dict[FunctionKey, LocalFunction] = {}
        self.columns: dict[str, str] = {}
        versions = model_opsets(model.opset_import)
        for function in model.functions:
            key = _key(function.domain, function.name, function.overload)
            if key in self.functions:
                raise InvalidModelError(f"the function {function.name!r} is defined twice")
            self.functions[key] = LocalFunction(self, function, versions)

    def graph(
        self,
        proto: GraphProto,
        imports: Mapping[str, int],
        captured: Mapping[str, Value | None] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Graph:
        """`proto` as a graph. `captured`: values of the outer graph, which become inputs (constants stay constants)."""
        graph = Graph(text_of(proto.name) or "main")
        scope = _Scope(graph, imports, arguments=arguments)
        scope.types = {info.name: self._value_info(info) for info in proto.value_info}
        scope.types |= {info.name: self.types.of(info, "output") for info in proto.output}
        self._initializers(scope, proto)
        vectors = vectors_of(proto)
        for info in proto.input:
            given = scope.values.get(info.name)
            if info.name in vectors:
                self._define_vectors(scope, vectors[info.name])
            elif given is None or not given.is_constant:
                scope.define(info.name, graph.add_input(self.types.of(info, "input"), name_of(info.name)))
        for name, outer in (captured or {}).items():
            scope.define(name, _captured(graph, name, outer))
        made = {vector.name for found in vectors.values() for vector in found}
        self._nodes(scope, [n for n in proto.node if not made.intersection(n.output)] if made else proto.node)
        for info in proto.output:
            graph.outputs.append(self._output(scope, info.name))
            graph.output_names.append(info.name)
        return graph

    def _define_vectors(self, scope: _Scope, vectors: Sequence[Vector]) -> None:
        """Replace a map input by the vectors that are computed from it."""
        for vector in vectors:
            scope.define(vector.name, scope.graph.add_input(vector.type, vector.name))
            self.columns[vector.name] = vector.columns

    def _value_info(self, info: ValueInfoProto) -> Type | None:
        """The type in `info`; None if it is invalid, as runtimes do not check it."""
        try:
            return self.types.of(info, "value")
        except OnnxtflError:
            return None

    def _initializers(self, scope: _Scope, proto: GraphProto) -> None:
        named = [(tensor.name, self.tensors.read(tensor)) for tensor in proto.initializer]
        named += [(sparse.values.name, self.tensors.dense(sparse)) for sparse in proto.sparse_initializer]
        for name, data in named:
            scope.define(name, _constant(data, name_of(name)))

    def _output(self, scope: _Scope, name: str) -> Value:
        value = scope.value(name, f"graph {scope.graph.name!r}")
        if value is None:
            raise InvalidModelError(f"an output of graph {scope.graph.name!r} has no name")
        value.type = value.type or scope.types.get(name)
        return value

    def _nodes(self, scope: _Scope, nodes: Sequence[NodeProto]) -> None:
        for node in topological_order(nodes, scope.values):
            self._node(scope, node)

    def _node(self, scope: _Scope, proto: NodeProto) -> None:
        name, user = (shown := display_name(proto)), f"node {shown!r}"
        operands = [scope.value(n, user) for n in (*proto.input, *derived_names(proto))]
        key = _plain_key(proto)
        found = None if key is None else scope.plain.get(key)
        if found is None:
            found = self._op(scope, proto, name)
            if key is not None:
                scope.plain[key] = found
        op, attributes, outer = found
        node = Node(op, [*operands, *outer], attributes)
        node.name = text_of(proto.name) or None
        for output in proto.output:
            result = node.add_result(scope.types.get(output))
            if output:
                scope.define(output, result)
                result.name = output
                result.origin = Origin(output)
        scope.graph.insert(node)

    def _op(self, scope: _Scope, proto: NodeProto, name: str) -> _ReadOp:
        """The op of the node `name`, its attributes, and the values that its subgraphs capture."""
        op, domain = name_of(proto.op_type), normal_domain(proto.domain)
        if not op or not op.isprintable():
            raise InvalidModelError(f"invalid op type {op!r}", node=name, code="E-FILE-009")
        if not domain and (domain, op, name_of(proto.overload)) not in self.functions:
            domain = implied_domain(scope.imports, op)
        captured = {n: scope.value(n, f"a subgraph of node {name!r}") for g in graphs_of(proto) for n in free_names(g)}
        attributes = dict(self._attributes(scope, proto, name, captured))
        outer = [v for v in captured.values() if v is not None and not v.is_constant]
        passed = [a.name for a in proto.attribute if isinstance(attributes.get(a.name), Graph) and a.ref_attr_name]
        if passed:
            outer += _share_captures(attributes, passed, outer, scope.captured)
        if has_graphs(proto) or passed:
            attributes["captures"] = len(outer)
        since = imported_since(scope.imports, op, domain, name)
        overload = name_of(proto.overload)
        if (domain, op, overload) not in self.functions:
            check_signature(proto, since, domain, name)
            if not domain:
                read_values(op, attributes, name)
            elif domain == "com.microsoft":
                read_flags_of_attention(attributes)
        called = f"{op}:{overload}" if overload else op
        return foreign_op("onnx", called, since, domain), attributes, outer

    def _attributes(
        self, scope: _Scope, proto: NodeProto, node: str, captured: Mapping[str, Value | None]
    ) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for attribute in proto.attribute:
            if name_of(attribute.name) in seen:
                raise InvalidModelError(f"the attribute {attribute.name!r} occurs twice", node=node, code="E-FILE-009")
            seen.add(attribute.name)
            if not attribute.ref_attr_name:
                yield attribute.name, self._attribute(scope, attribute, node, captured)
            elif scope.arguments is None:
                message = f"the attribute {attribute.name!r} refers to one of a function, outside of a function"
                raise InvalidModelError(message, node=node, code="E-FILE-009")
            elif attribute.ref_attr_name in scope.arguments:
                yield attribute.name, self._argument(scope, attribute.ref_attr_name, node)

    def _argument(self, scope: _Scope, name: str, node: str) -> Any:
        """The value of the attribute `name` of the call; a graph is copied."""
        value = (scope.arguments or {})[name]
        if isinstance(value, Graph) and len(scope.captured) != (scope.arguments or {}).get("captures", 0):
            raise UnsupportedError(
                "a subgraph of a function uses a graph with captured values", node=node, code="E-OP-005"
            )
        return clone(value) if isinstance(value, Graph) else value

    def _attribute(self, scope: _Scope, proto: AttributeProto, node: str, captured: Mapping[str, Value | None]) -> Any:
        """The value of `proto`; `read` lists the types."""
        kind = attribute_kind(proto)
        content: Any = getattr(proto, FIELDS[kind]) if kind in FIELDS else None
        if kind in (AttributeProto.FLOAT, AttributeProto.INT):
            return content
        if kind in (AttributeProto.FLOATS, AttributeProto.INTS):
            return tuple(content)
        where = f"attribute {text_of(proto.name)!r} of node {node!r}"
        if kind not in FIELDS:
            raise InvalidModelError(f"{where} has no value", code="E-FILE-009")
        if kind in ITEMS:
            return tuple(self._item(scope, ITEMS[kind], item, where, captured) for item in content)
        return self._item(scope, kind, content, where, captured)

    def _item(self, scope: _Scope, kind: int, content: Any, where: str, captured: Mapping[str, Value | None]) -> Any:
        if kind == AttributeProto.STRING:
            return decoded(content)
        if kind == AttributeProto.TENSOR:
            return self.tensors.read(content, where)
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.tensors.dense(content)
        if kind == AttributeProto.TYPE_PROTO:
            return self.types.read(content, where)
        return self._subgraph(scope, content, captured)

    def _subgraph(self, scope: _Scope, proto: GraphProto, captured: Mapping[str, Value | None]) -> Graph:
        """A closed subgraph; all captured values of the node are inputs of each of its subgraphs, used or not."""
        return self.graph(proto, scope.imports, captured, scope.arguments)

    def body(self, function: FunctionProto, imports: Mapping[str, int], call: Node) -> Graph:
        """The body of `function` for `call`; its outputs are distinct values, no inputs or constants."""
        name = call.name or call.op.name
        captures = call.attributes.get("captures", 0)
        operands = call.operands[: len(call.operands) - captures]
        if len(operands) > len(function.input) or len(call.results) > len(function.output):
            raise InvalidModelError(
                f"more operands or results than the function {function.name!r} has", node=name, code="E-FILE-009"
            )
        scope = _Scope(Graph(text_of(function.name)), imports)
        defaults = {a.name: self._attribute(scope, a, name, {}) for a in function.attribute_proto}
        scope.arguments = defaults | call.attributes
        for i, formal in enumerate(function.input):
            if i >= len(operands):
                scope.define(formal, None)
                continue
            operand = operands[i]
            value = scope.graph.add_input(operand.type if operand is not None else None)
            scope.define(formal, value if operand is not None else None)
        outer = call.operands[len(operands) :]
        scope.captured = [scope.graph.add_input(None if v is None else v.type) for v in outer]
        self._nodes(scope, function.node)
        for formal in function.output[: len(call.results)]:
            scope.graph.outputs.append(_own(scope, self._output(scope, formal)))
        return scope.graph


class LocalFunction:
    """A model-local function; see :class:`onnxtfl.ir.model.Function`."""

    def __init__(self, reader: GraphReader, proto: FunctionProto, versions: Mapping[str, int]) -> None:
        self._reader, self._proto = reader, proto
        self._imports = {**versions, **opset_versions(proto.opset_import)}

    @property
    def callees(self) -> Mapping[FunctionKey, int]:
        """The number of nodes in the body by op, including those in subgraphs."""
        return Counter(_key(n.domain, n.op_type, n.overload) for n in all_nodes(self._proto.node))

    @property
    def graph_references(self) -> int:
        """The number of graph attributes in the body that refer to one of its call."""
        attributes = (a for n in all_nodes(self._proto.node) for a in n.attribute)
        return sum(bool(a.ref_attr_name) and a.type == AttributeProto.GRAPH for a in attributes)

    def body(self, call: Node) -> Graph:
        """The body for `call`. Raises InvalidModelError if its operands or results do not fit the function."""
        return self._reader.body(self._proto, self._imports, call)


def _plain_key(proto: NodeProto) -> Hashable:
    """Everything on which the op and the attributes of a node depend, besides its scope; None for other attributes than
    plain ones.
    """
    attributes = proto.attribute
    if any(a.type not in _PLAIN or a.ref_attr_name for a in attributes):
        return None
    contents = tuple([a.SerializeToString() for a in attributes])
    given = tuple(map(bool, proto.input)), tuple(map(bool, proto.output))
    return proto.op_type, proto.domain, proto.overload, given, contents


def _own(scope: _Scope, value: Value) -> Value:
    """`value`, or an Identity of it if it is an input, a constant, or another output too."""
    if value.producer is not None and value not in scope.graph.outputs:
        return value
    opset = scope.imports.get("", 1)
    node = Node(foreign_op("onnx", "Identity", since_version("Identity", opset, "")), [value], {})
    scope.graph.insert(node)
    return node.add_result(value.type)


def _key(domain: str | bytes, name: str | bytes, overload: str | bytes) -> FunctionKey:
    return normal_domain(domain), name_of(name), name_of(overload)


def _constant(data: TensorData, name: str) -> Value:
    value = constant(data, name=name)
    value.origin = Origin(name)
    return value


def _captured(graph: Graph, name: str, outer: Value | None) -> Value | None:
    """A value of the outer graph in a subgraph: constants are constants, others are inputs."""
    if outer is None:
        return None
    if outer.data is not None:
        return _constant(outer.data, name)
    value = graph.add_input(outer.type, name)
    value.origin = outer.origin
    return value


def _share_captures(
    attributes: Mapping[str, Any], passed: Sequence[str], outer: Sequence[Value], captured: Sequence[Value]
) -> list[Value]:
    """Make all graphs among `attributes` capture `outer`, then `captured`; those `passed` to a function, `captured`
    only.

    Returns what is captured in addition.
    """
    for name, region in attributes.items():
        if isinstance(region, Graph):
            new = [Value(v.type) for v in (outer if name in passed else captured)]
            place = len(region.inputs) - len(captured) if name in passed else len(region.inputs)
            region.inputs[place:place] = new
    return list(captured)
