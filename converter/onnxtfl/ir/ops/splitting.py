"""Split GeneralSplit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.attributes import Axis, Integer
from onnxtfl.ir.budget import check_count
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, fresh_symbol, is_open, is_static
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import ANY, INDICES, Op, Operand, SharedAxes
from onnxtfl.ir.shapes import known_dims, normalize_axis, static_ints


@by_expansion(Operand("input"), results=(Operand("outputs", ANY, variadic=True),))
def GeneralSplit(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """The operand split along `axis` into parts of `sizes`. Source: neutral-ops 3.56 (name only); the core's Split."""
    return b.many(Split, x, list(sizes), axis=axis)


class Split(Op):
    """The operand split along `axis` into parts of `sizes`, or (if absent) into `count` equal ones.

    Source: neutral-ops 3.56 (name only); the meaning is ONNX Split's, with `sizes` as TFLite's SPLIT_V takes them.
    """

    operands = (Operand("input"), Operand("sizes", INDICES, optional=True))
    results = (Operand("outputs", variadic=True),)
    attributes = {"axis": Axis(), "count": Integer(0)}
    core = True
    shared_axes = SharedAxes(attributes=("axis",))
    moves = slice(0, 1)
    propagates = True

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        sizes = [result.shape[node.attr("axis")] for result in node.results]
        return {1: sizes} if node.optional(1) is not None and is_static(sizes) else {}

    @staticmethod
    def shape(x: Value, sizes: Value | None, *, axis: int, count: int) -> list[Dims | None]:
        before = x.tensor_type.shape
        total = fresh_symbol() if before is None else before[normalize_axis(axis, len(before))]
        parts = _equal_parts(total, count) if sizes is None else _given_parts(sizes)
        if parts is None:
            raise ValueError("the number of parts has to be known")
        if before is None:
            return [None] * len(parts)
        axis = normalize_axis(axis, len(before))
        if is_static(parts) and differ(sum(parts), total):
            raise ValueError(f"sizes {parts} for an axis of {total}")
        return [(*before[:axis], size, *before[axis + 1 :]) for size in parts]

    @staticmethod
    def compute(x: Array, sizes: Array | None, *, axis: int, count: int) -> tuple[Array, ...]:
        return tuple(np.split(x, count if sizes is None else np.cumsum([int(s) for s in sizes])[:-1], axis))


def _given_parts(sizes: Value) -> list[Dim] | None:
    """The sizes of the parts, with fresh symbols for unknown ones; None if even their number is unknown."""
    known = known_dims(sizes)
    if known is None:
        listed, shape = static_ints(sizes), sizes.tensor_type.shape
        if listed is not None or not is_static(shape) or len(shape) != 1:
            return None if listed is None else [*listed]
        (count,) = shape
        check_count(count, "the parts of a split")
        known = [fresh_symbol() for _ in range(count)]
    return [fresh_symbol() if is_open(d) else d for d in known]


def _equal_parts(total: Dim, count: int) -> list[Dim]:
    if count < 1:
        raise ValueError("neither sizes nor a count of parts")
    check_count(count, "the parts of a split")
    if differ(total % count, 0):
        raise ValueError(f"{total} does not divide into {count} equal parts")
    return [total // count] * count
