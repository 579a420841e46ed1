"""Reads one subgraph from its decoded tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.buffers import Buffers
from onnxtfl.formats.tflite.schema import OPERATOR_FIELDS
from onnxtfl.formats.tflite.types import read_shape, read_type
from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.data import LARGEST_EMPTY, Array, ArrayData, TensorData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, State, Value, constant
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.types import TensorType, Type


class Model(Protocol):
    """The parts of a model that `SubgraphReader` uses."""

    buffers: Buffers
    codes: list[tuple[str, int]]
    has_rank_flags: bool
    """Whether the file sets `has_rank`; older files do not."""

    def graph(self, number: int, callers: tuple[int, ...]) -> Graph:
        """The graph of another subgraph."""
        ...


class SubgraphReader:
    """Reads one subgraph; `callers`: indices of the subgraphs on the path to it, its own last."""

    def __init__(
        self, model: Model, table: Mapping[str, Any], callers: tuple[int, ...], signature: Mapping[str, Any] | None
    ) -> None:
        self.model = model
        self.table = table
        self.callers = callers
        self.tensors: list[Mapping[str, Any]] = table["tensors"] or []
        self.result = Graph(table["name"] or ("main" if callers == (0,) else f"subgraph_{callers[-1]}"))
        self.result.number = callers[-1]
        self._values: dict[int, Value] = {}
        self._symbols = UniqueNames()
        self._names = UniqueNames()
        self._input_names = _signature_names(signature, "inputs")
        self._output_names = _signature_names(signature, "outputs")

    def graph(self) -> Graph:
        """The graph. Raises InvalidModelError if the subgraph is invalid."""
        inputs, outputs = self.table["inputs"] or (), self.table["outputs"] or ()
        self._reserve_names(inputs, outputs)
        for number in inputs:
            self._add_input(number)
        for operator in self.table["operators"] or ():
            self._add_node(operator)
        self.result.outputs = [self._operand(number, "output of the graph") for number in outputs]
        unique = UniqueNames()
        self.result.output_names = [unique.fresh(self._output_name(number)) for number in outputs]
        return self.result

    def _reserve_names(self, inputs: Iterable[int], outputs: Iterable[int]) -> None:
        """Name inputs, then outputs, before other tensors, so that they keep their names."""
        self._chosen: dict[int, str] = {}
        for number in inputs:
            self._choose(number, self._input_names.get(number, [""])[0])
        for number in outputs:
            self._choose(number, self._output_names.get(number, [""])[0])

    def _choose(self, number: int, wanted: str) -> str:
        if number not in self._chosen:
            name = wanted or self._tensor(number)["name"] or f"tensor_{number}"
            self._chosen[number] = self._names.fresh(name)
        return self._chosen[number]

    def _output_name(self, number: int) -> str:
        """The signature's name; for a tensor that is several outputs, the next name on each call."""
        names = self._output_names.get(number)
        return names.pop(0) if names else self._chosen[number]

    def _tensor(self, number: int) -> Mapping[str, Any]:
        if not 0 <= number < len(self.tensors):
            raise InvalidModelError(
                f"malformed: there is no tensor {number} in {self.result.name!r}", code="E-FILE-005"
            )
        return self.tensors[number]

    def _type(self, number: int, is_input: bool = False) -> Type:
        tensor, name = self._tensor(number), self._choose(number, "")
        shape = read_shape(tensor, name, self._symbols.fresh)
        type_ = read_type(tensor, name, shape, self._stored)
        if (
            isinstance(type_, TensorType)
            and not shape
            and not tensor["has_rank"]
            and not self._is_scalar(tensor, is_input)
        ):
            return type_.with_shape(None)
        return type_

    def _stored(self, number: int) -> Array:
        """The elements of a constant. Raises InvalidModelError for another tensor."""
        tensor = self._tensor(number)
        is_plain = not (tensor["quantization"] or {}).get("details")  # no tensor has its own elements as scales
        data = self._data(tensor, self._type(number), number) if is_plain else None
        if data is None:
            raise InvalidModelError("scales that are no constant", node=self._choose(number, ""), code="E-QUANT-001")
        return data.numpy()

    def _stored_type(self, number: int) -> Type:
        """Return the type of a tensor that no node computes. Raises InvalidModelError if stored elements do not fit its
        shape.
        """
        type_, tensor = self._type(number), self._tensor(number)
        if not isinstance(type_, TensorType) or type_.is_static or self.model.buffers.span(tensor["buffer"]) is None:
            return type_
        return type_.with_shape(
            read_shape({**tensor, "shape_signature": None}, self._chosen[number], self._symbols.fresh)
        )

    def _is_scalar(self, tensor: Mapping[str, Any], is_input: bool) -> bool:
        """Whether an empty shape means rank 0; in older files it may mean an unknown rank."""
        return self.model.buffers.span(tensor["buffer"]) is not None or (is_input and not self.model.has_rank_flags)

    def _named(self, number: int, type_: Type | None) -> Value:
        value = Value(type_, self._choose(number, ""))
        value.origin = Origin(self._tensor(number)["name"] or value.name or "")
        return value

    def _add_input(self, number: int) -> None:
        if number in self._values:
            raise InvalidModelError("a tensor is two inputs of the graph", node=self._chosen[number])
        value = self._named(number, self._type(number, is_input=True))
        self._values[number] = value
        self.result.inputs.append(value)

    def _operand(self, number: int, what: str) -> Value:
        """The value of a tensor: an input or the result of an earlier node, else a constant or a variable."""
        if number not in self._values:
            self._values[number] = self._source(number, what)
        return self._values[number]

    def _is_absent(self, number: int, op: str) -> bool:
        """Whether an operand is absent, or scratch memory of a custom op (`_split_1_scratch` of Ethos-U)."""
        if number == -1 or not op.startswith("custom:") or number in self._values:
            return number == -1
        tensor = self._tensor(number)
        return not tensor["is_variable"] and self._data(tensor, self._type(number), number) is None

    def _source(self, number: int, what: str) -> Value:
        tensor, type_ = self._tensor(number), self._stored_type(number)
        data = self._data(tensor, type_, number)
        if data is not None:
            if tensor["is_variable"]:
                raise InvalidModelError(
                    "a variable with an initial value", node=self._choose(number, ""), code="E-OP-007"
                )
            value = constant(data, name=self._choose(number, ""), type_=type_)
            value.origin = Origin(tensor["name"] or value.name or "")
            return value
        value = self._named(number, type_)
        if not tensor["is_variable"]:
            raise InvalidModelError(f"no node before produces the {what}", node=value.name)
        self.result.states.append(State(value, value))
        return value

    def _data(self, tensor: Mapping[str, Any], type_: Type, number: int) -> TensorData | None:
        """The values of a constant; a tensor of 0 elements that no node produces is one too."""
        if not isinstance(type_, TensorType) or not is_static(shape := type_.shape):
            return None
        data = self.model.buffers.constant(tensor, type_.storage, shape, self._choose(number, ""))
        if data is None and 0 in shape:
            if math.prod(filter(None, shape)) > LARGEST_EMPTY:
                message = "a tensor without elements whose other sizes are too large"
                raise InvalidModelError(message, node=self._choose(number, ""), type_=type_, code="E-FILE-010")
            return ArrayData(np.empty(shape, type_.storage.numpy), type_.storage)
        return data

    def _add_node(self, operator: Mapping[str, Any]) -> None:
        index = operator["opcode_index"]
        if index >= len(self.model.codes):
            raise InvalidModelError(f"malformed: there is no op code {index}", code="E-FILE-005")
        name, version = self.model.codes[index]
        numbers = operator["inputs"] or ()
        inputs = [None if self._is_absent(n, name) else self._operand(n, f"operand of {name}") for n in numbers]
        attributes = self._attributes(name, operator)
        if name == "CONV_2D":
            attributes |= self._default_features(operator, inputs)
        node = Node(foreign_op("tfl", name, version), inputs, attributes)
        for number in operator["outputs"] or ():
            self._add_result(node, number)
        self.result.insert(node)

    def _default_features(self, operator: Mapping[str, Any], inputs: Sequence[Value | None]) -> dict[str, int]:
        """Return the stored default size of a convolution's dynamic feature axis, which implies its groups."""
        type_ = inputs[0].type if inputs and inputs[0] is not None else None
        if not isinstance(type_, TensorType) or not type_.shape or is_static(type_.shape[-1:]):
            return {}
        return {"default_features": int(self._tensor(operator["inputs"][0])["shape"][-1])}

    def _add_result(self, node: Node, number: int) -> None:
        state = None
        if number in self._values:
            state = next((s for s in self.result.states if s.output is self._values[number]), None)
            if state is None:
                name, message = self._choose(number, ""), "a tensor is written twice, or read before it is written"
                raise InvalidModelError(message, node=name, op=node.op.name)
        named = self._named(number, self._type(number))
        value = self._values[number] = node.add_result(named.type, named.name if state is None else None)
        value.origin = named.origin
        if state is not None:
            state.output = value

    def _attributes(self, name: str, operator: Mapping[str, Any]) -> dict[str, Any]:
        table = schema.options_table(name)
        attributes = self._options(table, operator) if table is not None else {}
        self._check_enums(table, attributes, operator)
        for field in OPERATOR_FIELDS:
            if operator[field]:
                attributes[field] = operator[field]
        if "intermediates" in attributes:
            attributes["intermediates"] = tuple(None if n == -1 else self._type(n) for n in attributes["intermediates"])
        return attributes

    def _options(self, table: schema.Table, operator: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the options table; defaults if the file has another table or none, as in runtimes."""
        field, _ = schema.options_union(table.name)
        member, found = operator[field] or (None, None)
        values = found if member is table and found is not None else schema.defaults(table)
        return {f.name: self._graphs(values[f.name]) if f.is_graph else values[f.name] for f in table.fields}

    def _check_enums(self, table: schema.Table | None, values: Mapping[str, Any], operator: Mapping[str, Any]) -> None:
        """Raise UnsupportedError for an option whose value its enum lacks: kernels differ in how they read it."""
        wrong = [f for f in table.fields if f.enum and isinstance(values[f.name], int)] if table is not None else []
        if wrong:
            op, version = self.model.codes[operator["opcode_index"]]
            node = self._choose(operator["outputs"][0], "") if operator["outputs"] else None
            message = f"the option {wrong[0].name} is {values[wrong[0].name]}, which the format does not define"
            raise UnsupportedError(message, node=node, op=op, version=version, code="E-OP-003")

    def _graphs(self, numbers: Any) -> Any:
        if isinstance(numbers, int):
            return self.model.graph(numbers, self.callers)
        return None if numbers is None else tuple(self.model.graph(n, self.callers) for n in numbers)


def _signature_names(signature: Mapping[str, Any] | None, side: str) -> dict[int, list[str]]:
    """Tensor -> its names on one side ("inputs", "outputs") of a signature."""
    names: dict[int, list[str]] = {}
    for entry in (signature or {}).get(side) or ():
        names.setdefault(entry["tensor_index"], []).append(entry["name"] or "")
    return names
