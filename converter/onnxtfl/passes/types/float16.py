"""Native float16: float16 stays where kernels compute it; other ops are computed in float32.

::

    %h = MatMul(%x, %w)               %u = Convert(%x) float32; %v = Convert(%w) float32
    %y = Mul(%h, %x)           ->     %h = MatMul(%u, %v)                        no kernel for float16
                                      %y = Mul(Convert(%h) float16, %x)          a kernel

Runs before legalization, after formulas of ops without any target form are expanded. Ops that only move elements follow
their operands. A graph with regions or quantized values is computed entirely in float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.pass_manager import MAIN_ONLY, Pass
from onnxtfl.rewriting.sections import Section, sections_of
from onnxtfl.targets import Target

_HALF, _WIDE = DType.FLOAT16, DType.FLOAT32
SMALL = 256
"""The most elements of a float16 constant that is stored as float32."""


def may_stay_float16(graph: Graph) -> bool:
    """Whether ops of `graph` may stay float16: it has no regions and no quantized values."""
    return not any(node.regions or touches_quantized(node) for node in graph.nodes)


@dataclass(frozen=True)
class Float16Ops(Section):
    """`native`: how many ops compute in float16. `others`: the number of those that compute in float32, by op."""

    native: int
    others: Mapping[str, int]


def keep_float16(graph: Graph, target: Target) -> Float16Ops | None:
    """Compute float16 in float32 unless `target` has kernels; None if the whole graph computes in float32."""
    return _Islands(graph, target).run() if may_stay_float16(graph) else None


Mode = Literal["float32", "native"]


def float16_passes(target: Target, mode: Mode) -> list[Pass]:
    """Return the pass, if the options ask for native float16."""
    if mode != "native" or target.name != "tfl":
        return []
    return [Pass("float16", partial(keep_float16, target=target), MAIN_ONLY, needs=frozenset({"neutral"}))]


def in_words(sections: Iterable[Section], mode: Mode) -> str:
    """Return which ops compute in float16, for the report; "" if not asked for."""
    if mode != "native":
        return ""
    found = sections_of(Float16Ops, sections)
    if not found:
        return "computed in float32: loops, branches, quantized values, or float32 inputs and outputs"
    native, others = found[0].native, found[0].others
    rest = ", ".join(f"{name} {count}" for name, count in sorted(others.items()))
    text = f"{native} ops compute in float16, {sum(others.values())} in float32"
    return f"{text} (no kernel for float16: {rest})" if rest else text


def is_half(value: Value | None) -> bool:
    """Whether `value` is a tensor of float16."""
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype is _HALF


def computes_in_float16(node: Node) -> bool:
    """Whether `node` computes float16 from float16 (moves and conversions excluded)."""
    if node.op.moves is not None or node.op in (ops.Convert, ops.BitcastConvert):
        return False
    return any(is_half(v) and not v.is_constant for v in node.present_operands) and any(map(is_half, node.results))


class _Islands:
    """The rewrite of one graph. `native`: nodes that compute in float16. `copies`: values in the other type."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        touching = [n for n in graph.nodes if any(map(is_half, (*n.operands, *n.results)))]
        self.moving = {n for n in touching if n.op.moves is not None}
        self.native = {n for n in touching if n not in self.moving and _is_native(n, target)}
        self.touching = touching
        self.outputs = [is_half(v) for v in graph.outputs]
        self.copies: dict[object, Value] = {}

    def run(self) -> Float16Ops:
        computing = [n for n in self.touching if computes_in_float16(n)]
        wide = Counter(n.op.name for n in computing if n not in self.native)
        for node in self.touching:
            moved = [v for v in node.present_operands if not v.is_constant]
            if node in self.native or (node in self.moving and not any(v in self.copies for v in moved)):
                self._narrow(node)
            else:
                self._widen(node)
        self.graph.outputs = [
            self._copy(v, _HALF, None) if half and not is_half(v) else v
            for v, half in zip(self.graph.outputs, self.outputs, strict=True)
        ]
        return Float16Ops(len(computing) - wide.total(), dict(wide))

    def _narrow(self, node: Node) -> None:
        for i, value in enumerate(node.operands):
            if value is not None and value in self.copies:
                node.set_operand(i, self._copy(value, _HALF, node))

    def _widen(self, node: Node) -> None:
        for i, value in enumerate(node.operands):
            if is_half(value):
                node.set_operand(i, self._copy(node.operand(i), _WIDE, node))
        node.attributes = {k: _WIDE if v is _HALF else v for k, v in node.attributes.items()}
        for result in node.results:
            if is_half(result):
                result.type = result.tensor_type.with_dtype(_WIDE)
                self.copies[result] = result

    def _copy(self, value: Value, dtype: DType, before: Node | None) -> Value:
        """Return `value` converted to the other type right after its producer, so that every reader can use it.

        A value converted from float32 is read before that rounding, as in a float32 graph.
        """
        data, producer = value.data, value.producer
        if dtype is _WIDE and producer is not None and _narrows(producer):
            return producer.operand(0)
        key = (value if data is None else (data.key, value.type), dtype)
        if key not in self.copies:
            if data is not None and data.size <= SMALL:
                self.copies[key] = constant(data.cast(dtype), type_=value.tensor_type.with_dtype(dtype))
            else:
                place = value.producer.next if value.producer is not None else self.graph.first
                self.copies[key] = Builder(self.graph, place, cause=before, maker="float16")(
                    ops.Convert, value, dtype=dtype
                )
        return self.copies[key]


def _is_native(node: Node, target: Target) -> bool:
    """Whether there is a kernel for `node` in float16; bit casts and casts keep the type that they name."""
    return node.op in (ops.Convert, ops.BitcastConvert) or target.accepted(node) is not None


def _narrows(node: Node) -> bool:
    return node.op is ops.Convert and node.operand(0).dtype is _WIDE and not node.operand(0).is_quantized
