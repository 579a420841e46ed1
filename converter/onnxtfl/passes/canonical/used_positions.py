"""Only the positions of a tensor that are read are computed, back to the products that they depend on.

::

    %h = Relu(Dot(%x: 1x197x768, %w))                    %s = Slice(%x) [:, 0:1, :]
    %y = Slice(%h) [:, 0:1, :]                     ->    %y = Relu(Dot(%s, %w))

A transformer that classifies by its first token needs the others in its last block for the keys and values only:
ViT-B/16 has 6 % fewer multiplications. `Op.divisions` declares which positions of its operands an op reads for a part
of its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.divisions import Index, Part, at
from onnxtfl.ir.factors import factor_groups
from onnxtfl.ir.graph import Graph, Node, Value, attributes_of
from onnxtfl.ir.matching import SMALL
from onnxtfl.ir.ops.slicing import END
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis, static_ints

MOST = 2
"""A part of a tensor is computed alone if the whole is at least this many times as large."""


@dataclass(frozen=True)
class Read:
    """The elements of a tensor with `start <= index < stop` along `axis`."""

    axis: int
    start: int
    stop: int


Reads = dict[Value, Read | None]
"""The part of a value that all its users read; None: several parts, or all of it."""


def compute_used_positions(graph: Graph) -> bool:
    """Narrow the ops after a product of which one part is read; return whether there was one."""
    parts = _parts(graph)
    wanted = _after_products(graph, parts)
    narrow: dict[Value, Value] = {}
    for node in list(graph.nodes) if wanted else ():
        if node in wanted:
            narrow[node.result] = _narrowed(graph, node, parts[node], narrow)
        elif _own_read(node) is not None and (part := narrow.get(node.operand(0))) is not None:
            graph.replace(node, [_without_axis(graph, node, part)])
    return bool(wanted)


def _parts(graph: Graph) -> dict[Node, Part]:
    """The nodes of whose result only a part is read, with the parts of their operands."""
    reads: Reads = dict.fromkeys(graph.output_set())
    found: dict[Node, Part] = {}
    for node in reversed(list(graph.nodes)):
        own, part = _own_read(node), None
        if own is None and len(node.results) == 1 and (read := reads.get(node.result)) is not None:
            part = _part(node, read)
        if part is not None:
            found[node] = part
        for value, read in zip(node.operands, _reads(node, own, part), strict=True):
            if value is not None:
                reads[value] = read if reads.get(value, read) == read else None
    return {node: part for node, part in found.items() if reads.get(node.result) is not None}


def _own_read(node: Node) -> Read | None:
    """The part of its operand that a Slice along one axis, or a Gather of one index, reads, if it is small."""
    if node.op not in (ops.Slice, ops.Gather) or not may_match(node, False) or not _is_static(node):
        return None
    shape, indices = node.operand(0).shape, static_ints(node.operand(1))
    if node.op is ops.Gather:
        axis = normalize_axis(node.attr("axis"), len(shape))
        index = indices[0] % shape[axis] if indices is not None and len(indices) == 1 and shape[axis] else None
        read = None if index is None else Read(axis, index, index + 1)
    else:
        read = _sliced(node, shape, indices)
    return read if read is not None and (read.stop - read.start) * MOST <= shape[read.axis] else None


def _sliced(node: Node, shape: Sequence[int], starts: Sequence[int] | None) -> Read | None:
    axes = [i for i, (whole, part) in enumerate(zip(shape, node.result.shape, strict=True)) if whole != part]
    steps = static_ints(node.optional(3)) if node.optional(3) is not None else [1] * len(shape)
    if starts is None or steps is None or len(axes) != 1 or steps[axes[0]] != 1:
        return None
    axis, count = axes[0], node.result.size(axes[0])
    start = starts[axis] + (shape[axis] if starts[axis] < 0 else 0)
    return Read(axis, start, start + count) if 0 <= start <= shape[axis] - count and count else None


def _part(node: Node, read: Read) -> Part | None:
    """The parts of the operands from which `node` computes a part of its result; None if it needs all of them."""
    if not _is_static(node) or not node.is_pure or not may_match(node, False):
        return None
    if node.op is ops.Transpose:
        axis = node.attr("permutation")[read.axis]
        return Part((at(axis, read.start, read.stop),))
    if node.op is ops.Reshape:
        return _part_of_reshape(node, read)
    arrays = [None if v is None else _array(v) for v in node.operands]
    arrays += [None] * (len(node.op.operands) - len(arrays))
    for division in node.op.divisions(attributes_of(node), arrays):
        if division.axis == read.axis and division.size == node.result.size(read.axis):
            return division.part(read.start, read.stop)
    return None


def _is_static(node: Node) -> bool:
    """Whether the sizes of all operands and results are known."""
    return all(v is None or v.is_static for v in (*node.operands, *node.results))


def _part_of_reshape(node: Node, read: Read) -> Part | None:
    """The same axis of the operand, if it has one of this size at the same place."""
    before, after = node.operand(0).shape, node.result.shape
    for left, right in factor_groups(before, after) or ():
        near, far = [i for i in left if before[i] != 1], [i for i in right if after[i] != 1]
        if far == [read.axis] and len(near) == 1:
            return Part((at(near[0], read.start, read.stop), ()))
    return None


def _array(value: Value) -> Array:
    """The elements of a small constant; for other values an array of the same shape."""
    known = value.numpy() if value.data is not None and value.data.size <= SMALL else None
    return np.broadcast_to(np.zeros((), np.float32), value.shape) if known is None else known


def _reads(node: Node, own: Read | None, part: Part | None) -> Iterator[Read | None]:
    """The part of each operand that `node` reads."""
    indices: Sequence[Index] = part.operands if part is not None else ()
    for i in range(len(node.operands)):
        index = indices[i] if i < len(indices) else ()
        yield own if own is not None and i == 0 else _read(index)


def _read(index: Index) -> Read | None:
    return Read(len(index) - 1, index[-1].start, index[-1].stop) if index else None


def _after_products(graph: Graph, parts: dict[Node, Part]) -> set[Node]:
    """The nodes that multiply matrices or windows, and those that depend on one of these through narrowed nodes."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node not in parts:
            continue
        producers = {v.producer for v in node.present_operands}
        if node.op.multiplies in ("matrices", "windows") or not found.isdisjoint(producers):
            found.add(node)
    return found


def _narrowed(graph: Graph, node: Node, part: Part, narrow: dict[Value, Value]) -> Value:
    """The part of the result of `node`, from the parts of its operands; `narrow`: those that are computed alone."""
    b, operands = Builder(graph, node, cause=node, maker="used positions"), list[Value | None]()
    for i, value in enumerate(node.operands):
        read = _read(part.operands[i]) if i < len(part.operands) else None
        if value is None or read is None:
            operands.append(value)
        else:
            operands.append(narrow[value] if value in narrow else _slice(b, value, read))
    if node.op is not ops.Reshape:
        return b.remade(node, *operands, **part.attributes)[0]
    source = operands[0]
    assert source is not None
    axis, shape = _reshaped_axis(node, part), list(node.result.shape)
    shape[axis] = source.size(len(part.operands[0]) - 1)
    return reshape(b, source, shape)


def _reshaped_axis(node: Node, part: Part) -> int:
    """The axis of the result of a Reshape that has the positions which are read."""
    before, after, place = node.operand(0).shape, node.result.shape, len(part.operands[0]) - 1
    pairs = factor_groups(before, after) or ()
    return next(i for left, right in pairs if place in left for i in right if after[i] != 1)


def _slice(b: Builder, value: Value, read: Read) -> Value:
    rank = value.rank
    starts, limits = [0] * rank, [END] * rank
    starts[read.axis], limits[read.axis] = read.start, read.stop
    return b(ops.Slice, value, starts, limits, [1] * rank)


def _without_axis(graph: Graph, node: Node, part: Value) -> Value:
    """The result of a Slice or Gather: `part`, without the axis of a single index."""
    b = Builder(graph, node, cause=node, maker="used positions")
    return part if node.result.shape == part.shape else reshape(b, part, node.result.shape)
