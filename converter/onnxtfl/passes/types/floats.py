"""Float types that are computed in another type: float64, float16, bfloat16.

::

    %y: float64 = Add(%x: float64, %c)     ->     %y: float32 = Add(%x: float32, %c')

    %y: float16 = MatMul(%x: float16, %w)  ->     %v = Convert(%w) float32; %u = Convert(%x) float32
                                                  %y = Convert(MatMul(%u, %v)) float16
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant, take_name
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.types.float16 import SMALL, may_stay_float16
from onnxtfl.passes.types.held_types import HeldTypes
from onnxtfl.passes.types.present import has_element_type

_NARROW = {DType.FLOAT64: DType.FLOAT32, DType.COMPLEX128: DType.COMPLEX64}
_HALF = {DType.FLOAT16: DType.FLOAT32}
_TWO_BITS = {DType.INT2: DType.INT8, DType.UINT2: DType.UINT8}
_FEW_BITS = {**_TWO_BITS, DType.INT4: DType.INT8, DType.UINT4: DType.UINT8}


def narrow_float64(graph: Graph, mode: Literal["narrow", "error"]) -> None:
    """Compute float64 in float32, also inputs and outputs. UnsupportedError in mode "error"."""
    _Retyping(graph, _NARROW, refused=mode == "error").run()


def compute_in_float32(graph: Graph, keeps_boundary: bool = True, native: bool = False) -> HeldTypes | None:
    """Compute float16 in float32; weights keep their type and are converted.

    `keeps_boundary`: inputs and outputs keep their type and are converted; else they become float32. `native`: each op
    is decided later (:mod:`onnxtfl.passes.types.float16`), if possible.
    """
    if native and keeps_boundary and may_stay_float16(graph):
        return None
    held = None if keeps_boundary else _changed_boundary(graph, _HALF)
    _Retyping(graph, _HALF, keeps_boundary=keeps_boundary).run()
    return held


def _changed_boundary(graph: Graph, table: Mapping[DType, DType]) -> HeldTypes:
    """Return the inputs and outputs whose type changes."""
    names = graph.names_of_outputs
    both = [*((v, v.name or "") for v in graph.inputs), *zip(graph.outputs, names, strict=True)]
    types = [(name, v.type.dtype) for v, name in both if isinstance(v.type, TensorType) and not v.is_quantized]
    return HeldTypes({name: (dtype, table[dtype], False) for name, dtype in types if dtype in table})


def hold_few_bits(graph: Graph) -> HeldTypes:
    """Store 2-bit integers in 8 bits; also 4-bit inputs and outputs, which have no NumPy arrays."""
    changed = _changed_boundary(graph, _FEW_BITS)
    hold_two_bits(graph)
    for value in filter(_has_few_bits, graph.inputs):
        before, uses = value.dtype, list(value.uses)
        value.type = value.tensor_type.with_dtype(_FEW_BITS[before])
        narrow = Builder(graph, graph.first, maker="small types")(ops.Convert, value, dtype=before)
        for node, index in uses:
            node.set_operand(index, narrow)
    for i, value in enumerate(graph.outputs):
        if _has_few_bits(value):
            b = Builder(graph, cause=value.producer, maker="small types")
            graph.outputs[i] = held = b(ops.Convert, value, dtype=_FEW_BITS[value.dtype])
            take_name(value, held)
    return changed


def _has_few_bits(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in _FEW_BITS


def hold_two_bits(graph: Graph) -> None:
    """Store 2-bit integers, for which ONNX has no ops, in 8 bits; casts to them saturate when lifted."""
    _Retyping(graph, _TWO_BITS).run()


def compute_region_in_float32(graph: Graph) -> None:
    """Compute float16 in float32 in a region, whose inputs and outputs become float32."""
    _Retyping(graph, _HALF).run()


class _Retyping:
    """Replaces the types in `table` in one graph; quantized values keep their storage, and their real type changes.

    `inputs`: inputs that keep their type. `outputs`: the types to which outputs are converted back.
    """

    def __init__(
        self, graph: Graph, table: Mapping[DType, DType], *, keeps_boundary: bool = False, refused: bool = False
    ) -> None:
        self.graph, self.table, self.refused = graph, table, refused
        kept = [v for v in (*graph.inputs, *graph.outputs) if keeps_boundary and self.has(v) and not v.is_quantized]
        self.inputs = set(kept).intersection(graph.inputs)
        self.is_half = DType.FLOAT16 in table
        self.exact = set() if self.is_half or refused else self.bit_patterns()
        self.outputs = [v.dtype if v in kept else None for v in graph.outputs]
        self.converted: dict[object, Value] = {}
        self.before: dict[Value, DType] = {}

    def bit_patterns(self) -> set[Value]:
        """Return the inputs and constants whose bits are read, and the floats that are assembled from bits."""
        casts = [node for node in self.graph.nodes if node.op is ops.BitcastConvert]
        found = {v for node in casts for v in (node.operand(0), node.result) if self.has(v)}
        return {v for v in found if v.producer is None or v.producer.op is ops.BitcastConvert}

    def run(self) -> None:
        if not has_element_type(self.graph, self.table):
            return
        for value in self.graph.inputs:
            if value not in self.inputs and value not in self.exact:
                self.retype(value)
        for node in list(self.graph.nodes):
            if node.op is ops.BitcastConvert and self.exact.intersection((node.operand(0), node.result)):
                continue
            if node.op is ops.BitcastConvert and self.bits_rewritten(node):
                continue
            for i, operand in enumerate(node.operands):
                if operand is not None and self.is_converted(operand):
                    node.set_operand(i, self.convert(operand))
            node.attributes = {
                k: self.table.get(v, v) if isinstance(v, DType) else v for k, v in node.attributes.items()
            }
            for result in node.results:
                self.retype(result)
        self.graph.outputs = [self.output(v, dtype) for v, dtype in zip(self.graph.outputs, self.outputs, strict=True)]

    def is_converted(self, operand: Value) -> bool:
        """Whether nodes read `operand` converted."""
        return operand in self.inputs or operand in self.exact or (operand.is_constant and self.has(operand))

    def has(self, value: Value) -> bool:
        """Whether the type of `value` is in the table."""
        return isinstance(value.type, TensorType) and value.type.dtype in self.table

    def bits_rewritten(self, node: Node) -> bool:
        """Keep float16 for an op that reads or writes its bits. UnsupportedError for float64.

        Returns whether `node` was replaced.
        """
        x, dtype = node.operand(0), node.attr("dtype")
        before = self.before.get(x, x.dtype)
        if not {before, dtype} & self.table.keys():
            return False
        if not self.is_half:
            message = "it reads the bits of a float type that is computed in another float type"
            raise UnsupportedError(message, node=node.name, op=node.op.name, code="E-TYPE-002")
        b = Builder(self.graph, node, maker="floats")
        bits = b(ops.BitcastConvert, x if x.dtype is before else b(ops.Convert, x, dtype=before), dtype=dtype)
        self.retype(node.result)
        self.graph.replace(node, [b(ops.Convert, bits, dtype=self.table[dtype]) if dtype in self.table else bits])
        return True

    def retype(self, value: Value) -> None:
        if not self.has(value):
            return
        if self.refused:
            raise UnsupportedError(
                "is float64",
                node=value.name,
                type_=value.type,
                code="E-TYPE-001",
            )
        self.before[value] = value.dtype
        value.type = value.tensor_type.with_dtype(self.table[value.dtype])

    def output(self, value: Value, dtype: DType | None) -> Value:
        """Return the output `value` converted back to `dtype`."""
        if dtype is None or value.is_constant or value in self.inputs:
            return self.convert(value) if dtype is None and value.is_constant and self.has(value) else value
        back = Builder(self.graph, cause=value.producer, maker="floats")(ops.Convert, value, dtype=dtype)
        take_name(value, back)
        return back

    def convert(self, value: Value) -> Value:
        """Return `value`, a constant or an input, in the other type."""
        key = value if value.data is None else (value.data.key, value.type)
        if key not in self.converted:
            self.converted[key] = self._convert(value)
        self.converted[key].add_origins(value.origins)
        return self.converted[key]

    def _convert(self, value: Value) -> Value:
        """Convert a constant; a large half-precision weight converts at run time, a quantized one keeps integers."""
        dtype, data = self.table[value.dtype], value.data
        if data is None or (data.size > SMALL and data.dtype is DType.FLOAT16):
            place = self.graph.first if value.producer is None else value.producer.next
            return Builder(self.graph, place, maker="floats")(ops.Convert, value, dtype=dtype)
        stored = data if value.is_quantized else data.cast(dtype)
        return constant(stored, type_=value.tensor_type.with_dtype(dtype))
