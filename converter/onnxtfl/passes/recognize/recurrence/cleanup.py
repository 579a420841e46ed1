"""Merges reverses, selects and slices around a recurrent layer into the layer.

::

    Lstm(x, ..., hidden = zeros)                                    ->  Lstm(x, ...)
    Reverse(Lstm(Reverse(x)))                                       ->  Lstm(x) {reverse}
    Select(position < lengths, Lstm(x), 0)                          ->  Lstm(x, lengths)
    Slice(Lstm(x).output) [the last step]                           ->  Lstm(x).last_hidden
    Lstm(x) {cell_clip = 100} of 10 steps                           ->  Lstm(x)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, splat_value, without_reshapes
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.rewriting.patterns import Patterns

AROUND_LAYERS = Patterns()
LAST_OUTPUTS = Patterns()
LAYERS = tuple(ops.Recurrent.__subclasses__())
MOST_BYTES = 1 << 20
"""The largest constant that is compared with 0, in bytes."""


def remade(b: Builder, layer: Node, given: Mapping[str, Value | None], **changes: object) -> list[Value]:
    """Return the results of `layer` with the operands `given` and changed attributes."""
    return b.many(layer.op, *layer.op.trimmed(given.values()), **{**layer.attributes, **changes})


def is_zero(value: Value | None) -> bool:
    """Whether all elements of `value` are known to be 0."""
    node = None if value is None else value.producer
    constant = node.operand(0) if node is not None and node.op is ops.BroadcastTo else value
    if constant is None or constant.data is None or constant.data.nbytes > MOST_BYTES:
        return False
    return not np.any(constant.numpy())


@AROUND_LAYERS.on(*LAYERS)
def zero_states(b: Builder, node: Node) -> list[Value] | None:
    """Remove initial states that are zeros."""
    zeros = [name for name, value in ops.states_of(node).items() if is_zero(value)]
    return remade(b, node, {**ops.operands_of(node), **dict.fromkeys(zeros)}) if zeros else None


@AROUND_LAYERS.on(*LAYERS)
def reversed_layer(b: Builder, node: Node) -> list[Value] | None:
    """Replace a layer over a reversed sequence by a layer in the other direction."""
    reverse, given = made_by(node.operand(0), ops.Reverse), ops.operands_of(node)
    if reverse is None or tuple(reverse.attr("dimensions")) != (0,) or given["lengths"] is not None:
        return None
    given["input"] = reverse.operand(0)
    output, *states = remade(b, node, given, reverse=not node.attr("reverse"))
    return [b(ops.Reverse, output, dimensions=(0,)), *states]


@AROUND_LAYERS.on(ops.Reverse, ops.ReverseSequence)
def reversed_twice(b: Builder, node: Node) -> Value | None:
    """Reverse(Reverse(x)) -> x."""
    before = made_by(node.operand(0), node.op)
    if before is None or before.attributes != node.attributes or before.operands[1:] != node.operands[1:]:
        return None
    return before.operand(0)


@LAST_OUTPUTS.on(ops.Slice, ops.Gather)
def last_output(b: Builder, node: Node) -> Value | None:
    """Replace a slice or gather of the last output by the last hidden state."""
    axis, index = _taken(node) or (0, None)
    layer = None if index is None else _layer_with_steps(node.operand(0), axis)
    if layer is None or index is None or not _is_last(layer, index):
        return None
    return reshape(b, layer.results[1], node.result.shape, node.operand(0))


def _taken(node: Node) -> tuple[int, int] | None:
    """Return the axis along which a Slice or Gather reads one index, and that index; None for others."""
    indices = static_ints(node.operand(1))
    if indices is None or node.op is ops.Gather:
        return (node.attr("axis"), indices[0]) if indices is not None and len(indices) == 1 else None
    shape, sliced = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
    if shape is None or sliced is None or static_ints(node.optional(3)) != [1] * len(shape):
        return None
    axes = [i for i, (whole, part) in enumerate(zip(shape, sliced, strict=True)) if whole != part]
    return (axes[0], indices[axes[0]]) if len(axes) == 1 and sliced[axes[0]] == 1 else None


def _layer_with_steps(value: Value, axis: int) -> Node | None:
    """Return the layer whose output, perhaps reshaped, is `value`, with the steps along `axis`; else None."""
    move = made_by(value, ops.Reshape)
    output = value if move is None else move.operand(0)
    layer, shape = _layer_with_output(output), value.tensor_type.shape
    if layer is None or move is None or shape is None:
        return layer if move is None and axis == 0 else None
    before = all(d == 1 for d in shape[:axis])
    return layer if before and isinstance(shape[axis], int) and shape[axis] == output.shape[0] else None


def _layer_with_output(value: Value) -> Node | None:
    """Return the layer without lengths whose output is `value`, else None."""
    layer = made_by(value, *LAYERS)
    return None if layer is None or value.index or ops.operands_of(layer)["lengths"] is not None else layer


def _is_last(layer: Node, index: int) -> bool:
    steps = layer.operand(0).shape[0]
    return index == 0 if layer.attr("reverse") else index in (-1, steps - 1)


@AROUND_LAYERS.on(ops.Concatenate)
def joined_parts(b: Builder, node: Node) -> Value | None:
    """Concatenate(all slices of x) -> x, as for the states of both directions."""
    axis, parts = normalize_axis(node.attr("axis"), node.result.rank), node.present_operands
    whole, end = None, 0
    for part in parts:
        cut = made_by(part, ops.Slice)
        found = None if cut is None else range_along(cut, axis)
        if cut is None or found is None or found[0] != end or (whole is not None and cut.operand(0) is not whole):
            return None
        whole, end = cut.operand(0), found[1]
    return whole if whole is not None and whole.tensor_type == node.result.tensor_type else None


def range_along(cut: Node, axis: int) -> tuple[int, int] | None:
    """Return start and end of a Slice along `axis` only, else None."""
    shape, result = cut.operand(0).tensor_type.shape, cut.result.tensor_type.shape
    starts, strides = static_ints(cut.optional(1)), static_ints(cut.optional(3))
    if shape is None or result is None or starts is None or strides is None or any(s != 1 for s in strides):
        return None
    if any(a != b for i, (a, b) in enumerate(zip(shape, result, strict=True)) if i != axis):
        return None
    size, taken = shape[axis], result[axis]
    if not isinstance(size, int) or not isinstance(taken, int):
        return None
    start = starts[axis] + (size if starts[axis] < 0 else 0)
    return start, start + taken


@AROUND_LAYERS.on(ops.Select)
def masked_layer(b: Builder, node: Node) -> Value | None:
    """Replace a Select of zeros after the last step by a layer with lengths (reversed over reversed sequences)."""
    value = node.operand(1)
    back = made_by(value, ops.ReverseSequence)
    layer = made_by(value if back is None else back.operand(0), *LAYERS)
    if layer is None or splat_value(node.operand(2)) != 0 or _layer_with_output(layer.results[0]) is None:
        return None
    users = [u for u in layer.results[0].users() if u.op is not ops.Shape]
    if any(r.uses for r in layer.results[1:]) or len(users) != 1 or layer.attr("reverse"):
        return None
    lengths, given = _lengths(node.operand(0), layer.results[0]), ops.operands_of(layer)
    if lengths is None:
        return None
    if back is not None:
        before = made_by(layer.operand(0), ops.ReverseSequence)
        if before is None or any(
            without_reshapes(v.operand(1)) is not without_reshapes(lengths) for v in (before, back)
        ):
            return None
        if any((v.attr("time_axis"), v.attr("batch_axis")) != (0, 1) for v in (before, back)):
            return None
        given["input"] = before.operand(0)
    return remade(b, layer, {**given, "lengths": lengths}, reverse=back is not None)[0]


def _lengths(mask: Value, output: Value) -> Value | None:
    """Return the lengths [N] if `mask` [T, N, 1] is step < length, else None."""
    node, shape = made_by(without_reshapes(mask), ops.Compare), output.shape
    if mask.tensor_type.shape != (*shape[:2], 1) or node is None or node.attr("comparison_direction") != "LT":
        return None
    positions, lengths = without_reshapes(node.operand(0)), without_reshapes(node.operand(1))
    column = node.operand(0).shape == (shape[0], 1) and node.operand(1).shape in ((1, shape[1]), (shape[1],))
    if not column or lengths.shape != (shape[1],) or not counts(positions, shape[0]):
        return None
    return lengths


def counts(value: Value, size: object = None) -> bool:
    """Whether `value` is 0, 1, 2, ... (`size` elements, if given)."""
    if size is not None and value.shape[0] != size:
        return False
    known = static_ints(value)
    if known is not None:
        return known == list(range(len(known)))
    node = value.producer
    if node is None or node.op is not ops.Range:
        return False
    return static_ints(node.operand(0)) == [0] and static_ints(node.operand(2)) == [1]


_UP_TO_ONE = frozenset({"sigmoid", "hard_sigmoid", "tanh", "softsign", "sign", "relu_n1_to_1"})
"""Activations with values in [-1, 1]."""


@AROUND_LAYERS.on(ops.Lstm)
def inert_clip(b: Builder, node: Node) -> list[Value] | None:
    """Remove a clip that no cell reaches, since each step adds at most 1."""
    clip, steps, given = node.attr("cell_clip"), node.operand(0).shape[0], ops.operands_of(node)
    gates, candidate, _ = node.attr("activations")
    if (
        not clip
        or not isinstance(steps, int)
        or candidate not in _UP_TO_ONE
        or gates not in ("sigmoid", "hard_sigmoid")
    ):
        return None
    cell = given["cell"]
    if cell is not None and (cell.data is None or cell.data.nbytes > MOST_BYTES or not cell.data.size):
        return None
    largest = 0.0 if cell is None else float(np.abs(cell.numpy()).max())
    return remade(b, node, given, cell_clip=0.0) if steps + largest <= clip else None
