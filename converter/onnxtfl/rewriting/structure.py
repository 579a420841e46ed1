"""The structure of a node, which a deep network repeats: an answer about one node is that about all equal ones."""

from __future__ import annotations

import marshal
from collections.abc import Hashable

from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType

FEW = 64
"""The most elements of constants like axes and sizes."""


def structure_of(node: Node, with_elements: bool = False) -> Hashable:
    """The op, attributes and types of `node`, which operands are constant, and the elements of axes and sizes or, with
    `with_elements`, of all small constants.

    None for attributes that are not plain, for regions, and for operands whose elements are known otherwise or may
    matter.
    """
    try:
        attributes = marshal.dumps(node.attributes, 2)
    except ValueError:
        return None
    operands: list[Hashable] = []
    for value in node.operands:
        elements = None
        if value is not None and (value.known is not None or (with_elements and value.data is not None)):
            elements = _elements_of(value)
            if elements is None:
                return None
        operands.append(value and (value.type, value.data is None, elements))
    return node.op, attributes, tuple(operands), tuple([r.type for r in node.results])


def _elements_of(value: Value) -> bytes | None:
    """The elements of a small constant; empty for weights, of which rules read the type only; None for others."""
    data = value.data
    if data is not None and data.size <= FEW and data.dtype is not DType.STRING:
        return data.numpy().tobytes()
    return b"" if data is not None and data.dtype.is_float and not value.is_quantized else None
