"""Ops of the neutral set that only say otherwise what core ops say about shapes: each is its one rule into the core.

Types and meaning follow from the rule: it is built on a graph of its own, and what comes out is what the op gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import ANY, INDICES, INTEGERS, REQUIRED, Op, Operand
from onnxtfl.ir.ops.binary import Add, Max, Min, Sub
from onnxtfl.ir.ops.conversion import Convert
from onnxtfl.ir.ops.indexing import Gather, ScatterND
from onnxtfl.ir.ops.logic import Compare, Select
from onnxtfl.ir.ops.shape import BroadcastTo, Concatenate, Pad, Range, Reshape, Shape, Slice, Split
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints
from onnxtfl.ir.types import DType, Type, dtype_of

__all__ = [
    "Broadcast",
    "BroadcastInDim",
    "Derived",
    "DynamicBroadcastInDim",
    "DynamicIota",
    "DynamicPad",
    "DynamicReshape",
    "DynamicSlice",
    "GeneralSplit",
    "Iota",
    "RealDynamicSlice",
    "SetDimensionSize",
    "SliceInDim",
    "Squeeze",
    "Unsqueeze",
]

END = 1 << 62


class Derived(Op, register=False):
    """An op that is defined by `expand`."""

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        """The results of `node`, made with core ops."""
        raise NotImplementedError

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        graph = Graph()
        stand_ins = [None if v is None else _stand_in(graph, v) for v in node.operands]
        results = cls.expand(Builder(graph), Node(node.op, stand_ins, node.attributes))
        return [r.type for r in results if r.type is not None]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        graph = Graph()
        given = [None if x is None else constant(x, dtype_of(x.dtype)) for x in operands]
        graph.outputs = cls.expand(Builder(graph), Node(cls, given, attributes))
        return tuple(run(graph, []))


def _stand_in(graph: Graph, value: Value) -> Value:
    if value.data is not None:
        return constant(value.data)
    copy = graph.add_input(value.type)
    copy.known = value.known
    return copy


def _static(vector: Value, what: str) -> list[int]:
    numbers = static_ints(vector)
    if numbers is None:
        raise ValueError(f"{what} have to be known before run time")
    return numbers


def _sizes(b: Builder, x: Value) -> Value:
    return b(Shape, x)


def _scalar(b: Builder, vector: Value, index: int) -> Value:
    return b(Gather, vector, np.asarray(index, np.int64), axis=0)


class Broadcast(Derived):
    """New axes of `broadcast_sizes` in front of the operand's. Source: neutral-ops 3.18."""

    operands = (Operand("input"),)
    defaults = {"broadcast_sizes": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x = node.operand(0)
        return [b(BroadcastTo, x, b(Concatenate, list(node.attr("broadcast_sizes")), _sizes(b, x), axis=0))]


class DynamicBroadcastInDim(Derived):
    """Axis i of the operand becomes axis broadcast_dimensions[i] of a tensor of `shape`, and is repeated if it is 1.

    Source: neutral-ops 3.41.
    """

    operands: ClassVar[tuple[Operand, ...]] = (Operand("input"), Operand("shape", INDICES))
    defaults: ClassVar[Mapping[str, Any]] = {"broadcast_dimensions": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, shape, places = node.operand(0), node.operand(1), list(node.attr("broadcast_dimensions"))
        length = shape.shape[0]
        if not isinstance(length, int) or places != sorted(set(places)) or len(places) != x.rank:
            raise ValueError(f"dimensions {places} of rank {x.rank} in a shape of {length} entries")
        spread = [1] * length
        for place, size in zip(places, x.shape, strict=True):
            spread[place] = size if isinstance(size, int) else -1
        return [b(BroadcastTo, b(Reshape, x, spread), shape)]


class BroadcastInDim(DynamicBroadcastInDim):
    """The same with the shape as an attribute (which the document takes from the result's type).

    Source: neutral-ops 3.19.
    """

    operands = (Operand("input"),)
    defaults = {"broadcast_dimensions": REQUIRED, "shape": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        whole = Node(node.op, [node.operand(0), b.value(list(node.attr("shape")))], node.attributes)
        return super().expand(b, whole)


class DynamicIota(Derived):
    """Numbers that count up from 0 along one dimension of a tensor of `shape`. Source: neutral-ops 3.42."""

    operands: ClassVar[tuple[Operand, ...]] = (Operand("shape", INDICES),)
    defaults: ClassVar[Mapping[str, Any]] = {"iota_dimension": REQUIRED, "dtype": DType.INT64}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        shape, dtype = node.operand(0), node.attr("dtype")
        length = shape.shape[0]
        if not isinstance(length, int):
            raise ValueError("the rank has to be known before run time")
        axis = normalize_axis(node.attr("iota_dimension"), length)
        size = (
            b(Convert, _scalar(b, shape, axis), dtype=DType.INT64)
            if shape.dtype is DType.INT32
            else _scalar(b, shape, axis)
        )
        counts = b(Range, b.scalar(0, size), size, b.scalar(1, size))
        numbers = counts if dtype is DType.INT64 else b(Convert, counts, dtype=dtype)
        return [b(BroadcastTo, b(Reshape, numbers, [-1 if i == axis else 1 for i in range(length)]), shape)]


class Iota(DynamicIota):
    """The same with the shape as an attribute (which the document takes from the result's type).

    Source: neutral-ops 3.69.
    """

    operands = ()
    defaults = {"iota_dimension": REQUIRED, "shape": REQUIRED, "dtype": DType.INT64}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        return super().expand(b, Node(node.op, [b.value(list(node.attr("shape")))], node.attributes))


class DynamicPad(Derived):
    """Pad with a vector of all befores, then all afters. Source: neutral-ops 3.43."""

    operands = (Operand("input"), Operand("pads", INDICES), Operand("padding_value", optional=True))
    defaults = {"mode": "PAD_VALUE"}
    modes = {"PAD_VALUE": "constant", "PAD_EDGE": "edge", "PAD_REFLECT": "reflect", "PAD_SYMMETRIC": "symmetric"}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        mode = cls.modes[node.attr("mode")]
        return [b(Pad, node.operand(0), node.operand(1), node.optional(2), mode=mode, flat=True)]


class DynamicReshape(Derived):
    """Reshape where a 0 copies the operand's size, unless `allowzero`. Source: neutral-ops 3.44."""

    operands = (Operand("input"), Operand("shape", INDICES))
    defaults = {"allowzero": 0}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, shape = node.operand(0), node.operand(1)
        known = static_ints(shape)
        if node.attr("allowzero") or (known is not None and 0 not in known):
            return [b(Reshape, x, shape)]
        if known is not None and all(isinstance(x.shape[i], int) for i, d in enumerate(known) if d == 0):
            return [b(Reshape, x, [x.shape[i] if d == 0 else d for i, d in enumerate(known)])]
        own = b(Slice, b(Concatenate, _sizes(b, x), [1] * 8, axis=0), [0], b(Shape, shape), [1])
        return [b(Reshape, x, b(Select, b(Compare, shape, b.scalar(0, shape), comparison_direction="EQ"), own, shape))]


class DynamicSlice(Derived):
    """The part of `slice_sizes` that begins at `start_indices`, which are clamped so that it fits.

    Source: neutral-ops 3.45.
    """

    operands = (Operand("input"), Operand("start_indices", INDICES))
    defaults = {"slice_sizes": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, starts, sizes = node.operand(0), node.operand(1), b.value(list(node.attr("slice_sizes")))
        starts = starts if starts.dtype is DType.INT64 else b(Convert, starts, dtype=DType.INT64)
        begins = b(Max, b(Min, starts, b(Sub, _sizes(b, x), sizes)), b.scalar(0, starts))
        cut = b(Slice, x, begins, b(Add, begins, sizes), [1] * x.rank)
        return [b(Reshape, cut, list(node.attr("slice_sizes")))]


class RealDynamicSlice(Derived):
    """Slice along `axes` (all where absent), with bounds known only at run time. Source: neutral-ops 3.92."""

    operands = (
        Operand("input"),
        Operand("start_indices", INDICES),
        Operand("limit_indices", INDICES),
        Operand("strides", INDICES),
        Operand("axes", INDICES, optional=True),
    )

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, axes = node.operand(0), node.optional(4)
        where = list(range(x.rank)) if axes is None else list(normalize_axes(_static(axes, "axes"), x.rank))
        vectors = []
        for index, default in ((1, 0), (2, END), (3, 1)):
            vector = node.operand(index)
            blank = constant(np.full(x.rank, default, np.int64), vector.dtype)
            rows = np.asarray(where, np.int64).reshape(-1, 1)
            vectors.append(vector if axes is None else b(ScatterND, blank, rows, vector, kind="none"))
        return [b(Slice, x, *vectors)]


class SliceInDim(Derived):
    """Slice along one `dimension`. Source: neutral-ops 3.123 (name only), XLA SliceInDim."""

    operands = (Operand("input"),)
    defaults = {"start_index": 0, "limit_index": END, "stride": 1, "dimension": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x = node.operand(0)
        axis = normalize_axis(node.attr("dimension"), x.rank)
        bounds = (("start_index", 0), ("limit_index", END), ("stride", 1))
        return [b(Slice, x, *([node.attr(n) if i == axis else d for i in range(x.rank)] for n, d in bounds))]


class SetDimensionSize(Derived):
    """The operand up to `size` (one number) of one `dimension`. Source: neutral-ops 3.111."""

    operands = (Operand("input"), Operand("size", INTEGERS))
    defaults = {"dimension": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, size = node.operand(0), b(Reshape, node.operand(1), [1])
        axis = normalize_axis(node.attr("dimension"), x.rank)
        parts = [
            constant(np.full(n, END if size.dtype is DType.INT64 else (1 << 31) - 1), size.dtype)
            for n in (axis, x.rank - 1 - axis)
        ]
        limits = b(Concatenate, parts[0], size, parts[1], axis=0)
        return [b(Slice, x, np.zeros(x.rank, np.int64), limits, np.ones(x.rank, np.int64))]


class GeneralSplit(Derived):
    """The operand cut along `axis` into `sizes`. Source: neutral-ops 3.56 (name only); the core's Split."""

    operands = (Operand("input"),)
    results = (Operand("outputs", ANY, variadic=True),)
    defaults = {"axis": REQUIRED, "sizes": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        return b.many(Split, node.operand(0), list(node.attr("sizes")), axis=node.attr("axis"))


class Squeeze(Derived):
    """The operand without `axes` of size 1; where absent, without all that are known to be 1.

    Source: neutral-ops 3.129.
    """

    operands = (Operand("input"), Operand("axes", INDICES, optional=True))

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, axes = node.operand(0), node.optional(1)
        gone = [i for i, d in enumerate(x.shape) if d == 1]
        if axes is not None:
            gone = list(normalize_axes(_static(axes, "axes"), x.rank))
            if any(isinstance(x.shape[a], int) and x.shape[a] != 1 for a in gone):
                raise ValueError(f"axes {gone} of {x.shape} are not all 1")
        kept = tuple(i for i in range(x.rank) if i not in gone)
        return [b(Reshape, x, b(Shape, x, axes=kept))]


class Unsqueeze(Derived):
    """The operand with axes of size 1 that stand at `axes` of the result. Source: neutral-ops 3.139."""

    operands = (Operand("input"), Operand("axes", INDICES))

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, axes = node.operand(0), _static(node.operand(1), "axes")
        new = normalize_axes(axes, x.rank + len(axes))
        places = iter(range(x.rank))
        order = [x.rank if i in new else next(places) for i in range(x.rank + len(new))]
        return [b(Reshape, x, b(Gather, b(Concatenate, _sizes(b, x), [1], axis=0), order, axis=0))]
