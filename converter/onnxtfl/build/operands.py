"""Operands of rules: as terms, and in the form of the newest since-version of an op."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import min_and_max
from onnxtfl.ir.dims import known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Target, UpgradeRule, append_operand, decompose


@overload
def on_terms(function: Callable[..., Term]) -> Callable[[Builder, Node], Value]: ...
@overload
def on_terms(function: Callable[..., Term | None]) -> Callable[[Builder, Node], Value | None]: ...
@overload
def on_terms(function: Callable[..., Sequence[Term]]) -> Callable[[Builder, Node], list[Value]]: ...
def on_terms(function: Callable[..., Any]) -> Callable[[Builder, Node], Any]:
    """A rule from a function that computes the results from the operands, all as terms (None: absent).

    Raises ValueError if an operand is absent that the function annotates as a Term. Its keyword-only parameters are
    attributes of the node, with their defaults for ops of a file's dialect.
    """
    code = function.__code__
    count, variadic = code.co_argcount, bool(code.co_flags & 0x04)
    names = code.co_varnames[count : count + code.co_kwonlyargcount]
    defaults = function.__kwdefaults__ or {}
    required = [i for i, n in enumerate(code.co_varnames[:count]) if function.__annotations__.get(n) == "Term"]

    @functools.wraps(function)
    def rule(b: Builder, node: Node) -> Any:
        given = node.operands if variadic else [node.optional(i) for i in range(count)]
        terms = [None if v is None else Term(b, v) for v in given]
        if absent := [i for i in required if i >= len(terms) or terms[i] is None]:
            raise ValueError(f"operand {absent[0]} is absent")
        result = function(*terms, **{name: node.attr(name, defaults.get(name)) for name in names})
        return getattr(result, "value", None) if not isinstance(result, Sequence) else [term.value for term in result]

    return rule


def formula(op: type[Op], target: Target | None = None) -> Callable[[Callable[..., Term | None]], object]:
    """Register a function as in :func:`on_terms` as the formula of `op` over other ops, for `target` or for both."""

    def register(function: Callable[..., Term | None]) -> object:
        rule = on_terms(function)
        rule.__qualname__ = op.name
        return decompose(op, target)(rule)

    return register


def random_uniform(b: Builder, like: Value, seed: int | None) -> Term:
    """Random elements of [0, 1) with the shape and element type of `like`."""
    return Term(b, b(ops.RngUniform, b.scalar(0.0, like), b.scalar(1.0, like), b(ops.Shape, like), seed=seed))


def to_operand(name: str, default: Any = None, count: int | None = None) -> UpgradeRule:
    """An upgrade that appends the attribute `name` to the operands (absent ones up to `count` first), as int64.

    Without the attribute the `default` is appended, None as an absent operand.
    """

    def _to_operand(b: Builder, node: Node) -> None:
        while count is not None and len(node.operands) < count:
            append_operand(node, None)
        value = node.attributes.pop(name, default)
        append_operand(node, None if value is None else constant(np.asarray(value), DType.INT64))

    return _to_operand


def finite_on_integers(node: Node, name: str) -> float:
    """A float attribute, 0.0 if it is missing. Raises ValueError if it is infinite or NaN in a quantized op.

    Integer kernels multiply by an integer with a shift, which neither has.
    Source: LiteRT kernels/internal/quantization_util.cc (QuantizeMultiplier).
    """
    number = float(node.attr(name, 0.0))
    if not math.isfinite(number) and quantization_of(node.operand(0)) is not None:
        raise ValueError(f"{name} is {number}, by which no integer kernel multiplies")
    return number


def align_by_axis(b: Builder, node: Node) -> None:
    """Rewrite a binary op of an opset below 7 for NumPy broadcasting, in place.

    Attribute `axis` is the axis of the first operand at which the second's begin; without it the trailing axes align.
    """
    axis, wanted = node.attributes.pop("axis", None), node.attributes.pop("broadcast", 0)
    if not wanted or axis is None:
        return
    lhs, rhs = node.operand(0), node.operand(1)
    trailing = lhs.rank - axis % lhs.rank - rhs.rank if lhs.rank else 0
    if trailing > 0:
        node.set_operand(1, unsqueezed(b, rhs, range(rhs.rank, rhs.rank + trailing)))


def on_permuted(b: Builder, node: Node, permutation: Sequence[int]) -> list[Value]:
    """The results of `node`, computed on operands with the axis order `permutation`, and transposed back."""
    form = node.op.permuted(node, 0, tuple(permutation))
    assert form is not None
    orders = zip(node.operands, form.operands, strict=True)
    operands = [v if v is None or order is None else transposed(b, v, order) for v, order in orders]
    results = b.many(node.op, *operands, **{**node.attributes, **form.attributes})
    back = (None if order is None else inverse(order) for order in form.results)
    return [v if order is None else transposed(b, v, order) for v, order in zip(results, back, strict=True)]


def moved_last(axis: int, rank: int) -> tuple[int, ...]:
    """The permutation that moves `axis` to the end."""
    return (*(a for a in range(rank) if a != axis), axis)


def shifted(b: Builder, x: Value, zero_point: Value | None, axis: int) -> Value:
    """Integers as int32 minus their zero point, which is one element, a vector along `axis`, or a tensor of the rank of
    `x`.
    """
    constants = _without_zero(x, zero_point)
    if constants is not None:
        return b(ops.Convert, constants, dtype=DType.INT32)
    wide = b(ops.Convert, x, dtype=DType.INT32)
    if zero_point is None:
        return wide
    offset = b(ops.Convert, zero_point, dtype=DType.INT32)
    if offset.rank == 1 and offset.shape != (1,):
        offset = reshape(b, offset, (*offset.shape, *[1] * (x.rank - 1 - axis % x.rank)))
    return b(ops.Sub, wide, offset)


def _without_zero(x: Value, zero_point: Value | None) -> Value | None:
    """Constant 8-bit integers minus a constant zero point of one element, as int8; None if they do not fit, and for
    others.
    """
    if x.data is None or zero_point is None or zero_point.data is None or x.dtype.bits != 8:
        return None
    zeros = np.unique(zero_point.numpy())
    if len(zeros) != 1:
        return None
    zero = int(zeros[0])
    low, high = min_and_max(x.data) if zero or x.dtype is DType.UINT8 else (0, 0)
    fits = low - zero >= -128 and high - zero <= 127
    return constant(x.data.cast(DType.INT8, -zero)) if fits else None


def summed_in_float(
    b: Builder, operands: Sequence[tuple[Value, int]], step: int, multiply: Callable[..., Value], total: Value | None
) -> Value:
    """`total` plus the product of integer operands, each with the axis summed over, `step` positions at a time.

    Each part is multiplied in float32, which adds up `step` terms exactly. Sums wrap around also in types below 32
    bits, for which LiteRT's CAST of a float saturates.
    """
    dtype = operands[0][0].dtype
    wide = DType.INT32 if dtype.bits < 32 else dtype
    if total is not None and total.dtype is not wide:
        total = b(ops.Convert, total, dtype=wide)
    depth = min(known_sizes(value.shape[axis] for value, axis in operands))
    for start in range(0, depth, step):
        part = slice(start, min(start + step, depth)) if step < depth else slice(None)
        reals = [b(ops.Convert, slice_axes(b, v, {axis: part}), dtype=DType.FLOAT32) for v, axis in operands]
        whole = b(ops.Convert, multiply(*reals), dtype=wide)
        total = whole if total is None else b(ops.Add, total, whole)
    assert total is not None
    return total if total.dtype is dtype else b(ops.Convert, total, dtype=dtype)


def flat_bias(b: Builder, bias: Value | None) -> Value | None:
    """A bias as a vector; None if it is absent. TFLite's kernels only count its elements."""
    return bias if bias is None or bias.rank == 1 else reshape(b, bias, [product(bias.shape)])


def with_bools(b: Builder, node: Node, op: type[Op], of_bools: type[Op]) -> Value:
    """Arithmetic of bools as in C: add is or, mul is and (LiteRT's stablehlo_elementwise.h)."""
    lhs, rhs = node.operand(0), node.operand(1)
    return b(of_bools if lhs.dtype is DType.BOOL else op, lhs, rhs)


def accumulated(b: Builder, node: Node, op: type[Op]) -> Value:
    """Combine any number of operands by the binary `op`."""
    return functools.reduce(functools.partial(b, op), (node.operand(i) for i in range(len(node.operands))))
