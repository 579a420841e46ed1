"""Custom: an op that only a kernel of the user computes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import Attribute, Integer, Text
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Effect, Op, Operand
from onnxtfl.ir.types import Type


class Custom(Op):
    """A call of a user's kernel: the op `called` of `domain`. Never evaluated, folded, merged or removed.

    The results have `types`. `attributes`: the payload, by name as in ONNX; TFLite stores it as custom options. Such an
    op is written as the same custom op in both formats (`--allow-custom`).
    Source: neutral-ops 3.34; XLA CustomCall, whose target is `called` and whose backend_config is `attributes`.
    """

    documented = "CustomCall"
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
