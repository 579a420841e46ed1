"""int64 computed as int32, node by node, for targets whose kernels have no int64 arithmetic.

::

    (%x: int32) %y = Add(%x, %c: int64) : int64    ->    (%x: int32) %y = Add(%x, %c': int32) : int32
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.types import DType, TensorType

_LIMITS = np.iinfo(np.int32)
_MAKER = "narrow int64"
_SATURATED = frozenset({ops.Slice})
"""Ops whose bounds may exceed any size, so that they may be clamped to int32."""


def narrow_int64(graph: Graph, nodes: Iterable[Node], results: Sequence[Value], made: Sequence[Value]) -> None:
    """Compute the int64 values of `nodes` as int32, and so `results`, which the values `made` replace.

    UnsupportedError for constants that do not fit.
    """
    narrowing = Narrowing(graph)
    for node in nodes:
        narrowing.visit(node)
    for result, value in zip(results, made, strict=True):
        if is_int64(result) and not is_int64(value):
            narrowing.retype(result)


def is_int64(value: Value) -> bool:
    """Whether `value` is a tensor of int64 that is not quantized."""
    type_ = value.type
    return isinstance(type_, TensorType) and type_.dtype is DType.INT64 and not type_.quantization


class Narrowing:
    """The rewrite of one graph. `constants`: the created constants, by data."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[object, Value] = {}

    def run(self) -> None:
        """Rewrite inputs, all nodes, and outputs."""
        for value in self.graph.inputs:
            self.retype(value)
        for node in list(self.graph.nodes):
            self.visit(node)
        self.graph.outputs = [self.narrowed(v, saturates=False) for v in self.graph.outputs]

    def visit(self, node: Node) -> None:
        """Rewrite one node, whose computed operands are int32 already."""
        for i, operand in enumerate(node.operands):
            if operand is not None and operand.is_constant and is_int64(operand):
                node.set_operand(i, self.narrowed(operand, saturates=node.op in _SATURATED and i > 0))
        if node.op is ops.BitcastConvert:
            return
        attributes = {**node.op.defaults, **node.attributes}
        changed = {k: DType.INT32 for k, v in attributes.items() if v is DType.INT64}
        node.attributes = {**node.attributes, **changed}
        for i, result in enumerate(node.results):
            if is_int64(result) and not self.stays(node, i):
                self.retype(result)
            elif is_int64(result) and result.uses:
                self.convert(node, result)

    def stays(self, node: Node, index: int) -> bool:
        """Whether the op declares that this result is int64."""
        declared = node.op.results
        dtypes = declared[min(index, len(declared) - 1)].dtypes if declared else None
        return dtypes is not None and DType.INT32 not in dtypes

    def convert(self, node: Node, result: Value) -> None:
        """Convert a result that stays int64 for all its uses."""
        uses = list(result.uses)
        made = Builder(self.graph, node.next, maker=_MAKER)(ops.Convert, result, dtype=DType.INT32)
        for user, index in uses:
            user.set_operand(index, made)
        self.graph.outputs = [made if v is result else v for v in self.graph.outputs]

    def retype(self, value: Value) -> None:
        """Change the type of a value that is computed or an input."""
        if is_int64(value):
            value.type = value.tensor_type.with_dtype(DType.INT32)

    def narrowed(self, value: Value, saturates: bool) -> Value:
        """Return a constant as int32, other values unchanged."""
        data = value.data
        if data is None or not is_int64(value):
            return value
        key = (data.key, data.shape, saturates)
        if key not in self.constants:
            self.constants[key] = constant(_cast(value, data, saturates))
        return self.constants[key]


def _cast(value: Value, data: TensorData, saturates: bool) -> TensorData:
    """The data as int32; UnsupportedError if an element does not fit."""
    stored = data.numpy()
    if saturates:
        stored = stored.clip(_LIMITS.min, _LIMITS.max)
    elif stored.size and (stored.min() < _LIMITS.min or stored.max() > _LIMITS.max):
        far = int(stored.max() if stored.max() > _LIMITS.max else stored.min())
        message = f"the int64 constant {value.name or ''!r} has {far}, which int32 cannot hold"
        raise UnsupportedError(message, code="E-TYPE-002")
    return constant(stored.astype(np.int32)).data  # type: ignore[return-value]
