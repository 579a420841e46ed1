"""How far the outputs of quantized models are from ONNX Runtime's float emulation of quantization.

With graph optimizations off, ONNX Runtime computes each op in float between DequantizeLinear and QuantizeLinear; with
them, it uses integer kernels, which round differently, and in deep models their outputs differ. What they differ by is
what another runtime may differ by too::

    |TFLite - emulation|  <=  SLACK |integer kernels - emulation|       mean over all elements and inputs
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxtfl.checking.match import permutations
from onnxtfl.ir.data import Array

LEAST, MOST = 5, 20
"""The numbers of inputs over which distances are averaged: as many as there is time for."""
SLACK = 1.1
"""Means over a few inputs that differ by less than this factor are equal."""
QUANTILES = (50, 90, 99, 100)

Run = list[tuple[Array, Array, Array]]
"""Each output of one run, as computed by the emulation, by ONNX Runtime's integer kernels, and by TFLite."""


@dataclass(frozen=True)
class Distances:
    """Of one output: the distances of TFLite and of ONNX Runtime's integer kernels from the emulation, relative to its
    largest value; an element each, over `inputs` inputs.
    """

    name: str
    tflite: Array
    integer: Array
    inputs: int = 1

    @property
    def ok(self) -> bool:
        """Whether TFLite is no further from the emulation than the integer kernels."""
        return bool(self.tflite.mean() <= SLACK * self.integer.mean())

    def __str__(self) -> str:
        if not self.integer.any():  # QLinear ops have no other kernels
            same = f"output {self.name!r}: ONNX Runtime computes the same with and without graph optimizations"
            return f"{same}; TFLite differs by {_spread(self.tflite)} of the largest value, over {self.inputs} inputs"
        verdict = "no further" if self.ok else "further"
        return (
            f"output {self.name!r}: TFLite is {verdict} from ONNX Runtime's float emulation than its integer kernels: "
            f"{_spread(self.tflite)} of the largest value, these {_spread(self.integer)}, over {self.inputs} inputs"
        )


def alike(emulated: Array, integer: Array, other: Array) -> tuple[Array, Array, Array]:
    """Three real outputs as float64; `other` in the axis order in which it is nearest to `emulated`."""
    reference, fused, last = (np.asarray(v, np.float64) for v in (emulated, integer, other))
    moved = [last.transpose(way) for way in permutations(tuple(last.shape), tuple(reference.shape), "auto")]
    return reference, fused, min(moved, key=lambda v: float(np.abs(v - reference).sum()))


def measure(names: Sequence[str], run: Callable[[int], Run], seconds: float) -> list[Distances]:
    """The distances of each output over `LEAST` runs, and as many more, up to `MOST`, as fit into `seconds`.

    `run`: the outputs of run 0, 1, ...
    """
    found: list[tuple[list[Array], list[Array]]] = [([], []) for _ in names]
    started, inputs = time.perf_counter(), 0
    while inputs < LEAST or (inputs < MOST and time.perf_counter() - started < seconds):
        for (tflite, integer), (emulated, fused, other) in zip(found, run(inputs), strict=True):
            peak = float(np.abs(emulated).max(initial=0.0)) or 1.0
            tflite.append((np.abs(other - emulated).reshape(-1) / peak).astype(np.float32))
            integer.append((np.abs(fused - emulated).reshape(-1) / peak).astype(np.float32))
        inputs += 1
    return [
        Distances(name, np.concatenate(tflite), np.concatenate(integer), inputs)
        for name, (tflite, integer) in zip(names, found, strict=True)
    ]


def _spread(distances: Array) -> str:
    """``mean 0.0031 (50 % 0.002, 90 % 0.007, 99 % 0.012, 100 % 0.02)``."""
    values = np.percentile(distances, QUANTILES) if distances.size else np.zeros(len(QUANTILES))
    parts = ", ".join(f"{q} % {v:.2g}" for q, v in zip(QUANTILES, values, strict=True))
    return f"mean {distances.mean() if distances.size else 0.0:.2g} ({parts})"
