"""Parts of a tensor with open sizes, for the CPU's delegate: of these it makes equal parts only, and few at once.

::

    %a = Slice(%x: [n, 64]) [:, 0:16]                      %p, %q = Split(%x)
    %b = Slice(%x) [:, 16:64]              ->              %a, %r = Split(%p)
                                                           %s, %t = Split(%q)
                                                           %b = Concatenate(%r, %s, %t)

The gates of an LSTM with a dynamic batch are such parts: Keras's LSTM of 20 steps takes a third of the time in one
thread.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.ops.slicing import cut_of
from onnxtfl.ir.quantized import may_match, quantization_of
from onnxtfl.ir.shapes import normalize_axis

MOST_PARTS = 16
"""The most equal parts that are made of a tensor."""
_AT_ONCE = (4, 3, 2)
"""How many parts the delegate makes at once."""


@dataclass(frozen=True)
class Cut:
    """A result of `node` that is the positions from `first` up to `last` of an axis of the node's operand."""

    node: Node
    value: Value
    first: int
    last: int


def split_slices(graph: Graph, is_delegated: Callable[[Node], bool]) -> None:
    """Replace slices and uneven splits of tensors with open sizes by equal splits, if the delegate computes these."""
    found: defaultdict[tuple[Value, int], list[Cut]] = defaultdict(list)
    for node in graph.nodes:
        if node.op in (ops.Slice, ops.Split) and may_match(node, True) and _has_open_sizes(node.operand(0)):
            for axis, cut in _cuts(node):
                found[node.operand(0), axis].append(cut)
    for (x, axis), cuts in found.items():
        _replace(graph, x, axis, cuts, is_delegated)


def _has_open_sizes(x: Value) -> bool:
    return x.tensor_type.shape is not None and not x.tensor_type.is_static


def _cuts(node: Node) -> Iterator[tuple[int, Cut]]:
    """The parts that `node` makes along an axis of known size, and the axis."""
    if node.op is ops.Slice:
        if (found := cut_of(node)) is not None and found[1] < found[2]:
            yield found[0], Cut(node, node.result, *found[1:])
        return
    axis = normalize_axis(node.attr("axis"), node.operand(0).rank)
    sizes = [result.shape[axis] for result in node.results]
    if is_static(sizes) and isinstance(node.operand(0).shape[axis], int) and 0 not in sizes:
        ends = list(itertools.accumulate(map(int, sizes), initial=0))
        yield from ((axis, Cut(node, *each)) for each in zip(node.results, ends, ends[1:], strict=False))


def _replace(graph: Graph, x: Value, axis: int, cuts: Sequence[Cut], is_delegated: Callable[[Node], bool]) -> None:
    """Make `cuts` of equal parts of `x`; nothing is changed if these are too many, or not computed by the delegate."""
    size, nodes = int(x.shape[axis]), list(dict.fromkeys(cut.node for cut in cuts))
    part = math.gcd(size, *(bound for cut in cuts for bound in (cut.first, cut.last)))
    factors = _factors(size // part) if size // part <= MOST_PARTS else ()
    if not factors or all(map(is_delegated, nodes)):
        return
    b = Builder(graph, nodes[0], cause=nodes[0], maker="split slices")
    parts = _split(b, x, axis, factors)
    made = {cut.value: _joined(b, parts[cut.first // part : cut.last // part], axis) for cut in cuts}
    if not all(map(is_delegated, b.created)):
        b.undo()
        return
    for node in nodes:
        graph.replace(node, [made[result] for result in node.results])


def _factors(count: int) -> Sequence[int]:
    """`count` as a product of few; empty if it is not one."""
    found = list[int]()
    for factor in _AT_ONCE:
        while count % factor == 0:
            found.append(factor)
            count //= factor
    return found if count == 1 else ()


def _split(b: Builder, x: Value, axis: int, factors: Sequence[int]) -> list[Value]:
    if not factors:
        return [x]
    parts = b.many(ops.Split, x, axis=axis, count=factors[0])
    for part in parts:
        part.type = part.tensor_type.stored_as(quantization_of(x))
    return [each for part in parts for each in _split(b, part, axis, factors[1:])]


def _joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    whole = b(ops.Concatenate, *parts, axis=axis)
    whole.type = whole.tensor_type.stored_as(quantization_of(parts[0]))
    return whole
