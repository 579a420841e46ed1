"""Split GeneralSplit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.derived import Derived
from onnxtfl.ir.dims import Dim, fresh
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import ANY, INDICES, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import moved
from onnxtfl.ir.shapes import normalize_axis, same_type, target_dims
from onnxtfl.ir.types import Type


class GeneralSplit(Derived):
    """The operand cut along `axis` into `sizes`. Source: neutral-ops 3.56 (name only); the core's Split."""

    operands = (Operand("input"),)
    results = (Operand("outputs", ANY, variadic=True),)
    defaults = {"axis": REQUIRED, "sizes": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        return b.many(Split, node.operand(0), list(node.attr("sizes")), axis=node.attr("axis"))


class Split(Op):
    """The operand cut along `axis` into parts of the sizes given, or (`sizes` absent) into `count` equal ones.

    Source: neutral-ops 3.56 (name only); the meaning is ONNX Split's, with `sizes` as TFLite's SPLIT_V takes them.
    """

    operands = (Operand("input"), Operand("sizes", INDICES, optional=True))
    results = (Operand("outputs", variadic=True),)
    defaults = {"axis": REQUIRED, "count": 0}
    core = True
    moves = slice(0, 1)
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, axis = node.operand(0).tensor_type, node.attr("axis")
        sizes = cls.sizes(node)
        if x.shape is None:
            return [same_type(x, None)] * len(sizes)
        axis = normalize_axis(axis, len(x.shape))
        total = sum(sizes, 0)
        if isinstance(total, int) and isinstance(x.shape[axis], int) and total != x.shape[axis]:
            raise ValueError(f"sizes {sizes} for an axis of {x.shape[axis]}")
        return [same_type(x, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes]

    @classmethod
    def sizes(cls, node: Node) -> list[Dim]:
        """The sizes of the parts; ValueError where even their number is unknown."""
        sizes = node.optional(1)
        if sizes is not None:
            known = target_dims(sizes)
            if known is None:
                raise ValueError("the number of parts has to be known")
            return known
        count, shape = node.attr("count"), node.operand(0).tensor_type.shape
        if count < 1:
            raise ValueError("neither sizes nor a count of parts")
        total = fresh() if shape is None else shape[normalize_axis(node.attr("axis"), len(shape))]
        if isinstance(total, int) and total % count:
            raise ValueError(f"{total} does not divide into {count} equal parts")
        return [total // count] * count

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        x = operands[0]
        assert x is not None
        sizes = operands[1] if len(operands) > 1 else None
        if sizes is None:
            return tuple(np.split(x, attributes["count"], attributes["axis"]))
        ends = np.cumsum([int(s) for s in sizes])
        return tuple(np.split(x, ends[:-1], attributes["axis"]))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        axis = moved(node.attr("axis"), permutation)
        operands = (permutation, *(None for _ in node.operands[1:]))
        return Relabeled(operands, (permutation,) * len(node.results), {"axis": axis})
