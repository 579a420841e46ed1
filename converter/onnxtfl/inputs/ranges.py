"""Plausible values of a model's inputs, derived from their uses in the graph.

An integer input that selects rows of a table gets row indices, a mask gets 0 and 1, the operand of a logarithm is
positive. Ops that could not be lifted are in the graph as the file has them: nothing is known of their operands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.dims import known_sizes, size_or
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import DType, TensorType

Affine = tuple[float, float]
SMALL = 64
"""The most elements of a constant whose values are read."""
BETWEEN_SAMPLES = 128
"""The rows between two samples of an interpolated table of 65536 rows."""
MOST_ROWS = 1 << 16
DEFAULT_ROWS = 2
"""Rows of a table of unknown size."""

AXES = frozenset({"axis", "axes"})
"""Names of operands that are axes, of any op; axis 0 always exists."""
EQUALITY = frozenset({"EQ", "NE"})


@dataclass(frozen=True)
class Range:
    """Values in [low, high). ``kind``: "index", "mask", "range", "value" or "pixels" (a float that is an image).

    ``distinct``: for indices of elements that are written, the axis along which they are distinct, since it is
    undefined which of two values written to the same place is the last. -2: for rows of indices.
    """

    kind: str
    low: float
    high: float
    distinct: int | None = None


def input_ranges(graph: Graph) -> dict[str, Range]:
    """Plausible values of the inputs of a neutral graph, by name; without inputs for which any values are plausible."""
    known = {value.name or "": _input_range(value) for value in graph.inputs}
    return {name: found for name, found in known.items() if found is not None}


def _input_range(value: Value) -> Range | None:
    """Return plausible values of an input, from all operands that its elements reach, directly or as
    ``scale * input + offset`` (``Gather(table, ids + 2)``).

    Of two paths to a value, as in ``Select(ids < 0, ids + rows, ids)``, the direct one counts.
    """
    found: list[Range] = []
    seen = {value}
    pending: deque[tuple[Value, Affine]] = deque([(value, (1, 0))])
    while pending:
        value, affine = pending.popleft()
        for node, index in value.uses:
            known = _use_range(node, index)
            if known is not None and (before := _through(known, *affine)) is not None:
                found.append(before)
            for carried, step in _carried(node, index, affine):
                if carried not in seen:
                    seen.add(carried)
                    (pending.appendleft if step == affine else pending.append)((carried, step))
    return _join(found)


def _use_range(node: Node, index: int) -> Range | None:
    """Return plausible values of operand ``index`` of a node; None if any are plausible."""
    name = _operand_name(node, index)
    if name == "indices" and node.op.indexes is not None:
        rows = _rows(node)
        return Range("index", _first_change(node.optional(0)) if rows > SMALL else 0, rows, _distinct(node))
    if name in AXES:
        return Range("range", 0, 1)
    if name == "lengths":
        steps = node.operand(0).shape[node.attr("time_axis", 0)]
        return Range("range", 1, 1 + size_or(steps, DEFAULT_ROWS))
    if node.op is ops.BroadcastTo and index == 1 and _is_single(node.operand(0).tensor_type):
        return Range("range", 1, 4)
    declared = node.op.operands[index] if name else None
    if declared is not None and declared.likely is not None:
        return Range("index" if declared.counts else "range", *declared.likely)
    if _is_flag(node, index):
        return Range("mask", 0, 2)
    if _is_counted(node, index):
        return Range("value", 1, 2)
    if _is_pixels(node, index):
        return Range("pixels", 0, 256)
    return _stored(node) if node.op is ops.Convert else _expected(node, index)


def _distinct(node: Node) -> int | None:
    """Return the axis along which write indices have to be distinct; -2 for rows of indices."""
    if node.op not in (ops.ScatterElements, ops.ScatterND) or node.attr("kind") != "none":
        return None
    return int(node.attr("axis")) if node.op is ops.ScatterElements else -2


def _operand_name(node: Node, index: int) -> str:
    return node.op.operands[index].name if index < len(node.op.operands) else ""


def _rows(node: Node) -> int:
    """Return the number of rows of the indexed operand; `DEFAULT_ROWS` if it is unknown."""
    shape = _indexed_shape(node)
    if node.op.indexes == "axis":
        axis = node.attr("axis")
        picked = shape[axis : axis + 1 or None]
    else:
        first, depth = node.attr("batch_dims", 0), node.operand(1).tensor_type.shape or (len(shape),)
        picked = shape[first:][: size_or(depth[-1], len(shape))]
    return min(known_sizes(picked), default=DEFAULT_ROWS)


def _first_change(table: Value | None) -> int:
    """Return the first row from which on a constant vector changes, as a multiple of `BETWEEN_SAMPLES`; 0 for others.

    A table of a function that is not defined everywhere (int16 RSQRT) is constant where the function is undefined, and
    kernels refuse such operands.
    """
    if table is None or table.data is None or len(table.data.shape) != 1 or table.data.size > MOST_ROWS:
        return 0
    changes = np.flatnonzero(np.diff(table.numpy().astype(np.float64)))
    first = int(changes[0]) if len(changes) else 0
    return -(-first // BETWEEN_SAMPLES) * BETWEEN_SAMPLES


def _indexed_shape(node: Node) -> tuple[Any, ...]:
    data, shape = node.operands[0], node.optional(3)
    if data is not None and isinstance(data.type, TensorType):
        return data.type.shape or ()
    return () if shape is None or shape.known is None else tuple(shape.known.reshape(-1).tolist())


def _is_flag(node: Node, index: int) -> bool:
    """Whether the node uses a value as a flag: as ``bool(x)``, ``x == 0``, ``x > 0`` (integers) or ``1 - x``."""
    if node.op is ops.Convert:
        return node.attr("dtype") is DType.BOOL
    if node.op not in (ops.Compare, ops.Sub) or _is_single(type_ := node.operand(index).tensor_type):
        return False
    number = scalar(node.operands[1 - index])
    if node.op is ops.Sub:
        return index == 1 and number == 1
    return number in (0, 1) and (type_.dtype.is_integer or node.attr("comparison_direction") in EQUALITY)


def _is_counted(node: Node, index: int) -> bool:
    """Whether the node counts the ones of a mask, whose number minus 1 is the last position.

    Attention to a cache takes that number. Rows that are not full have undefined elements then, so all are ones unless
    the mask is used as one.
    """
    if node.op is not ops.Reduce or index != 0 or node.attr("kind") != "sum" or not node.operand(0).dtype.is_integer:
        return False
    users = [(user, place) for result in node.results for user, place in result.uses]
    return any(user.op is ops.Sub and place == 0 and scalar(user.operands[1]) == 1 for user, place in users)


def _is_pixels(node: Node, index: int) -> bool:
    """Whether a node scales or shifts values as if they were in [0, 255]."""
    number = scalar(node.operands[1]) if node.op in (ops.Div, ops.Mul, ops.Sub) and index == 0 else None
    if number is None or len(node.operand(0).tensor_type.shape or ()) != 4:
        return False
    return 0 < number < 1 / 100 if node.op is ops.Mul else number > 100


def _stored(node: Node) -> Range | None:
    """Return the floats that the type of a Convert holds, one of bytes or unsigned integers: ONNX does not define the
    result for others.
    """
    dtype = node.attr("dtype")
    if not node.operand(0).dtype.is_float or not dtype.is_integer or (dtype.is_signed and dtype.bits > 8):
        return None
    return Range("range", *((-128, 128) if dtype.is_signed else (0, 256)))


def _expected(node: Node, index: int) -> Range | None:
    """Return the integer with which an operand of one element is compared (a sampling rate, a mode); for a lower bound,
    the range from it to twice that.
    """
    number = _integer(node.operands[1 - index]) if node.op is ops.Max and len(node.operands) == 2 else None
    if number is not None and number > SMALL and _is_single(node.operand(index).tensor_type):
        return Range("range", number, 2 * number)
    if node.op is not ops.Compare or node.attr("comparison_direction") not in EQUALITY:
        return None
    number = _integer(node.operands[1 - index])
    if number is None or not _is_single(node.operand(index).tensor_type):
        return None
    return Range("value", number, number + 1)


def _is_single(type_: TensorType) -> bool:
    return type_.shape in ((), (1,))


def scalar(value: Value | None) -> int | float | None:
    """Return the element of a constant of one element; None for other values."""
    if value is None:
        return None
    array = value.known if value.data is None else value.numpy() if value.data.size == 1 else None
    if array is None or array.size != 1:
        return None
    number = array.reshape(-1)[0]
    return number.item() if isinstance(number, np.generic) else number if isinstance(number, int) else None


def _integer(value: Value | None) -> int | None:
    """Return the value of an integer constant; None for others."""
    number = scalar(value)
    return number if isinstance(number, int) else None


def _carried(node: Node, index: int, affine: Affine) -> Iterator[tuple[Value, Affine]]:
    """Yield the values with the elements of operand ``index`` or with ``scale * element + offset``, and these two."""
    place = len(node.operands) - index  # the last operands are inputs of the regions; of unlifted ops, captures only
    for region in node.regions if place <= node.attr("captures", place) else ():
        if place <= len(region.inputs):
            yield region.inputs[-place], affine
    moved = _moved(node, index)
    yield from ((result, affine) for result in moved)
    if not moved and (computed := _computed(node, index, *affine)) is not None:
        yield node.result, computed


def _moved(node: Node, index: int) -> list[Value]:
    """Return the results with elements of operand ``index``."""
    moves = node.op.carries
    if moves is None or (node.op is ops.Convert and node.attr("dtype") is DType.BOOL):
        return []
    return node.results if index in range(len(node.operands))[moves] else []


def _computed(node: Node, index: int, scale: float, offset: float) -> Affine | None:
    """Return scale and offset after an op with an integer constant, or that quantizes; None for other ops."""
    if node.op is ops.QuantizeLinear and index == 0:
        step, zero = (scalar(value) for value in (node.operands[1], node.optional(2)))
        return (scale / step, offset / step + (zero or 0)) if step else None
    if node.op not in (ops.Add, ops.Sub, ops.Mul):
        return None
    number = _integer(node.operands[1 - index])
    if number is None:
        return None
    if node.op is ops.Add:
        return scale, offset + number
    if node.op is ops.Sub:
        return (scale, offset - number) if index == 0 else None
    return (scale * number, offset * number) if number > 0 else None


def _through(known: Range, scale: float, offset: float) -> Range | None:
    """Return the inputs >= 0 for which ``scale * input + offset`` is in ``known``; None if there are none.

    Of an input that is quantized on the way (``scale`` is a float): real values, where not all rows of a table will do.
    """
    if (scale, offset) == (1, 0) or known.kind == "mask":
        return known
    if isinstance(scale, float):
        low, high = ((bound - offset) / scale for bound in (known.low, known.high - 1))
        return Range("range", low, high) if known.kind == "index" and known.low > 0 and low < high else None
    low = max(0.0, float(np.ceil((known.low - offset) / scale)))
    high = float(np.floor((known.high - 1 - offset) / scale) + 1)
    return Range(known.kind, low, high, known.distinct) if low < high else None


def _join(found: list[Range]) -> Range | None:
    """Return the intersection of the ranges of the strongest kind: indices, then other ranges, masks, values."""
    for kind in ("index", "range", "mask", "value", "pixels"):
        mine = [known for known in found if known.kind == kind]
        if mine:
            low, high = max(known.low for known in mine), min(known.high for known in mine)
            distinct = next((known.distinct for known in mine if known.distinct is not None), None)
            joined = Range(kind, low, high) if low < high else min(mine, key=lambda known: known.high)
            return replace(joined, distinct=distinct)
    return None
