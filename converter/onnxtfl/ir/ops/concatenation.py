"""Concatenate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Axis
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh_number, fresh_symbol, known_of, known_sizes, sum_of
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import KNOWN_LIMIT, Node, Value
from onnxtfl.ir.op import Op, Operand, SharedAxes
from onnxtfl.ir.shapes import dim_array, normalize_axis
from onnxtfl.ir.shown_sizes import shown_shape


class Concatenate(Op):
    """The operands concatenated along `axis`. Source: neutral-ops 3.26."""

    operands = (Operand("inputs", variadic=True, like="inputs"),)
    attributes = {"axis": Axis()}
    core = True
    typed = True
    shared_axes = SharedAxes(None, ("axis",))
    moves = slice(None)

    @staticmethod
    def shape(*parts: Value, axis: int) -> Dims | None:
        if not parts:
            raise ValueError("nothing to concatenate")
        if any(v is None for v in parts):
            raise ValueError("an operand is absent")
        shapes = [s for v in parts if (s := v.tensor_type.shape) is not None]
        if not shapes:
            return None
        rank = len(shapes[0])
        along = normalize_axis(axis, rank)
        if any(len(s) != rank for s in shapes):
            raise ValueError("operands differ in rank")
        dims = [_agreed([s[i] for s in shapes]) for i in range(rank)]
        dims[along] = sum_of(s[along] for s in shapes) if len(shapes) == len(parts) else fresh_symbol()
        if any(d is None for d in dims):
            shown = ", ".join(map(shown_shape, shapes))
            raise ValueError(f"shapes {shown} do not fit along axis {along}")
        return tuple(d for d in dims if d is not None)

    @staticmethod
    def compute(*parts: Array, axis: int) -> Array:
        return np.concatenate(parts, axis)

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None]:
        """Known entries stay known, as in a shape with one computed size."""
        values = node.present_operands
        if all(v.known is None for v in values):
            return [None]
        parts = [_contents(v) for v in values]
        if any(part is None for part in parts):
            return [None]
        whole = np.concatenate([p for p in parts if p is not None], node.attr("axis"))
        return [whole if whole.size <= KNOWN_LIMIT else None]


def _contents(value: Value) -> Array | None:
    """Return the known contents of a small integer vector, with symbols for unknown entries."""
    if value.known is not None:
        return value.known
    sizes = known_sizes(value.tensor_type.shape or ())
    if not value.dtype.is_integer or value.tensor_type.rank != len(sizes) or math.prod(sizes) > KNOWN_LIMIT:
        return None
    return dim_array([fresh_number() for _ in range(math.prod(sizes))]).reshape(sizes)


def _agreed(dims: Sequence[Dim]) -> Dim | None:
    """Return the common size of `dims` (an int if any is one); None if two ints differ."""
    return known_of(*dims) if len(set(known_sizes(dims))) < 2 else None
