"""Comparisons, and the choice between two tensors: Compare Select."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import KNOWN_LIMIT, Node
from onnxtfl.ir.op import ANY, BOOLS, REQUIRED, Elementwise, Operand
from onnxtfl.ir.ops.arithmetic import broadcast_type
from onnxtfl.ir.types import DType, TensorType, Type

_DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


class Compare(Elementwise):
    """Whether lhs and rhs stand as `comparison_direction` says: EQ NE GE GT LE LT. Source: neutral-ops 3.24."""

    operands = (Operand("lhs", ANY), Operand("rhs", ANY))
    defaults = {"comparison_direction": REQUIRED}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        if node.attr("comparison_direction") not in _DIRECTIONS:
            raise ValueError(f"no comparison is called {node.attr('comparison_direction')!r}")
        return [TensorType(DType.BOOL, broadcast_type(node).shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        a, b = operands
        assert a is not None and b is not None
        compare = _DIRECTIONS[attributes["comparison_direction"]]
        return np.asarray(compare(numeric.widened(a), numeric.widened(b)), bool)

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """Sizes whose difference is a number compare before run time."""
        a, b = node.operand(0).known, node.operand(1).known
        if a is None or b is None:
            return [None]
        a, b = np.broadcast_arrays(a, b)
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        answers = [_compared(x, y, node.attr("comparison_direction")) for x, y in pairs]
        if len(answers) > KNOWN_LIMIT or any(answer is None for answer in answers):
            return [None]
        return [np.asarray(answers, object).reshape(a.shape)]


def _compared(a: Dim, b: Dim, direction: str) -> bool | None:
    difference = a - b
    return bool(_DIRECTIONS[direction](difference, 0)) if isinstance(difference, int) else None


class Select(Elementwise):
    """on_true where pred, else on_false; all three broadcast. Source: neutral-ops 3.109, widened as ONNX Where."""

    operands = (Operand("pred", BOOLS), Operand("on_true"), Operand("on_false"))
    core = True
    moves = slice(1, 3)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [broadcast_type(node, first=1)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        pred, on_true, on_false = operands
        assert pred is not None and on_true is not None and on_false is not None
        return np.where(pred, on_true, on_false)

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """Known where the choice is a constant and both sides are known."""
        pred, on_true, on_false = (node.operand(i) for i in range(3))
        if pred.data is None or pred.data.size > KNOWN_LIMIT or on_true.known is None or on_false.known is None:
            return [None]
        result = np.where(pred.numpy(), on_true.known, on_false.known)
        return [result if result.size <= KNOWN_LIMIT else None]
