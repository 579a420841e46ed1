"""Ops of the neutral set that are their one rule into the core (``ir/ops/derived.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.derived import Derived
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import OPS
from onnxtfl.rules import decompose


def _expand(b: Builder, node: Node) -> Sequence[Value]:
    assert issubclass(node.op, Derived)
    return node.op.expand(b, node)


for op in OPS.values():
    if issubclass(op, Derived):
        decompose(op)(_expand)
