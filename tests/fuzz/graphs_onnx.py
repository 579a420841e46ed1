"""Draws ONNX graphs of any op, dtype, rank and size: each node is run in ONNX Runtime when it is added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.drawing import Values, is_small
from tests.fuzz.graphs_text import reads
from tests.harness.litert import Array, run_onnx


@dataclass
class Drawing(Values):
    """A graph under construction."""

    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.opset = self.choose((13, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24))
        self.open = self.choose((0.0, 0.0, 0.3, 0.6, 1.0))
        self.empty = self.below(10) == 0

    def keep(self, name: str) -> None:
        """Add an initializer."""
        self.weights[name] = numpy_helper.from_array(self.arrays[name], name)

    def used(self) -> Iterable[str]:
        """The names that nodes read."""
        return (name for node in self.nodes for name in reads(node))

    def node(self, op: str, inputs: Sequence[str], results: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node; the names of its results, none where ONNX Runtime refuses it or elements are too large."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(results)]
        made = helper.make_node(op, inputs, names, f"n{len(self.nodes)}", domain=domain, **attributes)
        found = self.results(made)
        if not found or not all(self.is_bounded(a) for a in found.values()):
            return []
        self.nodes.append(made)
        self.arrays |= found
        return names

    def results(self, node: onnx.NodeProto) -> dict[str, Array]:
        """The results of a node on the present arrays; none where it does not run."""
        fed = {name: self.arrays[name] for name in reads(node)}
        kept = [self.weights[name] for name in fed if name in self.weights]
        inputs = [info(n, a.dtype, a.shape) for n, a in fed.items() if n not in self.weights]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        model = self._model([node], inputs, outputs, kept)
        try:
            return run_onnx(model.SerializeToString(), {n: a for n, a in fed.items() if n not in self.weights})
        except Exception:
            return {}

    def is_bounded(self, array: Any) -> bool:
        """Whether the graph may have a value with these elements."""
        return is_small(array)

    def outputs(self) -> list[str]:
        """The values without uses, and a few others; in some graphs an input or a constant too."""
        used = set(self.used())
        made = [name for node in self.nodes for name in node.output]
        given = [name for name in (*self.inputs, *self.weights) if name in used]
        kept = [name for i, name in enumerate(made) if name not in used or (self.seed + i) % 7 == 0]
        also = {9: given[:1], 10: given[:1], 11: given[-1:], 8: given[-1:]}.get(self.seed % 12, [])
        return [*kept, *also]

    def model(self) -> onnx.ModelProto:
        """The model."""
        used = set(self.used())
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs()]
        inputs = [
            info(n, np.dtype(v.dtype), [d if isinstance(d, int) or d[0] == "N" else None for d in v.dims])
            for n, v in self.inputs.items()
            if n in used
        ]
        weights = [t for n, t in self.weights.items() if n in used]
        return self._model(self.nodes, inputs, outputs, weights)

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        weights: Sequence[onnx.TensorProto],
    ) -> onnx.ModelProto:
        graph = helper.make_graph(list(nodes), "random", list(inputs), list(outputs), list(weights))
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def info(name: str, dtype: np.dtype[Any], dims: Sequence[Any]) -> onnx.ValueInfoProto:
    """The declaration of a value."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), dims)
