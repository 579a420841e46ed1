"""What the inputs of a model are for, read from its graph, so that a check can feed it values that make sense.

An integer input that selects rows of a table gets row numbers, a mask gets 0 and 1, an input of a logarithm is
positive. The walk is the same for both formats; `facts_onnx` and `facts_tflite` build the view and hold the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.runtimes.describe import Dim

Array = np.ndarray[Any, np.dtype[Any]]
ANY_DIM = -1000
DEFAULT_ROWS = 2


@dataclass(frozen=True)
class Op:
    """One node of the view: ``kind`` is the format's name of the operator; operands are value names, "" is absent."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Indexer:
    """An operator whose operand ``index`` selects along an axis of operand ``data``.

    ``axis``: the axis, `ANY_DIM` for all of them, or the name of the attribute that holds it.
    """

    index: int
    data: int
    axis: int | str = 0


@dataclass(frozen=True)
class Selector:
    """An operator whose result number ``result`` holds positions along an axis of its first operand.

    ``axis``: the name of the attribute and its default, or the position of a constant operand.
    """

    result: int
    axis: tuple[str, int] | int


@dataclass(frozen=True)
class Tables:
    """What a format's operators do with an operand's values, by operator kind.

    ``carriers``: operands whose elements appear unchanged in the first result. ``indexers``: see `Indexer`.
    ``ranges``: (kind, operand) -> [low, high) that makes sense there. ``compares``: operators that compare two
    operands. ``masks``: (kind, operand) that is taken as true or false. ``affine``: names of (add, sub, mul).
    ``random``: operators whose results are drawn. ``selectors``: see `Selector`. ``keepers``: operators that change
    type or shape of their first operand, and neither the order nor the values of its elements.
    """

    carriers: Mapping[str, tuple[int, ...]]
    indexers: Mapping[str, tuple[Indexer, ...]]
    ranges: Mapping[tuple[str, int], tuple[float, float]]
    compares: frozenset[str]
    masks: frozenset[tuple[str, int]]
    affine: tuple[str, str, str]
    random: frozenset[str]
    selectors: Mapping[str, Selector]
    keepers: frozenset[str]


@dataclass(frozen=True)
class View:
    """A graph as the walk needs it: nodes, ``shape`` of a value (None: unknown) and ``constant`` (None: not known)."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[Op, ...]
    shape: Callable[[str], tuple[Dim, ...] | None]
    constant: Callable[[str], Array | None]
    tables: Tables


@dataclass(frozen=True)
class Range:
    """Values in [low, high). ``kind``: "index", "mask", "range" or "value"."""

    kind: str
    low: float
    high: float


@dataclass(frozen=True)
class Selection:
    """An output that holds positions along ``axis`` of the tensor called ``data``."""

    data: str
    axis: int


@dataclass(frozen=True)
class Facts:
    """``ranges``: what is known of the inputs, by name. ``drawn``: outputs that depend on random numbers.

    ``steps``: outputs whose values lie on a grid (a quantized tensor made real), with the distance of its points.
    ``selections``: outputs that hold positions (ArgMax, TopK), which may flip where two elements are nearly equal.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    drawn: frozenset[str] = frozenset()
    steps: Mapping[str, float] = field(default_factory=dict)
    selections: Mapping[str, Selection] = field(default_factory=dict)


def analyze(view: View) -> Facts:
    """Return what the graph says about its inputs and outputs."""
    uses = _uses(view)
    found = {name: _input_range(view, uses, name) for name in view.inputs}
    ranges = {name: known for name, known in found.items() if known is not None}
    return Facts(ranges, _drawn(view), selections=_selections(view))


def _uses(view: View) -> dict[str, list[tuple[Op, int]]]:
    uses: dict[str, list[tuple[Op, int]]] = {}
    for op in view.ops:
        for position, name in enumerate(op.inputs):
            if name:
                uses.setdefault(name, []).append((op, position))
    return uses


def _input_range(view: View, uses: Mapping[str, list[tuple[Op, int]]], name: str) -> Range | None:
    """Follow an input through operators that carry its elements, and join what its users say.

    On the way ``value = scale * input + offset`` is kept, so that ``Gather(table, ids + 2)`` is understood.
    """
    found: list[Range] = []
    seen = {name}
    pending = [(name, 1.0, 0.0)]
    while pending:
        value, scale, offset = pending.pop()
        for op, position in uses.get(value, ()):
            known = _use_range(view, op, position)
            if known is not None:
                found.append(_through(known, scale, offset))
            step = _next(view, op, position, scale, offset)
            if step is not None and op.outputs and op.outputs[0] not in seen:
                seen.update(op.outputs)
                pending.extend((out, *step) for out in op.outputs)
    return _join(found)


def _use_range(view: View, op: Op, position: int) -> Range | None:
    tables = view.tables
    for indexer in tables.indexers.get(op.kind, ()):
        if indexer.index == position:
            return Range("index", 0, _rows(view, op, indexer))
    if (op.kind, position) in tables.ranges:
        return Range("range", *tables.ranges[op.kind, position])
    if (op.kind, position) in tables.masks or _is_flag_test(view, op, position):
        return Range("mask", 0, 2)
    return _expected_scalar(view, op, position)


def _expected_scalar(view: View, op: Op, position: int) -> Range | None:
    """Return the number that a scalar is compared with: a sampling rate, a mode."""
    if op.kind not in view.tables.compares or len(op.inputs) != 2:
        return None
    shape, other = view.shape(op.inputs[position]), view.constant(op.inputs[1 - position])
    if shape not in ((), (1,)) or other is None or other.size != 1 or other.dtype.kind not in "iu":
        return None
    number = int(other.reshape(-1)[0])
    return Range("value", number, number + 1)


def _rows(view: View, op: Op, indexer: Indexer) -> int:
    """Return how many rows the operand has that is indexed; few where it is not known."""
    shape = view.shape(op.inputs[indexer.data]) if indexer.data < len(op.inputs) else None
    axis = op.attributes.get(indexer.axis, 0) if isinstance(indexer.axis, str) else indexer.axis
    if shape is None or not shape:
        return DEFAULT_ROWS
    picked = shape if axis == ANY_DIM else shape[axis : axis + 1 or None] if -len(shape) <= axis < len(shape) else ()
    sizes = [size for size in picked if isinstance(size, int)]
    return min(sizes) if sizes else DEFAULT_ROWS


def _is_flag_test(view: View, op: Op, position: int) -> bool:
    """Tell whether the operator compares the value with 0 or 1, or computes ``1 - value``."""
    if len(op.inputs) != 2:
        return False
    other = view.constant(op.inputs[1 - position])
    if other is None or other.size != 1:
        return False
    number = other.reshape(-1)[0]
    if op.kind in view.tables.compares:
        return bool(number in (0, 1))
    return op.kind == view.tables.affine[1] and position == 1 and bool(number == 1)


def _next(view: View, op: Op, position: int, scale: float, offset: float) -> tuple[float, float] | None:
    """Return scale and offset of the operator's result, None where it does not carry the value on."""
    if position in view.tables.carriers.get(op.kind, ()):
        return scale, offset
    if op.kind not in view.tables.affine or len(op.inputs) != 2:
        return None
    other = view.constant(op.inputs[1 - position])
    if other is None or other.size != 1 or other.dtype.kind not in "iu":
        return None
    number = float(other.reshape(-1)[0])
    add, sub, _ = view.tables.affine
    if op.kind == add:
        return scale, offset + number
    if op.kind == sub:
        return (scale, offset - number) if position == 0 else None
    return (scale * number, offset * number) if number > 0 else None


def _through(known: Range, scale: float, offset: float) -> Range:
    """Return the range of the input where ``scale * input + offset`` has to lie in ``known``."""
    if (scale, offset) == (1.0, 0.0) or known.kind == "mask":
        return known
    low = np.ceil((known.low - offset) / scale)
    high = np.floor((known.high - 1 - offset) / scale) + 1
    return Range(known.kind, float(max(low, 0)), float(max(high, low + 1)))


def _join(found: list[Range]) -> Range | None:
    """Return the range that suits all users: row numbers count for more than masks, other ranges for more too."""
    for kind in ("index", "range", "mask", "value"):
        mine = [known for known in found if known.kind == kind]
        if mine:
            low, high = max(known.low for known in mine), min(known.high for known in mine)
            return Range(kind, low, high) if low < high else mine[0]
    return None


def _drawn(view: View) -> frozenset[str]:
    """Return the outputs that random numbers reach. Nodes stand in order in both formats."""
    drawn: set[str] = set()
    for op in view.ops:
        if op.kind in view.tables.random or op.attributes.get("draws") or any(name in drawn for name in op.inputs):
            drawn.update(op.outputs)
    return frozenset(name for name in view.outputs if name in drawn)


def _selections(view: View) -> dict[str, Selection]:
    """Return the outputs that are positions chosen by an operator, reshaped or cast at most."""
    producers = {name: op for op in view.ops for name in op.outputs if name}
    found = {}
    for output in view.outputs:
        name, op = output, producers.get(output)
        for _ in range(len(view.ops)):  # a garbled graph may be cyclic
            if op is None or op.kind not in view.tables.keepers or not op.inputs:
                break
            name, op = op.inputs[0], producers.get(op.inputs[0])
        selector = view.tables.selectors.get(op.kind) if op is not None else None
        if op is None or selector is None or op.outputs.index(name) != selector.result:
            continue
        axis = _axis(view, op, selector)
        if axis is not None:
            found[output] = Selection(op.inputs[0], axis)
    return found


def _axis(view: View, op: Op, selector: Selector) -> int | None:
    if isinstance(selector.axis, tuple):
        return int(op.attributes.get(*selector.axis))
    value = view.constant(op.inputs[selector.axis])
    return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None
