"""Sequences and optionals: Tuple Unstack Absent.

They exist while a file is lifted: every op on a sequence is resolved to ops on its elements, so no kernel sees one.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import Attribute
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Op, Operand
from onnxtfl.ir.types import OptionalType, SequenceType, TupleType, Type


class Assembled(Op, register=False):
    """Ops whose results are sequences and optionals, of the operands that their elements are stored in."""


class Tuple(Assembled):
    """A sequence of known length: its elements, of any types. Without evaluation. Source: neutral-ops 3.138."""

    core = True
    operands = (Operand("elements", variadic=True),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        types = [node.operand(i).type for i in range(len(node.operands))]
        return [TupleType(tuple(t for t in types if t is not None))]


class Unstack(Assembled):
    """A sequence whose length is that of axis 0 of `input`, [n, ...]; element i is input[i]. Without evaluation.

    Source: TFLite UNPACK with a number of results that is known only at run time (added).
    """

    core = True
    operands = (Operand("input"),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_ = node.operand(0).tensor_type
        return [SequenceType(type_.with_shape(None if type_.shape is None else node.operand(0).shape[1:]))]


class Absent(Assembled):
    """An optional without a value, of a type if that is known. Without evaluation. Source: ONNX Optional-15 (added)."""

    core = True
    attributes = {"type": Attribute(None)}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [OptionalType(node.attr("type") or TupleType(()))]
