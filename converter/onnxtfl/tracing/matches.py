"""The corresponding tensors of two models, by a record or by their names, and how one is computed from the other.

::

    record: relu -> relu [0, 2, 3, 1]      %relu[1, 8, 8, 4] of the second model is %relu[1, 4, 8, 8] of the first,
                                           transposed, and quantized as its type says
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxtfl.ir.blocks import in_blocks
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import differ, open_axes, size_or
from onnxtfl.ir.graph import Value
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.quantization import Quantization, dequantize, quantize, with_other_sign
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.record import TensorEntry
from onnxtfl.tracing.trace import InnerModel

_SAME = 2e-2
"""The largest error of tensors that correspond by their values only."""
_MOST_AXES = 4
"""The largest rank of which all axis orders are tried."""
LEAST, ROUNDING = 8, 1e-5
"""A tensor is a multiple of another one of at least `LEAST` elements if it differs by less than `ROUNDING`."""
_CLEARLY = 0.1
"""An axis order is preferred to the common one if its error is smaller by this factor."""


@dataclass(frozen=True)
class Way:
    """b = transpose(reshape(a, `shape`), `order`), or with `back`, a from b in this way. None: no reshape, no
    transpose.
    """

    order: tuple[int, ...] | None = None
    shape: tuple[int | str, ...] | None = None
    back: bool = False

    def moved(self, array: Array, shape: Sequence[int]) -> Array | None:
        """The array with the axis order of the second model, whose tensor has `shape`; None if that is impossible."""
        try:
            return self._moved(array, shape)
        except ValueError:
            return None

    def _moved(self, array: Array, shape: Sequence[int]) -> Array:
        if self.back:
            array = array if self.order is None else array.transpose(inverse(self.order))
            return array if self.shape is None else array.reshape(tuple(shape))
        if self.shape is not None:
            array = array.reshape(_sizes(self.shape, array.shape))
        return array if self.order is None else array.transpose(self.order)


@dataclass(frozen=True)
class Match:
    """Tensor `a` of the first model is `b` of the second (numbers of :class:`InnerModel`); `way` None: not yet known.

    `by_value`: nothing but the values says so; `recorded`: a record does.
    """

    a: int
    b: int
    way: Way | None = None
    by_value: bool = False
    recorded: bool = False


def by_record(a: InnerModel, b: InnerModel, entries: Sequence[TensorEntry], back: bool) -> list[Match]:
    """The matches of a record: one for each tensor of `b`, with the first corresponding tensor of `a`.

    `back`: the first model was made of the second.
    """
    names_a, names_b = unique_names(a), unique_names(b)
    found: dict[int, Match] = {}
    for entry in entries:
        first, second = (entry.target, entry.source) if back else (entry.source, entry.target)
        i, j = names_a.get(first), names_b.get(second)
        if i is None or j not in b.changing:
            continue
        if _is_rounded(entry, b.values[j] if b.format == "tflite" else a.values[i]):
            continue
        if j not in found or i < found[j].a:
            found[j] = Match(i, j, Way(entry.permutation, entry.shape, back), recorded=True)
    return [found[j] for j in sorted(found)]


def _is_rounded(entry: TensorEntry, value: Value) -> bool:
    """Whether ``value``, a real tensor of a .tflite, exists in the other model only as a quantized, rounded one."""
    return entry.quantization is not None and quantization_of(value) is None


def by_name(a: InnerModel, b: InnerModel) -> list[Match]:
    """The tensors of equal names; in models of the same format they have the same axis order."""
    names, way = unique_names(a), Way() if a.format == b.format else None
    return [Match(names[name], j, way) for name, j in unique_names(b).items() if name in names and j in b.changing]


def unique_names(model: InnerModel) -> dict[str, int]:
    """The number of each name that only one tensor has."""
    count = Counter(value.name for value in model.values)
    return {value.name: i for i, value in enumerate(model.values) if value.name and count[value.name] == 1}


def stored_as(array: Array, quantization: Quantization | None, other: Quantization | None, like: Array) -> Array | None:
    """An array of the first model, with `quantization`, as the second model stores the values, with `other`.

    `like`: an array of the second model; None if the two are of different kinds.
    """
    kinds = array.dtype.kind, like.dtype.kind
    if "O" in kinds or "b" in kinds or "c" in kinds:
        return array if kinds[0] == kinds[1] else None
    if like.dtype.kind not in "iu":
        if array.dtype.kind not in "iu":
            return array.astype(like.dtype)
        return None if quantization is None else dequantize(array, quantization).astype(like.dtype)
    if array.dtype.kind not in "iu":
        return None if other is None else quantize(array, other)
    if quantization is not None and other is not None and quantization != other:
        return quantize(dequantize(array, quantization), other)
    if {array.dtype.name, like.dtype.name} == {"int8", "uint8"}:
        return with_other_sign(array)
    return array.astype(like.dtype)


class Converter:
    """Converts tensors of the first model to those of the second; remembers which axis orders are common."""

    def __init__(self, a: InnerModel, b: InnerModel) -> None:
        self._a, self._b = a, b
        self._orders: Counter[tuple[int, tuple[int, ...] | None]] = Counter()

    def grids(self, match: Match) -> tuple[Quantization | None, Quantization | None]:
        """The quantization of the tensor in each model."""
        return quantization_of(self._a.values[match.a]), quantization_of(self._b.values[match.b])

    def made(self, match: Match, array: Array, like: Array) -> Array | None:
        """The expected values of `like`, a tensor of the second model, from `array`, that of the first; None if
        unknown.
        """
        assert match.way is not None
        moved = match.way.moved(array, like.shape)
        qa, qb = self.grids(match)
        if moved is None or (qa is not None and not qa.per_tensor) or (qb is not None and not qb.per_tensor):
            return None
        return stored_as(moved, qa, qb, like)

    def resolved(self, match: Match, array: Array, like: Array) -> Match | None:
        """The match with its way, or with one that fits the shapes; of several such ways, the one that fits the values.

        None where there is none.
        """
        if match.way is not None:
            return match if self.made(match, array, like) is not None else None
        ways = axis_ways(array.shape, like.shape)
        tried = [replace(match, way=way) for way in (ways if match.by_value else likely(ways))]
        errors = {m: self._error(m, array, like) for m in tried}
        fitting = {m: error for m, error in errors.items() if error is not None}
        if not fitting:
            return None
        best = min(fitting, key=lambda m: fitting[m])
        if match.by_value:
            return best if fitting[best] < _SAME else None
        known = max(fitting, key=lambda m: self._orders[like.ndim, m.way.order if m.way else None])
        if not fitting[best] < _CLEARLY * fitting[known]:
            best = known
        if best.way is not None:
            self._orders[like.ndim, best.way.order] += 1
        return best

    def _error(self, match: Match, array: Array, like: Array) -> float | None:
        made = self.made(match, array, like)
        return None if made is None else relative_error(made, like, self.grids(match)[1])


def relative_error(expected: Array, got: Array, grid: Quantization | None) -> float:
    """The largest ``|got - expected|`` relative to the largest ``|expected|``, of real values."""
    if expected.shape != got.shape:
        return math.inf
    if expected.dtype.kind in "Ob":
        return float(np.mean(expected != got)) if expected.size else 0.0
    x, y = (dequantize(v, grid) if grid is not None and v.dtype.kind in "iu" else v for v in (expected, got))
    kind = np.complex128 if x.dtype.kind == "c" else np.float64
    error, peak = 0.0, 0.0
    for one, other in zip(in_blocks(x), in_blocks(y), strict=True):
        p, q = one.astype(kind), other.astype(kind)
        finite = np.isfinite(p)
        if not np.array_equal(p[~finite], q[~finite], equal_nan=True):
            return math.inf
        error = float(np.maximum(error, np.abs(q[finite] - p[finite]).max(initial=0.0)))  # NaN stays NaN
        peak = max(peak, float(np.abs(p[finite]).max(initial=0.0)))
    return error if error == 0.0 else error / peak if peak else math.inf


def is_multiple(x: Array, y: Array) -> bool:
    """Whether `y` is `x` times a factor, except for rounding."""
    if x.shape != y.shape or x.dtype.kind != "f" or y.dtype.kind != "f" or x.size < LEAST or not np.any(x):
        return False
    a, b = x.astype(np.float64), y.astype(np.float64)
    factor = float(np.vdot(a, b) / np.vdot(a, a))
    return bool(np.abs(b - factor * a).max() <= ROUNDING * abs(factor) * np.abs(a).max())


def axis_ways(a: tuple[int, ...], b: tuple[int, ...]) -> list[Way]:
    """The ways from shape `a` to `b`: same layout, axis orders, a reshape."""
    if math.prod(a) != math.prod(b):
        return []
    if len(a) != len(b):
        return [Way(None, b)]
    rank = len(a)
    orders = list(itertools.permutations(range(rank))) if rank <= _MOST_AXES else _layouts(rank)
    fitting = [order for order in orders if tuple(a[i] for i in order) == b]
    return [Way(None if order == tuple(range(rank)) else order) for order in fitting] or [Way(None, b)]


def likely(ways: list[Way]) -> list[Way]:
    """The ways that are layouts (channels first or last), if there are any: another order may be the fault."""
    layouts = [
        way for way in ways if way.shape is None and (way.order is None or way.order in _layouts(len(way.order)))
    ]
    return layouts or ways


def _layouts(rank: int) -> list[tuple[int, ...]]:
    return [tuple(range(rank)), (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]


def _sizes(shape: Sequence[int | str], own: Sequence[int]) -> list[int]:
    """The sizes of a shape of which some may be symbols, for an array whose sizes are ``own``.

    Several symbols are the array's own sizes other than 1. Raises ValueError if these do not fit.
    """
    if 0 in own:
        return [size_or(d, 0) for d in shape]
    if len(open_axes(shape)) <= 1:
        return [size_or(d, -1) for d in shape]
    left = iter([size for size in own if size != 1])
    sizes = [1 if d == 1 else next(left, 1) for d in shape]
    if math.prod(sizes) != math.prod(own) or any(map(differ, shape, sizes)):
        raise ValueError(f"an array of {list(own)} has no shape {list(shape)}")
    return sizes
