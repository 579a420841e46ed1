"""Running sums and products."""

from __future__ import annotations

from onnxtfl.rules import *

_FLAGS = {name: Spelled(name, default=False) for name in ("exclusive", "reverse")}
row(ops.CumSum, onnx="CumSum", since=(11, 14), attributes=_FLAGS, integers=(1,))
row(ops.CumSum, tfl="CUMSUM", attributes="exclusive reverse", integers=(1,))
decompose(ops.CumSum, "tfl", "operands")(int32_operands(1))


@lift_onnx("CumProd", since=(26,))
def _cumprod(b: Builder, node: Node) -> Value:
    """Along an axis known only at run time: along each axis, then a choice."""
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
    """By doubling: each round multiplies every element by the product that ends where its own begins."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("products along an axis of unknown size", code="E-SHAPE-001")
    step = 1
    result = _moved_along(b, x, axis, 1, reverse) if exclusive else x
    while step < size:
        result = b(ops.Mul, result, _moved_along(b, result, axis, step, reverse))
        step *= 2
    return result


def _moved_along(b: Builder, x: Value, axis: int, step: int, reverse: bool) -> Value:
    """`x` moved by `step` along `axis`, filled with ones."""
    size = x.shape[axis]
    assert isinstance(size, int)
    room = [step if i == axis else d for i, d in enumerate(x.shape)]
    ones = broadcast(b, b.scalar(1, x), room, x)
    if step >= size:
        return broadcast(b, b.scalar(1, x), x.shape, x)
    parts = b.many(ops.Split, x, [step, size - step] if reverse else [size - step, step], axis=axis)
    return b(ops.Concatenate, *((parts[1], ones) if reverse else (ones, parts[0])), axis=axis)
