"""Base classes of ops, with their declarations, and ops of file dialects.

A neutral op is a subclass of :class:`Op` in ``ir/ops``; its name is the class's. Ops of a file's dialect (``onnx.Conv``
since version 11, ``tfl.CONV_2D`` version 3) are made by :func:`foreign_op`; they have a name and a version only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from onnxtfl.ir.declaration import (
    ANY,
    BOOLS,
    FLOATS,
    INDICES,
    INTEGERS,
    NUMERIC,
    Attributes,
    Effect,
    Operand,
    Permutation,
    Permuted,
    Pick,
    SharedAxes,
)
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.divisions import Division, broadcast
from onnxtfl.ir.dtypes import Array
from onnxtfl.ir.graph import OPS, Node, Op, Value, attributes_of
from onnxtfl.ir.shapes import broadcast_shapes


class Elementwise(Op, register=False):
    """An op whose result at an index depends on its operands at that index only, under NumPy broadcasting."""

    shared_axes = SharedAxes(None)
    typed = True

    @staticmethod
    def shape(*operands: Value | None, **attributes: Any) -> Shape | None:
        return broadcast_shapes(*(v.tensor_type.shape for v in operands if v is not None))

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterable[Division]:
        return broadcast(operands)


Kind = TypeVar("Kind", bound=type[Op])


def computed_by(kind: Kind, name: str, compute: Callable[..., Any], meaning: str, **declared: Any) -> Kind:
    """Declare an op like `kind` that `compute`, a function of arrays, evaluates."""
    module = sys._getframe(1).f_globals["__name__"]
    namespace = {"__doc__": meaning, "__module__": module, "compute": staticmethod(compute), **declared}
    return cast(Kind, type(name, (kind,), namespace))


_FOREIGN: dict[tuple[str, str, int, str], type[Op]] = {}


def foreign_op(dialect: str, name: str, version: int = 1, domain: str = "") -> type[Op]:
    """The op `name` of a file format (`dialect`: "onnx" or "tfl").

    Equal arguments return the same class, in all threads.
    """
    key = dialect, name, version, domain
    if key not in _FOREIGN:
        names = {"dialect": dialect, "domain": domain, "name": f"{dialect}.{name}", "name_in_file": name}
        declared = {**names, "version": version, "effect": Effect.WRITES}
        made = type(name.replace("\0", "?"), (Op,), declared, register=False)
        _FOREIGN.setdefault(key, made)
    return _FOREIGN[key]
