"""Inputs and outputs of sequence and optional type as tensors with the names NAME_0, NAME_1, ...

::

    (%x: sequence<T>), 2 elements  ->  (%x_0: T, %x_1: T) %x = Tuple(%x_0, %x_1)
    %y = Tuple(%a, %b); -> (%y)    ->  -> (%a, %b), named y_0 and y_1

An optional becomes its value, with its own name, or nothing. A sequence of dynamic length becomes one tensor with the
elements along axis 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError, UsageError, suggestion
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import OptionalType, SequenceType, TensorType, TupleType, Type
from onnxtfl.rewriting.sections import Section, new_names, sections_of

MOST_ELEMENTS = 1024


@dataclass(frozen=True)
class Elements(Section):
    """`tensors`: the names of the tensors that each input or output of sequence or optional type became."""

    tensors: Mapping[str, tuple[str, ...]]

    def renamed(self, names: Mapping[str, str]) -> Elements:
        return Elements({name: tuple(new_names(tensors, names)) for name, tensors in self.tensors.items()})


def elements_of(sections: Iterable[Section]) -> dict[str, tuple[str, ...]]:
    """Return the tensors of all sequences and optionals."""
    return {k: v for section in sections_of(Elements, sections) for k, v in section.tensors.items()}


def flatten_inputs(graph: Graph, lengths: Mapping[str, int | None], *, strict: bool = True) -> Elements:
    """Replace the inputs of sequence and optional type; `lengths`: by name (None: an optional without a value).

    UnsupportedError for a sequence without a length, which stays an input unless `strict`. Raises UsageError for an
    invalid length.
    """
    inputs = _Inputs(Builder(graph, graph.first), lengths, {v.name or "" for v in graph.inputs})
    old, graph.inputs = graph.inputs, []
    elements: dict[str, tuple[str, ...]] = {}
    for value in old:
        if not _is_list(value.type) or value.type is None or (not strict and value.name not in lengths):
            graph.inputs.append(value)
            continue
        name, before = value.name or "input", len(graph.inputs)
        made = inputs.value(value.type, name)
        value.name = None
        graph.substitute(value, made, retyped=True)
        elements[name] = tuple(v.name or "" for v in graph.inputs[before:])
    return Elements(elements)


def check_names(sequences: Collection[str], lengths: Mapping[str, int | None]) -> None:
    """Raise UsageError if `lengths` has a name that is not one of `sequences`, the inputs of such types."""
    unknown = [name for name in lengths if name not in sequences and not _is_part(name, sequences)]
    if unknown:
        hint = suggestion(unknown[0], sequences, "the sequences")
        raise UsageError(f"there is no sequence {unknown[0]!r} among the inputs", hint=hint, code="E-USE-003")


def _is_part(name: str, sequences: Collection[str]) -> bool:
    return any(name.startswith(f"{sequence}_") for sequence in sequences)


def _is_list(type_: Type | None) -> bool:
    return isinstance(type_, SequenceType | OptionalType | TupleType)


class _Inputs:
    """Creates the inputs of `b.graph` for elements of sequences and optionals; `taken`: names in use."""

    def __init__(self, b: Builder, lengths: Mapping[str, int | None], taken: set[str]) -> None:
        self.b, self.lengths, self.taken = b, lengths, taken

    def value(self, type_: Type, name: str) -> Value:
        """Return the value of the input `name`, composed of inputs for its elements."""
        length = self.lengths.get(name, 1)
        if isinstance(type_, OptionalType):
            absent = length is None or (length == 0 and isinstance(type_.element, TensorType))
            return self.b(ops.Absent, type=type_.element) if absent else self.value(type_.element, name)
        if isinstance(type_, SequenceType | TupleType):
            types = type_.elements if isinstance(type_, TupleType) else self._element_types(type_.element, name)
            names = [_new(f"{name}_{i}", self.taken) for i in range(len(types))]
            return self.b(ops.Tuple, *map(self.value, types, names))
        made = self.b.graph.add_input(type_, name)
        made.origins = ()
        return made

    def _element_types(self, element: Type, name: str) -> tuple[Type, ...]:
        """Return the types of the elements of a sequence; dynamic sizes differ between elements."""
        length = self.lengths.get(name)
        if length is None:
            hint = f"set the number of its elements: `--elements {name}:3|elements={{{name!r}: 3}}`"
            raise UnsupportedError(
                f"the input {name!r} is a sequence of unknown length", type_=str(element), hint=hint, code="E-SHAPE-003"
            )
        if not 0 <= length <= MOST_ELEMENTS:
            raise UsageError(f"{length} elements of the input {name!r}", hint=f"use 0 to {MOST_ELEMENTS}")
        return tuple(_own_sizes(element) for _ in range(length))


def _own_sizes(type_: Type) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return type_.with_shape(tuple(d if isinstance(d, int) else fresh_symbol() for d in type_.shape))


def unused_name(name: str, taken: Collection[str]) -> str:
    """`name`, with `_` appended until it is none of those `taken`."""
    while name in taken:
        name += "_"
    return name


def _new(name: str, taken: set[str]) -> str:
    name = unused_name(name, taken)
    taken.add(name)
    return name


def flatten_outputs(graph: Graph) -> Elements | None:
    """Replace sequence and optional outputs of a lifted graph. UnsupportedError if no output is left."""
    if not any(_is_list(v.type) for v in graph.outputs):
        return None
    taken = set(graph.output_names)
    old, graph.outputs = list(zip(graph.output_names, graph.outputs, strict=True)), []
    names: list[str] = []
    elements: dict[str, tuple[str, ...]] = {}
    for name, value in old:
        before = len(names)
        for part, tensor in _tensors(name, value, taken):
            names.append(part)
            graph.outputs.append(tensor)
        if _is_list(value.type):
            elements[name] = tuple(names[before:])
    graph.output_names = names
    if not names:
        shown = ", ".join(elements)
        raise UnsupportedError(
            f"the model has no output: {shown} has no elements", hint="name others (`outputs`)", code="E-OP-006"
        )
    return Elements(elements)


def _tensors(name: str, value: Value, taken: set[str]) -> Iterator[tuple[str, Value]]:
    """Return the tensors of an output with their names."""
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
        raise UnsupportedError(
            f"the elements of the output {name!r} are unknown", type_=str(value.type), code="E-OP-006"
        )
