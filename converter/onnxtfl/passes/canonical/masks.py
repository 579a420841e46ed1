"""Sums with masks of 0 and -infinity: the masks are tested in place of the sums.

::

    Add(x, m) = -inf              ->  x = -inf or m = -inf                m: Select(c, 0, -inf), perhaps broadcast
    Select(IsNaN(Softmax(s)), ..) ->  Select(all of s = -inf, ..)         s: a sum with such masks
    Select(.., 0, Softmax(s))     ->  Mul(Softmax(s'), any of s > -inf)   s': finite values for -inf
    Select(IsNaN(Softmax(s)), ..) ->  Softmax(s)                          s: a finite sum
    Softmax(Select(c, x, -3e38))  ->  Softmax(Add(x, Select(c, 0, -3e38)))  c: repeats along an axis of x

Computed as arithmetic, results depend on kernels: LiteRT without XNNPACK clamps infinite sums and products to the
largest finite values.
"""

from __future__ import annotations

import functools

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use, splat_value, spreads, terms_of
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

MASKS = Patterns()
_MOST_READ = 1 << 22
"""The most elements of a constant mask that is read."""
_LOW = -1e30
"""The highest number that hides an element: a sum of it and a score is that number."""
_LARGEST = float(np.finfo(np.float32).max)


@MASKS.on(ops.Softmax)
def add_mask(b: Builder, node: Node) -> Value | None:
    """Add a mask that is smaller than the scores: layers share it, and delegates have kernels for sums only.

    A number below 2 ** 76 is lost in a sum with the lowest one of float32, so that a row of hidden elements only has
    equal weights in both forms.
    """
    select = made_by(node.operand(0), ops.Select)
    if select is None or not single_use(select.result, b.graph):
        return None
    visible, *choices = select.operands
    for place, (scores, low) in enumerate((choices, choices[::-1])):
        hidden = splat_value(low)
        if visible is None or scores is None or hidden is None or hidden > _LOW or scores.type != select.result.type:
            continue
        if scores.is_constant or not spreads(visible, scores):
            return None
        numbers = [np.asarray(hidden, scores.dtype.numpy)] * 2
        numbers[place] = np.zeros_like(numbers[place])
        return b(node.op, b(ops.Add, scores, b(ops.Select, visible, *numbers)), **node.attributes)
    return None


@MASKS.on(ops.Compare)
def hidden_by_mask(b: Builder, node: Node) -> Value | None:
    """Test the terms of a sum with masks for -infinity instead of the sum (rows hidden by attention masks)."""
    x, low, shape = node.operand(0), only_number(node.operand(1)), node.result.tensor_type.shape
    if low != -np.inf or node.attr("comparison_direction") != "EQ" or shape is None or x.shape != shape:
        return None
    if (parts := _masked(x)) is None:
        return None
    other = b(ops.Compare, parts[0], node.operand(1), comparison_direction="EQ")
    return b(ops.Or, other, _is_low(b, parts[1]))


@MASKS.on(ops.Select)
def hidden_rows(b: Builder, node: Node) -> Value | None:
    """Test the masks instead of a Softmax for NaN rows, which PyTorch's attention replaces by zeros.

    Rows are NaN where all their elements are hidden; products of matrices are taken to be finite. Zeros come from a
    factor, which delegates compute: then the mask has large numbers in place of infinities, so that no row is NaN.
    """
    test = made_by(node.operand(0), ops.IsNaN)
    softmax = made_by(test.operand(0), ops.Softmax) if test is not None else None
    if softmax is None or softmax.result.type != node.result.type or node.operand(2).type != node.result.type:
        return None
    terms = terms_of(softmax.operand(0))
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


def _low(b: Builder, term: Value) -> list[Value]:
    """Where a term of a sum is -infinity (a matrix product never is)."""
    if _is_mask(term):
        return [_is_low(b, term)]
    return [] if _is_product(term) else [b(ops.Compare, term, b.scalar(-np.inf, term), comparison_direction="EQ")]


def _is_finite(value: Value) -> bool:
    """Whether all elements are finite: of a constant, or a choice of two."""
    if (moved := moving_node(value)) is not None:
        return _is_finite(moved.operand(0))
    if value.data is not None:
        few = value.dtype.is_float and not value.is_quantized and value.data.size <= _MOST_READ
        return few and bool(np.isfinite(value.numpy().astype(np.float32)).all())
    chosen = chosen_constants(value)
    return chosen is not None and all(np.isfinite(only_number(v) or 0.0) for v in chosen.operands[1:])


def _with_large_numbers(b: Builder, value: Value) -> Value:
    """The sum with finite values in place of the infinities of its masks; their exponentials are 0."""
    total = made_by(value, ops.Add)
    if total is not None:
        return b(ops.Add, *(_with_large_numbers(b, v) for v in (total.operand(0), total.operand(1))))
    if not _is_mask(value):
        return value
    return b(ops.Select, _is_low(b, value), b.scalar(-_LARGEST / 16, value), b.scalar(0.0, value))


def _is_product(value: Value) -> bool:
    """Whether this is a matrix product, perhaps scaled and moved."""
    node = made_by(value, ops.DotGeneral, ops.Mul, ops.Div) or moving_node(value)
    return node is not None and (node.op is ops.DotGeneral or _is_product(node.operand(0)))


def _masked(value: Value | None) -> tuple[Value, Value] | None:
    """Return the terms of a sum whose second term is a mask of 0 and -infinity."""
    node = made_by(value, ops.Add) if value is not None else None
    if node is None:
        return None
    a, b = node.operand(0), node.operand(1)
    return (a, b) if _is_mask(b) else (b, a) if _is_mask(a) else None


def _is_mask(value: Value) -> bool:
    """Whether this is a Select of 0 and -infinity, perhaps broadcast, or such a constant."""
    if (moved := moving_node(value)) is not None:
        return _is_mask(moved.operand(0))
    if value.data is not None:
        few = value.dtype.is_float and not value.is_quantized and value.data.size <= _MOST_READ
        return few and set(np.unique(value.numpy()).tolist()) == {0.0, -np.inf}
    chosen = chosen_constants(value)
    return chosen is not None and {only_number(v) for v in chosen.operands[1:]} == {0.0, -np.inf}


def _is_low(b: Builder, mask: Value) -> Value:
    """Return which elements of a mask are -infinity."""
    if (moved := moving_node(mask)) is not None:
        return b(moved.op, _is_low(b, moved.operand(0)), *moved.operands[1:], **moved.attributes)
    chosen = chosen_constants(mask)
    if chosen is None:
        return constant(mask.numpy() == -np.inf)
    return chosen.operand(0) if only_number(chosen.operand(1)) else b(ops.Not, chosen.operand(0))


def moving_node(value: Value) -> Node | None:
    """Return the node that produces `value` from the elements of one operand only, else None."""
    node = made_by(value)
    return node if node is not None and node.only_moves_first and len(node.results) == 1 else None


def chosen_constants(value: Value) -> Node | None:
    """Return the Select of two scalar constants that produces `value`, else None."""
    node = made_by(value, ops.Select)
    return node if node is not None and all(only_number(v) is not None for v in node.operands[1:]) else None


def only_number(value: Value | None) -> float | None:
    """Return the only element (perhaps NaN) of a real constant."""
    if value is None or value.data is None or not value.is_single or value.is_quantized:
        return None
    if value.dtype.is_complex or value.dtype is DType.STRING:
        return None
    return float(value.numpy().reshape(()))
