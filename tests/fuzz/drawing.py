"""Draws values of any dtype, rank and size: what random graphs of both formats have in common.

Each value is known while the graph grows, so that the graph is valid for the arrays of one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.harness.litert import Array

Dims = tuple[int | str, ...]
FLOATS = ("float32",) * 10 + ("float16", "float64")
INTEGERS = ("int64",) * 4 + ("int32",) * 4 + ("int8", "uint8", "int16", "uint16", "uint32", "uint64")
NUMBERS = FLOATS * 2 + INTEGERS
ALL = (*NUMBERS, "bool", "bool", "bool")
_RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5)
_SIZES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8)
_LARGEST = 1 << 13
"""Most elements of a value."""
_FAR = 1e5
"""Largest float."""


@dataclass(frozen=True)
class Input:
    """A model input: element type, dims (a name for an open one, "" for one without a name), range of its elements.

    ``among``: the arrays that it may be, where not all of the range are valid.
    """

    dtype: str
    dims: Dims
    low: float
    high: float
    among: tuple[Array, ...] = ()

    def draw(self, random: np.random.Generator, shape: Sequence[int]) -> Array:
        """Elements for this shape: floats that are exact in 16 bits, some of them equal."""
        if self.among:
            return self.among[int(random.integers(len(self.among)))]
        if self.dtype == "bool":
            return np.asarray(random.integers(0, 2, shape)).astype(bool)
        if self.dtype.startswith("float"):
            found = np.round(random.uniform(self.low, self.high, tuple(shape)) * 64) / 64
            return np.asarray(found).astype(self.dtype)
        return np.asarray(random.integers(int(self.low), int(self.high) + 1, tuple(shape))).astype(self.dtype)


def fits_product(array: Array) -> bool:
    """Whether the product of all elements, of which there may be more, has 31 bits: beyond, runtimes differ.

    Of integers, LiteRT wraps around, and ONNX Runtime has the nearest limit. A product of floats may be infinity times
    0, in an order that each kernel chooses, and has 15 bits in float16 and 127 in others.
    """
    bits = math.log2(max(float(np.abs(array.astype(np.float64)).max(initial=0)), 4))
    most = (15 if array.dtype == np.float16 else 127) if array.dtype.kind == "f" else 31
    return math.prod(size + 1 for size in array.shape) * bits < most


@dataclass
class Values:
    """The values of a graph under construction. ``arrays``: each in one run. ``sizes``: those of open dims.

    ``fixed``: the open dims that have this size in all runs, because of another operand. ``linked``: whether each node
    reads the newest value it can.
    """

    seed: int
    inputs: dict[str, Input] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    linked: bool = False

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.open = self.choose((0.0, 0.0, 0.3, 0.6, 1.0))
        self.empty = self.below(10) == 0

    def below(self, limit: int) -> int:
        """A random integer in [0, limit)."""
        return int(self.random.integers(limit))

    def chance(self, share: float) -> bool:
        """True in this share of the cases."""
        return bool(self.random.random() < share)

    def choose(self, options: Sequence[Any]) -> Any:
        """A random one of the options."""
        return options[self.below(len(options))]

    def array(self, name: str) -> Array:
        """The elements of a value."""
        return self.arrays[name]

    def rank(self, name: str) -> int:
        """The rank of a value."""
        return self.arrays[name].ndim

    def axis(self, name: str) -> int:
        """An axis of a value, negative half of the time."""
        rank = self.rank(name)
        return self.below(rank) - rank * self.below(2)

    def size(self) -> int:
        """A size: in a tenth of the graphs also 0."""
        return 0 if self.empty and self.chance(0.15) else int(self.choose(_SIZES))

    def shape(self, ranks: Sequence[int] = ()) -> tuple[int, ...]:
        """A shape of one of these ranks (without ranks: of 0 to 5)."""
        return tuple(self.size() for _ in range(self.choose(ranks or _RANKS)))

    def value(
        self,
        dtypes: Sequence[str] = ("float32",),
        ranks: Sequence[int] = (),
        fits: Callable[[Array], bool] = lambda _: True,
        shape: Sequence[int] | None = None,
    ) -> str:
        """A value with one of these dtypes and ranks (or this shape): one that exists, or a new one."""
        newest = [str(a.dtype) for a in list(self.arrays.values())[-1:] if self.linked]
        dtype = newest[0] if newest and newest[0] in dtypes else self.choose(dtypes)
        same = [n for n, a in self.arrays.items() if a.dtype == dtype and fits(a)]
        if shape is not None:
            same = [n for n in same if self.arrays[n].shape == tuple(shape)]
        elif ranks:
            same = [n for n in same if self.arrays[n].ndim in ranks]
        if same and self.chance(0.85):
            return str(same[-1] if self.linked else same[max(self.below(len(same)) for _ in range(2))])
        return self.new(dtype, self.shape(ranks) if shape is None else shape)

    def weight(self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        """A new initializer, or in some cases an input without open dims."""
        if self.chance(0.75) or len(self.inputs) > 4:
            return self.constant(Input(dtype, (), low, high).draw(self.random, shape))
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, tuple(shape), low, high)
        self.arrays[name] = self.inputs[name].draw(self.random, shape)
        return name

    def new(self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        """A new input, or in a quarter of the cases an initializer."""
        low = max(low, 0) if dtype.startswith("uint") else low
        if self.chance(0.25) or len(self.inputs) > 4:
            return self.constant(Input(dtype, (), low, high).draw(self.random, shape))
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, tuple(self._dim(size) for size in shape), low, high)
        self.arrays[name] = self.inputs[name].draw(self.random, shape)
        return name

    def _dim(self, size: int) -> int | str:
        """The size, or an open dim of this size: one that other inputs have as well, or a new one."""
        if not self.chance(self.open):
            return size
        same = [name for name, known in self.sizes.items() if known == size and name[0] == "N"]
        if same and self.chance(0.6):
            return str(self.choose(same))
        name = f"{'N' if self.chance(0.6) else '?'}{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def constant(self, elements: Any, dtype: Any = None) -> str:
        """A new constant."""
        name = f"w{sum(n[0] == 'w' for n in self.arrays)}"
        self.arrays[name] = np.asarray(elements, dtype)
        self.keep(name)
        return name

    def keep(self, name: str) -> None:
        """Let the array of this name be a constant of the graph."""
        raise NotImplementedError

    def used(self) -> Iterable[str]:
        """The names that nodes read."""
        raise NotImplementedError

    def given(self, elements: Any, dtype: Any = np.int64) -> str:
        """A constant; in a few cases an input that has these elements' range."""
        array = np.asarray(elements, dtype)
        if array.size and self.chance(0.08) and len(self.inputs) < 5:
            name = f"in{len(self.inputs)}"
            self.inputs[name] = Input(str(array.dtype), array.shape, float(array.min()), float(array.max()))
            self.arrays[name] = array
            return name
        return self.constant(array)

    def fix(self, name: str, *axes: int) -> None:
        """Let axes of a value (without axes: all) have their size in all runs, although they may be open."""
        dims = self.inputs[name].dims if name in self.inputs else tuple(self.sizes)
        found = [dims[a] for a in axes] if axes and name in self.inputs else dims
        self.fixed |= {d for d in found if isinstance(d, str)}

    def varied(self, change: Callable[[int], int]) -> dict[str, int]:
        """Other sizes of the open dims."""
        return {n: s if n in self.fixed else change(s) for n, s in self.sizes.items()}

    def partner(self, name: str, dtype: str = "") -> str:
        """A value whose shape broadcasts with that of ``name``, of the same dtype by default."""
        array = self.arrays[name]
        dtype = dtype or str(array.dtype)
        if self.chance(0.4):
            return self.value((dtype,), fits=lambda other: broadcasts(array, other))
        sizes = [1 if self.chance(0.25) else size for size in array.shape]
        return self.new(dtype, sizes[self.below(len(sizes) + 1) if self.chance(0.3) else 0 :])

    def feeds(self, sizes: dict[str, int], seed: int) -> dict[str, Array]:
        """Other inputs, with these sizes of the open dims."""
        random = np.random.default_rng([self.seed, seed])
        used = set(self.used())
        return {
            name: input_.draw(random, [sizes[d] if isinstance(d, str) else d for d in input_.dims])
            for name, input_ in self.inputs.items()
            if name in used
        }


def broadcasts(*arrays: Array) -> bool:
    """Whether the shapes broadcast."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True


def is_small(array: Any) -> bool:
    """Whether this is an array with few elements, and floats that are not large."""
    if not isinstance(array, np.ndarray) or math.prod(array.shape) > _LARGEST or array.ndim > 6:
        return False
    return array.dtype.kind != "f" or bool(np.isfinite(array).all() and np.abs(array).max(initial=0.0) < _FAR)
