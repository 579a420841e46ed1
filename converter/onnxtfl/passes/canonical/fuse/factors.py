"""Moves factors to where constant weights take them in: the scale of the scores of an attention.

::

    %q = DotGeneralBias(%x, %w, %v)                     %q = Mul(DotGeneralBias(%x, %w, %v), 0.125)
    %h = Transpose(Reshape(%q))                         %h = Transpose(Reshape(%q))
    %s = DotGeneral(%h, %k)                      ->     %y = DotGeneral(%h, %k)
    %y = Mul(%s, 0.125)

The factor is then multiplied into %w and %v (`linear.factor_by_feature`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import is_weight, made_by, single_use, uniform_scalar, with_constant
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.fuse.linear import Linear
from onnxtfl.rewriting.patterns import Patterns

FACTORS = Patterns()

Step = tuple[Node, int]
"""A node through which a factor moves, from its result to that operand."""


@FACTORS.on(ops.Mul, ops.Div)
def factor_before_moves(b: Builder, node: Node) -> Value | None:
    """Move a scalar factor before reshapes, transposes and one product, if it then is that of a linear node."""
    found = with_constant(node)
    if found is None or (node.op is ops.Div and found[2] == 0) or found[0].dtype is not DType.FLOAT32:
        return None
    value, factor, _ = found
    number = uniform_scalar(value, factor)
    if not number or node.result.type != value.type:
        return None
    steps = _steps_to_linear(b, value)
    if not steps:
        return None
    first, place = steps[-1]
    moved = b(node.op, first.operand(place), np.asarray(number, np.float32))
    for step, operand in reversed(steps):
        operands = [moved if i == operand else v for i, v in enumerate(step.operands)]
        moved = b.remade(step, *operands)[0]
    return moved


def _steps_to_linear(b: Builder, value: Value, is_product: bool = False) -> Sequence[Step]:
    """The nodes from that of `value` to the first after a linear node with constant weights; () if there is none."""
    node = made_by(value)
    if node is None or not single_use(value, b.graph):
        return ()
    if node.op in (ops.Reshape, ops.Transpose):
        places: Sequence[int] = (0,)
    elif node.op is ops.DotGeneral and not is_product and not any(is_weight(node.operand(i)) for i in (0, 1)):
        is_product, places = True, (0, 1)
    else:
        return ()
    for place in places:
        if _takes_factor(b, node.operand(place)):
            return ((node, place),)
        if rest := _steps_to_linear(b, node.operand(place), is_product):
            return ((node, place), *rest)
    return ()


def _takes_factor(b: Builder, value: Value) -> bool:
    """Whether a factor of `value` becomes one of constant weights."""
    linear = Linear.of(value) if single_use(value, b.graph) else None
    if linear is None or linear.column is None or linear.node.operand(1).data is None:
        return False
    bias = linear.node.optional(2)
    return bias is None or bias.is_constant
