"""Sizes in the words of the user, for messages: named dimensions, and ``input[axis]`` for those without a name.

::

    batch*seq           (h//2 - 1)//2 + ... of many terms               an unknown size
    batch*seq           a size that depends on h and w                  a size computed at run time
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import field

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import Dim, Shape, Symbol, dim_text, symbol, symbols
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.scopes import scope
from onnxtfl.ir.types import TensorType, Type, shape_of

_LONGEST = 24
"""The most characters of a formula that is printed."""
MOST_TYPES = 32
"""The most types in the message of an error; ops of files have up to 24 operands, and some any number."""
COMPUTED = "a size computed at run time"


@dataclass
class _Inputs:
    """The shapes of the converted graph's inputs, and the names of their dynamic sizes."""

    shapes: list[Shape] = field(default_factory=list)
    names: dict[Symbol, str] = field(default_factory=dict)


_CURRENT: ContextVar[_Inputs] = ContextVar("onnxtfl_inputs")


def inputs_scope() -> AbstractContextManager[object]:
    """A scope for one conversion."""
    return scope(_CURRENT, _Inputs())


def remember_inputs(values: Iterable[Value]) -> None:
    """Remember names of dynamic input sizes in this scope; a no-op outside of one."""
    inputs = _CURRENT.get(None)
    if inputs is None:
        return
    inputs.shapes, inputs.names = [], {}
    for value in values:
        shape = shape_of(value.type) or ()
        inputs.shapes.append(shape)
        for axis, dim in enumerate(shape):
            if (size := _symbol(dim)) is not None:
                inputs.names.setdefault(size, size if isinstance(size, str) else f"{value.name}[{axis}]")


def shown_dim(dim: Dim) -> str:
    """Format a size for a message: a number, a name, a short formula, or the sizes on which it depends."""
    names = _names(dim)
    if names is None:
        return COMPUTED
    formula = _formula(dim)
    return formula if len(formula) <= _LONGEST else f"a size that depends on {' and '.join(names)}"


def shown_shape(shape: Sequence[Dim]) -> str:
    """A shape in brackets: a size that has no short formula is ``?``, or ``?(h,w)`` where it depends on inputs."""
    return f"[{','.join(map(dim_in_shape, shape))}]"


def dim_in_shape(dim: Dim) -> str:
    """A size for the listing of a shape; see `shown_shape`."""
    names = _names(dim)
    if names is None:
        return "?"
    formula = _formula(dim)
    return formula if len(formula) <= _LONGEST else f"?({','.join(names)})"


def shown_type(type_: Type | None) -> str:
    """Format a type with dynamic sizes as in `shown_shape`."""
    return type_.text(dim_in_shape) if isinstance(type_, TensorType) else "?" if type_ is None else str(type_)


def operand_types(node: Node) -> str:
    """The types of the operands of a node, for its errors; of the first `MOST_TYPES`."""
    shown = ["absent" if v is None else shown_type(v.type) for v in node.operands[:MOST_TYPES]]
    more = len(node.operands) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)


def may_be_fed(dim: Dim, size: int) -> bool:
    """Whether a user may feed inputs with an axis `dim` of `size`.

    It is then an open size of an input. Where `size` is 0, another input has elements still: a model without any
    input elements has nothing to compute, but one with an empty cache beside a token has.
    """
    inputs, fed = _CURRENT.get(None), _symbol(dim)
    if inputs is None or fed is None or fed not in inputs.names:
        return False
    return size > 0 or any(fed not in {s for d in shape for s in symbols(d)} for shape in inputs.shapes)


def is_of_inputs(dim: Dim | None) -> bool:
    """Whether `dim` is known from the sizes of the inputs."""
    return dim is not None and _names(dim) is not None


def _symbol(dim: Dim) -> Symbol | None:
    """The symbol that `dim` is; None for other expressions."""
    found = next(symbols(dim), None)
    return found if found is not None and dim == symbol(found) else None


def _names(dim: Dim) -> list[str] | None:
    """The names of the symbols of `dim`, each once; None if one has none."""
    inputs = _CURRENT.get(None)
    known = {} if inputs is None else inputs.names
    found = [known.get(s, s if isinstance(s, str) else None) for s in symbols(dim)]
    return None if None in found else list(dict.fromkeys(name for name in found if name is not None))


def _formula(dim: Dim) -> str:
    inputs = _CURRENT.get(None)
    return dim_text(dim, lambda unknown: str(unknown) if inputs is None else inputs.names.get(unknown, str(unknown)))
