"""Predicates and matchers for values: scalar constants, producers, single uses, products.

They do not match quantized values, unless the pattern requests it by keyword.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, attributes_of, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantized import may_match

SMALL = 1 << 16
"""The largest number of elements of a constant that patterns read."""


def splat_value(value: Value | None) -> float | None:
    """The value of a real constant with all elements equal (at most 64); None for others."""
    if value is None or value.data is None or not 0 < value.data.size <= 64 or value.data.dtype.is_complex:
        return None
    if value.is_quantized:
        return None
    elements = value.numpy().reshape(-1)
    if elements.dtype == object or any(e != elements[0] for e in elements):
        return None
    return float(elements[0])


def uniform_scalar(x: Value, operand: Value) -> float | None:
    """Return the scalar constant that `operand` broadcasts to `x` without adding axes, else None."""
    return splat_value(operand) if operand.is_single and operand.rank <= (x.tensor_type.rank or 0) else None


def is_close(value: float | None, wanted: float, tolerance: float = 1e-4) -> bool:
    """Whether `value` equals `wanted` up to the rounding of exporters."""
    return value is not None and abs(value - wanted) <= tolerance * max(1.0, abs(wanted))


def is_weight(value: Value) -> bool:
    """Whether `value` is constant, or converted from constants (a float16 weight after its Convert)."""
    node = value.producer
    if value.is_constant or node is None or node.op not in (ops.Convert, ops.DequantizeLinear):
        return value.is_constant
    return all(v is None or is_weight(v) for v in node.operands)


def real_constant(value: Value) -> Value:
    """Return the small constant from which `value` is dequantized, as real values; else `value`."""
    node = value.producer
    source = node.operand(0) if node is not None and node.op is ops.Convert else value
    if source.data is None or not source.is_quantized or source.data.size > SMALL or value.is_quantized:
        return value
    return constant(source.numpy(), value.dtype)


def made_by(value: Value | None, *ops: type[Op], quantized: bool = False) -> Node | None:
    """The producer of `value` if it is one of `ops` (any op if empty); else None.

    `quantized`: also match nodes with quantized operands or results.
    """
    node = value.producer if value is not None else None
    if node is None or (ops and node.op not in ops) or not may_match(node, quantized):
        return None
    return node


def terms_of(value: Value) -> list[Value]:
    """The terms of a sum; the value itself where it is none."""
    total = made_by(value, ops.Add)
    return [value] if total is None else [*terms_of(total.operand(0)), *terms_of(total.operand(1))]


def repeated(value: Value | None) -> Value | None:
    """The value that `value` repeats along axes of size 1 (broadcast, or resized from one element); None for others."""
    node = made_by(value, ops.BroadcastTo, ops.Resize, quantized=True)
    if node is None or node.op is ops.BroadcastTo:
        return None if node is None else node.operand(0)
    before, after = node.operand(0).tensor_type, node.result.tensor_type
    if node.op.picks(attributes_of(node)) is None or before.shape is None or after.shape is None:
        return None
    repeats = all(old in (1, new) for old, new in zip(before.shape, after.shape, strict=True))
    return node.operand(0) if repeats and before.quantization == after.quantization else None


def spreads(small: Value, large: Value) -> bool:
    """Whether `small`, which broadcasts to the shape of `large`, repeats along an axis."""
    sizes, full = small.tensor_type.shape, large.tensor_type.shape
    if sizes is None or full is None or len(sizes) > len(full):
        return False
    aligned = (1,) * (len(full) - len(sizes)) + tuple(sizes)
    return any(size == 1 != n for size, n in zip(aligned, full, strict=True))


def without_reshapes(value: Value) -> Value:
    """Return `value` before reshapes and copies."""
    while value.producer is not None and value.producer.op in (ops.Reshape, ops.Copy):
        value = value.producer.operand(0)
    return value


def single_use(value: Value, graph: Graph) -> bool:
    """Whether `value` has exactly one use and is not an output."""
    return len(value.uses) == 1 and not graph.is_output(value)


def is_between(node: Node) -> bool:
    """Whether other ops run before and after `node`."""
    return any(v and v.producer for v in node.operands) and any(r.uses for r in node.results)


def with_constant(node: Node, *, dequantized: bool = False) -> tuple[Value, Value, int] | None:
    """(other operand, constant operand, index of the constant) of a binary node; None without a constant.

    `dequantized`: a small dequantized constant counts as one.
    """
    for place in (1, 0):
        found = real_constant(node.operand(place)) if dequantized else node.operand(place)
        if found.is_constant:
            return node.operand(1 - place), found, place
    return None


def along_axis(value: Value, rank: int, axis: int, size: int) -> Array | None:
    """A vector of `size` if the constant, broadcast to `rank`, varies along `axis` only; else None."""
    if value.data is None or value.is_quantized or value.data.size > SMALL or len(value.data.shape) > rank:
        return None
    shape = (1,) * (rank - len(value.data.shape)) + value.data.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, size):
        return None
    return np.broadcast_to(value.numpy().reshape(-1), (size,))


@dataclass
class Product:
    """A product: scalar `numbers` (with exponents 1 or -1) times all `operands`."""

    numbers: list[tuple[Value, int]] = field(default_factory=list)
    operands: list[Value] = field(default_factory=list)


def product_of(value: Value, is_number: Callable[[Value], bool], root: bool = True) -> Product:
    """The factors of `value`; products in between that have another use are factors themselves."""
    if is_number(value):
        return Product([(value, 1)])
    node = made_by(value, ops.Mul, ops.Div)
    if node is None or node.graph is None or not (root or single_use(value, node.graph)):
        return Product([], [value])
    left, right = node.operand(0), node.operand(1)
    if node.op is ops.Div:
        if not is_number(right):
            return Product([], [value])
        inner = product_of(left, is_number, root=False)
        return Product([*inner.numbers, (right, -1)], inner.operands)
    parts = [product_of(v, is_number, root=False) for v in (left, right)]
    return Product(parts[0].numbers + parts[1].numbers, parts[0].operands + parts[1].operands)


def same_value(a: Value, b: Value) -> bool:
    """Whether two values are identical, or constants with equal types and elements."""
    if a.data is None or b.data is None:
        return a is b
    return a.type == b.type and a.data.key == b.data.key
