"""If, whose branches are graphs that take captured values as inputs."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import Body
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import may_be_one
from onnxtfl.ir.graph import Node
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import BOOLS, Attributes, Op, Operand
from onnxtfl.ir.region_types import joined_type, region_of
from onnxtfl.ir.types import Type


class If(Op):
    """The outputs of `then_branch` if `pred`, of one element, is true, else those of `else_branch`.

    Both are graphs that take all of `captures` and have the same number of outputs, of the same element types. Sizes
    in which the branches differ are dynamic in the result; the shape is unknown if the ranks differ.
    Source: neutral-ops 3.66; ONNX If, TFLite IF.
    """

    core = True
    operands = (Operand("pred", BOOLS), Operand("captures", variadic=True))
    results = (Operand("outputs", variadic=True),)
    attributes = {"then_branch": Body(), "else_branch": Body()}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        if not all(map(may_be_one, node.operand(0).tensor_type.shape or ())):
            raise ValueError(f"the condition is {node.operand(0).type}")
        then_branch, else_branch = (region_of(node, name, node.operands[1:]) for name in cls.defaults)
        if len(then_branch.outputs) != len(else_branch.outputs):
            raise ValueError(f"the branches have {len(then_branch.outputs)} and {len(else_branch.outputs)} outputs")
        pairs = zip(then_branch.outputs, else_branch.outputs, strict=True)
        return [joined_type(a.type, b.type) for a, b in pairs]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        pred, *captures = operands
        assert pred is not None
        branch = attributes["then_branch" if bool(pred.reshape(-1)[0]) else "else_branch"]
        return tuple(run(branch, [v for v in captures if v is not None]))
