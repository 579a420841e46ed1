"""Sequences, which lifting resolves to the values that they consist of.

A sequence of known length is a Tuple of its elements. One of dynamic length is a tensor with the elements
along axis 0 (Unstack), all of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxtfl.mappings.control.sequence_loops import check_constant_shape, limit_rounds

from onnxtfl.build.indices import nonnegative
from onnxtfl.build.sequences import (
    MOST_ELEMENTS,
    elements_of,
    is_list,
    one_shape,
    select_by_if,
    sequence_of,
    stacked,
)
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import Dim, is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, iota, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.shown_sizes import shown_dim
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.symbols import next_number
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import Inlined, Steps, decompose, lift_onnx, regions_of

# --- making sequences ------------------------------------------------------------------------------------------------


@lift_onnx("SequenceConstruct", since=(11,))
def _construct(b: Builder, node: Node) -> Value:
    return sequence_of(b, [_element(v) for v in node.operands])


def _element(value: Value | None) -> Value:
    """Return a tensor element; nested sequences are refused."""
    if value is None or not isinstance(value.type, TensorType):
        raise ValueError(
            f"an element of a sequence is not a tensor but {'absent' if value is None else 'another sequence'}"
        )
    return value


@lift_onnx("SequenceEmpty", since=(11,))
def _empty(b: Builder, node: Node) -> Value:
    """An empty sequence gets the element type of the inserted value."""
    return b(ops.Tuple)


@lift_onnx("SplitToSequence", since=(11, 24))
def _split_to_sequence(b: Builder, node: Node) -> Value:
    """Split into parts of size `split`, or into slices of size 1 with or without their axis.

    `keepdims` is ignored if `split` is given, unless it is the scalar 1, as in ONNX Runtime (PyTorch's unbind).
    """
    x, split = node.operand(0), node.optional(1)
    axis = normalize_axis(node.attr("axis", 0), x.rank)
    sliced_by_one = split is None or (split.shape == () and static_ints(split) == [1])
    keeps = not sliced_by_one or bool(node.attr("keepdims", 1))
    sizes = _part_sizes(split, x.shape[axis])
    if split is not None and sizes is None and split.shape != () and is_static(split.shape):
        return b(ops.Tuple, *_parts(b, x, split, split.shape[0], axis))
    if split is not None and sizes is None and not sliced_by_one and (count := _count_read(b.graph, node)):
        return b(ops.Tuple, *(_part(b, x, split, i, axis) for i in range(count)))
    if split is not None and sizes is None and split.rank:
        raise UnsupportedError("a tensor is split into a dynamic number of parts", code="E-OP-006")
    if sizes is None or len(sizes) > MOST_ELEMENTS:
        if split is not None and set(sizes or static_ints(split) or ()) != {1}:
            return _equal_parts(b, node, split, axis, sizes)
        first = transposed(b, x, [axis, *(i for i in range(x.rank) if i != axis)])
        return b(ops.Unstack, unsqueezed(b, first, [axis + 1]) if keeps else first)
    parts = _parts(b, x, np.asarray(sizes, np.int64), len(sizes), axis)
    return b(ops.Tuple, *(parts if keeps else [b(ops.Squeeze, part, [axis]) for part in parts]))


def _count_read(graph: Graph, node: Node) -> int:
    """How many elements from the first one are read of a sequence; 0 if others may be."""
    sequence = node.result
    readers = sequence.users()
    if sequence in graph.outputs or any(reader.op.name != "onnx.SequenceAt" for reader in readers):
        return 0
    known = [_position(reader.operand(1)) for reader in readers]
    positions = [place[0] for place in known if place is not None]
    is_known = len(positions) == len(known) and min(positions, default=-1) >= 0
    return max(positions) + 1 if is_known and max(positions) < MOST_ELEMENTS else 0


def _position(value: Value) -> list[int] | None:
    """The position if it is known; its Constant may be lifted only after the node that makes the sequence."""
    maker = value.producer
    given = maker.attributes if maker is not None and maker.op.name == "onnx.Constant" else {}
    data = given.get("value", given.get("value_int", value))
    return [data] if isinstance(data, int) else static_ints(constant(data) if isinstance(data, TensorData) else value)


def _part(b: Builder, x: Value, split: Value, index: int, axis: int) -> Value:
    """The part `index` of `x`: `split` is the size of all parts but the last, or has the size of each."""
    sizes = Term(b, as_int64(b, split))
    if split.rank:
        start = sizes.apply(ops.Slice, [0], [index], [1]).apply(ops.Reduce, [0], kind="sum", keepdims=True)
        size = sizes.apply(ops.Slice, [index], [index + 1], [1])
    else:
        size = sizes.apply(ops.Reshape, [1])
        start = size * index
    return b(ops.RealDynamicSlice, x, start.value, (start + size).value, [1], [axis])


def _equal_parts(b: Builder, node: Node, split: Value, axis: int, sizes: Sequence[int] | None) -> Value:
    """Return parts of one dynamic size: [parts, ..., size, ...].

    If the size does not divide the axis, a Reshape fails at run time.
    """
    x = node.operand(0)
    size = x.shape[axis]
    if static_ints(split) is not None:
        open_ = f"into a dynamic number of parts (axis of size {shown_dim(size)})"
        what = "into too many parts" if sizes else open_
        hint = "fix the sizes of the inputs (`input_shapes`)"
        raise UnsupportedError(f"a tensor is split {what}", hint=hint, code="E-OP-006")
    assume(
        f"the parts of {shown_name(node)} have equal sizes: `split` divides the axis of size {shown_dim(size)}",
        is_minor=True,
    )
    part = as_int64(b, reshape(b, split, [1]))
    length = Term(b, dim_value(b, size, x))
    number = Term(b, b(ops.FloorDiv, length.value, part)).max(1).value
    shape = [number, part] if axis == 0 else [dim_vector(b, x.shape[:axis], x), number, part]
    shape += [dim_vector(b, x.shape[axis + 1 :], x)] if axis < x.rank - 1 else []
    parts = b(ops.Reshape, x, b(ops.Concatenate, *shape, axis=0))
    return b(ops.Unstack, transposed(b, parts, [axis, *(i for i in range(x.rank + 1) if i != axis)]))


def _part_sizes(split: Value | None, size: Dim) -> list[int] | None:
    """Return the sizes of all parts; None if dynamic."""
    given = [1] if split is None else static_ints(split)
    if given is None or (split is not None and split.shape != ()):
        return given
    if not isinstance(size, int):
        return None
    if given[0] < 1:
        raise ValueError(f"parts of size {given[0]}")
    whole, rest = divmod(size, given[0])
    if whole > 1 << 16:
        return [1] * (MOST_ELEMENTS + 1) if given[0] == 1 else None
    return [given[0]] * whole + ([rest] if rest else [])


def _parts(b: Builder, x: Value, sizes: Operand, count: int, axis: int) -> list[Value]:
    return b.many(ops.Split, x, sizes, axis=axis) if count > 1 else [x][:count]


# --- elements --------------------------------------------------------------------------------------------------------


@lift_onnx("SequenceAt", since=(11,))
def _at(b: Builder, node: Node) -> Value:
    """Return the element at a constant position; else gather from the stacked elements, or select by nested Ifs."""
    sequence, position = node.operand(0), node.operand(1)
    elements, known = elements_of(sequence), static_ints(position)
    if elements is not None and known is not None:
        return elements[_index(known[0], len(elements), "position")]
    if elements is not None and _differ(elements):
        at, found = _place(b, position, len(elements)), elements[-1]
        for i, element in enumerate(elements[:-1]):
            found = select_by_if(b, at.equals(i).value, element, found)
        return found
    rows = stacked(b, sequence)
    return b(ops.Gather, rows, nonnegative(b, reshape(b, position, ()), rows.shape[0], rows), axis=0)


def _index(position: int, length: int, what: str) -> int:
    """Return a position in [0, length); ValueError if it is outside of the sequence."""
    if not -length <= position < length:
        raise ValueError(f"{what} {position} in a sequence of {length} elements")
    return position % length


@lift_onnx("SequenceInsert", since=(11,))
def _insert(b: Builder, node: Node) -> Value:
    """Insert before a position, by default at the end; a negative position counts from the end."""
    sequence, x, position = node.operand(0), _element(node.operand(1)), node.optional(2)
    elements, known = elements_of(sequence), static_ints(position)
    if elements is not None and (known is not None or position is None):
        place = len(elements) if known is None else known[0]
        place = place if place == len(elements) else _index(place, len(elements), "insertion at position")
        return sequence_of(b, [*elements[:place], x, *elements[place:]])
    if elements is not None and position is not None and _differ([*elements, x]):
        at = _place(b, position, len(elements))
        kept = _around(b, at, [*elements, x], [x, *elements])
        return sequence_of(b, [select_by_if(b, at.equals(i).value, x, value) for i, value in enumerate(kept)])
    rows = stacked(b, sequence, like=x)
    one_shape(x, rows.shape[1:])
    grown = b(ops.Concatenate, rows, unsqueezed(b, x, [0]), axis=0)
    if position is None:
        return b(ops.Unstack, grown)
    count = Term(b, b(ops.Shape, rows, axes=(0,), dtype=DType.INT64))
    at, order = _place(b, position, count), Term(b, iota(b, (count + 1).value))
    rank = (order < at).choose(order, order.equals(at).choose(count, order - 1))
    return b(ops.Unstack, b(ops.Gather, grown, rank.value, axis=0))


@lift_onnx("SequenceErase", since=(11,))
def _erase(b: Builder, node: Node) -> Value:
    """Remove the element at a position, by default the last one."""
    sequence, position = node.operand(0), node.optional(1)
    elements, known = elements_of(sequence), static_ints(position)
    if elements is not None and (known is not None or position is None):
        place = _index(-1 if known is None else known[0], len(elements), "erasure at position")
        return b(ops.Tuple, *elements[:place], *elements[place + 1 :])
    if elements is not None and position is not None and _differ(elements):
        return b(ops.Tuple, *_around(b, _place(b, position, len(elements)), elements[:-1], elements[1:]))
    rows = stacked(b, sequence)
    count = Term(b, b(ops.Shape, rows, axes=(0,), dtype=DType.INT64))
    at = count - 1 if position is None else _place(b, position, count)
    order = Term(b, iota(b, (count - 1).value))
    return b(ops.Unstack, b(ops.Gather, rows, (order < at).choose(order, order + 1).value, axis=0))


def _differ(elements: Sequence[Value]) -> bool:
    """Whether the elements have equal rank but different shapes: they cannot be stacked, but nested Ifs can select."""
    types = [value.tensor_type for value in elements]
    ranks = {None if type_.shape is None else len(type_.shape) for type_ in types}
    few, shapes = len(elements) <= _MOST_CHOSEN, {type_.shape for type_ in types}
    return few and len(ranks) == 1 and None not in ranks and len(shapes) > 1


_MOST_CHOSEN = 16
"""The most elements of different shapes among which a dynamic position selects."""


def _around(b: Builder, at: Term, first: Sequence[Value], then: Sequence[Value]) -> list[Value]:
    """Return the elements of `first` before position `at`, those of `then` from it."""
    pairs = enumerate(zip(first, then, strict=True))
    return [one if one is other else select_by_if(b, (at > i).value, one, other) for i, (one, other) in pairs]


def _place(b: Builder, position: Value, count: Term | int) -> Term:
    """Return a position (one element) that counts from the start."""
    at = Term(b, reshape(b, position, [1])).to(DType.INT64)
    return (at < 0).choose(at + count, at)


@lift_onnx("SequenceLength", since=(11,))
def _length(b: Builder, node: Node) -> Value:
    elements = elements_of(node.operand(0))
    if elements is not None:
        return constant(len(elements), DType.INT64)
    return reshape(b, b(ops.Shape, stacked(b, node.operand(0)), axes=(0,), dtype=DType.INT64), ())


@lift_onnx("ConcatFromSequence", since=(11,))
def _concat(b: Builder, node: Node) -> Value:
    """Concatenate the elements along an axis, or stack them along a new one."""
    sequence, is_new = node.operand(0), bool(node.attr("new_axis", 0))
    elements = elements_of(sequence)
    if elements is None:
        return _concat_rows(b, stacked(b, sequence), node.attr("axis"), is_new)
    if not elements:
        raise ValueError("the sequence is empty")
    axis = normalize_axis(node.attr("axis"), elements[0].rank + is_new)
    return b(ops.Concatenate, *(unsqueezed(b, v, [axis]) if is_new else v for v in elements), axis=axis)


def _concat_rows(b: Builder, rows: Value, axis: int, is_new: bool) -> Value:
    """Move axis n of `rows` [n, ...] to `axis`; unless that is new, merge it into the axis there."""
    axis = normalize_axis(axis, rows.rank - (not is_new))
    moved = transposed(b, rows, [*range(1, axis + 1), 0, *range(axis + 1, rows.rank)])
    if is_new:
        return moved
    shape = moved.shape
    return reshape(b, moved, [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]], moved)


@regions_of("onnx.SequenceMap")
def _map_steps(node: Node) -> Steps:
    """Apply the body to the elements of all sequences and to the tensors."""
    captured = node.attributes["captures"]
    given = [node.operand(i) for i in range(len(node.operands))]
    sequences = [v for v in given[: len(given) - captured] if is_list(v)]
    if any(elements_of(v) is None for v in sequences):
        return (yield from _map_rows(node, given, sequences))
    columns = [elements_of(v) if v in sequences else None for v in given]
    count = len(elements_of(given[0]) or [])
    if any(column is not None and len(column) != count for column in columns):
        raise ValueError("sequences of different lengths")
    body, rounds = node.attributes["body"], list[list[Value]]()
    limit_rounds(body, count)
    for i in range(count):
        operands = [v if column is None else column[i] for v, column in zip(given, columns, strict=True)]
        rounds.append((yield Inlined(clone(body), operands)))
    assert node.graph is not None
    b = Builder(node.graph, node)
    return [b(ops.Tuple, *(outputs[i] for outputs in rounds)) for i in range(len(node.results))]


def _map_rows(node: Node, given: Sequence[Value], sequences: Sequence[Value]) -> Steps:
    """Apply the body to each row of stacked sequences by a Scan, which captures the other operands."""
    assert node.graph is not None
    body, number = node.attributes["body"], next_number()
    scanned = [i for i, v in enumerate(given) if v in sequences]
    others = [i for i in range(len(given)) if i not in scanned]
    body.inputs = [body.inputs[i] for i in (*scanned, *others)]
    before, region = Builder(node.graph, node), Graph(body.name)
    operands = [*(stacked(before, given[i]) for i in scanned), *(given[i] for i in others)]
    inputs = [region.add_input(v.type) for v in operands]
    attributes = {"body": body, "num_scan_inputs": len(scanned), "captures": len(others)}
    types = [None] * len(body.outputs)
    region.outputs = Builder(region).foreign("onnx", "Scan", inputs, types, 16, **attributes)
    results = yield Inlined(region, operands)
    for result in results:
        check_constant_shape(result.tensor_type.with_shape(result.shape[1:]), number)
    after = Builder(node.graph, node)
    return [after(ops.Unstack, v) for v in results]


@lift_onnx("SequenceMap", since=(17,))
def _map(b: Builder, node: Node) -> Sequence[Value]:
    raise UnsupportedError("it has no body", code="E-OP-006")


@decompose(ops.GetTupleElement)
def element_of_tuple(b: Builder, node: Node) -> Value | None:
    """%y = GetTupleElement(Tuple(%a, %b)) {index = 1}    ->    %b."""
    elements = elements_of(node.operand(0))
    return None if elements is None else elements[node.attr("index")]
