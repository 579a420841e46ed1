"""Cost model: the amounts of work of an op instance, by which the costs in ``schemas/`` are multiplied.

=========  ==========================================================================================================
call       1 for each call
read       bytes of the operands that are not constant
written    bytes of the results
macs       multiply-adds of a product of matrices, or a convolution
rows       lines of elements along the last axis: 1,6,6,64 has 36
pieces     contiguous parts after the last axis that the op works along: 1,6,6,64 gathered along axis 1 has 6
blocks     contiguous parts from that axis on: 1,6,6,64 concatenated along axis 2 has 6
tiles      `macs`, with as many features of the result as kernels compute: a multiple of 16
wide       likewise, a multiple of 32
lines      rows of each matrix that is multiplied by another one
taps       positions of the window of a convolution
parts      tensors that are joined, or made by a split
steps      elements of the result of a slice with strides, which are copied one by one
=========  ==========================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onnxtfl.ir.dims import Shape, estimated_size
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import TensorType, shape_of
from onnxtfl.targets.instance import BoundOp, is_prepared
from onnxtfl.targets.table import CostRow, Costs

Amounts = Mapping[str, float]
TILE = 16
"""The features of the result that kernels of convolutions compute at once, in XNNPACK."""
_AXES = ("axis", "axes", "dim", "perm")
"""Options and operands that list the axes along which an op works, of both formats."""


def estimates(costs: Costs, op: BoundOp) -> tuple[float, ...] | None:
    """The run time of `op` in nanoseconds on each kind of machine; None if it was not measured."""
    amounts = amounts_of(op)
    found = [time for rows in costs.values() if (time := _estimate(rows, op, amounts)) is not None]
    return tuple(found) if found and len(found) == len(costs) else None


def _estimate(rows: Sequence[CostRow], op: BoundOp, amounts: Amounts) -> float | None:
    """The run time by the first row that applies."""
    last = None
    for row in rows:
        if row.last is not None and last is None:
            last = along_last(op)
        weights = all(is_prepared(value) for name in row.constant for value in op.named(name))
        in_range = all(low <= amounts[name] <= high for name, (low, high) in row.ranges.items())
        as_asked = all(bool(op.options.get(name)) == value for name, value in row.options.items())
        if weights and in_range and as_asked and row.last in (None, last):
            return sum(rate * amounts[name] for name, rate in row.rates.items())
    return None


def along_last(op: BoundOp) -> bool:
    """Whether `op` works along the last axis of more than one element."""
    shape = _source(op)
    largest = max((axis for axis, size in enumerate(shape) if size != 1), default=0)
    return bool(shape) and max(_axes(op, shape), default=-1) >= largest


def amounts_of(op: BoundOp) -> Amounts:
    """The amounts of work of `op` by kind; unknown sizes count as 64."""
    read = [v for _, _, v in op.operands if not is_prepared(v)]
    results = [v for _, _, v in op.results]
    return {
        "call": 1,
        "read": sum(map(_bytes, read)),
        "written": sum(map(_bytes, results)),
        **_products(op),
        **_parts(op),
        "steps": _steps(op),
    }


def open_bytes(node: Node) -> float:
    """The bytes that `node` reads and writes, without constants, if results have dynamic sizes; else 0."""
    if all(result.is_static for result in node.results):
        return 0
    read = [v for v in node.present_operands if not is_prepared(v)]
    return sum(map(_bytes, (*read, *node.results)))


def _bytes(value: Value) -> float:
    return _size(value) * value.type.storage.bits / 8 if isinstance(value.type, TensorType) else 0


def _size(value: Value) -> int:
    return _product(_shape(value)) if isinstance(value.type, TensorType) else 0


def _product(shape: Iterable[Any]) -> int:
    return math.prod(max(1, estimated_size(d)) for d in shape)


def _products(op: BoundOp) -> Amounts:
    """The elements of the result times the contracted ones: second operand without batches / last axis of the
    result.
    """
    values = [v for _, _, v in (*op.operands[:2], *op.results[:1])]
    if len(values) < 3 or not all(isinstance(v.type, TensorType) and v.type.shape for v in values):
        return dict.fromkeys(("macs", "tiles", "wide", "lines", "taps"), 0)
    kernel, result = values[1].shape, values[2].shape
    features = _product(result[-1:])
    macs = _size(values[2]) * _product(kernel[-op.matrix_rank :]) / features
    lines = _product(result[-2:-1]) if op.matrix_rank else _size(values[2]) / features
    tiles, wide = (macs * -(-features // tile) * tile / features for tile in (TILE, 2 * TILE))
    return {"macs": macs, "tiles": tiles, "wide": wide, "lines": lines, "taps": _product(kernel[1:-1])}


def _parts(op: BoundOp) -> dict[str, float]:
    source = _source(op)
    last = max(_axes(op, source), default=-1) if source else -1
    shapes = _moved(op, len(source), last)
    return {
        "parts": len(shapes),
        "rows": sum(_product(shape[:-1]) for shape in shapes),
        "pieces": sum(_product(shape[: last + 1]) for shape in shapes),
        "blocks": sum(_product(shape[: max(last, 0)]) for shape in shapes),
    }


def _steps(op: BoundOp) -> float:
    strides = [n for value in op.named("strides") for n in static_ints(value) or ()]
    return _size(op.results[0][2]) if any(n != 1 for n in strides) else 0


def _moved(op: BoundOp, rank: int, last: int) -> list[Shape]:
    """The shapes of the results; of the operands where these are more, where the axis `last` is reduced to size 1, and
    where axes are reordered.
    """
    read = [shape for _, p, v in op.operands if p.variable == op.main and len(shape := _shape(v)) == rank]
    written = [shape for _, _, v in op.results if len(shape := _shape(v)) == rank]
    is_read = len(read) > len(written) or (last >= 0 and len(written) == 1 and written[0][last] == 1)
    return read if is_read or _given_axes(op, "perm") is not None else written


def _source(op: BoundOp) -> Shape:
    """The shape of the first operand of the main variable; empty if unknown."""
    return next((_shape(v) for _, p, v in op.operands if p.variable == op.main), ())


def _shape(value: Value) -> Shape:
    return shape_of(value.type) or ()


def _axes(op: BoundOp, shape: Sequence[Any]) -> Iterable[int]:
    """The axes of `shape` along which `op` works: those in its options or moved by it, else those whose sizes it
    changes.
    """
    rank = len(shape)
    for name in _AXES:
        axes = _given_axes(op, name)
        if axes is not None:
            return _reordered(axes, shape) if name == "perm" else [a % rank for a in axes]
    result = op.results[0][2].type
    if not isinstance(result, TensorType) or result.shape is None or len(result.shape) != rank:
        return ()
    return [i for i, (a, b) in enumerate(zip(shape, result.shape, strict=True)) if a != b]


def _reordered(order: Sequence[int], shape: Sequence[Any]) -> Iterable[int]:
    """The axes of more than one element whose order changes."""
    large = [a for a in order if shape[a] != 1]
    return [have for have, want in zip(sorted(large), large, strict=True) if have != want]


def _given_axes(op: BoundOp, name: str) -> Sequence[int] | None:
    found = op.options.get(name)
    if found is None:
        value = next(iter(op.named(name)), None)
        return None if value is None else static_ints(value)
    return [found] if isinstance(found, int) else list(found)
