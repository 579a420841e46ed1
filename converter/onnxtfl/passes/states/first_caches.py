"""The caches of the first tokens of a decoder, padded to the places that later tokens need.

::

    (%tokens: [1, N]) -> (%all: [1, 2, N, 16])     ->     (%tokens: [1, N]) -> (%all: [1, 2, C, 16])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.states.fixed_caches import TOKENS, set_inputs


@dataclass(frozen=True)
class FirstCaches:
    """What a decoder without tokens in its caches becomes.

    ``names``: the new names of outputs. ``grown``: the axis along which each cache grows, by the name of its output.
    ``places``: those of a cache. ``new``: the number of tokens. ``others``: the new names of all other inputs.
    ``set_to``: the value of an input that becomes constant.
    """

    tokens: str
    names: Mapping[str, str]
    grown: Mapping[str, int]
    places: int
    new: int
    others: Mapping[str, str] = field(default_factory=dict)
    set_to: Mapping[str, bool] = field(default_factory=dict)

    def declare(self, graph: Graph) -> None:
        """Set the types of the inputs of a file's graph, and drop those that only later tokens need."""
        set_inputs(graph, self.set_to)
        for value in graph.inputs:
            if value.name == self.tokens and isinstance(value.type, TensorType):
                value.type = value.type.with_shape((1, self.new))

    def decide(self, graph: Graph) -> bool:
        """False: no size depends on how many places are filled."""
        return False

    def fix(self, graph: Graph) -> None:
        """Pad the caches of a neutral graph with zeros, and rename inputs and outputs."""
        b, names = Builder(graph, maker="first caches"), list(graph.output_names)
        graph.outputs = [self._padded(b, v, name) for name, v in zip(names, graph.outputs, strict=True)]
        graph.output_names = [self.names.get(name, name) for name in names]
        (old,) = (v for v in graph.inputs if v.name == self.tokens)
        tokens = Value(TensorType(DType.INT32, (1, self.new)), TOKENS)
        front = Builder(graph, graph.first, maker="first caches")
        old.replace_uses(front(ops.Convert, tokens, dtype=old.dtype))
        kept = [v for v in graph.inputs if v.name in self.others]
        for value in kept:
            value.name = self.others[str(value.name)]
        graph.inputs = [tokens, *kept]

    def _padded(self, b: Builder, value: Value, name: str) -> Value:
        axis = self.grown.get(name)
        if axis is None:
            return value
        padding = np.zeros((value.rank, 2), np.int64)
        padding[axis, 1] = self.places - value.size(axis)
        return b(ops.Pad, value, padding)
