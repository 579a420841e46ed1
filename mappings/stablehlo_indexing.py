"""StableHLO's gather and scatter, whose dimension numbers say which axes are windows and which are indices.

TFLite: STABLEHLO_GATHER STABLEHLO_SCATTER. Source: the StableHLO specification, gather and scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.rules import lift_tfl, reshape, transposed, unsqueezed


def _numbers(node: Node, name: str) -> list[int]:
    return [int(n) for n in node.attr(name) or ()]


def _index_vectors(b: Builder, node: Node, indices: Value) -> Value:
    """The indices with the axis that holds a vector's entries last."""
    axis = int(node.attr("index_vector_dim"))
    if axis == indices.rank:
        return unsqueezed(b, indices, [axis])
    return transposed(b, indices, [*(a for a in range(indices.rank) if a != axis), axis])


def _static(x: Value) -> list[int]:
    sizes = [d for d in x.shape if isinstance(d, int)]
    if len(sizes) < x.rank:
        raise UnsupportedError("sizes that are not known before run time", hint="give --input-shape")
    return sizes


@lift_tfl("STABLEHLO_GATHER")
def _gather(b: Builder, node: Node) -> Value:
    """Windows of `slice_sizes` at the indices, which are moved so far that the windows fit.

    The axes with an index come first; each window's places along them are added to its index.
    """
    x, sizes = node.operand(0), _numbers(node, "slice_sizes")
    mapped, collapsed = _numbers(node, "start_index_map"), _numbers(node, "collapsed_slice_dims")
    rest = [a for a in range(x.rank) if a not in mapped]
    room = np.asarray([_static(x)[a] - sizes[a] for a in mapped])
    starts = _index_vectors(b, node, node.operand(1))
    starts = b(ops.Min, b(ops.Max, starts, b.scalar(0, starts)), room.astype(starts.dtype.numpy))
    batch = starts.rank - 1
    window = [sizes[a] for a in mapped]
    places = np.stack(np.meshgrid(*map(np.arange, window), indexing="ij"), axis=-1).astype(starts.dtype.numpy)
    spread = unsqueezed(b, starts, range(batch, batch + len(mapped)))
    ordered = transposed(b, x, [*mapped, *rest])
    if any(sizes[a] != x.shape[a] for a in rest):
        limits = [*(x.shape[a] for a in mapped), *(sizes[a] for a in rest)]
        ordered = b(ops.Slice, ordered, [0] * x.rank, limits, [1] * x.rank)
    found = b(ops.GatherND, ordered, b(ops.Add, spread, places))
    order = [[*mapped, *rest].index(a) + batch for a in range(x.rank) if a not in collapsed]
    kept = [*range(batch), *order, *(batch + [*mapped, *rest].index(a) for a in collapsed)]
    flat = transposed(b, found, kept)
    flat = reshape(b, flat, flat.shape[: flat.rank - len(collapsed)])
    return _offsets_at(b, flat, batch, _numbers(node, "offset_dims"))


def _offsets_at(b: Builder, x: Value, batch: int, offsets: Sequence[int]) -> Value:
    """The axes behind the batch ones put at `offsets`."""
    others = iter(range(batch))
    behind = {axis: batch + i for i, axis in enumerate(offsets)}
    return transposed(b, x, [behind[a] if a in behind else next(others) for a in range(x.rank)])


_KINDS: dict[type[Op], str] = {ops.Add: "add", ops.Mul: "mul", ops.Max: "max", ops.Min: "min"}


@lift_tfl("STABLEHLO_SCATTER")
def _scatter(b: Builder, node: Node) -> Value:
    """Rows, or whole blocks, written at indices of the axes in front."""
    x, updates = node.operand(0), node.operand(2)
    mapped, inserted = _numbers(node, "scatter_dims_to_operand_dims"), _numbers(node, "inserted_window_dims")
    windows = _numbers(node, "update_window_dims")
    rest = [a for a in range(x.rank) if a not in mapped]
    if sorted(mapped) != sorted(inserted) or [updates.shape[w] for w in windows] != [x.shape[a] for a in rest]:
        raise UnsupportedError("scattered windows that are a part of an axis")
    rows = _index_vectors(b, node, node.operand(1))
    order = [*mapped, *rest]
    laid = transposed(b, updates, [*(a for a in range(updates.rank) if a not in windows), *windows])
    kind = _kind(node.attr("update_computation_subgraph_index"))
    written = b(ops.ScatterND, transposed(b, x, order), rows, laid, kind=kind)
    return transposed(b, written, [order.index(a) for a in range(x.rank)])


def _kind(body: object) -> str:
    """What the body makes of the old number and the update."""
    if isinstance(body, Graph) and body.first is None and body.outputs[0] is body.inputs[1]:
        return "none"
    nodes = list(body.nodes) if isinstance(body, Graph) else []
    whole = len(nodes) == 1 and isinstance(body, Graph) and set(nodes[0].operands) == set(body.inputs)
    if whole and nodes[0].op in _KINDS:
        return _KINDS[nodes[0].op]
    raise UnsupportedError("a scatter that joins by another function than sum, product, maximum, minimum")
