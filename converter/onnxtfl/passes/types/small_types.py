"""Small types (int4, float8, ...) without kernels: computed in wider types.

::

    (%x: bfloat16) %y: float8e5m2 = Convert(Add(%x, %c))
 ->
    (%x: float32)  %y: float32 = ReducePrecision(Add(%x, %c')) dtype = float8e5m2

bfloat16, float8 and float4 are stored as float32, 4-bit and 2-bit integers in 8 bits. Conversions to these types and
outputs are rounded, arithmetic is not. Results computed only from 4-bit or 2-bit constants are unchanged, and so are
such constants that are dequantized: they stay packed in the file.
"""

from __future__ import annotations

from typing import Literal

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant, take_name
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.small_types import HELD, SMALL_FLOATS, bits_type, wrap_to
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.types.bits import decoded, encoded
from onnxtfl.passes.types.held_types import HeldTypes
from onnxtfl.passes.types.present import has_element_type
from onnxtfl.passes.types.rounding import is_observed, keeps_elements

IoDtype = Literal["source", "float32", "bits"]
_LARGE = 256
"""From this number of elements, float8 and float4 constants are stored as float16, which is exact."""
_MAKER = "small types"


def hold_small_types(graph: Graph, io_dtype: IoDtype) -> HeldTypes:
    """Replace the small types in `graph`; inputs and outputs become their values, or ("bits") their bits."""
    holding = _Holding(graph, io_dtype == "bits")
    holding.run()
    return HeldTypes(holding.changed)


def hold_in_region(graph: Graph) -> None:
    """Replace the small types in a region, whose inputs and outputs are values."""
    _Holding(graph, False, is_region=True).run()


def _small(value: Value | None) -> DType | None:
    """Return the small type of an unquantized value, else None."""
    type_ = None if value is None else value.type
    return type_.dtype if isinstance(type_, TensorType) and not type_.quantization and type_.dtype in HELD else None


class _Holding:
    """The rewrite of one graph.

    `source`: the original small types of values. `exact`: values that need no rounding. `packed`: results computed only
    from integer constants, which keep their type. `changed`: see `HeldTypes`.
    """

    def __init__(self, graph: Graph, bits: bool, is_region: bool = False) -> None:
        self.graph, self.bits, self.is_region = graph, bits, is_region
        self.source: dict[Value, DType] = {}
        self.exact: set[Value] = set()
        self.packed: set[Value] = set()
        self.constants: dict[object, Value] = {}
        self.changed: dict[str, tuple[DType, DType, bool]] = {}

    def run(self) -> None:
        """Rewrite all nodes, inputs and outputs."""
        if not has_element_type(self.graph, HELD):
            return
        outputs = [_small(v) for v in self.graph.outputs]
        for value in self.graph.inputs:
            if (dtype := _small(value)) is not None:
                self.hold_input(value, dtype)
        for node in list(self.graph.nodes):
            self.visit(node)
        for i, dtype in enumerate(outputs):
            if dtype is not None:
                self.graph.outputs[i] = self.output(i, dtype)

    def hold_input(self, value: Value, dtype: DType) -> None:
        """Change the type of an input; bits are decoded."""
        held = bits_type(dtype) if self.bits else HELD[dtype]
        if not self.is_region:
            self.changed[value.name or ""] = (dtype, held, self.bits)
        uses = list(value.uses)
        value.type = value.tensor_type.with_dtype(held)
        made = value
        if self.bits and (uses or self.graph.is_output(value)):
            made = decoded(Term(Builder(self.graph, self.graph.first, maker=_MAKER), value), dtype).value
            for node, index in uses:
                node.set_operand(index, made)
            self.graph.outputs = [made if v is value else v for v in self.graph.outputs]
        self.source[made] = dtype
        self.exact.add(made)

    def visit(self, node: Node) -> None:
        """Rewrite one node whose operands are already replaced."""
        if self.stays_packed(node):
            self.packed.update(node.results)
            return
        kept = self.kept_operands(node)
        small = {i: self.small_of(v) for i, v in enumerate(node.operands) if i not in kept}
        for i, dtype in small.items():
            if dtype is not None:
                node.set_operand(i, self.held(node.operand(i), dtype))
        rewritten = self.rewritten(node, small.get(0))
        if rewritten is not None:
            node.result.type = node.result.tensor_type.with_dtype(rewritten.dtype)
            self.graph.replace(node, [rewritten])
            return
        if any(_small(v) for v in node.results):
            node.attributes = {k: HELD.get(v, v) if isinstance(v, DType) else v for k, v in node.attributes.items()}
        exact = keeps_elements(node) and all(v in self.exact or v.is_constant for v in node.present_operands)
        for result in node.results:
            if (dtype := _small(result)) is not None:
                self.source[result] = dtype
                result.type = result.tensor_type.with_dtype(HELD[dtype])
                if exact or dtype is not DType.BFLOAT16:
                    self.exact.add(result)

    def small_of(self, value: Value | None) -> DType | None:
        """Return the original small type of an operand."""
        return None if value is None else self.source.get(value) or _small(value)

    def stays_packed(self, node: Node) -> bool:
        """Whether a node computes small integers from integer constants only."""
        types = {self.small_of(v) for v in (*node.present_operands, *node.results)} - {None}
        if not types or types & SMALL_FLOATS or node.regions or not node.is_pure:
            return False
        return all(v is None or v.is_constant or v in self.packed for v in node.operands)

    def is_packed(self, value: Value | None) -> bool:
        """Whether a value has small integers that keep their type."""
        return value is not None and _small(value) is not None and (value in self.packed or value.is_constant)

    def kept_operands(self, node: Node) -> set[int]:
        """Return the operands that keep their type: dequantized packed integers and their zero point."""
        if node.op is not ops.DequantizeLinear or not self.is_packed(node.operand(0)):
            return set()
        return set() if self.small_of(node.operand(0)) in SMALL_FLOATS else {0, 2}

    def held(self, value: Value, dtype: DType) -> Value:
        """Return an operand in its replacement type."""
        if value in self.source:
            return value
        if value.data is None:
            b = Builder(self.graph, None if value.producer is None else value.producer.next, maker=_MAKER)
            made = b(ops.Convert, value, dtype=HELD[dtype])
            self.source[made] = dtype
            return made
        key = (value.data.key, value.type)
        if key not in self.constants:
            self.constants[key] = self.held_constant(value, value.data, dtype)
            self.source[self.constants[key]] = dtype
        return self.constants[key]

    def held_constant(self, value: Value, data: TensorData, dtype: DType) -> Value:
        """Return a constant in its replacement type; stored as float16 if that is exact and smaller."""
        if dtype.is_integer or data.size <= _LARGE or dtype in (DType.BFLOAT16, DType.FLOAT8E8M0):
            return constant(data.cast(HELD[dtype]), type_=value.tensor_type.with_dtype(HELD[dtype]))
        half = constant(data.cast(DType.FLOAT16), type_=value.tensor_type.with_dtype(DType.FLOAT16))
        return Builder(self.graph, self.graph.first, maker=_MAKER)(ops.Convert, half, dtype=DType.FLOAT32)

    def rewritten(self, node: Node, before: DType | None) -> Value | None:
        """Return the result of a node that converts or quantizes to a small type or reads its bits; else None."""
        dtype = node.attributes.get("dtype")
        b = Builder(self.graph, node, maker=_MAKER)
        if dtype is None or node.op not in (ops.BitcastConvert, ops.Convert, ops.QuantizeLinear):
            return None
        if node.op is ops.BitcastConvert:
            return None if before is None and dtype not in HELD else self.bitcast(b, node, before, dtype)
        if dtype not in HELD:
            return None
        x = Term(b, node.operand(0))
        if node.op is ops.Convert:
            found = self.converted(x, node, before, dtype)
        else:
            found = Term(b, self.quantized(b, node, dtype))
        self.source[found.value] = dtype
        return found.value

    def converted(self, x: Term, node: Node, before: DType | None, dtype: DType) -> Term:
        """Return a conversion to a small type."""
        if dtype.is_integer:
            found = x if x.dtype is DType.BOOL else wrap_to(x, dtype)
            found = found.to(HELD[dtype])
        elif dtype is DType.BFLOAT16 and (before in SMALL_FLOATS - {dtype} or x.dtype is DType.BOOL):
            found = x.to(DType.FLOAT32)
        elif dtype is DType.BFLOAT16 and not is_observed(node.result):
            return self.new(x.to(DType.FLOAT32), x)
        else:
            attributes = {k: node.attr(k) for k in ("dtype", "saturate", "rounding")}
            found = x.to(DType.FLOAT32).apply(ops.ReducePrecision, **attributes)
        found = self.new(found, x)
        self.exact.add(found.value)
        return found

    def new(self, found: Term, x: Term) -> Term:
        """Return `found`, copied if it is `x`, which may have another small type."""
        return found.apply(ops.Copy) if found.value is x.value else found

    def quantized(self, b: Builder, node: Node, dtype: DType) -> Value:
        """Return QuantizeLinear in the replacement type, clamped or rounded."""
        attributes = {**node.attributes, "dtype": HELD[dtype]}
        wide = Term(b, b(ops.QuantizeLinear, *node.operands, **attributes))
        if dtype.is_integer:
            found = wide.clamp(*limits(dtype))
        else:
            found = wide.apply(ops.ReducePrecision, dtype=dtype, saturate=node.attr("saturate"))
        self.exact.add(found.value)
        return found.value

    def bitcast(self, b: Builder, node: Node, before: DType | None, dtype: DType) -> Value:
        """Reinterpret the bits of one type as another of the same width."""
        bits = Term(b, node.operand(0))
        if (before or bits.dtype).bits != dtype.bits:
            message = f"reads the bits of {(before or bits.dtype).value} as {dtype.value}, of another width"
            raise UnsupportedError(message, node=node.name, op=node.op.name, code="E-TYPE-002")
        bits = bits.bits(bits_type(dtype)) if before is None else encoded(bits, before)
        if dtype not in HELD:
            return bits.bits(dtype).value
        found = decoded(bits, dtype).value
        self.source[found] = dtype
        self.exact.add(found)
        return found

    def output(self, index: int, dtype: DType) -> Value:
        """Return an output of a small type: its rounded values, or its bits."""
        value = self.graph.outputs[index]
        if value not in self.source:
            value = self.held(value, dtype)
        if self.is_region:
            return value
        held = bits_type(dtype) if self.bits else HELD[dtype]
        name = self.graph.names_of_outputs[index]
        self.changed[name or ""] = (dtype, held, self.bits)
        x = Term(Builder(self.graph, cause=value.producer, maker=_MAKER), value)
        if value not in self.exact and not value.is_constant:
            x = x.apply(ops.ReducePrecision, dtype=dtype)
        if self.bits:
            x = encoded(x, dtype)
        if x.value is not value:
            take_name(value, x.value)
        return x.value
