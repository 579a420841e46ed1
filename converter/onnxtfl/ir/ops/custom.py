"""Custom: an op that only a kernel of the user computes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import Attribute, Integer, Text
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Effect, Op, Operand
from onnxtfl.ir.types import Type


class Custom(Op):
    """The op `called` of `domain`, whose results have `types`. Never evaluated, folded, merged or removed.

    `attributes`: as ONNX has them. Source: custom ops of both formats (added).
    """

    core = True
    effect = Effect.WRITES
    operands = (Operand("operands", variadic=True),)
    results = (Operand("results", variadic=True),)
    attributes = {
        "called": Text(),
        "domain": Text(""),
        "version": Integer(1),
        "types": Attribute(),
        "attributes": Attribute(),
    }

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return list(node.attr("types"))
