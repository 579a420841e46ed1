"""Inputs and outputs of sequence and optional type as tensors with the names NAME_0, NAME_1, ...

::

    (%x: sequence<T>), 2 elements  ->  (%x_0: T, %x_1: T) %x = Tuple(%x_0, %x_1)
    %y = Tuple(%a, %b); -> (%y)    ->  -> (%a, %b), named y_0 and y_1

An optional is what it holds, under its own name, or nothing. A sequence whose length is known only at run time is one
tensor, its elements along axis 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import fresh
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import OptionalType, SequenceType, TensorType, TupleType, Type

MOST_ELEMENTS = 1024


def flatten_inputs(graph: Graph, lengths: Mapping[str, int | None]) -> None:
    """Replace the inputs of sequence and optional type; `lengths`: by name (None: an optional without a value).

    UnsupportedError for a sequence without a length, UsageError for a length of another input.
    """
    unknown = [name for name in lengths if name not in {v.name for v in graph.inputs if _is_list(v.type)}]
    if unknown:
        known = ", ".join(str(v.name) for v in graph.inputs if _is_list(v.type)) or "none"
        raise UsageError(f"there is no sequence {unknown[0]!r} among the inputs", hint=f"these are sequences: {known}")
    old, graph.inputs = graph.inputs, []
    taken = {v.name or "" for v in old}
    builder = Builder(graph, graph.first)
    for value in old:
        if not _is_list(value.type) or value.type is None:
            graph.inputs.append(value)
            continue
        name, before = value.name or "input", len(graph.inputs)
        made = _input(builder, value.type, name, lengths.get(name, 1), taken, (name,) if name in lengths else ())
        value.name = None
        graph.substitute(value, made, retyped=True)
        graph.elements[name] = tuple(v.name or "" for v in graph.inputs[before:])


def _is_list(type_: Type | None) -> bool:
    return isinstance(type_, SequenceType | OptionalType | TupleType)


def _input(b: Builder, type_: Type, name: str, length: int | None, taken: set[str], given: tuple[str, ...]) -> Value:
    """The value of an input called `name`, made of inputs for its elements; `given`: the input, if it has a length."""
    if isinstance(type_, OptionalType):
        absent = length is None or (length == 0 and isinstance(type_.element, TensorType))
        return b(ops.Absent, type=type_.element) if absent else _input(b, type_.element, name, length, taken, given)
    if isinstance(type_, SequenceType | TupleType):
        types = type_.elements if isinstance(type_, TupleType) else _element_types(type_.element, name, length, given)
        return b(ops.Tuple, *(_input(b, t, _new(f"{name}_{i}", taken), 1, taken, ()) for i, t in enumerate(types)))
    value = b.graph.add_input(type_, name)
    value.origins = ()
    return value


def _element_types(element: Type, name: str, length: int | None, given: tuple[str, ...]) -> tuple[Type, ...]:
    """The types of the elements of a sequence; the open sizes of each are its own."""
    if not given or length is None:
        hint = f"say how many elements it has: --elements {name}:N"
        raise UnsupportedError(f"the input {name!r} is a sequence of unknown length", type_=str(element), hint=hint)
    if not 0 <= length <= MOST_ELEMENTS:
        raise UsageError(f"{length} elements of the input {name!r}", hint=f"use 0 to {MOST_ELEMENTS}")
    return tuple(_own_sizes(element) for _ in range(length))


def _own_sizes(type_: Type) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return type_.with_shape(tuple(d if isinstance(d, int) else fresh() for d in type_.shape))


def _new(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def flatten_outputs(graph: Graph) -> None:
    """Replace the outputs that are sequences and optionals of a lifted graph; UnsupportedError if no output is left."""
    if not any(_is_list(v.type) for v in graph.outputs):
        return
    taken = set(graph.output_names)
    old, graph.outputs = list(zip(graph.output_names, graph.outputs, strict=True)), []
    names: list[str] = []
    for name, value in old:
        before = len(names)
        for part, tensor in _tensors(name, value, taken):
            names.append(part)
            graph.outputs.append(tensor)
        if _is_list(value.type):
            graph.elements[name] = tuple(names[before:])
    graph.output_names = names
    if not names:
        shown = ", ".join(graph.elements)
        raise UnsupportedError(f"the model has no output: {shown} has no elements", hint="name others with --outputs")


def _tensors(name: str, value: Value, taken: set[str]) -> Iterator[tuple[str, Value]]:
    """The tensors that an output consists of, with their names."""
    maker = value.producer
    if not _is_list(value.type):
        yield name, value
    elif maker is not None and maker.op is ops.Tuple:
        for i, element in enumerate(maker.operands):
            if element is not None:
                yield from _tensors(_new(f"{name}_{i}", taken), element, taken)
    elif maker is not None and maker.op is ops.Unstack:
        yield name, maker.operand(0)
    elif maker is None or maker.op is not ops.Absent:
        raise UnsupportedError(f"the elements of the output {name!r} are unknown", type_=str(value.type))
