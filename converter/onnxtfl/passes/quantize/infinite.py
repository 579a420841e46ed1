"""Rewrites Q/DQ with scale = inf, which calibration with masks of -infinity produces, as Select.

::

    QuantizeLinear(x, inf, z)     ->  Select(IsFinite(x), z, lowest)      x / inf is 0, or NaN for infinite x
    DequantizeLinear(q, inf, z)   ->  NaN where q = z, -inf where q < z, inf where q > z
    f(Select(c, 0, -inf))         ->  Select(c, f(0), f(-inf))            f: DequantizeLinear and tests
    IsFinite(Add(x, m))           ->  false, if no element of m is finite
    IsNaN(x)                      ->  false                               x: finite, as dequantized ones are
    Add(x, m) = -inf              ->  x = -inf or m = -inf                m: Select(c, 0, -inf), perhaps broadcast
    Max(Add(x, m)) = -inf         ->  all of Add(x, m) = -inf             Max: along axes
    Select(IsNaN(Softmax(s)), ..) ->  Select(all of s = -inf, ..)         s: a sum with such masks
    Select(.., 0, Softmax(s))     ->  Mul(Softmax(s'), any of s > -inf)   s': numbers in place of -inf
    Select(IsNaN(Softmax(s)), ..) ->  Softmax(s)                          s: a finite sum

Computed as arithmetic, results depend on kernels: LiteRT without XNNPACK clamps infinite sums and products to the
largest finite values.
"""

from __future__ import annotations

import functools

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, splat_value
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

INFINITE = Patterns()
_MOST_READ = 1 << 22
"""The most elements of a constant mask that is read."""
_LARGEST = float(np.finfo(np.float32).max)


@INFINITE.on(ops.QuantizeLinear)
def quantize_by_infinity(b: Builder, node: Node) -> Value | None:
    """Quantize finite values to the zero point, and others to the lowest integer."""
    x, dtype, zero = node.operand(0), node.attr("dtype"), _zero_point(node)
    if zero is None or not x.dtype.is_float or not dtype.is_integer:
        return None
    stored = (constant(np.asarray(v, dtype.numpy), dtype) for v in (zero, limits(dtype)[0]))
    return b(ops.Select, b(ops.IsFinite, x), *stored)


@INFINITE.on(ops.DequantizeLinear)
def dequantize_by_infinity(b: Builder, node: Node) -> Value | None:
    """Dequantize to infinities of the sign of the difference from the zero point; a zero difference to NaN."""
    x, zero = node.operand(0), _zero_point(node)
    if zero is None or not x.dtype.is_integer or x.is_constant or _chosen(x) is not None:
        return None
    of = constant(np.asarray(zero, x.dtype.numpy), x.dtype)
    nan, low, high = (b.scalar(v, node.result.dtype) for v in (np.nan, -np.inf, np.inf))
    infinite = b(ops.Select, b(ops.Compare, x, of, comparison_direction="LT"), low, high)
    return b(ops.Select, b(ops.Compare, x, of, comparison_direction="EQ"), nan, infinite)


@INFINITE.on(ops.DequantizeLinear, ops.IsFinite, ops.IsInf, ops.IsNaN)
def of_chosen(b: Builder, node: Node) -> Value | None:
    """f(Select(c, a, b)) -> Select(c, f(a), f(b)) for constants a, b."""
    chosen = _chosen(node.operand(0))
    if chosen is None or (node.op is ops.DequantizeLinear and _zero_point(node) is None):
        return None
    sides = (b(node.op, v, *node.operands[1:], **node.attributes) for v in chosen.operands[1:])
    return b(ops.Select, chosen.operand(0), *sides)


@INFINITE.on(ops.Compare)
def hidden_by_mask(b: Builder, node: Node) -> Value | None:
    """Test the terms of a sum with masks for -infinity instead of the sum (rows hidden by attention masks)."""
    x, low, shape = node.operand(0), _number(node.operand(1)), node.result.tensor_type.shape
    if low != -np.inf or node.attr("comparison_direction") != "EQ" or shape is None or x.shape != shape:
        return None
    highest = made_by(x, ops.Reduce)
    if highest is not None and highest.attr("kind") == "max" and _masked(highest.operand(0)) is not None:
        below = b(ops.Compare, highest.operand(0), node.operand(1), comparison_direction="EQ")
        return b(ops.Reduce, below, *highest.operands[1:], kind="all", keepdims=highest.attr("keepdims"))
    if (parts := _masked(x)) is None:
        return None
    other = b(ops.Compare, parts[0], node.operand(1), comparison_direction="EQ")
    return b(ops.Or, other, _is_low(b, parts[1]))


@INFINITE.on(ops.Select)
def hidden_rows(b: Builder, node: Node) -> Value | None:
    """Test the masks instead of a Softmax for NaN rows, which PyTorch's attention replaces by zeros.

    Rows are NaN where all their elements are hidden; products of matrices are taken to be finite. Zeros come from a
    factor, which delegates compute: then the mask has large numbers in place of infinities, so that no row is NaN.
    """
    test = made_by(node.operand(0), ops.IsNaN)
    softmax = made_by(test.operand(0), ops.Softmax) if test is not None else None
    if softmax is None or softmax.result.type != node.result.type or node.operand(2).type != node.result.type:
        return None
    terms = _terms(softmax.operand(0))
    masks = [v for v in terms if _is_mask(v)]
    if not masks and not all(_is_product(v) or _is_finite(v) for v in terms):
        return None
    assume("products of queries and keys are finite, so that only hidden rows of attention are NaN", is_minor=True)
    if not masks:
        return node.operand(2)
    hidden = functools.reduce(functools.partial(b, ops.Or), [low for v in terms for low in _low(b, v)])
    axis = softmax.attr("axis") % softmax.result.rank - softmax.result.rank
    if -axis <= hidden.rank:
        hidden = b(ops.Reduce, hidden, [hidden.rank + axis], kind="all", keepdims=True)
    is_plain = node.operand(2) is softmax.result and splat_value(node.operand(1)) == 0 and node.result.dtype.bits >= 32
    if not is_plain or not all(_is_mask(v) or _is_product(v) for v in terms):
        return b(ops.Select, hidden, *node.operands[1:])
    (shown,) = b.remade(softmax, _with_large_numbers(b, softmax.operand(0)), *softmax.operands[1:])
    return b(ops.Mul, shown, b(ops.Convert, b(ops.Not, hidden), dtype=node.result.dtype))


def _terms(value: Value) -> list[Value]:
    """The terms of a sum."""
    total = made_by(value, ops.Add)
    return [value] if total is None else [*_terms(total.operand(0)), *_terms(total.operand(1))]


def _low(b: Builder, term: Value) -> list[Value]:
    """Where a term of a sum is -infinity (a matrix product never is)."""
    if _is_mask(term):
        return [_is_low(b, term)]
    return [] if _is_product(term) else [b(ops.Compare, term, b.scalar(-np.inf, term), comparison_direction="EQ")]


def _is_finite(value: Value) -> bool:
    """Whether all elements are finite: of a constant, or a choice of two."""
    if (spread := _spread(value)) is not None:
        return _is_finite(spread.operand(0))
    if value.data is not None:
        few = value.dtype.is_float and not value.is_quantized and value.data.size <= _MOST_READ
        return few and bool(np.isfinite(value.numpy().astype(np.float32)).all())
    chosen = _chosen(value)
    return chosen is not None and all(np.isfinite(_number(v) or 0.0) for v in chosen.operands[1:])


def _with_large_numbers(b: Builder, value: Value) -> Value:
    """The sum with numbers in place of the infinities of its masks: sums of them are finite, their exponentials 0."""
    total = made_by(value, ops.Add)
    if total is not None:
        return b(ops.Add, *(_with_large_numbers(b, v) for v in (total.operand(0), total.operand(1))))
    if not _is_mask(value):
        return value
    return b(ops.Select, _is_low(b, value), b.scalar(-_LARGEST / 16, value), b.scalar(0.0, value))


def _is_product(value: Value) -> bool:
    """Whether this is a matrix product, perhaps scaled and moved."""
    node = made_by(value, ops.DotGeneral, ops.Mul, ops.Div) or _spread(value)
    return node is not None and (node.op is ops.DotGeneral or _is_product(node.operand(0)))


def _spread(value: Value) -> Node | None:
    """Return the node that produces `value` from the elements of one operand only, else None."""
    node = made_by(value)
    moves = node is not None and node.op.moves == slice(0, 1) and not node.op.inserts and len(node.results) == 1
    return node if moves else None


def _masked(value: Value | None) -> tuple[Value, Value] | None:
    """Return the terms of a sum whose second term is a mask of 0 and -infinity."""
    node = made_by(value, ops.Add) if value is not None else None
    if node is None:
        return None
    a, b = node.operand(0), node.operand(1)
    return (a, b) if _is_mask(b) else (b, a) if _is_mask(a) else None


def _is_mask(value: Value) -> bool:
    """Whether this is a Select of 0 and -infinity, perhaps broadcast, or such a constant."""
    if (spread := _spread(value)) is not None:
        return _is_mask(spread.operand(0))
    if value.data is not None:
        few = value.dtype.is_float and not value.is_quantized and value.data.size <= _MOST_READ
        return few and set(np.unique(value.numpy()).tolist()) == {0.0, -np.inf}
    chosen = _chosen(value)
    return chosen is not None and {_number(v) for v in chosen.operands[1:]} == {0.0, -np.inf}


def _is_low(b: Builder, mask: Value) -> Value:
    """Return which elements of a mask are -infinity."""
    if (spread := _spread(mask)) is not None:
        return b(spread.op, _is_low(b, spread.operand(0)), *spread.operands[1:], **spread.attributes)
    chosen = _chosen(mask)
    if chosen is None:
        return constant(mask.numpy() == -np.inf)
    return chosen.operand(0) if _number(chosen.operand(1)) else b(ops.Not, chosen.operand(0))


@INFINITE.on(ops.Select)
def choice_of_bools(b: Builder, node: Node) -> Value | None:
    """Replace Select(c, true, false) by c and Select(c, false, true) by its negation."""
    condition, sides = node.operand(0), (splat_value(node.operand(1)), splat_value(node.operand(2)))
    if node.operand(1).dtype is not DType.BOOL or condition.type != node.result.type or sides not in ((1, 0), (0, 1)):
        return None
    return condition if sides[0] else b(ops.Not, condition)


@INFINITE.on(ops.IsFinite)
def never_finite(b: Builder, node: Node) -> Value | None:
    """Replace IsFinite of values that are never finite by false."""
    return _everywhere(b, node, False) if _never_finite(node.operand(0)) else None


@INFINITE.on(ops.IsFinite, ops.IsInf, ops.IsNaN)
def of_finite(b: Builder, node: Node) -> Value | None:
    """Replace IsNaN and IsInf of finite (dequantized) values by false."""
    return _everywhere(b, node, node.op is ops.IsFinite) if facts_of(node.operand(0)).is_finite else None


@INFINITE.on(ops.Select)
def of_uniform_choice(b: Builder, node: Node) -> Value | None:
    """Replace a Select with a uniform condition by the chosen operand, broadcast if needed."""
    spread = made_by(node.operand(0), ops.BroadcastTo)
    condition = splat_value(spread.operand(0)) if spread is not None else None
    if spread is None or condition is None:
        return None
    chosen = node.operand(1 if condition else 2)
    if chosen.type == node.result.type:
        return chosen
    return b(ops.BroadcastTo, chosen, spread.operand(1)) if all(v.is_single for v in node.operands[1:] if v) else None


def _everywhere(b: Builder, node: Node, value: bool) -> Value:
    """Return `value` broadcast to the shape of the first operand."""
    return b(ops.BroadcastTo, constant(np.asarray(value)), b(ops.Shape, node.operand(0)))


def _zero_point(node: Node) -> int | None:
    """Return the zero point of a node whose only scale is infinite, else None."""
    scale, zero = splat_value(node.operand(1)), node.optional(2)
    if scale is None or not np.isposinf(scale) or not node.operand(1).is_single or node.attr("block_size"):
        return None
    value = 0 if zero is None else splat_value(zero)
    return None if value is None else int(value)


def _chosen(value: Value) -> Node | None:
    """Return the Select of two scalar constants that produces `value`, else None."""
    node = made_by(value, ops.Select)
    return node if node is not None and all(_number(v) is not None for v in node.operands[1:]) else None


def _number(value: Value | None) -> float | None:
    """Return the only element (perhaps NaN) of a real constant."""
    if value is None or value.data is None or not value.is_single or value.is_quantized:
        return None
    if value.dtype.is_complex or value.dtype is DType.STRING:
        return None
    return float(value.numpy().reshape(()))


def _never_finite(value: Value | None, depth: int = 8) -> bool:
    """Whether no element of `value` is finite."""
    if value is None or not depth or value.is_quantized or not value.dtype.is_float:
        return False
    number, node = _number(value), value.producer
    if number is not None or node is None:
        return number is not None and not np.isfinite(number)
    parts = [_never_finite(v, depth - 1) for v in node.operands]
    if node.op in (ops.Add, ops.Sub):
        return any(parts)
    if node.op is ops.Select:
        return all(parts[1:])
    return _spread(value) is not None and parts[0]
