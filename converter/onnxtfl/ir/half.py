"""Float16 arithmetic, simulated with arrays of float32: values as they are stored in float16, and sums.

A value is rounded to the nearest float16 (ties to even); from 65,520 on it is infinite. Without a `Simulation`, the
functions compute in the types of their operands.

Sums of matrix products, convolutions, reductions, means and pools are accumulated in float32, or, if the simulation has
`sums`, in float16: an accumulator of float16 to which `TERMS` consecutive terms, added up in float32, are added at a
time, in the order of the neutral op's axes (a convolution: input features, then the positions in the window)::

    total = float16(total + (term[0] + term[1] + term[2] + term[3]))

GPUs compute on vectors of four: a dot product of two such vectors is added to the accumulator.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dtypes import Array
from onnxtfl.ir.scopes import scope

if TYPE_CHECKING:
    from onnxtfl.ir.graph import Node

LARGEST = 65504.0
"""The largest finite value of float16."""
TERMS = 4
"""The number of terms that are added to an accumulator of float16 at a time."""


@dataclass(frozen=True)
class Excess:
    """A value that leaves the range of float16.

    `tensor` and `op`: those of the source ("" for a constant). `largest`: its largest absolute value before it was
    rounded; infinite where it became infinite or NaN otherwise, by a division for example. `in_sum`: only while it is
    added up.
    """

    tensor: str
    op: str
    largest: float
    in_sum: bool = False

    def __str__(self) -> str:
        what = f"the sum in {self.tensor!r}" if self.in_sum else repr(self.tensor)
        found = "becomes infinite or NaN" if np.isinf(self.largest) else f"reaches {_shown(self.largest)}"
        return f"{what} ({self.op or 'constant'}) {found}; float16 ends at {_shown(LARGEST)}"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number < 1e9 else f"{number:.3g}"


class Simulation(ABC):
    """An evaluation in simulated float16. `sums`: whether sums are accumulated in float16. `largest_sum`: the largest
    absolute value of those that became infinite.
    """

    def __init__(self, sums: bool) -> None:
        self.sums, self.largest_sum = sums, 0.0

    @abstractmethod
    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results of `node`, as :func:`onnxtfl.ir.interpret.evaluate_node` returns them."""


_CURRENT: ContextVar[Simulation | None] = ContextVar("onnxtfl_simulation", default=None)


def current_simulation() -> Simulation | None:
    """The simulation of this thread; None for the types of the model."""
    return _CURRENT.get()


def simulation_scope(simulation: Simulation | None) -> AbstractContextManager[object]:
    """Evaluate in `simulation` inside (None: without one)."""
    return scope(_CURRENT, simulation)


# --- stored values ----------------------------------------------------------------------------------------------------

_EXPONENT = 0x7F800000
_LEAST, _MOST = 113 << 23, 143 << 23
"""The bits of 2 ** -14, the least normal float16, and of 2 ** 16."""
_DROPPED = 13
"""The bits of a float32's fraction that float16 lacks."""


def as_float16(x: Array) -> Array:
    """The floats `x` rounded to float16, in the type of `x`; other types are returned unchanged."""
    if x.dtype == np.float32:
        return _rounded(x)
    if x.dtype == np.float64:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(x.dtype)
    return _rounded(x.astype(np.float32)).astype(x.dtype) if x.dtype.name == "bfloat16" else x


def _rounded(x: Array) -> Array:
    """Round float32, 20 times as fast as NumPy's conversion of subnormal values.

    Adding c = 1.5 * 2 ** (e + 13), e the exponent of `x`, drops the last 13 bits of the sum; then c is subtracted.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    bits = flat.view(np.uint32) & np.uint32(_EXPONENT)
    np.clip(bits, np.uint32(_LEAST), np.uint32(_MOST), out=bits)
    bits += np.uint32((_DROPPED << 23) + (1 << 22))
    shift = bits.view(np.float32)
    result = flat + shift
    result -= shift
    np.copysign(result, flat, out=result)  # zeros keep their sign
    beyond = np.abs(result, out=shift) > LARGEST
    if beyond.any():
        result[beyond] = np.copysign(np.float32(np.inf), result[beyond])
    return result.reshape(x.shape)


def stored(x: Array) -> Array:
    """`x` as an intermediate result of an op is stored: rounded to float16 in a simulation."""
    return x if _CURRENT.get() is None else as_float16(x)


# --- sums -------------------------------------------------------------------------------------------------------------


def matmul(a: Array, b: Array) -> Array:
    """The matrix product, [..., m, k] by [..., k, n]."""
    depth = a.shape[-1]
    if not _in_float16(a) or not depth:
        return np.asarray(np.matmul(a, b))
    parts = (slice(k, k + TERMS) for k in range(0, depth, TERMS))
    return add_up((np.matmul(a[..., k], b[..., k, :]) for k in parts), terms=TERMS)


def total(x: Array, axes: Sequence[int], keepdims: bool, dtype: np.dtype[Any] | None = None) -> Array:
    """The sum along `axes`, accumulated in `dtype` unless that is simulated."""
    axes = [a % x.ndim for a in axes]
    count = math.prod(x.shape[a] for a in axes)
    if not _in_float16(x) or not count:
        return np.asarray(np.sum(x, tuple(axes), dtype=dtype, keepdims=keepdims))
    shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
    rows = np.moveaxis(x, axes, range(len(axes))).reshape(count, -1)
    result = add_up((rows[k : k + TERMS].sum(axis=0) for k in range(0, count, TERMS)), terms=TERMS)
    return result.reshape(shape)


def add_up(arrays: Iterable[Array], terms: int = 1) -> Array:
    """The sum of `arrays`, at least one, each of which is the sum of up to `terms` terms."""
    remaining = iter(arrays)
    first = next(remaining)
    simulation = _CURRENT.get()
    if simulation is None or not _in_float16(first):
        result = first.copy()
        for array in remaining:
            result += array
        return result
    return _accumulated(simulation, itertools.chain([first], remaining), TERMS // terms)


def _accumulated(simulation: Simulation, arrays: Iterator[Array], count: int) -> Array:
    """The sum in an accumulator of float16, to which `count` arrays are added at a time."""
    exact, result = np.zeros((), np.float32), np.zeros((), np.float32)
    while group := list(itertools.islice(arrays, count)):
        part = sum(group[1:], group[0])
        exact = exact + part
        result = as_float16(result + part)
    _observe(simulation, result, exact)
    return result


def added(sums: Array, terms: Array) -> Array:
    """Accumulators, to each of which a term is added."""
    simulation, result = _CURRENT.get(), sums + terms
    if simulation is None or not _in_float16(result):
        return result
    rounded = as_float16(result)
    _observe(simulation, rounded, result)
    return rounded


def _in_float16(x: Array) -> bool:
    simulation = _CURRENT.get()
    return simulation is not None and simulation.sums and x.dtype.kind == "f"


def _observe(simulation: Simulation, sums: Array, exact: Array) -> None:
    """Note the largest of the sums that became infinite although the `exact` ones are finite."""
    if not np.isfinite(sums).all():
        lost = np.isfinite(exact) & ~np.isfinite(sums)
        simulation.largest_sum = float(np.max(np.abs(exact), initial=simulation.largest_sum, where=lost))
