"""The computations of neutral-ops.txt, by which an accumulator and elements are combined: reductions and scattering.

Each is a fold: starting at an initial value a, an element x at a time.

=============  =============================================================================================
UPDATE         x: the last element
ADD SUB        a + x, a - x
MUL DIV        a * x, a / (the product of all x)
MIN MAX        the smaller, the larger one
AND OR XOR     of bools; of the bits of integers; floats are true unless they are 0
ARGMIN ARGMAX  the position of the first smallest (largest) element
L2             sqrt(a ** 2 + x ** 2)
COUNT          a + 1
=============  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import numeric
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import at_most, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.inlining import applied, is_elementwise, shown_ops
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import GatherElements, GatherND
from onnxtfl.ir.ops.logic import ShiftRightLogical
from onnxtfl.ir.ops.reductions import ArgMax, ArgMin
from onnxtfl.ir.ops.scattering import ScatterND
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.reshape import broadcast, dim_value, iota, reshape, transpose_and_merge
from onnxtfl.ir.types import DType


class Computation(Enum):
    """A computation of the document."""

    UPDATE = auto()
    ADD = auto()
    SUB = auto()
    MUL = auto()
    DIV = auto()
    MIN = auto()
    MAX = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    ARGMIN = auto()
    ARGMAX = auto()
    L2 = auto()
    COUNT = auto()


COMPUTATIONS = tuple(computation.name for computation in Computation)
"""The names of the computations."""

NEUTRAL: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "max": numeric.lowest,
    "min": numeric.highest,
    "any": lambda _: False,
    "all": lambda _: True,
}
"""The neutral elements of reductions."""


def joining(kind: str) -> type[Op]:
    """Return the binary op of a reduction of this kind."""
    return next(op for op in OPS.values() if op.reduction == kind)


# --- folds ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fold:
    """A fold as a reduction of `kind` over `encoded` elements, which `begun(a)` begins; `finished(a, joined)`.

    Encoded values may have one more axis, the last, with the bits of integers.
    """

    kind: str
    encoded: Callable[[Term], Term] = lambda x: x
    begun: Callable[[Term], Term] = lambda a: a
    finished: Callable[[Term, Term], Term] = lambda a, joined: joined


def _filled(number: int) -> Callable[[Term], Term]:
    """Return a function from a tensor to one of its shape and dtype that is filled with `number`."""
    return lambda x: Term(x.b, broadcast(x.b, x.b.scalar(number, x.value), x.value.shape, x.value))


def _bits(x: Term) -> Term:
    """The bits of integers along a new last axis, or whether an element is not 0: int32 0 or 1."""
    if not x.dtype.is_integer:
        return (x if x.dtype is DType.BOOL else x.differs(0)).to(DType.INT32)
    raw = _signed(x)
    places = np.arange(raw.dtype.bits, dtype=raw.dtype.numpy)
    spread = Term(x.b, reshape(x.b, raw.value, (*raw.value.shape, 1), x.value))
    return (spread.apply(ShiftRightLogical, places, in_range=True) & 1).to(DType.INT32)


def _signed(x: Term) -> Term:
    return x.bits(DType(x.dtype.value.removeprefix("u")))


def _number(a: Term, bits: Term) -> Term:
    """The elements of the type of `a` with these bits."""
    if not a.dtype.is_integer:
        return bits.differs(0).to(a.dtype)
    signed, wide = _signed(a).dtype, DType.INT64 if a.dtype.bits == 64 else DType.INT32
    powers = np.left_shift(wide.numpy.type(1), np.arange(a.dtype.bits, dtype=wide.numpy))
    total = (bits.to(wide) * Term(a.b, constant(powers))).reduce("sum", [bits.rank - 1], keepdims=False)
    return total.to(signed).bits(a.dtype)


def _real(x: Term) -> Term:
    return x.to(DType.FLOAT32) if x.dtype.is_integer else x


def _squared(x: Term) -> Term:
    return _real(x) * _real(x)


FOLDS = {
    Computation.ADD: Fold("sum"),
    Computation.SUB: Fold("sum", begun=_filled(0), finished=lambda a, joined: a - joined),
    Computation.MUL: Fold("prod"),
    Computation.DIV: Fold("prod", begun=_filled(1), finished=lambda a, joined: a / joined),
    Computation.MIN: Fold("min"),
    Computation.MAX: Fold("max"),
    Computation.AND: Fold("min", _bits, _bits, _number),
    Computation.OR: Fold("max", _bits, _bits, _number),
    Computation.XOR: Fold("sum", _bits, _bits, lambda a, joined: _number(a, joined % 2)),
    Computation.L2: Fold("sum", _squared, _squared, lambda a, joined: joined.sqrt().to(a.dtype)),
    Computation.COUNT: Fold("sum", _filled(1)),
}
"""The computations that do not depend on positions."""

_NEUTRAL_OF = {
    Computation.AND: "all",
    Computation.MUL: "prod",
    Computation.DIV: "prod",
    Computation.MIN: "min",
    Computation.MAX: "max",
    Computation.ARGMIN: "min",
    Computation.ARGMAX: "max",
}


def neutral_element(b: Builder, x: Value, computation: Computation) -> Value:
    """The initial value, a scalar, that does not change a fold of elements of `x`."""
    kind = _NEUTRAL_OF.get(computation, "sum")
    if kind == "all":
        return constant(np.asarray(-1 if x.dtype.is_integer else 1).astype(x.dtype.numpy), x.dtype)
    return b.scalar(NEUTRAL[kind](x.dtype.numpy), x)


# --- reductions -------------------------------------------------------------------------------------------------------


def reduced(b: Builder, x: Value, start: Value, axes: Sequence[int], computation: Computation) -> Value:
    """The fold of the elements of `x` along `axes`, which are dropped, from `start`, a scalar.

    ARGMIN and ARGMAX: positions in the flattened `axes`, in the type of `x`, whatever `start` is.
    """
    if computation in FOLDS:
        fold, first = FOLDS[computation], Term(b, start)
        total = fold.encoded(Term(b, x)).reduce(fold.kind, list(axes), keepdims=False)
        return fold.finished(first, fold.begun(first).apply(joining(fold.kind), total)).value
    merged, last = _merged(b, x, axes)
    if computation is Computation.UPDATE:
        before = broadcast(b, start, (*merged.shape[:last], 1), merged)
        both = b(Concatenate, before, merged, axis=last)
        return reshape(b, slice_axes(b, both, {last: slice(-1, None)}), merged.shape[:last], merged)
    op = ArgMax if computation is Computation.ARGMAX else ArgMin
    return Term(b, b(op, merged, axis=last, keepdims=False)).to(x.dtype).value


def _merged(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, int]:
    """`x` with `axes` merged to the last axis, and that axis."""
    kept = [a for a in range(x.rank) if a not in axes]
    groups = [*([a] for a in kept), [a for a in range(x.rank) if a in axes]]
    return transpose_and_merge(b, x, groups), len(kept)


_SELECTING: dict[str, tuple[type[Op], str]] = {"max": (ArgMax, "GT"), "min": (ArgMin, "LT")}
"""The reductions of several operands: the position of the selected element, and when it replaces the initial one."""


def selected(b: Builder, operands: Sequence[Value], starts: Sequence[Value], axis: int, kind: str) -> list[Value]:
    """The elements of all operands at the position along `axis` of the first max (min) of the first operand.

    They are `starts` (scalars) if that is not above (below) the first of these. ValueError for another kind.
    """
    if kind not in _SELECTING:
        raise ValueError(f"{kind} of several inputs")
    position, direction = _SELECTING[kind]
    first = operands[0]
    shape = first.shape[:axis] + first.shape[axis + 1 :]
    where = b(position, first, axis=axis, keepdims=True)
    found = [Term(b, reshape(b, b(GatherElements, x, where, axis=axis), shape, first)) for x in operands]
    replaces = found[0].compared(direction, Term(b, starts[0]))
    return [replaces.choose(one, Term(b, start)).value for one, start in zip(found, starts, strict=True)]


def reduced_together(
    b: Builder, operands: Sequence[Value], starts: Sequence[Value], axes: Sequence[int], computation: Computation
) -> list[Value]:
    """The reduction of one operand, or the elements of several where the first has its extreme (MIN, MAX, ARG...)."""
    if len(operands) == 1:
        return [reduced(b, operands[0], starts[0], axes, computation)]
    kind = computation.name.removeprefix("ARG").lower()
    merged = [_merged(b, x, axes)[0] for x in operands]
    return selected(b, merged, starts, merged[0].rank - 1, kind)


_MOST_PAIRED = 1 << 20
"""The longest axis that is reduced by pairs: each step halves it."""


def reduced_by_graph(
    b: Builder, operands: Sequence[Value], starts: Sequence[Value], body: Graph, axes: Sequence[int]
) -> list[Value]:
    """Apply an elementwise `body` to pairs of neighbors until one element is left, then to the initial values and that.

    The order of the elements stays, as StableHLO demands of bodies that do not commute. `body`: a graph from two
    elements of each operand to one of each.
    """
    if not is_elementwise(body):
        raise UnsupportedError(f"a reduction whose body is not elementwise: {shown_ops(body)}", code="E-OP-005")
    merged = [_merged(b, x, axes) for x in operands]
    values, last = [value for value, _ in merged], merged[0][1]
    shape, size = values[0].shape[:last], values[0].shape[last]
    if not at_most(size, _MOST_PAIRED):
        raise UnsupportedError(f"a reduction of {size} elements by {shown_ops(body)}", code="E-SHAPE-001")
    while size > 1:
        halves = [slice_axes(b, v, {last: slice(i, size - size % 2, 2)}) for i in (0, 1) for v in values]
        joined = _spread(b, applied(b, body, halves), halves)
        rest = [slice_axes(b, v, {last: slice(size - 1, size)}) for v in values] if size % 2 else []
        values = [b(Concatenate, *pair, axis=last) for pair in zip(joined, rest, strict=True)] if rest else joined
        size = size // 2 + size % 2
    if size == 0:
        return [broadcast(b, start, shape, operands[0]) for start in starts]
    totals = [reshape(b, v, shape, v) for v in values]
    return _spread(b, applied(b, body, [*starts, *totals]), [*totals, *totals])


def _spread(b: Builder, results: Sequence[Value], like: Sequence[Value]) -> list[Value]:
    """Broadcast results that do not depend on all operands of a body."""
    return [broadcast(b, v, x.shape, x) for v, x in zip(results, like, strict=False)]


# --- scattering -------------------------------------------------------------------------------------------------------

_SCATTERED = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}


def scattered(
    b: Builder, x: Value, rows: Value, updates: Value, computation: Computation, unique: bool = False
) -> Value:
    """Each element of `x` folded with the updates at its position (`rows`, as for ScatterND), in order.

    `unique`: no position is written twice.
    ARGMIN and ARGMAX: the number of the update with the extreme, from 1 on; 0 if the element itself is the extreme.
    """
    if computation is Computation.UPDATE:
        return b(ScatterND, x, rows, updates, kind="none", unique_indices=unique)
    if computation not in FOLDS:
        return _numbers_of_extremes(b, x, rows, updates, "max" if computation is Computation.ARGMAX else "min")
    fold, element = FOLDS[computation], Term(b, x)
    news, kind = fold.encoded(Term(b, updates)).value, _SCATTERED[fold.kind]
    total = b(ScatterND, fold.begun(element).value, rows, news, kind=kind)
    result = fold.finished(element, Term(b, total))
    if fold.begun is _bits and element.dtype.is_float:  # elements without an update stay
        none, one = (_filled(number)(Term(b, v)).to(DType.INT32).value for number, v in ((0, x), (1, updates)))
        result = (Term(b, b(ScatterND, none, rows, one, kind="add")) > 0).choose(result, element)
    return result.value


def _numbers_of_extremes(b: Builder, x: Value, rows: Value, updates: Value, kind: str) -> Value:
    best = b(ScatterND, x, rows, updates, kind=kind)
    count, none = product(rows.shape[:-1]), (1 << 31) - 1
    inner = (1,) * (updates.rank - rows.rank + 1)
    numbers = Term(b, reshape(b, iota(b, dim_value(b, count, rows)), (*rows.shape[:-1], *inner), rows)) + 1
    at, before = (Term(b, b(GatherND, v, rows)) for v in (best, x))
    wins = at.equals(Term(b, updates)) & at.differs(before)
    numbered = wins.choose(numbers.to(DType.INT32), none).value
    blank = broadcast(b, b.scalar(none, DType.INT32), x.shape, x)
    first = Term(b, b(ScatterND, blank, rows, numbered, kind="min"))
    return (first < none).choose(first, 0).to(x.dtype).value
