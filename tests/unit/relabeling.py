"""Checks `Op.relabel`: the op on permuted operands, read as relabeled, gives the permuted results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.builder import infer
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Op, Permutation
from onnxtfl.ir.types import dtype_of


def check_relabel(
    op: type[Op], operands: Sequence[Any], attributes: Mapping[str, Any], index: int, permutation: Permutation
) -> bool:
    """Whether `op` can be relabeled so; AssertionError where the relabeled node means something else."""
    arrays = [np.asarray(v) for v in operands]
    node = Node(op, [constant(a, dtype_of(a.dtype)) for a in arrays], attributes)
    for type_ in infer(node):
        node.add_result(type_)
    relabeled = op.relabel(node, index, permutation)
    if relabeled is None:
        return False
    asked = relabeled.results[0] if index == -1 else relabeled.operands[index]
    assert asked == permutation
    moved = [a if p is None else a.transpose(p) for a, p in zip(arrays, relabeled.operands, strict=True)]
    for i, order in relabeled.vectors.items():
        moved[i] = moved[i][list(order)]
    for i, order in relabeled.axes.items():
        moved[i] = np.asarray([order.index(axis % len(order)) for axis in moved[i].reshape(-1)]).reshape(moved[i].shape)
    again = Node(op, [constant(a, dtype_of(a.dtype)) for a in moved], {**attributes, **relabeled.attributes})
    infer(again)
    wanted = evaluate_node(node, arrays)
    found = evaluate_node(again, moved)
    for want, have, label in zip(wanted, found, relabeled.results, strict=True):
        np.testing.assert_array_equal(have, want if label is None else want.transpose(label))
    return True
