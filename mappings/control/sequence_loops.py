"""Loops that carry sequences: unrolled, or as loops that carry tensors."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from onnxtfl.mappings.control.loop_lowering import number_type

from onnxtfl.build.sequences import elements_of, is_absent, one_shape, stacked
from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.dims import Dim, is_static, known_size, size_or, symbols
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import stacked_along
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.symbols import Unknown, next_number
from onnxtfl.ir.types import TensorType, tensor
from onnxtfl.rewriting.regions import condition_value, is_sequence, rebuild_input, size_of
from onnxtfl.rewriting.registry import Inlined, Steps

MOST_NODES = 1 << 13
"""The most nodes of an unrolled loop."""
MOST_ROUNDS = 512
"""The most iterations of an unrolled loop."""


@dataclass(frozen=True)
class SequenceOps:
    """The source format's ops to split a tensor along axis 0, to stack it, to get an element, and to concatenate."""

    slices: str
    join: str
    element: str
    concatenation: str


def limit_rounds(body: Graph, rounds: int) -> None:
    """Raise UnsupportedError if `rounds` copies of `body` are too many nodes."""
    if not _are_few(body, rounds):
        message = f"{rounds} iterations over sequences, of {size_of(body)} nodes each, are too many to unroll"
        raise UnsupportedError(message, hint="concatenate the elements to one tensor before the loop", code="E-OP-006")


def _are_few(body: Graph, rounds: int) -> bool:
    return rounds <= MOST_ROUNDS and rounds * (size_of(body) + 1) <= MOST_NODES


def loop_over_sequences(node: Node, body: Graph, carried: Sequence[Value], names: SequenceOps) -> Steps:
    """Unroll a loop with a small known trip count, else return a loop over tensors.

    `node`: its operands are the trip count, the condition, the `carried` values, and captures.
    """
    count = static_ints(node.operands[0])
    if count is not None or node.operands[0] is None:
        results = yield from _rounds(node, body, carried, None if count is None else count[0])
        if results is not None:
            return results
    return (yield from _over_tensors(node, body, carried, names))


def _start(node: Node) -> Value:
    """Return the initial condition."""
    return node.operands[1] if node.operands[1] is not None else constant(np.asarray(True))


def _rounds(
    node: Node, body: Graph, carried: Sequence[Value], count: int | None
) -> Generator[Inlined, list[Value], list[Value] | None]:
    """Return the results of all iterations; None if there are many, or their number is dynamic."""
    values, collected, before = list(carried), list[list[Value]](), node.previous
    captured, go_on = node.operands[2 + len(values) :], _start(node)
    enough = count is None or _are_few(body, count)
    number_shape = number_type(body.inputs[0].type).shape or ()
    while (again := condition_value(go_on)) and len(collected) != count:
        if not enough or not _are_few(body, len(collected) + 1):
            again = None
            break
        number = constant(np.full(number_shape, len(collected), np.int64))
        outputs = yield Inlined(clone(body), [number, go_on, *values, *captured])
        go_on, values = outputs[0], outputs[1 : len(values) + 1]
        collected.append(outputs[len(values) + 1 :])
    if again is None:
        _remove_after(node, before)
        return None
    b, results = _builder(node), node.results[len(values) :]
    joined = [_joined(b, result, [elements[i] for elements in collected]) for i, result in enumerate(results)]
    return [*values, *joined]


def _builder(node: Node) -> Builder:
    assert node.graph is not None
    return Builder(node.graph, node)


def _joined(b: Builder, result: Value, elements: Sequence[Value]) -> Value:
    """Return the elements of a scan output, stacked; an empty tensor of the declared type if there are none."""
    if elements:
        return stacked_along(b, elements, 0)
    if not is_static(result.shape[1:]):
        raise UnsupportedError("a zero-trip loop collects elements of unknown shape", code="E-OP-006")
    return constant(np.zeros((0, *result.shape[1:]), result.dtype.numpy), result.dtype)


def _remove_after(node: Node, before: Node | None) -> None:
    """Remove the nodes between `before` and `node`."""
    while node.graph is not None and node.previous is not None and node.previous is not before:
        node.graph.remove(node.previous)


# --- the loop over tensors -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A carried value of the loop, initially `before`, and the tensors that replace it in the loop over tensors.

    `kind`: "tensor": itself; "parts": the elements of a sequence of constant length; "stack": one tensor of all
    elements, of type `element`; "appended": none, since each iteration only appends an element (a scan output);
    "joined": all elements concatenated along `axis`, their only use, where iterations may differ in size.
    """

    before: Value
    kind: Literal["tensor", "parts", "stack", "appended", "joined"]
    element: TensorType | None = None
    axis: int = 0

    def first(self, b: Builder) -> list[Value]:
        """Return the tensors for the first iteration."""
        if self.kind == "parts":
            assert self.before.producer is not None
            return self.before.producer.present_operands
        if self.kind == "joined":
            return [self.empty()]
        return [self.start(b)] if self.kind == "stack" else [self.before] if self.kind == "tensor" else []

    def empty(self) -> Value:
        """Return an empty tensor for zero elements concatenated along `axis`."""
        assert self.element is not None
        sizes = [0 if i == self.axis else known_size(d) for i, d in enumerate(self.element.shape or ())]
        return constant(np.zeros(sizes, self.element.dtype.numpy), self.element.dtype)

    def start(self, b: Builder) -> Value:
        """Return all elements before the first iteration."""
        if elements_of(self.before) != []:
            return stacked(b, self.before)
        assert self.element is not None
        shape = [size_or(d, 0) for d in self.element.shape or ()]
        return constant(np.zeros((0, *shape), self.element.dtype.numpy), self.element.dtype)

    def final(self, b: Builder, results: Iterator[Value], collected: Iterator[Value]) -> Value:
        """Return the final value from the results of the loop over tensors."""
        maker = self.before.producer
        if self.kind == "parts":
            assert maker is not None
            return b(maker.op, *(next(results) for _ in maker.operands), **maker.attributes)
        if self.kind == "stack":
            return b(ops.Unstack, next(results))
        if self.kind == "joined":
            # one concatenated element is equivalent, since concatenation is the only use of the elements
            return b(ops.Tuple, next(results))
        if self.kind == "tensor":
            return next(results)
        rows = next(collected)
        is_empty = elements_of(self.before) == []
        return b(ops.Unstack, rows if is_empty else b(ops.Concatenate, self.start(b), rows, axis=0))


def _over_tensors(node: Node, body: Graph, carried: Sequence[Value], names: SequenceOps) -> Steps:
    """Return the loop over tensors; one iteration is lifted for analysis of the sequences, then removed."""
    b, captured, before, number = _builder(node), node.operands[2 + len(carried) :], node.previous, next_number()
    (index,) = b.foreign("", "Iteration", [], [tensor("int64")])
    outputs = yield Inlined(clone(body), [index, _start(node), *carried, *captured])
    pairs = enumerate(zip(carried, outputs[1 : 1 + len(carried)], strict=True))
    axes = [_joined_along(node, result, names) for result in node.results]
    appends = [_append_to(body, i) is not None for i in range(len(carried))]
    places = [_place(old, new, appends[i], axes[i], number) for i, (old, new) in pairs]
    _remove_after(node, before)
    b = _builder(node)
    first = [v for place in places for v in place.first(b)]
    _carry_tensors(body, places, names)
    results = yield _loop(node, [*node.operands[:2], *first, *captured], body)
    finals, collected = iter(results[: len(first)]), results[len(first) :]
    own = len(node.results) - len(places)
    appended, b = iter(collected[own:]), _builder(node)
    return [*(place.final(b, finals, appended) for place in places), *collected[:own]]


def _joined_along(node: Node, result: Value, names: SequenceOps) -> int | None:
    """Return the axis along which all elements of a sequence are concatenated, if that is its only use."""
    users = list(result.users())
    joins = [u for u in users if u.op.name == f"onnx.{names.join}" and not u.attributes.get("new_axis", 0)]
    axes = {int(u.attributes["axis"]) for u in joins}
    is_returned = node.graph is None or node.graph.is_output(result)
    return axes.pop() if len(axes) == 1 and len(joins) == len(users) and not is_returned else None


def _place(before: Value, after: Value, appends: bool, axis: int | None, number: int) -> _Place:
    """Choose how to carry a value that is `after` after an iteration; symbols from `number` were created in it.

    `axis`: see `_joined_along`.
    """
    if not is_sequence(before) and not is_sequence(after):
        return _Place(before, "tensor")
    if is_absent(before) != is_absent(after):
        raise UnsupportedError(
            "an optional is present in some iterations only, in a loop that cannot be unrolled", code="E-OP-006"
        )
    old, new = before.producer, after.producer
    if old is None or new is None or not is_sequence(before) or not is_sequence(after):
        raise UnsupportedError(
            f"a loop that cannot be unrolled carries {before.type}, then {after.type}", code="E-OP-006"
        )
    if any(v is not None and is_sequence(v) for v in (*old.operands, *new.operands)):
        raise UnsupportedError("a loop that cannot be unrolled carries sequences of sequences", code="E-OP-006")
    if old.op is new.op and old.op is not ops.Unstack and len(old.operands) == len(new.operands):
        return _Place(before, "parts")
    element = _element(before, after)
    if appends and axis is not None and elements_of(before) == [] and _varies_along(element, axis, number):
        return _Place(before, "joined", element, axis % len(element.shape or ()))
    check_constant_shape(element, number)
    return _Place(before, "appended" if appends else "stack", element)


def _varies_along(element: TensorType, axis: int, number: int) -> bool:
    """Whether only the size along `axis` depends on the iteration."""
    shape = element.shape or ()
    if not -len(shape) <= axis < len(shape):
        return False
    others = [d for i, d in enumerate(shape) if i != axis % len(shape)]
    return is_static(others) and _is_of_round(shape[axis], number)


def _is_of_round(dim: Dim, number: int) -> bool:
    """Whether a size contains symbols from `number`."""
    return any(isinstance(atom, Unknown) and atom.number > number for atom in symbols(dim))


def _element(*sequences: Value) -> TensorType:
    """Return the common type of all elements of sequences, one of which is not empty."""
    types = list[TensorType]()
    for sequence in sequences:
        elements = elements_of(sequence)
        if elements is None:
            assert sequence.producer is not None
            rows = sequence.producer.operand(0)
            types.append(rows.tensor_type.with_shape(rows.shape[1:]))
        else:
            types += [v.tensor_type.with_shape(v.shape) for v in elements]
    one_shape(*(t.shape or () for t in types))
    return types[0]


def check_constant_shape(element: TensorType, number: int) -> None:
    """Raise UnsupportedError if the shape of scan output elements depends on the iteration.

    `number`: `next_number` before the iteration was lifted; symbols from this number were created in it.
    """
    if any(_is_of_round(dim, number) for dim in element.shape or ()):
        message = f"an unknown number of elements of {element}, whose sizes differ between iterations"
        raise UnsupportedError(
            message, hint="fix the trip count (`input_shapes`), or make it an initializer", code="E-OP-006"
        )


def _append_to(body: Graph, index: int) -> Node | None:
    """Return the op that appends an element to carried value `index`, if that is its only use."""
    given, returned = body.inputs[2 + index], body.outputs[1 + index]
    node = returned.producer
    if node is None or list(given.uses) != [(node, 0)] or len(node.operands) != 2:
        return None
    others = sum(v is returned or v is given for v in body.outputs)
    return node if not returned.uses and others == 1 else None


def _carry_tensors(body: Graph, places: Sequence[_Place], names: SequenceOps) -> None:
    """Let `body` read and return the tensors of `places`; appended elements follow the scan outputs."""
    collected = body.outputs[1 + len(places) :]
    returned, appended = list[Value](), list[Value]()
    for i, place in reversed(list(enumerate(places))):
        output, end = body.outputs[1 + i], Builder(body)
        if place.kind == "appended":
            node = _append_to(body, i)
            assert node is not None
            appended.insert(0, node.operand(1))
            body.outputs[1 + i] = body.outputs[0]
            body.remove(node)
            del body.inputs[2 + i]
        elif place.kind == "joined":
            node, before = _append_to(body, i), Value(None)
            assert node is not None
            returned.insert(0, _op(end, names.concatenation, before, node.operand(1), axis=place.axis))
            body.outputs[1 + i] = body.outputs[0]
            body.remove(node)
            body.inputs[2 + i] = before
        elif place.kind == "stack":
            returned.insert(0, _op(end, names.join, output, axis=0, new_axis=1))
            old, new = body.inputs[2 + i], Value(None)
            body.inputs[2 + i] = new
            body.substitute(old, _op(Builder(body, body.first), names.slices, new, axis=0, keepdims=0), retyped=True)
        elif place.kind == "parts":
            assert place.before.producer is not None
            count = len(place.before.producer.operands)
            returned[:0] = [_op(end, names.element, output, constant(np.asarray(k, np.int64))) for k in range(count)]
            rebuild_input(body, 2 + i, place.before.producer)
        else:
            returned.insert(0, output)
    body.outputs = [body.outputs[0], *returned, *collected, *appended]


def _op(b: Builder, name: str, *operands: Value, **attributes: Any) -> Value:
    return b.foreign("onnx", name, operands, [None], 11, **attributes)[0]


def _loop(node: Node, operands: Sequence[Value | None], body: Graph) -> Inlined:
    """Return the loop `node` with other operands and another body."""
    region = Graph(body.name)
    given = [None if v is None else region.add_input(v.type) for v in operands]
    made = Node(node.op, given, {**node.attributes, "body": body})
    made.name = node.name
    region.outputs = [made.add_result(None) for _ in body.outputs[1:]]
    region.insert(made)
    return Inlined(region, [v for v in operands if v is not None])
