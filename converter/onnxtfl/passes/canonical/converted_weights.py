"""Matrices that are converted before they are multiplied, such as float16 weights, with the features first.

::

    %w = Convert(%half: [k, n])               %w = Convert(%half transposed: [n, k])
    %y = DotGeneral(%x, %w)            ->     %y = DotGeneral(%x, %w) {rhs_contracting_dimensions = [1]}

Kernels for weights read them in this order. For constants the form of the kernel has it; a converted one would keep its
own order where another kernel is as fast, for one row but not for many: two signatures would store it twice.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.reshape import transposed
from onnxtfl.rewriting.patterns import Patterns

CONVERTED_WEIGHTS = Patterns()
_PRODUCTS = (ops.DotGeneral, ops.DotGeneralBias)


@CONVERTED_WEIGHTS.on(*_PRODUCTS)
def features_first(b: Builder, node: Node) -> Value | None:
    """Rewrite one product whose weight [k, n] only products read."""
    x, weight, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    convert = made_by(weight, ops.Convert)
    if convert is None or not convert.operand(0).is_constant or any(u.op not in _PRODUCTS for u in weight.users()):
        return None
    if weight.rank != 2 or roles.rhs_contract != (0,) or roles.lhs_contract != (x.rank - 1,):
        return None
    turned = b(ops.Convert, transposed(b, convert.operand(0), (1, 0)), **convert.attributes)
    return b.remade(node, x, turned, *node.operands[2:], rhs_contracting_dimensions=(1,))[0]
