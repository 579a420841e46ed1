"""Products with a large operand: one that repeats along a batch axis is read once, and small operands are scaled.

::

    %r = Reshape(BroadcastTo(%k : [b, h, 1, c, d], [b, h, g, c, d])) : [b, h*g, c, d]
    %y = DotGeneral(%q : [b, h*g, n, d], %r)           ->    %p = DotGeneral(Reshape(%q) : [b, h, g*n, d], %k)
                                                             %y = Reshape(%p) : [b, h*g, n, c]
    DotGeneral(%x, Mul(%k, 0.5))                       ->    DotGeneral(Mul(%x, 0.5), %k)      x has fewer elements
    Mul(DotGeneral(%x, %k), 0.5)                       ->    DotGeneral(Mul(%x, 0.5), %k)      likewise

Found in attention, where several heads read the same keys and values of a cache.
"""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, is_static, product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import is_weight, made_by, single_use, splat_value, uniform_scalar
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.patterns import Patterns

REPEATED_BATCHES = Patterns()


@REPEATED_BATCHES.on(ops.DotGeneral)
def scale_smaller_operand(b: Builder, node: Node) -> Value | None:
    """Multiply the operand with fewer elements by a scalar."""
    for i in (0, 1):
        scaled, other = made_by(node.operand(i), ops.Mul), node.operand(1 - i)
        if scaled is None or not single_use(scaled.result, b.graph) or other.is_constant:
            continue
        x, factor = scaled.operands if splat_value(scaled.operands[1]) is not None else scaled.operands[::-1]
        assert x is not None and factor is not None
        if splat_value(factor) is None or factor.rank or x.is_constant or not _has_fewer(other, x):
            continue
        operands = [x, b(ops.Mul, other, factor)]
        return b(node.op, *(operands if i == 0 else operands[::-1]), **node.attributes)
    return None


@REPEATED_BATCHES.on(ops.Mul)
def scale_before_product(b: Builder, node: Node) -> Value | None:
    """Multiply the smaller operand of a product by a scalar, if it has fewer elements than the result."""
    for value, factor in (node.operands, node.operands[::-1]):
        made = made_by(value, ops.DotGeneral)
        if made is None or factor is None or uniform_scalar(made.result, factor) is None:
            continue
        operands = [made.operand(0), made.operand(1)]
        place = 0 if _has_fewer(*operands) else 1
        if not single_use(made.result, b.graph) or any(map(is_weight, operands)):
            continue
        if _has_fewer(operands[place], made.result):
            operands[place] = b(ops.Mul, operands[place], factor.numpy().reshape(()))
            return b(made.op, *operands, **made.attributes)
    return None


def _has_fewer(a: Value, b: Value) -> bool:
    """Whether `a` has fewer elements than `b`, of known sizes."""
    first, second = a.shape, b.shape
    return a.dtype.is_float and is_static(first) and is_static(second) and math.prod(first) < math.prod(second)


@REPEATED_BATCHES.on(ops.DotGeneral)
def rows_of_repeated_batches(b: Builder, node: Node) -> Value | None:
    """Multiply the rows of all batches that have the same matrix by it at once."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    count = len(roles.lhs_batch)
    if not count or node.attr("output_permutation") or not roles.is_batch_matmul or roles.lhs_free != (count,):
        return None
    turned = made_by(rhs, ops.Transpose)
    order = tuple(range(rhs.rank)) if turned is None else tuple(turned.attr("permutation"))
    source = _once(rhs if turned is None else turned.operand(0), order[count - 1])
    if source is None or not is_static((*lhs.shape, *node.result.shape)):
        return None
    small, times = source
    rows = list(lhs.shape)
    rows[count - 1], rows[count] = lhs.size(count - 1) // times, lhs.size(count) * times
    attributes = {
        **node.attributes,
        "rhs_batching_dimensions": tuple(order[a] for a in roles.rhs_batch),
        "rhs_contracting_dimensions": tuple(order[a] for a in roles.rhs_contract),
    }
    made = b(node.op, reshape(b, lhs, rows), reshape(b, small, _merged(small.shape, order[count - 1])), **attributes)
    return reshape(b, made, node.result.shape)


def _once(value: Value, axis: int) -> tuple[Value, int] | None:
    """What `value` repeats along `axis`, each of its parts several times, with a unit axis after it; how many times."""
    merge = made_by(value, ops.Reshape)
    wide = made_by(merge.operand(0), ops.BroadcastTo) if merge is not None else None
    if merge is None or wide is None or not wide.operand(0).tensor_type.is_static:
        return None
    small, full = wide.operand(0).shape, wide.result.shape
    if len(small) != len(full) or not is_static(full) or merge.result.shape != _merged(full, axis):
        return None
    times = wide.result.size(axis + 1) if axis + 1 < len(full) else 1
    repeats = small == (*full[: axis + 1], 1, *full[axis + 2 :])
    return (wide.operand(0), times) if times > 1 and repeats else None


def _merged(shape: Shape, axis: int) -> Shape:
    """A shape with `axis` and the one after it as one."""
    return (*shape[:axis], product(shape[axis : axis + 2]), *shape[axis + 2 :])
