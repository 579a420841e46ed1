"""The names that op modules use: base classes, declarations, and ops of file dialects.

A neutral op is a subclass of :class:`Op` in ``ir/ops``; its name is the class's. Ops of a file's dialect (``onnx.Conv``
since version 11, ``tfl.CONV_2D`` version 3) are made by :func:`foreign`; they have a name and a version only.
"""

from __future__ import annotations

from typing import Any

from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import OPS, Node, Op, Value, attributes_of
from onnxtfl.ir.shapes import broadcast_shapes
from onnxtfl.ir.signature import (
    ANY,
    BOOLS,
    FLOATS,
    INDICES,
    INTEGERS,
    NUMERIC,
    REQUIRED,
    Attributes,
    Effect,
    Operand,
    Permutation,
    Permuted,
)
from onnxtfl.ir.types import TensorType


class Elementwise(Op, register=False):
    """An op whose result at an index depends on its operands at that index only, under NumPy broadcasting."""

    @staticmethod
    def shape(*operands: Value | None, **attributes: Any) -> Shape | None:
        return broadcast_shapes(*(v.tensor_type.shape for v in operands if v is not None))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """Permute every operand of full rank; operands of rank 0 or one element stay.

        None if a rank is unknown, or another operand has a lower rank.
        """
        ranks = [None if v is None else v.tensor_type.rank for v in node.operands]
        full = len(permutation)
        known = [v.type.rank if isinstance(v.type, TensorType) else None for v in node.results]
        if any(r is None and v is not None for r, v in zip(ranks, node.operands, strict=True)) or set(known) != {full}:
            return None
        if any(r is not None and r > full for r in ranks):
            return None  # the result has more axes than this operand
        if any(r not in (None, 0, full) and not is_single(v) for r, v in zip(ranks, node.operands, strict=True)):
            return None
        operands = tuple(permutation if r == full else None for r in ranks)
        return Permuted(operands, (permutation,) * len(node.results))


def is_single(value: Value | None) -> bool:
    """Whether all dimensions in the type of `value` are 1."""
    shape = value.tensor_type.shape if value is not None else None
    return shape is not None and all(d == 1 for d in shape)


def inverse(permutation: Permutation) -> Permutation:
    """The permutation that undoes `permutation`."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


_FOREIGN: dict[tuple[str, str, int, str], type[Op]] = {}


def foreign(dialect: str, name: str, version: int = 1, domain: str = "") -> type[Op]:
    """The op `name` of a file format (`dialect`: "onnx" or "tfl").

    Equal arguments return the same class, in all threads.
    """
    key = dialect, name, version, domain
    if key not in _FOREIGN:
        namespace = {"dialect": dialect, "name": f"{dialect}.{name}", "version": version, "domain": domain}
        made = type(name, (Op,), namespace | {"effect": Effect.WRITES}, register=False)
        _FOREIGN.setdefault(key, made)
    return _FOREIGN[key]
