"""The declaration of an op: operands, attributes, results, effects, shared axes; result types and evaluation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.attributes import REQUIRED, Attribute
from onnxtfl.ir.data import Array
from onnxtfl.ir.intervals import Facts
from onnxtfl.ir.numeric import widened
from onnxtfl.ir.types import DType, TensorType, dtype_of

FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMERIC = FLOATS | INTEGERS
BOOLS = frozenset({DType.BOOL})
INDICES = frozenset({DType.INT32, DType.INT64})
ANY = frozenset(DType)

Permutation = tuple[int, ...]
Attributes = Mapping[str, Any]
Pick = Literal["element", "mean"]


class Effect(Enum):
    """The side effect of an op; only pure ops may be removed, merged or folded."""

    PURE = "pure"
    RANDOM = "random"
    READS = "reads"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or result: its name, its allowed element types, and whether it is optional or variadic.

    `like`: the operand (of a result: or the attribute) with the same element type; `becomes`: those that differ.
    `likely`: sensible values [low, high) where a model does not say which; where `counts`, whole numbers in floats too.
    A result of several element types is like the first operand; variadic results are each like their own operand.
    """

    name: str
    dtypes: frozenset[DType] = ANY
    optional: bool = False
    variadic: bool = False
    like: str = ""
    becomes: Mapping[DType, DType] = field(default_factory=dict)
    likely: tuple[float, float] | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Permuted:
    """An op on operands with another axis order.

    `operands[i]` and `results[i]`: the axis order of that value (None: unchanged). `attributes`: those that change.
    `vectors[i]`: operand i is a vector with one entry per axis (pads, sizes, starts); its entries are permuted by this.
    `axes[i]`: operand i contains axes, which are renumbered for this axis order.
    """

    operands: tuple[Permutation | None, ...]
    results: tuple[Permutation | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[int, Permutation] = field(default_factory=dict)
    axes: Mapping[int, Permutation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedAxes:
    """The trait of ops whose results have the axes of operands: permuting these permutes those.

    `operands`: how many leading operands (None: all) have the axes of the results; those of one element may have fewer.
    `attributes`: the names of those that are axes. `vectors` and `axes`: the indices of operands that have an entry
    for each axis, and of those that are axes, known before run time.
    """

    operands: int | None = 1
    attributes: tuple[str, ...] = ()
    vectors: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


class UnknownRankError(UnsupportedError, TypeError):
    """The rank of a tensor has to be known here, and is not."""

    default_code = "E-SHAPE-001"


class Declaration:
    """Operands, attributes and results, the `shape` of these, and what they are (`compute`).

    `shape` and `compute` take all operands by position (None: absent), and those attributes that they have as keywords.
    """

    operands: ClassVar[tuple[Operand, ...]] = ()
    results: ClassVar[tuple[Operand, ...]] = (Operand("output"),)
    attributes: ClassVar[Mapping[str, Attribute]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Those of the attributes; ``REQUIRED`` for one that has to be given."""
    widens: ClassVar[bool] = False
    """Whether `compute` works in the wide types of its operands (:func:`onnxtfl.ir.numeric.widened`)."""
    moves: ClassVar[slice | None] = None
    """The operands whose elements the op moves to its results unchanged, so that quantization is kept."""
    keeps_all: ClassVar[Literal["in order", "permuted"] | None] = None
    """Whether an op that moves elements has each of one operand once, and no others."""
    selects: ClassVar[slice | None] = None
    """The operands of which each element of the first result is one, the same for real values and stored integers."""
    carries: ClassVar[slice | None] = None
    """The operands whose elements may be elements of the results, of ops that may also have others there."""
    inserts: ClassVar[bool] = False
    """Whether an op that moves elements adds others, so that stored integers cannot be moved as they are."""
    clamps: ClassVar[tuple[float | None, float | None] | None] = None
    """The bounds of an op that clamps its first operand, and does nothing else; None in it: the operand's after it."""
    bounds: ClassVar[tuple[float, float] | None] = None
    """The least and the greatest element that results have, but for NaN, whatever the operands are."""
    defined: ClassVar[tuple[float, float] | None] = None
    """Of a function of each element of one operand: where it is defined; elsewhere, and of NaN, it is NaN."""
    monotonic: ClassVar[bool] = False
    """Whether that function is greater, or the same, for greater elements."""
    integral: ClassVar[bool] = False
    """Whether all finite elements of the results are integral."""
    interval: ClassVar[Callable[..., Facts] | None] = None
    """What the results may be in exact arithmetic, from the facts of the operands (None: absent)."""
    indexes: ClassVar[Literal["axis", "axes"] | None] = None
    """Whether the operand `indices` selects along the attribute `axis` of the first operand, or along several axes."""
    positions: ClassVar[int | None] = None
    """The result with positions along the attribute `axis` of the first operand."""
    discrete: ClassVar[bool] = False
    """Whether results jump where operands change by little: positions, selected rows, decisions."""
    reduction: ClassVar[str] = ""
    """The kind of reduction that joins elements by this op of two operands."""
    integers: ClassVar[Literal["bits", "order"] | None] = None
    """Whether an op that computes with integers needs their bits only, signed or not, or also their order."""
    multiplies: ClassVar[Literal["elements", "matrices", "windows"] | None] = None
    """What of the first two operands is multiplied, for an op that computes products and at most sums of these."""
    commutative: ClassVar[bool] = False
    """Whether the two operands may change places."""
    expands: ClassVar[bool] = False
    """Whether the types of the results are those of other ops that define the op, so that they may be quantized."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.carries = next((c for c in (cls.carries, cls.moves, cls.selects) if c is not None), None)
        cls.defaults = {name: attribute.default for name, attribute in cls.attributes.items()}

    @classmethod
    def checked(cls, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node in their Python types; TypeError or ValueError where one is not as declared, unknown
        or missing.
        """
        for name in attributes.keys() - cls.attributes.keys():
            raise TypeError(f"there is no attribute {name}")
        for name, default in cls.defaults.items():
            if default is REQUIRED and name not in attributes:
                raise TypeError(f"the attribute {name} is missing")
        return {name: cls.attributes[name].checked(name, value) for name, value in attributes.items()}

    @classmethod
    def picks(cls, attributes: Attributes) -> Pick | None:
        """What each element of the first result is: an element of the operands, a weighted mean of some, or None."""
        return "element" if cls.selects is not None else None

    @staticmethod
    def shape(*operands: Any, **attributes: Any) -> Any:
        """The shape of all results, None where its rank is unknown; or a list with the shape of each.

        Operands are values. Where the rank of one is asked for and unknown, so are the results'. ValueError (TypeError)
        where they do not fit.
        """
        return operands[0].shape

    @staticmethod
    def compute(*operands: Any, **attributes: Any) -> Any:
        """What the op means, in NumPy: one result, or a tuple of them, in any element type."""
        raise NotImplementedError("no evaluation")

    @classmethod
    def result_types(cls, operands: Sequence[Any], attributes: Mapping[str, Any]) -> list[TensorType]:
        """The types of the results for operands that are values."""
        given = cls.padded(operands)
        try:
            shapes = call_with_attributes(cls.shape, given, attributes)
        except UnknownRankError:
            shapes = None
        if not isinstance(shapes, list):
            shapes = [shapes] * len(cls.results)
        return [TensorType(cls.result_dtype(i, given, attributes), shape) for i, shape in enumerate(shapes)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array | tuple[Array, ...]:
        """The results, in their element types."""
        given, attributes = cls.padded(operands), {**cls.defaults, **attributes}
        wide = [x if x is None else widened(x) for x in given] if cls.widens else given
        with np.errstate(all="ignore"):
            computed = call_with_attributes(cls.compute, wide, attributes)
            results = computed if isinstance(computed, tuple) else (computed,)
            rounded = tuple(_rounded(r, cls.result_dtype(i, given, attributes)) for i, r in enumerate(results))
        return rounded if isinstance(computed, tuple) else rounded[0]

    @staticmethod
    def trimmed(operands: Iterable[Any]) -> list[Any]:
        """The operands without those at the end that are None."""
        kept = list(operands)
        while kept and kept[-1] is None:
            kept.pop()
        return kept

    @classmethod
    def padded(cls, operands: Sequence[Any]) -> list[Any]:
        """The operands, with None for those that are left out at the end."""
        absent = len(cls.operands) - len(operands)
        return [*operands, *[None] * (absent - cls.operands[-1].variadic)] if absent > 0 else [*operands]

    @classmethod
    def result_dtype(cls, index: int, given: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """The element type of result `index`, as it is declared."""
        declared = cls.results[min(index, len(cls.results) - 1)]
        if len(declared.dtypes) == 1:
            return next(iter(declared.dtypes))
        if declared.like in attributes:
            return attributes[declared.like]
        place = [operand.name for operand in cls.operands].index(declared.like) if declared.like else 0
        each = declared.variadic and cls.operands[place].variadic
        dtype = given[place + index if each else place].dtype
        if not declared.becomes:
            return dtype
        known = dtype if isinstance(dtype, DType) else dtype_of(dtype)
        return declared.becomes.get(known, known)


def _rounded(result: Any, dtype: DType | np.dtype[Any]) -> Array:
    """`result` in the element type; dims and strings stay what they are."""
    array = np.asarray(result)
    if array.dtype == object:
        return array
    return array.astype(dtype.numpy if isinstance(dtype, DType) else dtype, copy=False)


def call_with_attributes(function: Callable[..., Any], operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What `function` returns for `operands`, and for those of `attributes` that it has as keywords."""
    names = _keywords(function)
    return function(*operands, **(attributes if names is None else {name: attributes[name] for name in names}))


@functools.cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of keyword-only parameters; None if all keywords are taken."""
    if not hasattr(function, "__code__"):
        return ()  # a function of NumPy's
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
