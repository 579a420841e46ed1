"""Models with slightly changed float constants, to measure their noise (see `noise`).

A model of token ids has no float inputs: rounding starts at its tables and weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import numpy as np

from onnxtfl.formats import files
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType
from onnxtfl.metrics.noise import Perturbation
from onnxtfl.passes.canonical.inline import inline_functions

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


class PerturbedData(TensorData):
    """`base` with changed elements.

    Integral values (zeros, masks, sizes) and non-finite values are exact and stay.
    """

    def __init__(self, base: TensorData, perturbation: Perturbation) -> None:
        self.base, self.perturbation = base, perturbation
        self.dtype, self.shape = base.dtype, base.shape

    @property
    def key(self) -> Hashable:
        return ("perturbed", self.base.key, self.shape, self.perturbation)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        values = self.base.slab(axis, start, stop)
        kept = ~np.isfinite(values) | (values == np.rint(values))
        return np.where(kept, values, self.perturbation.changed(values, *self.shape, axis, start))


def write_perturbed(source: Path, target: Path, perturbation: Perturbation) -> None:
    """Write the model `source` with changed constants; weights are streamed. Raises `OnnxtflError`."""
    model = files.read(source)
    inline_functions(model)
    for graph in model.graphs():
        _perturb(graph, perturbation)
    files.write(model, target)


def _perturb(graph: Graph, perturbation: Perturbation) -> None:
    operands = {v for node in graph.walk() for v in node.present_operands}
    for value in operands:
        if value.data is not None:
            value.data = _changed(value.data, perturbation)
    for node in graph.walk():
        for name, attribute in node.attributes.items():
            if isinstance(attribute, TensorData):
                node.attributes[name] = _changed(attribute, perturbation)


def _changed(data: TensorData, perturbation: Perturbation) -> TensorData:
    return PerturbedData(data, perturbation) if data.dtype in _FLOATS and data.shape and data.size > 1 else data
