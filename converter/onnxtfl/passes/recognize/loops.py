"""Counting While loops become Scans; reads and writes at the counter become scanned values and scan outputs.

::

    While(i, x, s): i < n; i + 1, x, s'        ->  Scan(n; carried: i, s; capture: x)
    Scan(n; carried: i, s; capture: x)
        with Gather(x, i), n rows of x         ->  Scan(carried: i, s; scanned: x)
    Scan(carried: i, y)
        with y' = DynamicUpdateSlice(y, e, i)  ->  Scan(carried: i), which collects e
        with y' = Concatenate(y, e)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dependencies import needed_inputs
from onnxtfl.ir.dims import Dim, exceeds, fresh_symbol, is_nonnegative, size_or
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.matching import without_reshapes
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.ir.ops.slicing import INT32_MAX
from onnxtfl.ir.reshape import dim_vector, reshape
from onnxtfl.ir.shapes import known_dims, static_ints
from onnxtfl.ir.types import compatible
from onnxtfl.rewriting.patterns import Patterns, erase_dead

LOOPS = Patterns()


@LOOPS.on(ops.While, quantized=True)
def counted(b: Builder, node: Node) -> Sequence[Value] | None:
    """Replace a While whose condition compares a counter to an invariant bound by a Scan."""
    cond, body = node.attr("cond"), node.attr("body")
    same = [i for i, v in enumerate(body.inputs) if body.outputs[i] is v]
    found = _test(cond, body, same)
    if found is None:
        return None
    counter, bound, closed = found
    start = node.operand(counter)
    limit = Graph()
    limit.inputs, limit.outputs = cond.inputs, [bound]
    (end,) = copy_region(b, _with_nodes_of(limit, cond), node.operands)
    length = b(ops.Sub, reshape(b, end, ()), reshape(b, start, ()))
    length = b(ops.Add, length, b.scalar(1, length)) if closed else length
    carried = [i for i in range(len(body.inputs)) if i not in same]
    for i in same:
        body.inputs[i].type = node.operand(i).type
    body.inputs = [body.inputs[i] for i in (*carried, *same)]
    body.outputs = [body.outputs[i] for i in carried]
    made = b.many(ops.Scan, length, *(node.operand(i) for i in (*carried, *same)), body=body, carried=len(carried))
    finals = dict(zip(carried, made, strict=True))
    return [finals[i] if i in finals else node.operand(i) for i in range(len(node.operands))]


def _with_nodes_of(graph: Graph, other: Graph) -> Graph:
    """Return a read-only graph with the nodes of `graph` and `other`."""
    graph.first, graph.last = other.first, other.last
    return graph


def _test(cond: Graph, body: Graph, same: Sequence[int]) -> tuple[int, Value, bool] | None:
    """Return index of the counter, bound, and whether the bound is included, for the condition of a counting While."""
    test = without_reshapes(cond.outputs[0]).producer
    if test is None or test.op is not ops.Compare:
        return None
    direction, (lhs, rhs) = test.attr("comparison_direction"), (test.operand(0), test.operand(1))
    if direction in ("GT", "GE"):
        direction, lhs, rhs = {"GT": "LT", "GE": "LE"}[direction], rhs, lhs
    taken = without_reshapes(lhs)
    if direction not in ("LT", "LE") or taken not in cond.inputs or not taken.dtype.is_integer or not rhs.is_single:
        return None
    counter = cond.inputs.index(taken)
    if not set(needed_inputs(cond, [rhs])).issubset(same) or not _counts_by_one(body, counter):
        return None
    return (counter, rhs, direction == "LE") if rhs.dtype is taken.dtype else None


def _counts_by_one(body: Graph, index: int) -> bool:
    step = without_reshapes(body.outputs[index]).producer
    if step is None or step.op is not ops.Add or not body.inputs[index].is_single:
        return False
    others = [v for v in step.present_operands if without_reshapes(v) is not body.inputs[index]]
    return len(others) == 1 and static_ints(others[0]) == [1]


@dataclass
class _Read:
    """A slice of capture `capture` along `axis` in each iteration; `keeps`: the axis stays, with size 1."""

    value: Value
    capture: int
    axis: int
    back: bool
    keeps: bool


@dataclass
class _Write:
    """The `element` written to carried value `state` along `axis` in each iteration; `grows`: appended."""

    state: int
    element: Value
    axis: int
    back: bool
    grows: bool


@LOOPS.on(ops.Scan, quantized=True)
def rows(b: Builder, node: Node) -> Sequence[Value] | None:
    """Replace reads of captures at the iteration index by scanned values, and writes at it by scan outputs."""
    parts = ScanParts.of(node)
    if parts.length is None and not parts.count:
        return None
    found = _Rows(parts)
    return found.rewritten(b) if found.reads or found.writes else None


class _Rows:
    """The reads and writes at the iteration index, in a copy of the body."""

    def __init__(self, parts: ScanParts) -> None:
        self.parts, self.rounds = parts, parts.rounds
        self.number = fresh_symbol()
        self.region = Graph(parts.body.name)
        self.inputs = [self.region.add_input(v.type, v.name) for v in parts.body.inputs]
        for i in range(parts.count):
            if (counter := parts.counter(i)) is not None:
                self.inputs[i].known = _array(counter[0] + counter[1] * self.number, self.inputs[i].shape)
        self.region.outputs = copy_region(Builder(self.region), parts.body, self.inputs)
        first = parts.count + len(parts.axes)
        self.captures = {v: i for i, v in enumerate(self.inputs[first:])}
        self.reads = [read for node in self.region.nodes if (read := self.read(node)) is not None]
        self.writes = [write for i in range(parts.count) if (write := self.write(i)) is not None]

    def read(self, node: Node) -> _Read | None:
        """Return the read that `node` performs, or None."""
        if node.op not in (ops.Gather, ops.Slice) or node.operand(0) not in self.captures:
            return None
        if not node.result.uses and not self.region.is_output(node.result):
            return None
        capture = self.captures[node.operand(0)]
        source = self.parts.captures[capture]
        if source.tensor_type.shape is None:
            return None
        place = self.gathered(node) if node.op is ops.Gather else self.sliced(node, source)
        if place is None or not self.fits(source.shape[place[0]]):
            return None
        keeps = node.op is ops.Slice or node.operand(1).rank == 1
        return _Read(node.result, capture, place[0], place[1], keeps)

    def gathered(self, node: Node) -> tuple[int, bool] | None:
        """Return axis and direction of a Gather at the iteration index."""
        indices, axis = node.operand(1), node.attr("axis") % node.operand(0).rank
        if node.attr("batch_dims") or indices.rank > 1 or not indices.is_single:
            return None
        return self.place(known_dims(indices), axis)

    def sliced(self, node: Node, source: Value) -> tuple[int, bool] | None:
        """Return axis and direction of a Slice of size 1 at the iteration index, over the whole of all other axes."""
        starts, ends, steps = (known_dims(node.operand(i)) for i in (1, 2, 3))
        if starts is None or ends is None or steps is None or any(step != 1 for step in steps):
            return None
        cut = [i for i, n in enumerate(source.shape) if starts[i] != 0 or not _reaches(ends[i], n)]
        if len(cut) != 1 or ends[cut[0]] != starts[cut[0]] + 1:
            return None
        return self.place([starts[cut[0]]], cut[0])

    def place(self, index: Sequence[Dim] | None, axis: int) -> tuple[int, bool] | None:
        """Return `axis` and whether `index` counts down; None if it is not the iteration index."""
        if index is None or len(index) != 1 or index[0] not in (self.number, self.rounds - 1 - self.number):
            return None
        return axis, index[0] != self.number

    def fits(self, size: Dim) -> bool:
        """Whether `size` has an index for each iteration."""
        return is_nonnegative(size - self.rounds)

    def write(self, index: int) -> _Write | None:
        """Return the write to carried value `index`, or None."""
        state, node = self.inputs[index], self.region.outputs[index].producer
        if node is None or state.tensor_type.shape is None or state in self.region.outputs:
            return None
        if [user for user, _ in state.uses] != [node]:
            return None
        if node.op is ops.DynamicUpdateSlice and node.operand(0) is state:
            return self.updated(index, node)
        if node.op is ops.Concatenate and len(node.operands) == 2:
            element = node.operand(1 if node.operand(0) is state else 0)
            axis = node.attr("axis") % state.rank
            if element.tensor_type.shape is not None and element.shape[axis] == 1:
                return _Write(index, element, axis, node.operand(1) is state, True)
        return None

    def updated(self, index: int, node: Node) -> _Write | None:
        """Return the write of one row at the iteration index, or None."""
        state, element, starts = self.inputs[index], node.operand(1), known_dims(node.operand(2))
        if starts is None or element.tensor_type.shape is None:
            return None
        pairs = list(zip(state.shape, element.shape, starts, strict=True))
        cut = [i for i, (n, m, start) in enumerate(pairs) if m != n or start != 0]
        if len(cut) != 1 or element.shape[cut[0]] != 1:
            return None
        place = self.place([starts[cut[0]]], cut[0])
        if place is None or not self.fits(state.shape[cut[0]]):
            return None
        return _Write(index, element, place[0], place[1], False)

    def rewritten(self, b: Builder) -> list[Value]:
        """Return the results of the Scan with scanned reads, which collects the writes."""
        parts, count, written = self.parts, self.parts.count, {w.state for w in self.writes}
        scanned, slices = self.scanned(b)
        kept = [i for i in range(count) if i not in written]
        inside = Builder(self.region)
        elements = [_without_axis(inside, w.element, w.axis) for w in self.writes]
        first = count + len(parts.axes)
        self.region.inputs = [*(self.inputs[i] for i in kept), *self.inputs[count:first], *slices, *self.inputs[first:]]
        self.region.outputs = [*(self.region.outputs[i] for i in kept), *self.region.outputs[count:], *elements]
        erase_dead(self.region, self.region.nodes)
        given = [*(parts.carried[i] for i in kept), *parts.scanned, *(v for v, _ in scanned), *parts.captures]
        results = b.many(
            ops.Scan,
            parts.length,
            *given,
            body=self.region,
            carried=len(kept),
            axes=(*parts.axes, *(r.axis for _, r in scanned)),
            reversed=(*parts.reversed, *(r.back for _, r in scanned)),
            result_axes=(*parts.result_axes, *(w.axis for w in self.writes)),
            result_reversed=(*parts.result_reversed, *(w.back for w in self.writes)),
        )
        old, new = results[len(kept) : len(results) - len(self.writes)], results[len(results) - len(self.writes) :]
        finals = dict(zip(kept, results, strict=False))
        finals |= {w.state: self.final(b, w, v) for w, v in zip(self.writes, new, strict=True)}
        return [*(finals[i] for i in range(count)), *old]

    def scanned(self, b: Builder) -> tuple[list[tuple[Value, _Read]], list[Value]]:
        """Return the scanned values, and the inputs of the body that replace the reads."""
        found: dict[tuple[int, int, bool], tuple[Value, _Read]] = {}
        slices: dict[tuple[int, int, bool], Value] = {}
        for read in self.reads:
            key = (read.capture, read.axis, read.back)
            source = self.parts.captures[read.capture]
            if key not in found:
                found[key] = self.cut(b, source, read.axis), read
                shape = tuple(d for i, d in enumerate(source.shape) if i != read.axis)
                slices[key] = Value(source.tensor_type.with_shape(shape))
            assert read.value.producer is not None
            inside = Builder(self.region, read.value.producer)
            value = slices[key]
            if read.keeps:
                value = reshape(inside, value, (*value.shape[: read.axis], 1, *value.shape[read.axis :]))
            self.region.substitute(read.value, value, retyped=True)
            self.writes = [w if w.element is not read.value else replace(w, element=value) for w in self.writes]
        return list(found.values()), list(slices.values())

    def cut(self, b: Builder, source: Value, axis: int) -> Value:
        """Return as many leading rows of `source` along `axis` as there are iterations."""
        size = source.shape[axis]
        if size == self.rounds or not isinstance(size, int):
            return source
        return _part(b, source, axis, 0, self.rounds)

    def final(self, b: Builder, write: _Write, collected: Value) -> Value:
        """Return the final value of a carried value that is written to."""
        start = self.parts.carried[write.state]
        size = start.shape[write.axis]
        if write.grows:
            pair = (collected, start) if write.back else (start, collected)
            return collected if size == 0 else b(ops.Concatenate, *pair, axis=write.axis)
        if size == self.rounds:
            return collected
        rest = _part(b, start, write.axis, self.rounds, size)
        return b(ops.Concatenate, collected, rest, axis=write.axis)


def _array(dim: Dim, shape: Sequence[int]) -> Array:
    known = np.empty(shape, object)
    known[...] = dim
    return known


def _without_axis(b: Builder, value: Value, axis: int) -> Value:
    return reshape(b, value, tuple(d for i, d in enumerate(value.shape) if i != axis))


def _part(b: Builder, x: Value, axis: int, start: Dim, end: Dim) -> Value:
    """Return x[start:end] along `axis`."""
    starts = dim_vector(b, [start if i == axis else 0 for i in range(x.rank)], x)
    ends = dim_vector(b, [end if i == axis else ops.END for i in range(x.rank)], x)
    return b(ops.Slice, x, starts, ends, [1] * x.rank)


def _reaches(end: Dim, size: Dim) -> bool:
    """Whether a slice to `end` reaches the end of an axis of `size`."""
    return end == size or exceeds(end, size_or(size, INT32_MAX) - 1)


@LOOPS.on(ops.Slice, quantized=True)
def joined_part(b: Builder, node: Node) -> Value | None:
    """Slice(Concatenate(x, y), all of x) -> x, also for y."""
    joined = node.operand(0).producer
    starts, ends, steps = (known_dims(node.operand(i)) for i in (1, 2, 3))
    if joined is None or joined.op is not ops.Concatenate or starts is None or ends is None or steps is None:
        return None
    axis, end, shape = joined.attr("axis") % joined.result.rank, 0, joined.result.tensor_type.shape
    for x in joined.present_operands:
        if x.tensor_type.shape is None or shape is None:
            return None
        start, end = end, end + x.shape[axis]
        if starts[axis] == start and (ends[axis] == end or (end == shape[axis] and _reaches(ends[axis], end))):
            whole = all(starts[i] == 0 and _reaches(ends[i], n) for i, n in enumerate(shape) if i != axis)
            return x if whole and all(d == 1 for d in steps) and compatible(x.type, node.result.type) else None
    return None
