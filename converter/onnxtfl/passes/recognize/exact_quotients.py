"""Quotients of int64 by odd constants, written as products with the inverse modulo 2**64 (mappings/math/arithmetic.py).

::

    %r = Rem(%x, 3)
    %m = Sub(%x, %r)                                       ->     %y = Div(%x, 3)
    %y = Mul(%m, -6148914691236517205)
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

EXACT_QUOTIENTS = Patterns()


@EXACT_QUOTIENTS.on(ops.Mul)
def by_inverse(b: Builder, node: Node) -> Value | None:
    """Mul(Sub(x, Rem(x, c)), d) -> Div(x, c), if c d = 1 modulo 2**64."""
    if node.result.dtype is not DType.INT64:
        return None
    multiple = made_by(node.operand(0), ops.Sub)
    rest = made_by(multiple.operand(1), ops.Rem) if multiple is not None else None
    if multiple is None or rest is None or rest.operand(0) is not multiple.operand(0):
        return None
    divisor, inverse = (_number(v) for v in (rest.operand(1), node.operand(1)))
    is_inverse = divisor is not None and inverse is not None and divisor * inverse % (1 << 64) == 1
    return b(ops.Div, *rest.operands) if is_inverse else None


def _number(value: Value) -> int | None:
    """The only element of a constant."""
    return int(value.numpy().reshape(())) if value.is_constant and value.is_single else None
