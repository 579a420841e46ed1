"""A model whose float constants are changed by little, to measure its noise (see `noise`).

A model of token ids has no float inputs: what it rounds begins with its tables and weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import numpy as np

from onnxtfl.checking.metrics.noise import Nudge
from onnxtfl.formats import files
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType
from onnxtfl.passes.inline import inline_functions

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


class NudgedData(TensorData):
    """`base` with changed elements.

    Whole numbers are kept: zeros, masks and sizes are meant exactly. So is what is not finite.
    """

    def __init__(self, base: TensorData, nudge: Nudge) -> None:
        self.base, self.nudge = base, nudge
        self.dtype, self.shape = base.dtype, base.shape

    @property
    def key(self) -> Hashable:
        return ("nudged", self.base.key, self.shape, self.nudge)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        values = self.base.slab(axis, start, stop)
        kept = ~np.isfinite(values) | (values == np.rint(values))
        return np.where(kept, values, self.nudge.changed(values, *self.shape, axis, start))


def write_nudged(source: Path, target: Path, nudge: Nudge) -> None:
    """Write the model `source` with changed constants; weights are streamed. Raises `OnnxtflError`."""
    model = files.read(source)
    inline_functions(model)
    for graph in model.graphs():
        _nudge(graph, nudge)
    files.write(model, target)


def _nudge(graph: Graph, nudge: Nudge) -> None:
    operands = {v for node in graph.walk() for v in node.operands if v is not None}
    for value in operands:
        if value.data is not None:
            value.data = _changed(value.data, nudge)
    for node in graph.walk():
        for name, attribute in node.attributes.items():
            if isinstance(attribute, TensorData):
                node.attributes[name] = _changed(attribute, nudge)


def _changed(data: TensorData, nudge: Nudge) -> TensorData:
    return NudgedData(data, nudge) if data.dtype in _FLOATS and data.shape and data.size > 1 else data
