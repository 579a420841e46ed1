"""Checks `Op.permuted`: the op on permuted operands, read as permuted, gives the permuted results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.builder import infer
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Op, Permutation, Permuted
from onnxtfl.ir.types import dtype_of


def built(op: type[Op], operands: Sequence[Any], attributes: Mapping[str, Any]) -> Node:
    """The op over constants (None: absent), with the results it declares."""
    node = Node(op, [_constant(v) for v in operands], attributes)
    for type_ in infer(node):
        node.add_result(type_)
    return node


def _constant(operand: Any) -> Value | None:
    array = np.asarray(operand)
    return None if operand is None else constant(array, dtype_of(array.dtype))


def check_permuted(
    op: type[Op], operands: Sequence[Any], attributes: Mapping[str, Any], index: int, permutation: Permutation
) -> bool:
    """Whether `op` can be permuted so; AssertionError where the permuted node means something else."""
    node = built(op, operands, attributes)
    permuted = op.permuted(node, index, permutation)
    if permuted is None:
        return False
    asked = permuted.results[0] if index == -1 else permuted.operands[index]
    identity = tuple(range(len(permutation)))
    assert (identity if asked is None else asked) == permutation
    check_same_meaning(op, operands, attributes, permuted)
    return True


def check_same_meaning(
    op: type[Op], operands: Sequence[Any], attributes: Mapping[str, Any], permuted: Permuted
) -> None:
    """AssertionError where the node as `permuted` says means something else."""
    node = built(op, operands, attributes)
    arrays = [None if v is None else v.numpy() for v in node.operands]
    moved = _moved(arrays, permuted)
    again = built(op, moved, {**attributes, **permuted.attributes})
    wanted = evaluate_node(node, arrays)
    found = evaluate_node(again, moved)
    for want, have, label in zip(wanted, found, _padded(permuted.results, len(wanted)), strict=True):
        expected = want if label is None else want.transpose(label)
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(have, expected, rtol=1e-5, atol=1e-6)
            assert have.shape == expected.shape
        else:
            np.testing.assert_array_equal(have, expected)


def _moved(arrays: Sequence[Array | None], permuted: Permuted) -> list[Array | None]:
    """The operands as they are stored."""
    labels = _padded(permuted.operands, len(arrays))
    moved = [a if a is None or p is None else a.transpose(p) for a, p in zip(arrays, labels, strict=True)]
    for i, order in permuted.vectors.items():
        vector = moved[i] if i < len(moved) else None
        moved[i : i + 1] = [] if i >= len(moved) else [None if vector is None else vector[list(order)]]
    for i, order in permuted.axes.items():
        numbers = moved[i] if i < len(moved) else None
        if numbers is not None:
            renumbered = [order.index(axis % len(order)) for axis in numbers.reshape(-1).tolist()]
            moved[i] = np.asarray(renumbered, numbers.dtype).reshape(numbers.shape)
    return moved


def _padded(labels: Sequence[Permutation | None], count: int) -> list[Permutation | None]:
    return [*labels, *(None for _ in range(count - len(labels)))]
