"""Selection between two tensors: Select."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import KNOWN_LIMIT, Node
from onnxtfl.ir.op import BOOLS, Elementwise, Operand


class Select(Elementwise):
    """on_true where pred, else on_false; all three broadcast. Source: neutral-ops 3.109, widened as ONNX Where."""

    operands = (Operand("pred", BOOLS), Operand("on_true"), Operand("on_false", like="on_true"))
    results = (Operand("output", like="on_true"),)
    core = True
    moves = slice(1, 3)
    compute = np.where

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None]:
        """Known if the condition is constant and both operands are known."""
        pred, on_true, on_false = (node.operand(i) for i in range(3))
        if pred.data is None or pred.data.size > KNOWN_LIMIT or on_true.known is None or on_false.known is None:
            return [None]
        result = np.where(pred.numpy(), on_true.known, on_false.known)
        return [result if result.size <= KNOWN_LIMIT else None]
