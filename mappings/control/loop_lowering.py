"""Lowering of Scan: unrolled, as calls of one subgraph, or as a While with scan outputs.

Scan outputs of a While are carried tensors. If their size can be computed before the loop, they have it from the start
and each iteration writes its element; else they start empty and each iteration appends its element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.build.sizes import INT32_MAX, as_int32, slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import at_most, fresh_symbol, known_size, size_or
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, iota, reshape, stacked_along, with_unit_axis
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType, TensorType, Type, shape_of, tensor

MOST_UNROLLED = 1 << 10
"""The most nodes of an unrolled Scan."""
MOST_SMALL = 1 << 5
"""The same where loops are to be small: on a microcontroller each tensor takes memory, even while unused."""
MOST_WITHOUT_LOOPS = 1 << 15
"""The same for targets without loops."""
MOST_PACKED = 4 << 20
"""The most bytes of constants of an unrolled Scan, counted once per iteration.

XNNPACK packs the weights of each product separately, and up to about this size they stay in the processor's cache. 25
steps of a recurrent layer take, unrolled and as calls of one subgraph, in microseconds: LSTM with 128 cells (6.5 MB)
112 and 138 with a large third-level cache, 282 and 149 with 2 MB of second-level cache (and its file loads in 6.6 and
1.6 ms, with 11 and 4 MB of memory); with 160 cells (10 MB) 207 and 190, GRU with 256 cells (20 MB) 635 and 300, with a
While 363. A call costs 2 us: XNNPACK sets up each op of the subgraph again.
"""
MOST_CALLS = 256
"""The most iterations that become calls of one subgraph."""
MOST_IN_CHUNK = 16
"""The most iterations of a Scan that one iteration of a While computes.

A While copies its scan outputs in each iteration: 2000 single steps with 64 float32 values each take 164 ms.
"""
MOST_CHUNK_NODES = 1 << 8
"""The most nodes of such an iteration."""
MOST_PASSED = 64 << 10
"""The most bytes of read-only values: each call copies them, a While does not."""


def most_packed() -> float:
    """Return the most bytes of constants of an unrolled loop."""
    return math.inf if current_budget().loops == "none" else MOST_PACKED


def unrolled_size(region: Graph) -> int:
    """Return the number of nodes of `region`, with the bodies of Scans of known length unrolled."""
    total = 0
    for node in region.nodes:
        rounds = ScanParts.of(node).rounds if node.op is ops.Scan else 1
        each = max(1, sum(map(unrolled_size, node.regions))) if node.regions else 0
        total += 1 + each * (size_or(rounds, 1))
    return total


def constant_bytes(region: Graph) -> int:
    """Return the number of bytes of constants in `region`."""
    operands = (v for node in region.walk() for v in node.operands)
    return sum(data.nbytes for data in {v.data.key: v.data for v in operands if v is not None and v.data}.values())


def is_called(node: Node) -> bool:
    """Whether the body of this Scan becomes one subgraph that each iteration calls.

    True if the trip count and all sizes are known, and unrolling would pack too many weights or create too many nodes.
    """
    parts = ScanParts.of(node)
    if current_budget().loops != "fast":
        return False
    rounds, values = parts.rounds, (*parts.body.inputs, *parts.body.outputs)
    if not at_most(rounds, MOST_CALLS) or rounds < 2 or not all(v.is_static for v in values):
        return False
    passed = sum(math.prod(v.shape) * v.tensor_type.storage.bits // 8 for v in parts.captures if not v.is_constant)
    return passed <= MOST_PASSED and not is_unrolled(parts)


def is_unrolled(parts: ScanParts) -> bool:
    """Whether a Scan is unrolled."""
    rounds = parts.rounds
    most = {"fast": MOST_UNROLLED, "none": MOST_WITHOUT_LOOPS}.get(current_budget().loops, MOST_SMALL)
    if not at_most(rounds, most // max(1, unrolled_size(parts.body))):
        return False
    return rounds < 2 or rounds * constant_bytes(parts.body) <= most_packed()


def called(b: Builder, parts: ScanParts) -> list[Value]:
    """Return the results of a Scan as one If per iteration on the same body: TFLite has no other call of a subgraph."""
    rounds, body = known_size(parts.rounds), parts.body
    sources = [_copied_from(v) for v in body.outputs]
    distinct = list(dict.fromkeys(sources))

    def call(b: Builder, body: Graph, operands: Sequence[Value]) -> list[Value]:
        found = b.many(ops.If, np.asarray([True]), *operands, then_branch=body, else_branch=body)
        return [found[distinct.index(v)] for v in sources]

    collected = Collected.all_of(parts)
    body.outputs = distinct
    return unrolled(b, parts, rounds, call, collected)


def _copied_from(value: Value) -> Value:
    """Return the value of which the output `value` is a copy: calls return it once."""
    node = value.producer
    return node.operand(0) if node is not None and node.op is ops.Copy else value


def unrolled(
    b: Builder,
    parts: ScanParts,
    rounds: int,
    call: Callable[[Builder, Graph, Sequence[Value]], list[Value]] = copy_region,
    wholes: Sequence[Collected] | None = None,
) -> list[Value]:
    """Return the results of an unrolled Scan of `rounds` iterations.

    `call` returns the results of the body in an iteration. `wholes`: the scan outputs, by default those of the body.
    """
    carried, elements = list(parts.carried), []
    scanned = zip(parts.scanned, parts.axes, parts.reversed, strict=True)
    slices = [_slices(b, v, normalize_axis(axis, v.rank), rounds, back) for v, axis, back in scanned]
    for i in range(rounds):
        outputs = call(b, parts.body, [*carried, *(s[i] for s in slices), *parts.captures])
        carried = outputs[: parts.count]
        elements.append(outputs[parts.count :])
    results = []
    for i, collected in enumerate(Collected.all_of(parts) if wholes is None else wholes):
        found = [element[i] for element in elements]
        results.append(collected.joined(b, found) if found else collected.start(b, _number(0), parts.values))
    return [*carried, *results]


def _number(number: int) -> Value:
    if number > INT32_MAX:
        raise UnsupportedError(f"a loop of {number} iterations, more than {INT32_MAX}", code="E-OP-008")
    return constant(np.asarray(number, np.int32))


def _slices(b: Builder, x: Value, axis: int, rounds: int, back: bool) -> list[Value]:
    """Return the first `rounds` slices of `x` along `axis`; with `back` the last ones in reverse order."""
    size, shape = x.shape[axis], (*x.shape[:axis], *x.shape[axis + 1 :])
    if size != rounds:
        places = [size - 1 - i if back else i for i in range(rounds)]
        return [b(ops.Gather, x, reshape(b, dim_vector(b, [i], x), ()), axis=axis) for i in places]
    if axis < x.rank - 1:  # merged with the next axis, so that each part already has the shape of a slice
        x = reshape(b, x, (*x.shape[:axis], rounds * x.shape[axis + 1], *x.shape[axis + 2 :]))
    found = b.many(ops.Split, x, axis=axis, count=rounds) if rounds > 1 else [x] * rounds
    found = [reshape(b, v, shape, x) for v in found]
    return found[::-1] if back else found


class Collected:
    """A scan output: the values of `output` of the body, stacked along `axis`.

    `back`: the element of the first iteration is the last one.
    """

    def __init__(self, output: Value, axis: int = 0, back: bool = False) -> None:
        self.output, self.back = output, back
        self.axis = normalize_axis(axis, output.rank + 1)
        self.grows = self.blank = False
        """Whether each iteration appends to the tensor; whether its sizes are unknown before the loop."""

    @classmethod
    def all_of(cls, parts: ScanParts) -> list[Collected]:
        """Return the scan outputs of a Scan."""
        outputs = parts.body.outputs[parts.count :]
        return [cls(*each) for each in zip(outputs, parts.result_axes, parts.result_reversed, strict=True)]

    def joined(self, b: Builder, elements: Sequence[Value]) -> Value:
        """Stack all `elements`."""
        elements = elements[::-1] if self.back else elements
        first = elements[0]
        if len(elements) == 1 or self.axis == first.rank:
            return stacked_along(b, elements, self.axis)
        shape = (*first.shape[: self.axis], len(elements), *first.shape[self.axis :])
        return reshape(b, b(ops.Concatenate, *elements, axis=self.axis), shape, *elements)

    def start(self, b: Builder, rounds: Value | None, sources: Sequence[Value]) -> Value:
        """Return the tensor before the first iteration.

        `rounds`: the trip count as a scalar, None if unknown. `sources`: values from which the sizes of an element may
        be computed; if they cannot, the tensor is empty.
        """
        sizes = self.output.shape
        parts = [sizes[: self.axis], sizes[self.axis :]]
        try:
            vectors = [dim_vector(b, dims, *sources) for dims in parts]
        except UnsupportedError:
            self.blank, rounds = True, None
            known = [[size_or(d, 0) for d in dims] for dims in parts]
            vectors = [constant(np.asarray(dims, np.int64)) for dims in known]
        self.grows = rounds is None
        count = constant(np.asarray([0], np.int64)) if rounds is None else _count(b, rounds)
        named = [v for v, dims in zip((vectors[0], count, vectors[1]), (parts[0], (0,), parts[1]), strict=True) if dims]
        return b(ops.BroadcastTo, self._zero(), b(ops.Concatenate, *named, axis=0))

    def _zero(self) -> Value:
        type_ = self.output.tensor_type.with_shape(())
        stored = np.asarray(0, type_.storage.numpy)
        return constant(ArrayData(stored, type_.storage), type_=type_)

    def type(self, start: Value) -> TensorType:
        """Return the type inside the body of the tensor that is initially `start`."""
        if not self.grows:
            return start.tensor_type
        sizes = [d if isinstance(d, int) or not self.blank else fresh_symbol() for d in self.output.shape]
        return self.output.tensor_type.with_shape((*sizes[: self.axis], fresh_symbol(), *sizes[self.axis :]))

    def with_element(self, b: Builder, whole: Value, element: Value, number: Value, rounds: Value | None) -> Value:
        """Return `whole` with the `element` of iteration `number` of `rounds` (int32 scalars), inside the body."""
        wide = with_unit_axis(b, element, self.axis)
        if not self.grows:
            place = number if rounds is None or not self.back else _from_end(b, rounds, number)
            chosen = np.asarray([i == self.axis for i in range(wide.rank)], np.int32)
            return b(ops.DynamicUpdateSlice, whole, wide, b(ops.Mul, reshape(b, place, (1,)), chosen))
        if self.blank:
            whole = b(ops.Reshape, whole, self._shape(b, wide, number))
        return b(ops.Concatenate, *((wide, whole) if self.back else (whole, wide)), axis=self.axis)

    def cut(self, b: Builder, whole: Value, rounds: Value) -> Value:
        """Return the first `rounds` (a scalar) elements of `whole`."""
        if self.grows or rounds.is_constant:
            return whole
        ends = [constant(np.full(n, INT32_MAX, np.int64)) for n in (self.axis, whole.rank - self.axis - 1)]
        count = as_int64(b, reshape(b, rounds, (1,)))
        ends.insert(1, count if never_negative(count) else b(ops.Max, count, b.scalar(0, count)))
        limits = b(ops.Concatenate, *(v for v in ends if v.shape != (0,)), axis=0)
        return b(ops.Slice, whole, [0] * whole.rank, limits, [1] * whole.rank)

    def _shape(self, b: Builder, wide: Value, number: Value) -> Value:
        """Return the sizes of `wide`, with `number` along the axis."""
        axes = (tuple(range(self.axis)), tuple(range(self.axis + 1, wide.rank)))
        before, after = ([b(ops.Shape, wide, axes=each)] if each else [] for each in axes)
        return b(ops.Concatenate, *before, as_int64(b, reshape(b, number, (1,))), *after, axis=0)


def _count(b: Builder, rounds: Value) -> Value:
    """Return `rounds` as an int64 vector of size 1; plus 1 if unknown, since kernels need a nonzero size."""
    count = as_int64(b, reshape(b, rounds, (1,)))
    return count if rounds.is_constant else b(ops.Add, count, b.scalar(1, count))


def _from_end(b: Builder, size: Value, number: Value) -> Value:
    """Return size - 1 - number."""
    return b(ops.Sub, b(ops.Sub, size, b.scalar(1, size)), number)


def number_type(declared: Type | None) -> TensorType:
    """Return the type of the iteration number: a scalar, or a vector of size 1 if the body declares that."""
    shape = shape_of(declared)
    return tensor("int64", *([1] if shape is not None and len(shape) == 1 else []))


def number_of_round(body: Graph) -> Value:
    """Return the first input of `body` as a scalar."""
    number = body.inputs[0]
    if not number.rank:
        return number
    body.inputs[0] = scalar = Value(tensor("int64"), number.name)
    body.substitute(number, Builder(body, body.first)(ops.Reshape, scalar, [1]))
    return scalar


def next_round(
    body: Graph, captures: Sequence[Value], collected: Sequence[Collected], wholes: Sequence[Value], limit: Value | None
) -> None:
    """Let `body` return the inputs of the next iteration: number, condition, carried values, captures, `wholes`."""
    b, (number, condition) = Builder(body), body.inputs[:2]
    again, *values = body.outputs
    carried, elements = values[: len(values) - len(wholes)], values[len(values) - len(wholes) :]
    place = b(ops.Convert, number, dtype=DType.INT32)
    triples = zip(collected, wholes, elements, strict=True)
    written = [c.with_element(b, whole, element, place, None) for c, whole, element in triples]
    following = (b(ops.Add, number, np.asarray(1, np.int64)), b(ops.Reshape, again, [1] * condition.rank))
    body.outputs = [*following, *carried, *captures, *written, *([] if limit is None else [limit])]


def goes_on(body: Graph, limit: Value | None) -> Graph:
    """Return condition and number < trip count (an input of `body`)."""
    region = Graph("goes_on")
    inputs = {v: region.add_input(v.type) for v in body.inputs}
    b, (number, condition) = Builder(region), region.inputs[:2]
    again = b(ops.Reshape, condition, [])
    if limit is not None:
        again = b(ops.And, again, b(ops.Compare, number, inputs[limit], comparison_direction="LT"))
    region.outputs = [again]
    return region


def as_while(b: Builder, parts: ScanParts) -> list[Value]:
    """Return the results of a Scan as a counting While, several iterations at a time if the trip count is known."""
    size = _chunk(parts)
    return _Counted(b, parts).results() if size < 2 else _in_chunks(b, parts, size)


def _chunk(parts: ScanParts) -> int:
    """Return how many iterations of a Scan one iteration of a While computes."""
    rounds, nodes = parts.rounds, unrolled_size(parts.body)
    axes = [*(a % v.rank for v, a in zip(parts.scanned, parts.axes, strict=True)), *parts.result_axes]
    if not isinstance(rounds, int) or any(axes) or any(node.regions for node in parts.body.nodes):
        return 1
    if not parts.result_axes or any(v.shape[0] != rounds for v in parts.scanned):
        return 1
    least = max(1, rounds * nodes // MOST_CHUNK_NODES)
    if least < 2 or current_budget().has_small_loops:
        return 1
    most = min(MOST_IN_CHUNK, rounds // 2, MOST_CHUNK_NODES // max(nodes, 1), _packable(parts.body))
    return min(range(most, most - most // 4 - 1, -1), key=lambda size: _rest(rounds, size))


def _rest(rounds: int, size: int) -> tuple[bool, int]:
    """Return a sort key, least for the best size: few iterations remain after the last chunk, but not a single one."""
    rest = rounds % size if size > 0 else 0
    return rest == 1, rest


def _packable(body: Graph) -> int:
    """Return how many copies of `body` stay below the limit of constants."""
    return MOST_PACKED // max(constant_bytes(body), 1)


def _in_chunks(b: Builder, parts: ScanParts, size: int) -> list[Value]:
    """Return the results of a Scan of known length: a While over chunks of `size` iterations, the rest unrolled."""
    count, rest = divmod(known_size(parts.rounds), size)
    region, body = Graph(parts.body.name), parts.body
    states = [region.add_input(v.type) for v in body.inputs[: parts.count]]
    whole = [
        _rows(b, v, rest if back else 0, count * size) for v, back in zip(parts.scanned, parts.reversed, strict=True)
    ]
    chunks = [reshape(b, v, (count, size, *v.shape[1:]), v) for v in whole]
    slices = [region.add_input(v.tensor_type.with_shape(v.shape[1:])) for v in chunks]
    captures = [region.add_input(v.type) for v in parts.captures]
    within = ScanParts(_number(size), [*states, *slices, *captures], parts.attributes)
    region.outputs = unrolled(Builder(region), within, size)
    given = [*parts.carried, *chunks, *parts.captures]
    outer = ScanParts(_number(count), given, {**parts.attributes, "body": region})
    results = _Counted(b, outer).results()
    finals, collected = results[: parts.count], results[parts.count :]
    collected = [reshape(b, v, (count * size, *v.shape[2:]), v) for v in collected]
    if not rest:
        return [*finals, *collected]
    tails = [
        _rows(b, v, 0 if back else count * size, rest) for v, back in zip(parts.scanned, parts.reversed, strict=True)
    ]
    last = ScanParts(_number(rest), [*finals, *tails, *parts.captures], parts.attributes)
    ends = unrolled(b, last, rest)
    pairs = zip(collected, ends[parts.count :], parts.result_reversed, strict=True)
    joined = [b(ops.Concatenate, *((y, x) if back else (x, y)), axis=0) for x, y, back in pairs]
    return [*ends[: parts.count], *joined]


def _rows(b: Builder, x: Value, start: int, count: int) -> Value:
    """Return x[start : start + count]."""
    return slice_axes(b, x, {0: slice(start, start + count)})


class _Counted:
    """A While over iteration number, carried values, scan outputs and read-only values."""

    def __init__(self, b: Builder, parts: ScanParts) -> None:
        self.b, self.parts = b, parts
        self.length = _length(b, parts)
        self.collected = Collected.all_of(parts)
        self.body, self.cond = Graph(parts.body.name), Graph("goes_on")
        self.inside = Builder(self.body)
        self.given: list[Value] = []
        self.inputs: dict[Value, Value] = {}
        """The inputs of the body for read-only values of the graph."""
        self.steps = {i: step for i in range(parts.count) if (step := parts.counter(i)) is not None}

    def results(self) -> list[Value]:
        """The final carried values and the scan outputs."""
        parts, inside = self.parts, self.inside
        number = self.carry(_number(0), tensor("int32"))
        kept = [i for i in range(parts.count) if i not in self.steps]
        carried = {i: self.carry(parts.carried[i], parts.body.inputs[i].type) for i in kept}
        starts = [c.start(self.b, self.length, parts.values) for c in self.collected]
        wholes = [self.carry(v, c.type(v)) for c, v in zip(self.collected, starts, strict=True)]
        counted = {i: _at(inside, parts.body.inputs[i], *step, number) for i, step in self.steps.items()}
        states = [(carried | counted)[i] for i in range(parts.count)]
        slices = [self.slice(i, number) for i in range(len(parts.axes))]
        outputs = copy_region(inside, parts.body, [*states, *slices, *map(self.read, parts.captures)])
        length, triples = self.read(self.length), zip(self.collected, wholes, outputs[parts.count :], strict=True)
        written = [c.with_element(inside, whole, element, number, length) for c, whole, element in triples]
        following = inside(ops.Add, number, inside.scalar(1, number))
        self.body.outputs = [following, *(outputs[i] for i in kept), *written, *self.inputs.values()]
        made = self.loop(length)[1:]
        finals, whole = dict(zip(kept, made, strict=False)), made[len(kept) : len(kept) + len(starts)]
        collected = [c.cut(self.b, v, self.length) for c, v in zip(self.collected, whole, strict=True)]
        last = {i: _at(self.b, parts.body.inputs[i], *step, self.length) for i, step in self.steps.items()}
        return [*((finals | last)[i] for i in range(parts.count)), *collected]

    def carry(self, start: Value, type_: Type | None) -> Value:
        """Return the input of the body for a carried value that is initially `start`."""
        self.given.append(start)
        return self.body.add_input(type_)

    def read(self, value: Value) -> Value:
        """Return the input of the body for `value` of the graph."""
        if value.is_constant:
            return value
        if value not in self.inputs:
            self.inputs[value] = self.body.add_input(value.type)
            self.inputs[value].known = value.known
        return self.inputs[value]

    def slice(self, index: int, number: Value) -> Value:
        """Return the slice of scanned value `index` for iteration `number`."""
        x, axis = self.parts.scanned[index], self.parts.axes[index]
        axis, inner = normalize_axis(axis, x.rank), self.read(x)
        if self.parts.reversed[index]:
            whole = x.shape[axis] == self.parts.rounds
            size = self.read(self.length) if whole else _int32(self.inside, self.inside(ops.Shape, inner, axes=(axis,)))
            number = _from_end(self.inside, size, number)
        return self.inside(ops.Gather, inner, number, axis=axis)

    def loop(self, length: Value) -> list[Value]:
        """Return the While with the condition first value < `length`, a value of the body."""
        inputs = {v: self.cond.add_input(v.type) for v in self.body.inputs}
        bound = inputs.get(length, length)
        number = self.cond.inputs[0]
        self.cond.outputs = [Builder(self.cond)(ops.Compare, number, bound, comparison_direction="LT")]
        return self.b.many(ops.While, *self.given, *self.inputs, cond=self.cond, body=self.body)


def _length(b: Builder, parts: ScanParts) -> Value:
    """Return the trip count as an int32 scalar."""
    rounds = parts.rounds
    if isinstance(rounds, int):
        return _number(max(rounds, 0))
    if parts.length is not None:
        return _int32(b, parts.length)
    place = next(i for i, (v, a) in enumerate(zip(parts.scanned, parts.axes, strict=True)) if v.shape[a] == rounds)
    axis = normalize_axis(parts.axes[place], parts.scanned[place].rank)
    return _int32(b, b(ops.Shape, parts.scanned[place], axes=(axis,)))


def _int32(b: Builder, value: Value) -> Value:
    """Return a value of one element as an int32 scalar."""
    return as_int32(b, reshape(b, value, ()))


def _at(b: Builder, like: Value, start: int, step: int, number: Value) -> Value:
    """Return start + step * number in the dtype of `like`."""
    counted = Term(b, number).to(like.dtype) * step + start
    return reshape(b, counted.value, like.shape)


def mask_steps(b: Builder, body: Graph, inside: list[Value], count: int, scanned: int) -> None:
    """Add the step index and the sequence length to `body`: steps after the length keep the state and return zeros.

    `inside`: the values of one sequence, with the length after the scanned values. The step indices are inserted before
    it, and it becomes the first captured value.
    """
    steps = dim_value(b, inside[count].shape[0], inside[count])
    number, length = (Value(tensor("int64")) for _ in range(2))
    inside[count + scanned : count + scanned + 1] = [iota(b, steps), as_int64(b, inside[count + scanned])]
    body.inputs[count + scanned : count + scanned] = [number, length]
    masked = Builder(body)
    valid = masked(ops.Compare, number, length, comparison_direction="LT")
    otherwise = [*body.inputs[:count], *(masked.scalar(0, v) for v in body.outputs[count:])]
    pairs = zip(body.outputs, otherwise, strict=True)
    body.outputs = [masked(ops.Select, valid, new, old) for new, old in pairs]
