"""Sequences and optionals: Tuple GetTupleElement Unstack Absent.

They exist while a file is lifted: every op on a sequence is resolved to ops on its elements, so no kernel sees one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Attribute, Integer
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Attributes, Op, Operand
from onnxtfl.ir.types import OptionalType, SequenceType, TupleType, Type


class Assembled(Op, register=False):
    """Ops whose results are sequences and optionals, of the operands that their elements are stored in."""


class Tuple(Assembled):
    """A sequence of known length: its elements, of any types; evaluated, an object vector of them.

    Source: neutral-ops 3.138; XLA Tuple.
    """

    core = True
    operands = (Operand("elements", variadic=True),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        types = [node.operand(i).type for i in range(len(node.operands))]
        return [TupleType(tuple(t for t in types if t is not None))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        result = np.empty(len(operands), object)
        for i, element in enumerate(operands):
            result[i] = element
        return result


class GetTupleElement(Op):
    """Element `index` of a tuple. Not core: the Tuple that makes the operand has the element as an operand.

    Source: neutral-ops 3.57; XLA GetTupleElement.
    """

    operands = (Operand("tuple"),)
    attributes = {"index": Integer()}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_, index = node.operand(0).type, node.attr("index")
        if not isinstance(type_, TupleType):
            raise TypeError(f"the operand is {type_}, not a tuple")
        if not 0 <= index < len(type_.elements):
            raise ValueError(f"index {index} of a tuple of {len(type_.elements)} elements")
        return [type_.elements[index]]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        (elements,) = operands
        assert elements is not None
        return np.asarray(elements[attributes["index"]])


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
