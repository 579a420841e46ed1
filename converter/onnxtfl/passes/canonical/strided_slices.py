"""Slices of every n-th position, for the CPU's delegate, which slices runs only.

::

    %y = Slice(%x: [56, 56, 96]) [1:56:2, 0:56:2, :]
      ->
    %r = Reshape(%x) [28, 112, 192]                        rows and columns in pairs, the second of which is ...
    %y = Reshape(Slice(%r) [:, 56:112, 0:96]) [28, 28, 96]

The elements of a pair are neighbors where its axis is split; axes that are read whole join the one before them.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.ops.slicing import positions_read
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshape

Run = tuple[int, int, int]
"""The size of an axis, the first position that is read of it, and the one after the last."""
MOST_AXES = 4


def slice_runs(graph: Graph) -> None:
    """Replace slices with strides by slices without, where axes consist of whole strides."""
    for node in list(graph.nodes):
        if node.op is ops.Slice and may_match(node, True) and (runs := _runs(node)) is not None:
            builder = Builder(graph, node, maker="strided slices")
            graph.replace(node, [_sliced(builder, node, runs)])


def _runs(node: Node) -> list[Run] | None:
    """The run that `node` reads of each axis of its reshaped operand; None if it has no strides, if there is none, and
    for integers, most of which are sizes.
    """
    x, read = node.operand(0), positions_read(node)
    quantization = x.tensor_type.quantization
    is_plain = x.dtype.is_float and (quantization is None or quantization.per_tensor)
    if read is None or not is_plain or not node.result.is_static:
        return None
    strides = [places.step for places in read]
    if max(strides, default=1) == 1 or min(strides) < 1:
        return None
    runs = list[Run]()
    for size, places in zip(known_sizes(x.shape), read, strict=True):
        if not places or (places.step > 1 and (size % places.step or len(places) != size // places.step)):
            return None
        split = [(len(places), 0, len(places)), (places.step, places[0], places[0] + 1)]
        runs += split if places.step > 1 else [(size, places[0], places[-1] + 1)]
    merged = list(_merged(runs))
    return merged if len(merged) <= MOST_AXES else None


def _merged(runs: list[Run]) -> Iterator[Run]:
    """The runs, where those of whole axes join the one before."""
    size, start, limit = 1, 0, 1
    for count, first, last in runs:
        if last - first == count or size == 1:
            size, start, limit = size * count, start * count + first, (limit - 1) * count + last
        else:
            yield size, start, limit
            size, start, limit = count, first, last
    yield size, start, limit


def _sliced(b: Builder, node: Node, runs: list[Run]) -> Value:
    sizes, starts, limits = map(list, zip(*runs, strict=True))
    part = b(ops.Slice, reshape(b, node.operand(0), sizes), starts, limits, [1] * len(runs))
    return reshape(b, part, node.result.shape)
