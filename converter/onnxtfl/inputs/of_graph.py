"""Sets of inputs for a graph of neutral ops during its conversion: the user's, else such as a check generates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtfl.inputs.data_files import data_files, read_arrays
from onnxtfl.inputs.description import described
from onnxtfl.inputs.generation import UnknownInputError, make_input
from onnxtfl.inputs.ranges import input_ranges
from onnxtfl.inputs.samples import samples_of
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import Graph, Value

MOST = 4
"""The most sets of inputs."""


def inputs_of(graph: Graph, given: Any = None) -> list[Mapping[Value, Array]]:
    """Up to `MOST` sets of inputs; none for inputs of other types than tensors of known shape.

    `given`: arrays by input name, or the path of an .npz file or of a folder of them.
    """
    if not all(v.is_static for v in graph.inputs):
        return []
    names = {v.name or "": v for v in graph.inputs}
    samples = list(_samples(given, {name: v.rank for name, v in names.items()})) if given is not None else []
    fitting = [found for sample in samples[:MOST] if (found := _fitting(graph, sample)) is not None]
    return fitting or _generated(graph)


def _samples(given: Any, ranks: Mapping[str, int | None]) -> list[dict[str, Any]]:
    sets = [given] if isinstance(given, Mapping) else map(read_arrays, data_files(given)) if _is_path(given) else given
    return [sample for arrays in sets for sample in samples_of(arrays, ranks)]


def _is_path(given: Any) -> bool:
    return isinstance(given, str | os.PathLike)


def _fitting(graph: Graph, sample: Mapping[str, Any]) -> Mapping[Value, Array] | None:
    """The arrays of a sample in the types of the inputs; None if one is missing or has another shape."""
    if any(v.name not in sample or np.shape(sample[v.name or ""]) != v.shape for v in graph.inputs):
        return None
    return {v: np.asarray(sample[v.name or ""]).astype(v.tensor_type.storage.numpy) for v in graph.inputs}


def _generated(graph: Graph) -> list[Mapping[Value, Array]]:
    ranges, found = input_ranges(graph), dict[Value, Array]()
    for k, value in enumerate(graph.inputs):
        info, shape = described(value.name or "", value.type, "onnx"), tuple(size_or(d, 1) for d in value.shape)
        try:
            made, _ = make_input(info, shape, ranges.get(info.name), (0, 0, k))
        except UnknownInputError:
            return []
        found[value] = made.astype(value.tensor_type.storage.numpy, copy=False)
    return [found]
