"""Running sums and products."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

decompose(ops.CumSum, "tfl", "elements")(same_bits)


@lift_onnx("CumSum", since=(11, 14))
def _cumsum(b: Builder, node: Node) -> Value:
    exclusive, reverse = bool(node.attributes.get("exclusive", 0)), bool(node.attributes.get("reverse", 0))
    return b(ops.CumSum, node.operand(0), node.operand(1), exclusive=exclusive, reverse=reverse)


@lift_onnx("CumProd", since=(26,))
def _cumprod(b: Builder, node: Node) -> Value:
    """Along each axis, where it is known at run time only, and then the right one of these."""
    x, where = node.operand(0), static_ints(node.operand(1))
    exclusive, reverse = bool(node.attributes.get("exclusive", 0)), bool(node.attributes.get("reverse", 0))
    if where is not None:
        return _products(b, x, normalize_axis(where[0], x.rank), exclusive, reverse)
    results = [Term(b, _products(b, x, axis, exclusive, reverse)) for axis in range(x.rank)]
    axis = Term(b, reshape(b, node.operand(1), [])) % x.rank
    chosen = results[0]
    for i, result in enumerate(results[1:], 1):
        chosen = axis.equals(i).choose(result, chosen)
    return chosen.value


def _products(b: Builder, x: Value, axis: int, exclusive: bool, reverse: bool) -> Value:
    """By doubling: each round multiplies every number with the product that ends where its own begins."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("products along an axis of unknown size", hint="fix it with --input-shape")
    step = 1
    result = _moved_along(b, x, axis, 1, reverse) if exclusive else x
    while step < size:
        result = b(ops.Mul, result, _moved_along(b, result, axis, step, reverse))
        step *= 2
    return result


def _moved_along(b: Builder, x: Value, axis: int, step: int, reverse: bool) -> Value:
    """`x` moved by `step` along `axis`, ones in the room it leaves."""
    size = x.shape[axis]
    assert isinstance(size, int)
    room = [step if i == axis else d for i, d in enumerate(x.shape)]
    ones = broadcast(b, b.scalar(1, x), room, x)
    if step >= size:
        return broadcast(b, b.scalar(1, x), x.shape, x)
    parts = b.many(ops.Split, x, [step, size - step] if reverse else [size - step, step], axis=axis)
    return b(ops.Concatenate, *((parts[1], ones) if reverse else (ones, parts[0])), axis=axis)


@lift_tfl("CUMSUM")
def _cumsum_tfl(b: Builder, node: Node) -> Value:
    exclusive, reverse = bool(node.attr("exclusive", False)), bool(node.attr("reverse", False))
    return b(ops.CumSum, node.operand(0), node.operand(1), exclusive=exclusive, reverse=reverse)


@lower_tfl(ops.CumSum)
def _cumsum_form(node: Node) -> Form | None:
    axis, numbers = node.operand(1), static_ints(node.operand(1))
    if numbers is None and axis.dtype is not DType.INT32:
        return None
    operand = axis if numbers is None else np.asarray(numbers[0], np.int32)
    options = {"exclusive": node.attr("exclusive"), "reverse": node.attr("reverse")}
    return Form("CUMSUM", (node.operand(0), operand), options)


decompose(ops.CumSum, "tfl", "operands")(int32_operands(1))


@lower_onnx(ops.CumSum)
def _cumsum_onnx(node: Node, opset: int) -> Form | None:
    axis, numbers = node.operand(1), static_ints(node.operand(1))
    if numbers is None and axis.tensor_type.rank != 0:
        return None
    operand = axis if numbers is None else np.asarray(numbers[0], np.int64)
    attributes = {name: 1 for name in ("exclusive", "reverse") if node.attr(name)}
    return Form("CumSum", (node.operand(0), operand), attributes)
