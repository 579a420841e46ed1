"""The values of the format's tables for a model of `tfl` ops, without the bytes of the constants."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.encode import Tables, Values
from onnxtfl.formats.tflite.metadata import entries_of
from onnxtfl.formats.tflite.names import TensorNames
from onnxtfl.formats.tflite.schema import OPERATOR_FIELDS
from onnxtfl.formats.tflite.types import encode_strings, quantization_table, scales_of_blocks, type_name
from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.metadata import Late, Property
from onnxtfl.ir.model import Model, Signature
from onnxtfl.ir.types import DType, ResourceType, TensorType, Type

Content = TensorData | bytes
SIGNATURE = "serving_default"
CUSTOM = "custom:"
LAST_SHORT_CODE = 127
"""The value of `deprecated_builtin_code` (one byte) for all larger builtin codes (schema.fbs)."""


def model_tables(
    model: Model, late: Late | None = None, by_content: bool = False
) -> tuple[dict[str, Any], list[Content | None], dict[Value, str]]:
    """The values of the Model table without `buffers`, the content of each buffer (None: empty), names of tensors."""
    tables = _Model(model.constant_names, by_content)
    for graph in model.graphs():
        tables.graph_number(graph)
    subgraphs = [subgraph.values() for subgraph in tables.all_subgraphs()]
    names = {v: n for subgraph in tables.subgraphs for v, n in subgraph.names.all.items()}
    entries = {**entries_of(model), **(late(names) if late is not None else {})}
    values = {
        "version": 3,
        "operator_codes": tables.codes,
        "subgraphs": subgraphs,
        "description": model.metadata.description or None,
        "metadata": tables.metadata(entries) or None,
        "signature_defs": [tables.signature(s) for s in model.signatures or [default_signature(model.main)]],
    }
    tables.subgraphs.clear()  # they refer to `tables`: a cycle would wait for the garbage collector
    return values, tables.contents, names


class _Model:
    """The tables that the subgraphs of a model share: op codes, buffers; and the indices of the subgraphs."""

    def __init__(self, constant_names: Mapping[Value, str], by_content: bool) -> None:
        self.constant_names, self.by_content = constant_names, by_content
        self.names = UniqueNames()
        self.codes: list[Values] = []
        self.contents: list[Content | None] = [None]  # buffer 0 is empty by convention
        self.subgraphs: list[_Subgraph] = []
        self._code_numbers: dict[tuple[str, int], int] = {}
        self._buffer_numbers: dict[Hashable, int] = {}
        self._graph_numbers: dict[Graph, int] = {}

    def graph_number(self, graph: Graph) -> int:
        """The index of a subgraph, which is added on its first use."""
        if graph not in self._graph_numbers:
            self._graph_numbers[graph] = len(self.subgraphs)
            self.subgraphs.append(_Subgraph(self, graph))
        return self._graph_numbers[graph]

    def all_subgraphs(self) -> Iterator[_Subgraph]:
        """Each subgraph, also those that are added during the iteration."""
        done = 0
        while done < len(self.subgraphs):
            yield self.subgraphs[done]
            done += 1

    def code_number(self, name: str, version: int) -> int:
        """The index of an op code, which is added on its first use."""
        key = (name, version)
        if key not in self._code_numbers:
            self._code_numbers[key] = len(self.codes)
            self.codes.append(_op_code(name, version))
        return self._code_numbers[key]

    def buffer_number(self, data: TensorData) -> int:
        """The index of the buffer with this content; equal constants share one."""
        is_text = data.dtype is DType.STRING
        key = data.content_key if self.by_content and not is_text else data.key
        if key not in self._buffer_numbers:
            content = encode_strings(data.numpy().reshape(-1).tolist()) if is_text else data
            self._buffer_numbers[key] = self._add(content)
        return self._buffer_numbers[key]

    def metadata(self, properties: Mapping[str, Property]) -> list[Values]:
        """The Metadata tables."""
        contents = {k: v.encode() if isinstance(v, str) else v for k, v in properties.items()}
        return [{"name": name, "buffer": self._add(content)} for name, content in contents.items()]

    def signature(self, signature: Signature) -> Values:
        """The SignatureDef table."""
        subgraph = self.subgraphs[self.graph_number(signature.graph)]
        sides = {"inputs": signature.graph.inputs, "outputs": signature.graph.outputs}

        def entries(side: str, named: Sequence[tuple[str, int]]) -> list[Values]:
            return [{"name": name, "tensor_index": subgraph.number(sides[side][i])} for name, i in named]

        return {
            "inputs": entries("inputs", signature.inputs),
            "outputs": entries("outputs", signature.outputs),
            "signature_key": signature.key,
            "subgraph_index": self.graph_number(signature.graph),
        }

    def _add(self, content: Content) -> int:
        self.contents.append(content)
        return len(self.contents) - 1


class _Tensor(NamedTuple):
    """The contents of a Tensor table."""

    type_: Type | None
    name: str
    buffer: int = 0
    is_variable: bool = False
    scales: int = -1


class _Subgraph:
    """The tables of one subgraph.

    Tables of tensors and operators are created twice: first here, to number op codes, tensors and buffers and to find
    what the format cannot express; then one at a time when they are encoded.
    """

    def __init__(self, model: _Model, graph: Graph) -> None:
        self.model = model
        self.graph = graph
        self.tensors: list[_Tensor] = []
        self._numbers: dict[Value, int] = {}
        self._constants: dict[Hashable, int] = {}
        self._intermediates: dict[Node, list[int]] = {}
        self._states = {state.input: state for state in graph.states}
        self._written = {s.output: s.input for s in graph.states if s.output is not s.input}

    @cached_property
    def names(self) -> TensorNames:
        """Return the names of the tensors; those of a subgraph follow those of its caller."""
        return TensorNames(self.graph, self.model.constant_names, self.model.names)

    def values(self) -> Values:
        """The values of the SubGraph table."""
        inputs = [self.number(value) for value in self.graph.inputs]
        nodes = list(self.graph.nodes)
        for node in nodes:
            self._number_operator(node)
        return {
            "tensors": Tables(self.tensors, _tensor),
            "inputs": inputs,
            "outputs": [self.number(value) for value in self.graph.outputs],
            "operators": Tables(nodes, self._operator),
            "name": self.graph.name,
        }

    def _number_operator(self, node: Node) -> None:
        """Number what the Operator table refers to, so that the lists of tensors, op codes and subgraphs are known."""
        if node.regions or "intermediates" in node.attributes:
            self._operator(node)
            return
        self._code_number(node)
        for value in (*filter(None, node.operands), *self._outputs(node)):
            self.number(value)

    def number(self, value: Value) -> int:
        """The index of the tensor for `value`."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self._constant(value) if value.is_constant else self._add(value)
        return found

    def _constant(self, value: Value) -> int:
        """The tensor of a constant; equal constants without a name share one."""
        assert value.data is not None
        if value.name is not None:
            return self._add(value)
        key = (value.type, value.data.key)
        if key not in self._constants:
            self._constants[key] = self._add(value)
        return self._constants[key]

    def _add(self, value: Value) -> int:
        buffer = 0
        if value.data is not None:
            if isinstance(value.type, TensorType) and value.data.dtype is not value.type.storage:
                dtypes = f"{value.data.dtype.value} elements for a tensor of {value.type.storage.value}"
                raise InvalidModelError(f"a constant has {dtypes}", node=value.name, code="E-FILE-010")
            buffer = self.model.buffer_number(value.data)
        if value in self._states:
            self._check_initial(value)
        name, scales = self.names.of(value), self._scales(value.type)
        self.tensors.append(_Tensor(value.type, name, buffer, value in self._states, scales))
        return len(self.tensors) - 1

    def _scales(self, type_: Type | None) -> int:
        """The index of the tensor with the scales of the blocks of a type; -1 for other types."""
        quantization = type_.quantization if isinstance(type_, TensorType) else None
        if quantization is None or quantization.block is None or not isinstance(type_, TensorType):
            return -1
        return self.number(constant(scales_of_blocks(quantization, type_.shape)))

    def _check_initial(self, value: Value) -> None:
        initial = self._states[value].initial
        if initial is not None and np.any(initial.numpy()):
            raise InvalidModelError(
                "the initial value of a TFLite variable can only be zero", node=value.name, code="E-OP-007"
            )

    def _code_number(self, node: Node) -> int:
        if node.op.dialect != "tfl":
            raise InvalidModelError("not a TFLite op", node=node.name, op=node.op.name, code="E-OP-002")
        return self.model.code_number(node.op.name_in_file, node.op.version)

    def _operator(self, node: Node) -> Values:
        values = {
            "opcode_index": self._code_number(node),
            "inputs": [-1 if value is None else self.number(value) for value in node.operands],
            "outputs": [self.number(value) for value in self._outputs(node)],
        }
        return values | self._options(node)

    def _outputs(self, node: Node) -> list[Value]:
        """The results except new values of variables among the operands."""
        written = self._written
        for value in node.results:
            if value in written and written[value] in node.operands:
                self._numbers[value] = self.number(written[value])
        return [value for value in node.results if value not in written]

    def _options(self, node: Node) -> dict[str, Any]:
        attributes = {key: value for key, value in node.attributes.items() if key != "default_features"}
        table = schema.options_table(node.op.name_in_file)
        values = {field: attributes.pop(field) for field in OPERATOR_FIELDS if field in attributes}
        if "intermediates" in values:
            if node not in self._intermediates:
                self._intermediates[node] = [self._intermediate(type_) for type_ in values["intermediates"]]
            values["intermediates"] = self._intermediates[node]
        if table is not None:
            field, number = schema.options_union(table.name)
            values[f"{field}_type"] = number
            values[field] = (
                table,
                {key: self._attribute(table, key, value, node) for key, value in attributes.items()},
            )
        elif attributes:
            raise InvalidModelError(
                f"unknown option {next(iter(attributes))!r}", node=node.name, op=node.op.name, code="E-FILE-009"
            )
        return values

    def _attribute(self, table: schema.Table, key: str, value: Any, node: Node) -> Any:
        field = table.by_name.get(key)
        named = field is not None and isinstance(value, str) and bool(field.enum)
        if field is None or (named and value not in field.enum) or not _is_held(field, value):
            what = f"unknown option {key!r}" if field is None else f"the option {key!r} cannot be {value!r}"
            raise InvalidModelError(what, node=node.name, op=node.op.name, code="E-FILE-009")
        if not field.is_graph or not value:
            return value
        return [self.model.graph_number(g) for g in value] if field.kind == "vector" else self.model.graph_number(value)

    def _intermediate(self, type_: TensorType | None) -> int:
        if type_ is None:
            return -1
        self.tensors.append(_Tensor(type_, self.names.fresh("intermediate")))
        return len(self.tensors) - 1


def _is_held(field: schema.Field, value: Any) -> bool:
    """Whether a field of an options table has enough bits for `value`; subgraphs are numbered later."""
    if value is None or field.is_graph or not field.code:
        return True
    if field.kind == "vector":
        return isinstance(value, bytes) or all(map(field.holds, value))
    return field.holds(value)


def _tensor(tensor: _Tensor) -> Values:
    """A Tensor table; unknown dimensions are 1 in `shape` and -1 in `shape_signature`."""
    values = _typed(tensor.type_, tensor.name, tensor.scales)
    if tensor.buffer:
        values["buffer"] = tensor.buffer
    if tensor.is_variable:
        values["is_variable"] = True
    return values


def _typed(type_: Type | None, name: str, scales: int) -> dict[str, Any]:
    """A Tensor table without buffer. `scales`: the number of the tensor with the scales of blocks."""
    if isinstance(type_, ResourceType):
        kind = "VARIANT" if type_.kind == "variant" else "RESOURCE"
        return {"shape": (), "type": kind, "name": name}
    if not isinstance(type_, TensorType):
        raise InvalidModelError("TFLite has no equivalent of this type", node=name, type_=type_, code="E-TYPE-002")
    shape = type_.shape
    values: dict[str, Any] = {
        "shape": shape or (),
        "type": _type_name(type_, name),
        "name": name,
        "has_rank": shape is not None,
    }
    if shape is not None and not type_.is_static:
        values["shape"] = tuple(size_or(d, 1) for d in shape)
        values["shape_signature"] = tuple(size_or(d, -1) for d in shape)
    if values["shape"] and max(values["shape"]) >= 1 << 31:
        raise InvalidModelError("a dimension does not fit into 32 bits", node=name, type_=type_, code="E-OP-008")
    if type_.quantization is not None:
        values["quantization"] = quantization_table(type_.quantization, scales)
    return values


def _type_name(type_: TensorType, name: str) -> str:
    found = type_name(type_.storage)
    if found not in schema.enums()["TensorType"][1]:
        raise InvalidModelError(
            f"TFLite has no element type {type_.storage.value}", node=name, type_=type_, code="E-TYPE-002"
        )
    return found


def _op_code(name: str, version: int) -> Values:
    if name.startswith(CUSTOM):
        code, custom = schema.builtin_code("CUSTOM"), name.removeprefix(CUSTOM)
        return {"deprecated_builtin_code": code, "builtin_code": code, "custom_code": custom, "version": version}
    if name not in schema.builtin_ops():
        raise InvalidModelError("not a TFLite op", op=name, code="E-OP-002")
    code = schema.builtin_code(name)
    return {"deprecated_builtin_code": min(code, LAST_SHORT_CODE), "builtin_code": code, "version": version}


def default_signature(graph: Graph, key: str = SIGNATURE) -> Signature:
    """The signature `key` of `graph`, with the names of its inputs and outputs."""
    names, unique = TensorNames(graph), UniqueNames()
    outputs = graph.output_names or [names.of(value) for value in graph.outputs]
    return Signature(
        key,
        graph,
        tuple((names.of(value), i) for i, value in enumerate(graph.inputs)),
        tuple((unique.fresh(name), i) for i, name in enumerate(outputs)),
    )
