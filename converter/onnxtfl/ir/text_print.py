"""The printer for the text form of a graph, which :mod:`onnxtfl.ir.text_parse` parses.

::

    graph main(%x: tensor<1x[n]xfloat32>) -> (%y) {
      %0 = constant tensor<2xint64> [1, -1]
      %y = Reshape(%0, %x) {mode = "a", axis = 1} : tensor<1x[n]xfloat32>
    }

An absent operand is ``_``. Ops of a file's dialect have a version: ``onnx.Conv@11``. Constants of a quantized type are
printed as stored integers; those with more than `limit` elements are printed as ``...`` and cannot be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import DType, OptionalType, ResourceType, SequenceType, TensorType, TupleType

PLAIN = re.compile(r"[A-Za-z0-9_.$-]+\Z")
DEFAULT_LIMIT = 64


def print_graph(graph: Graph, limit: int = DEFAULT_LIMIT) -> str:
    """The text of `graph`; the elements of constants are printed up to `limit` of them."""
    return "\n".join(_Printer(limit).graph(graph)) + "\n"


class _Printer:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()

    def graph(self, graph: Graph) -> Iterator[str]:
        body: list[str] = []
        inputs = ", ".join(f"{self.name(v)}: {v.type}" for v in graph.inputs)
        for node in graph.nodes:
            body += self.constants(node.operands)
            body += self.node(node)
        body += self.constants([*graph.outputs, *(s.output for s in graph.states)])
        outputs = ", ".join(self.name(v) for v in graph.outputs)
        yield f"graph {_word(graph.name)}({inputs}) -> ({outputs}) {{"
        for state in graph.states:
            initial = "" if state.initial is None else f" = {self.data(state.initial)}"
            yield f"  state {self.name(state.input)}: {state.input.type} -> {self.name(state.output)}{initial}"
        yield from (f"  {line}" for line in body)
        yield "}"

    def constants(self, values: list[Value | None] | list[Value]) -> Iterator[str]:
        for value in values:
            if value is not None and value.data is not None and value not in self.names:
                yield f"{self.name(value)} = constant {self.data(value.data, value.tensor_type)}"

    def node(self, node: Node) -> Iterator[str]:
        results = ", ".join(self.name(v) for v in node.results)
        operands = ", ".join("_" if v is None else self.name(v) for v in node.operands)
        attributes = ", ".join(f"{k} = {self.attribute(v)}" for k, v in sorted(node.attributes.items()))
        types = ", ".join(str(v.type) if v.type is not None else "?" for v in node.results)
        op = node.op.name if node.op.dialect == "neutral" else f"{_word(node.op.name)}@{node.op.version}"
        op += f"@{_word(node.op.domain)}" if node.op.domain else ""
        text = f"{results} = {op}({operands}){f' {{{attributes}}}' if attributes else ''} : {types}"
        yield from text.split("\n")

    def name(self, value: Value) -> str:
        if value not in self.names:
            wanted = value.name or str(len(self.names))
            name, count = wanted, 0
            while name in self.taken:
                count += 1
                name = f"{wanted}_{count}"
            self.taken.add(name)
            self.names[value] = f"%{_word(name)}"
        return self.names[value]

    def data(self, data: TensorData, type_: TensorType | None = None) -> str:
        """The type (by default that of the stored elements) and the stored elements."""
        shown = type_ or TensorType(data.dtype, data.shape)
        if data.size > self.limit:
            return f"{shown} ..."
        elements = data.numpy().reshape(-1)
        return f"{shown} [{', '.join(_element(e, data.dtype) for e in elements.tolist())}]"

    def attribute(self, value: Any) -> str:
        match value:
            case bool() | None:
                return str(value).lower()
            case int() | float():
                return repr(value)
            case str():
                return json.dumps(value)
            case bytes():
                return f"hex {json.dumps(value.hex())}"
            case DType():
                return f"!{value.value}"
            case TensorData():
                return f"data {self.data(value)}"
            case TensorType() | SequenceType() | OptionalType() | TupleType() | ResourceType():
                return f"type {value}"
            case Graph():
                return "\n".join(self.graph(value))
            case tuple() | list():
                return f"[{', '.join(self.attribute(v) for v in value)}]"
        raise TypeError(f"no text form for the attribute {value!r}")


def _element(element: Any, dtype: DType) -> str:
    if dtype is DType.STRING:
        text = element.decode("latin-1") if isinstance(element, bytes) else str(element)
        return json.dumps(text)
    if dtype is DType.BOOL:
        return "true" if element else "false"
    return repr(element)


def _word(name: str) -> str:
    return name if PLAIN.match(name) else json.dumps(name)
