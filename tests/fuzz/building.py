"""A builder of random graphs: nodes are added one by one, types come from ONNX's shape inference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

Shape = tuple[int, ...]
FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
LARGEST = 4096
"""Most elements of a value."""


class Builder:
    """A graph under construction. ``types``: dtype and shape of each value. ``unused``: values without uses.

    ``symbols``: (input, axis) -> the name of a dynamic dimension. The shapes in ``types`` are those of one run; a step
    must not write the size of such an axis into the model.
    """

    def __init__(self, seed: int, opset: int = 17) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[str] = []
        self.extra: list[str] = []
        self.symbols: dict[tuple[str, int], str] = {}
        self.types: dict[str, tuple[int, Shape]] = {}
        self.unused: dict[str, None] = {}

    def input(self, shape: Shape, dtype: int = FLOAT) -> str:
        """Add a model input."""
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = dtype, shape
        return name

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        return self.types[name][1]

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """An initializer with random values."""
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    def ints(self, *values: int) -> str:
        """An initializer, an int64 vector."""
        return self.constant(list(values), np.int64)

    def add(
        self, op: str, inputs: Sequence[str], outputs: int = 1, shape: Shape | None = None, **attributes: Any
    ) -> str:
        """Add a node; returns the name of its first result, "" where the operands do not fit or a result is too large.

        ``shape``: the shape of the result, which has the first operand's dtype, where ONNX's inference cannot find it.
        """
        results = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, results, f"n{len(self.nodes)}", **attributes)
        types = self._inferred(node) if shape is None else {results[0]: (self.types[inputs[0]][0], shape)}
        if any(r not in types or not 0 < math.prod(types[r][1]) <= LARGEST or len(types[r][1]) > 6 for r in results):
            return ""
        self.nodes.append(node)
        for name in inputs:
            self.unused.pop(name, None)
        self.types |= types
        self.unused |= dict.fromkeys(results)
        return results[0]

    def _inferred(self, node: onnx.NodeProto) -> dict[str, tuple[int, Shape]]:
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset)
            types = {n: self._proto(n) for n in node.input if n}
            data = {n: self.weights[n] for n in node.input if n in self.weights}
            imports = [helper.make_opsetid("", self.opset)]
            found = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
        except Exception:
            return {}
        return {n: t for n in node.output if n in found and (t := _static(found[n])) is not None}

    def _proto(self, name: str) -> onnx.TypeProto:
        if name in self.weights:
            return helper.make_tensor_type_proto(self.weights[name].data_type, self.weights[name].dims)
        return helper.make_tensor_type_proto(*self.types[name])

    def below(self, limit: int) -> int:
        """A random integer in [0, limit)."""
        return int(self.random.integers(limit))

    def choose(self, options: Sequence[Any]) -> Any:
        """A random one of the options."""
        return options[self.below(len(options))]

    def values(self, *ranks: int, dtype: int = FLOAT) -> Iterator[str]:
        """The values of one of these ranks (without ranks: of any) and this element type."""
        for name, (kind, shape) in self.types.items():
            if kind == dtype and (not ranks or len(shape) in ranks):
                yield name

    def pick(self, *ranks: int, dtype: int = FLOAT) -> str:
        """A random one of `values`, newer ones more likely; "" where there is none."""
        fitting = list(self.values(*ranks, dtype=dtype))
        return fitting[max(self.below(len(fitting)) for _ in range(3))] if fitting else ""

    def fixed(self, shape: Sequence[int], axis: int) -> int:
        """The element of a Reshape's shape for an axis that keeps its size: 0 where some sizes are dynamic."""
        return 0 if self.symbols else shape[axis]

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the unused values and ``extra``."""
        inputs = [helper.make_tensor_value_info(n, self.types[n][0], self._declared(n)) for n in self.inputs]
        outputs = [self._output(n) for n in [*self.unused, *self.extra]]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def _declared(self, name: str) -> list[Any]:
        return [self.symbols.get((name, i), size) for i, size in enumerate(self.shape(name))]

    def _output(self, name: str) -> onnx.ValueInfoProto:
        if name in self.weights:
            return helper.make_tensor_value_info(name, self.weights[name].data_type, self.weights[name].dims)
        if name in self.inputs:
            return helper.make_tensor_value_info(name, self.types[name][0], self._declared(name))
        return helper.make_tensor_value_info(name, self.types[name][0], None if self.symbols else self.shape(name))


def _static(proto: onnx.TypeProto) -> tuple[int, Shape] | None:
    tensor = proto.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim)
