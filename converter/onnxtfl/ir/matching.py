"""Small questions that patterns and rules ask of values: which constant, made by which op, read how often.

They stop at quantized values: the answer is no, unless the pattern asks for them by keyword.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantized import may_match

SMALL = 1 << 16
"""Elements up to which a pattern reads a constant's numbers."""


def scalar(value: Value | None) -> float | None:
    """The number of a real constant all of whose elements are equal; None for others."""
    if value is None or value.data is None or not 0 < value.data.size <= 64 or value.data.dtype.is_complex:
        return None
    if value.is_quantized:
        return None
    numbers = value.numpy().reshape(-1)
    if numbers.dtype == object or any(n != numbers[0] for n in numbers):
        return None
    return float(numbers[0])


def is_close(value: float | None, wanted: float, tolerance: float = 1e-4) -> bool:
    """Whether a constant is the number that a formula has, but for the rounding of exporters."""
    return value is not None and abs(value - wanted) <= tolerance * max(1.0, abs(wanted))


def is_weight(value: Value) -> bool:
    """Whether `value` is constant, or converted from constants (a float16 weight after its Convert)."""
    node = value.producer
    if value.is_constant or node is None or node.op not in (ops.Convert, ops.DequantizeLinear):
        return value.is_constant
    return all(v is None or is_weight(v) for v in node.operands)


def made_by(value: Value | None, *ops: type[Op], quantized: bool = False) -> Node | None:
    """The node, of one of `ops` (none: of any), that makes `value`; None where there is none.

    Nodes that touch quantized values are found only where `quantized` asks for them.
    """
    node = value.producer if value is not None else None
    if node is None or (ops and node.op not in ops) or not may_match(node, quantized):
        return None
    return node


def single_use(value: Value, graph: Graph) -> bool:
    """Whether exactly one operand is `value`, and the outside does not see it."""
    return len(value.uses) == 1 and not graph.shows(value)


def with_constant(node: Node) -> tuple[Value, Value, int] | None:
    """A binary node's other operand, its constant one, and which place the constant has; None where neither is."""
    for place in (1, 0):
        if node.operand(place).is_constant:
            return node.operand(1 - place), node.operand(place), place
    return None


def along_axis(value: Value, rank: int, axis: int, size: int) -> Array | None:
    """The numbers of a constant that, broadcast to `rank`, varies along `axis` only: a vector of `size`; else None."""
    if value.data is None or value.is_quantized or value.data.size > SMALL or len(value.data.shape) > rank:
        return None
    shape = (1,) * (rank - len(value.data.shape)) + value.data.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, size):
        return None
    return np.broadcast_to(value.numpy().reshape(-1), (size,))


@dataclass
class Product:
    """A chain of multiplications taken apart: `factor` times all `operands`."""

    factor: float = 1.0
    operands: list[Value] = field(default_factory=list)


def product_of(value: Value, graph: Graph, root: bool = True) -> Product:
    """Take apart the multiplications, and divisions by constants, that make `value`, where nobody else needs them."""
    node = made_by(value, ops.Mul, ops.Div)
    if node is not None and (root or single_use(value, graph)):
        right = scalar(node.operand(1))
        if node.op is ops.Div and right:
            inner = product_of(node.operand(0), graph, root=False)
            return Product(inner.factor / right, inner.operands)
        if node.op is ops.Mul:
            parts = [_factor(v, graph) for v in node.operands if v is not None]
            return Product(parts[0].factor * parts[1].factor, parts[0].operands + parts[1].operands)
    return Product(1.0, [value])


def _factor(value: Value, graph: Graph) -> Product:
    number = scalar(value)
    return Product(number, []) if number is not None else product_of(value, graph, root=False)


def sum_with(value: Value, number: float) -> Value | None:
    """x where `value` is x + number, in either order; None for others."""
    node = made_by(value, ops.Add)
    found = with_constant(node) if node is not None else None
    return found[0] if found is not None and is_close(scalar(found[1]), number) else None


def same(a: Value, b: Value) -> bool:
    """Whether two values are one."""
    if a.data is None or b.data is None:
        return a is b
    return a.type == b.type and a.data.key == b.data.key
