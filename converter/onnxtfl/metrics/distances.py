"""Distances of the outputs of quantized models from ONNX Runtime's float emulation of quantization.

With graph optimizations off, ONNX Runtime computes each op in float between DequantizeLinear and QuantizeLinear; with
them, it uses integer kernels, which round differently, and in deep models their outputs differ. Another runtime may
differ by as much::

    |TFLite - emulation|  <=  SLACK |integer kernels - emulation|       mean over all elements and inputs
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxtfl.ir.blocks import BLOCK
from onnxtfl.ir.data import Array
from onnxtfl.ir.quantization import Quantization, dequantize

LEAST, MOST = 5, 20
"""The numbers of inputs over which distances are averaged, depending on time."""
SLACK = 1.1
"""Means over a few inputs that differ by less than this factor count as equal."""
FAR, FAR_STEPS = 8.0, 1.5
"""A model is wrong if its distance is more than this many times that of the integer kernels, and on average more than
this many steps of its output. Measured for correct models: up to 11 times with 0.9 steps; 12 layers with biases off by
0.9 step: 35 times, 2 steps.
"""
LEAST_CLASSES = 3
"""The least number of elements along the last axis for which the largest one counts as a class."""
QUANTILES = (50, 90, 99)
_SAMPLE = 1 << 18
"""The number of elements of an output, evenly spread, for the quantiles."""


@dataclass(frozen=True)
class Three:
    """One output of one run, as the emulation, ONNX Runtime's integer kernels and TFLite store it.

    Each may be hundreds of megabytes, so computations are in blocks. ``quantization``: that of the integers. ``step``:
    that of the values, None if it is not known.
    """

    emulated: Array
    integer: Array
    other: Array
    quantization: Quantization | None = None
    step: float | None = None

    def aligned(self, ways: Sequence[Sequence[int]]) -> Three:
        """A copy with the axes of `other` in the order among `ways` with the least distance to `emulated`."""
        moved = [replace(self, other=np.ascontiguousarray(self.other.transpose(way))) for way in ways]
        if len(moved) == 1:
            return moved[0]
        return min(moved, key=lambda three: sum(float(np.abs(c - a).sum()) for a, _, c in three.blocks()))

    def blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """The real values of all three in float64, block by block."""
        a, b, c = (self._real(values).reshape(-1) for values in (self.emulated, self.integer, self.other))
        for at in range(0, a.size, BLOCK):
            here = slice(at, at + BLOCK)
            yield self._wide(a[here]), self._wide(b[here]), self._wide(c[here])

    def _real(self, values: Array) -> Array:
        """Dequantize integers with several scales, which requires the whole array."""
        q = self.quantization
        return dequantize(values, q) if q is not None and len(q.scales) > 1 and values.dtype.kind in "iu" else values

    def _wide(self, block: Array) -> Array:
        q = self.quantization
        real = dequantize(block, q) if q is not None and len(q.scales) == 1 and block.dtype.kind in "iu" else block
        return real.astype(np.float64)


Run = list[Three]
"""Each output of one run."""


@dataclass
class Spread:
    """Distances of elements, relative to the largest value: their mean, the largest, and a sample."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0
    some: list[Array] = field(default_factory=list)

    def add(self, distances: Array, step: int) -> None:
        """Add a block; every ``step``-th element is in the sample."""
        self.count, self.total = self.count + distances.size, self.total + float(distances.sum())
        self.largest = max(self.largest, float(distances.max(initial=0.0)))
        self.some.append(distances[::step].astype(np.float32))

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def __str__(self) -> str:
        """``mean 0.0031 (50 % 0.002, 90 % 0.007, 99 % 0.012, 100 % 0.02)``."""
        some = np.concatenate(self.some) if self.count else np.zeros(1)
        values = (*np.percentile(some, QUANTILES), self.largest)
        parts = ", ".join(f"{q} % {v:.2g}" for q, v in zip((*QUANTILES, 100), values, strict=True))
        return f"mean {self.mean:.2g} ({parts})"


@dataclass(frozen=True)
class Distances:
    """For one output, the distances of TFLite and of ONNX Runtime's integer kernels from the emulation, over `inputs`
    inputs. ``step``: that of the output, relative to its largest value; 0.0 where it is not known. ``agreement``: the
    share of rows in which TFLite and the emulation have the largest element at the same place (top-1), None for rows of
    few elements.
    """

    name: str
    tflite: Spread
    integer: Spread
    inputs: int = 1
    step: float = 0.0
    agreement: float | None = None

    @property
    def ok(self) -> bool:
        """Whether TFLite's distance from the emulation is at most that of the integer kernels."""
        return self.tflite.mean <= SLACK * self.integer.mean

    @property
    def is_far(self) -> bool:
        """Whether TFLite's distance from the emulation is several times that of the integer kernels, which is not 0."""
        limit = max(FAR * self.integer.mean, FAR_STEPS * self.step)
        return self.integer.largest > 0 and self.step > 0 and self.tflite.mean > limit

    def __str__(self) -> str:
        if not self.integer.largest:  # QLinear ops have no other kernels
            same = f"output {self.name!r}: ONNX Runtime computes the same with and without graph optimizations"
            return f"{same}; TFLite differs by {self.tflite} of the largest value, over {self.inputs} inputs{self._top}"
        verdict = "no further" if self.ok else "further"
        return (
            f"output {self.name!r}: TFLite is {verdict} from ONNX Runtime's float emulation than its integer kernels: "
            f"{self.tflite} of the largest value, these {self.integer}, over {self.inputs} inputs{self._top}"
        )

    @property
    def _top(self) -> str:
        return "" if self.agreement is None else f"; top-1 agrees in {100 * self.agreement:.3g} %"


def measure(names: Sequence[str], run: Callable[[int], Run], seconds: float) -> list[Distances]:
    """The distances of each output over `LEAST` runs, and as many more, up to `MOST`, as fit into `seconds`.

    `run`: the outputs of run 0, 1, ...
    """
    found = [_Measured() for _ in names]
    started, inputs = time.perf_counter(), 0
    while inputs < LEAST or (inputs < MOST and time.perf_counter() - started < seconds):
        for one, three in zip(found, run(inputs), strict=True):
            one.add(three)
        inputs += 1
    return [one.distances(name, inputs) for name, one in zip(names, found, strict=True)]


@dataclass
class _Measured:
    """The measurements of one output so far. ``step``: the largest step, relative to the largest value of its run."""

    tflite: Spread = field(default_factory=Spread)
    integer: Spread = field(default_factory=Spread)
    step: float = 0.0
    rows: int = 0
    agree: int = 0

    def add(self, three: Three) -> None:
        """Add one run."""
        peak = max((float(np.abs(emulated).max()) for emulated, _, _ in three.blocks()), default=0.0) or 1.0
        every = -(-three.emulated.size // _SAMPLE)
        for emulated, fused, other in three.blocks():
            self.tflite.add(np.abs(other - emulated) / peak, every)
            self.integer.add(np.abs(fused - emulated) / peak, every)
        self.step = max(self.step, (three.step or 0.0) / peak)
        if (
            three.emulated.shape == three.other.shape
            and three.emulated.ndim
            and three.emulated.shape[-1] >= LEAST_CLASSES
        ):
            same = three.emulated.argmax(-1) == three.other.argmax(-1)
            self.rows, self.agree = self.rows + same.size, self.agree + int(np.count_nonzero(same))

    def distances(self, name: str, inputs: int) -> Distances:
        agreement = self.agree / self.rows if self.rows else None
        return Distances(name, self.tflite, self.integer, inputs, self.step, agreement)
