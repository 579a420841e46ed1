"""Reductions over axes: Reduce FunctionReduce ArgMax ArgMin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir import half, intervals, numeric
from onnxtfl.ir.attributes import Axis, Choice, ElementType, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh_symbol, is_static
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.divisions import Division, of_reduction
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import MOST, Facts, FactsOf, of_type
from onnxtfl.ir.op import BOOLS, INDICES, NUMERIC, Attributes, Op, Operand, Permutation, Permuted, Pick
from onnxtfl.ir.permutations import physical_axes, without_axes
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints
from onnxtfl.ir.types import DType, rank_of


class Reduce(Op):
    """The sum, product, maximum, minimum, mean, or (bools) any or all, along `axes`.

    `axes`: a vector of axes; absent: all axes, empty: none. `keepdims`: reduced axes stay with size 1.
    An empty reduction is the neutral element (of a mean NaN, of integers 0); integers wrap, their mean is rounded
    toward zero. Floats are added up in float64.
    Source: neutral-ops 3.93 (`kind` is its `computation`), ONNX ReduceSum and others.
    """

    operands = (Operand("input", NUMERIC | BOOLS), Operand("axes", INDICES, optional=True))
    attributes = {"kind": Choice("sum", "prod", "max", "min", "mean", "any", "all"), "keepdims": Flag(False)}
    core = True
    propagates = True
    widens = True
    integers = "bits"

    @classmethod
    def picks(cls, attributes: Attributes) -> Pick | None:
        found: dict[str, Pick] = {"max": "element", "min": "element", "mean": "mean"}
        return found.get(attributes["kind"])

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        """The axes, if only one choice of them has a result of this shape."""
        fits = possible_axes(node)
        return {1: fits[0]} if len(fits) == 1 and fits[0] else {}

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Bounds from the number of reduced elements; the neutral element if there are none."""
        kind, count, x = node.attr("kind"), _reduced_count(node), of(0)
        if kind == "sum":
            return intervals.total(x, MOST if count is None else count)
        if kind == "prod":
            return intervals.power(x, count)
        if kind == "mean":
            return intervals.mean(x)
        every = of_type(node.result.dtype)
        return x if count else replace(x, low=every.low) if kind == "max" else replace(x, high=every.high)

    @staticmethod
    def shape(x: Value, axes: Value | None, *, kind: str, keepdims: bool) -> Dims | None:
        if (kind in ("any", "all")) is not (x.dtype is DType.BOOL):
            raise TypeError(f"{kind} of {x.dtype.value}")
        return reduced_shape(x.tensor_type.shape, axes, keepdims)

    @staticmethod
    def compute(x: Array, axes: Array | None, *, kind: str, keepdims: bool) -> Any:
        along = _axes_of(x, axes)
        match kind:
            case "sum":
                return half.total(x, along, keepdims, _sum_type(x))
            case "prod":
                return np.prod(x, along, dtype=_sum_type(x), keepdims=keepdims)
            case "mean":
                if x.dtype == object:
                    raise TypeError("dims have no mean")
                if 0 in (x.shape[a] for a in along):
                    return np.sum(x, along, keepdims=keepdims) + (0 if x.dtype.kind in "iu" else np.nan)
                if x.dtype.kind != "f":
                    return np.mean(x, along, keepdims=keepdims)
                return half.total(x, along, keepdims, _sum_type(x)) / math.prod(x.shape[a] for a in along)
            case "max":
                return np.max(x, along, keepdims=keepdims, **_start(x, numeric.lowest))
            case "min":
                return np.min(x, along, keepdims=keepdims, **_start(x, numeric.highest))
        return (np.any if kind == "any" else np.all)(x, along, keepdims=keepdims)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        axes = reduced_axes(node)
        return None if axes is None else permuted_reduction(node, index, permutation, axes)

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterable[Division]:
        x, axes = operands
        assert x is not None
        return of_reduction(operands, _axes_of(x, axes), attributes["keepdims"])


def _sum_type(x: Array) -> np.dtype[Any]:
    """The type in which elements are added up: NumPy's sums of float32 along other axes than the last are inexact."""
    return np.dtype(np.float64) if x.dtype == np.float32 else x.dtype


def _axes_of(x: Array, axes: Array | None) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axes is None else normalize_axes([int(a) for a in axes.reshape(-1)], x.ndim)


def permuted_reduction(node: Node, index: int, permutation: Permutation, axes: Sequence[int]) -> Permuted | None:
    """Return the permuted reduction along `axes`; None to permute a result without `keepdims`."""
    if index > 0 or len(permutation) != node.operand(0).rank:
        return None
    result = permutation if node.attr("keepdims") else without_axes(permutation, axes)
    attributes = {"axis": physical_axes(axes[0], permutation)} if "axis" in node.op.defaults else {}
    return Permuted((permutation, None)[: len(node.operands)], (result,), attributes, axes={1: permutation})


def _reduced_count(node: Node) -> int | None:
    """Return the number of operand elements per result element; None if unknown."""
    axes = reduced_axes(node)
    sizes = None if axes is None else [node.operand(0).shape[a] for a in axes]
    return None if sizes is None or not is_static(sizes) else math.prod(sizes)


def possible_axes(node: Node) -> list[tuple[int, ...]]:
    """The axes along which a reduction of a static tensor has the shape of the result; none if that is unknown."""
    before, axes, after = node.operand(0).tensor_type.shape, node.optional(1), node.result.tensor_type.shape
    if axes is None or before is None or not is_static(after) or len(before) > _MOST_AXES:
        return []
    chosen = (a for n in range(len(before) + 1) for a in itertools.combinations(range(len(before)), n))
    count = axes.tensor_type.shape
    wanted = (a for a in chosen if not is_static(count) or len(a) == math.prod(count))
    return [a for a in wanted if _reduced(before, a, keepdims=node.attr("keepdims")) == after]


_MOST_AXES = 8
"""The most axes of which all choices are tried."""


def _reduced(shape: Dims, axes: Sequence[int], *, keepdims: bool) -> Dims:
    """A shape without these axes, or with size 1 there."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """Return the nonnegative axes of a Reduce; None if unknown."""
    rank, axes = node.operand(0).tensor_type.rank, node.optional(1)
    if rank is None:
        return None
    if axes is None:
        return tuple(range(rank))
    numbers = static_ints(axes)
    return None if numbers is None else normalize_axes(numbers, rank)


def reduced_shape(shape: Dims | None, axes: Value | None, keepdims: bool) -> Dims | None:
    """Return the shape of a reduction of a tensor of `shape` along `axes` (a vector; absent: all axes)."""
    if axes is None:
        return (1,) * len(shape) if keepdims and shape is not None else None if keepdims else ()
    numbers = static_ints(axes)
    if numbers is None or shape is None:
        return _partly_known_shape(shape, axes.tensor_type.shape, keepdims)
    gone = normalize_axes(numbers, len(shape))
    dims: list[Dim] = [1 if i in gone else d for i, d in enumerate(shape)]
    return tuple(d for i, d in enumerate(dims) if keepdims or i not in gone)


def _partly_known_shape(shape: Dims | None, axes: Dims | None, keepdims: bool) -> Dims | None:
    """Return the shape for dynamic axes: its rank, if their number is known."""
    if shape is None:
        return None
    if keepdims:
        return tuple(d if d == 1 else fresh_symbol() for d in shape)
    if not is_static(axes):
        return None
    count = axes[0] if axes else 1
    return tuple(fresh_symbol() for _ in range(len(shape) - count))


def _start(x: Array, limit: Any) -> dict[str, Any]:
    if x.dtype == object and not x.size:
        raise TypeError("no dims, so none is the largest")
    return {} if x.dtype == object else {"initial": limit(x.dtype)}


class _ArgExtreme(Op, register=False):
    operands = (Operand("input", NUMERIC | BOOLS),)
    results = (Operand("indices", like="dtype"),)
    attributes = {
        "axis": Axis(0),
        "keepdims": Flag(True),
        "select_last_index": Flag(False),
        "dtype": ElementType(DType.INT64),
    }
    core = True
    widens = True
    positions = 0
    integers = "order"
    discrete = True

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Indices are within the axis."""
        shape = node.operand(0).tensor_type.shape
        return intervals.positions_below(None if shape is None else shape[node.attr("axis")])

    find: ClassVar[Callable[..., Any]]
    """The first index of the extreme along an axis."""

    @staticmethod
    def shape(x: Value, *, axis: int, keepdims: bool) -> Dims:
        along = normalize_axis(axis, x.rank)
        middle: Dims = (1,) if keepdims else ()
        result = (*x.shape[:along], *middle, *x.shape[along + 1 :])
        if x.shape[along] == 0 and 0 not in result:
            raise ValueError(f"axis {along} is empty")
        return result

    @classmethod
    def compute(cls, x: Array, *, axis: int, keepdims: bool, select_last_index: bool) -> Array:
        found = cls.find(np.flip(x, axis) if select_last_index else x, axis)
        found = x.shape[axis] - 1 - found if select_last_index else found
        return np.expand_dims(found, axis) if keepdims else np.asarray(found)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        if rank_of(node.operand(0).type) is None:
            return None
        return permuted_reduction(node, index, permutation, (node.attr("axis") % node.operand(0).rank,))

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterable[Division]:
        (x,) = operands
        assert x is not None
        return of_reduction(operands, (normalize_axis(attributes["axis"], x.ndim),), attributes["keepdims"])


class ArgMax(_ArgExtreme):
    """The index of the maximum along `axis`, the first of several unless `select_last_index`.

    `dtype`: int64 or int32. Source: neutral-ops 3.5 (`dtype` added).
    """

    find = np.argmax


class ArgMin(_ArgExtreme):
    """The index of the minimum along `axis`, the first of several unless `select_last_index`.

    `dtype`: int64 or int32. Source: neutral-ops 3.6 (`dtype` added).
    """

    find = np.argmin


class FunctionReduce(Formula):
    """The sum along `axes` of a function of each element, and a function of that.

    `kind`: l1 (sum of absolute values), l2 (root of the sum of squares), sum_square, log_sum (logarithm of the sum),
    log_sum_exp. Axes and `keepdims` as in Reduce; roots and logarithms of integers are truncated. Source: ONNX
    ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum, ReduceLogSumExp (added).
    """

    operands = (Operand("input", NUMERIC), Operand("axes", INDICES, optional=True))
    attributes = {"kind": Choice("l1", "l2", "sum_square", "log_sum", "log_sum_exp"), "keepdims": Flag(False)}
    permuted = Reduce.permuted
    divisions = Reduce.divisions
    implied = Reduce.implied

    @classmethod
    def formula(cls, x: Term, axes: Term | None, kind: str, keepdims: bool) -> Term:
        real = DType.FLOAT32 if x.dtype.is_integer else x.dtype
        match kind:
            case "l1":
                return x.abs().reduce("sum", axes, keepdims)
            case "sum_square":
                return (x * x).reduce("sum", axes, keepdims)
            case "l2":
                return (x * x).reduce("sum", axes, keepdims).to(real).sqrt().to(x.dtype)
            case "log_sum":
                return x.reduce("sum", axes, keepdims).to(real).log().to(x.dtype)
        return cls._log_sum_exp(x.to(real), axes, keepdims).to(x.dtype)

    @classmethod
    def _log_sum_exp(cls, x: Term, axes: Term | None, keepdims: bool) -> Term:
        """The maximum, if finite, is subtracted first, so that Exp does not overflow."""
        top = x.reduce("max", axes)
        shift = (top.abs() < np.inf).choose(top, 0.0)
        total = (x - shift).exp().reduce("sum", axes, keepdims).log()
        return total + (shift if keepdims else shift.reduce("sum", axes, keepdims=False))
