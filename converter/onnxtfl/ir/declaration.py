"""The declaration of an op: operands, attributes, results, effects, shared axes; result types and evaluation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, Literal

import numpy as np

from onnxtfl.dataclass import dataclass
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
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or result: its name, its allowed element types, and whether it is optional or variadic.

    `like`: the operand (of a result: or the attribute) with the same element type; `becomes`: those that differ.
    `likely`: plausible values [low, high) if the model does not determine them; if `counts`, integers in floats too.
    `parameter`: a parameter of the kernel, not a tensor: it is not stored in float16 where tensors are.
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
    parameter: bool = False


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
    for each axis, and of those that are axes, known before run time. `independent`: results depend on operands at the
    same index of the axes that no attribute names.
    """

    operands: int | None = 1
    attributes: tuple[str, ...] = ()
    vectors: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    independent: bool = True


class UnknownRankError(UnsupportedError, TypeError):
    """The rank of a tensor has to be known here, and is not."""

    default_code = "E-SHAPE-001"


class Declaration:
    """Operands, attributes and results, the `shape` of the results, and their elements (`compute`).

    `shape` and `compute` take all operands by position (None: absent), and as keywords the attributes that they
    declare.
    """

    operands: ClassVar[tuple[Operand, ...]] = ()
    results: ClassVar[tuple[Operand, ...]] = (Operand("output"),)
    attributes: ClassVar[Mapping[str, Attribute]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    """The defaults of the attributes; ``REQUIRED`` for one that has to be given."""
    required: ClassVar[Sequence[str]] = ()
    """The attributes that have to be given."""
    widens: ClassVar[bool] = False
    """Whether `compute` works in the wide types of its operands (:func:`onnxtfl.ir.numeric.widened`)."""
    moves: ClassVar[slice | None] = None
    """The operands whose elements the op moves to its results unchanged, so that quantization is kept."""
    keeps_all: ClassVar[Literal["in order", "permuted"] | None] = None
    """If the result of an op that moves elements has each element of one operand once and no others: their order."""
    selects: ClassVar[slice | None] = None
    """The operands from which each element of the first result is selected, equally for real values and stored
    integers.
    """
    carries: ClassVar[slice | None] = None
    """The operands whose elements may be elements of the results, possibly among computed ones."""
    inserts: ClassVar[bool] = False
    """Whether an op that moves elements also inserts other elements, so that stored integers cannot be moved unchanged.
    """
    clamps: ClassVar[tuple[float | None, float | None] | None] = None
    """The bounds of an op that only clamps its first operand; a bound of None is the operand after it."""
    bounds: ClassVar[tuple[float, float] | None] = None
    """The least and the greatest possible element of the results for any operands, except for NaN."""
    defined: ClassVar[tuple[float, float] | None] = None
    """For an elementwise function of one operand, its domain; the result is NaN for NaN and outside of the domain."""
    monotonic: ClassVar[bool] = False
    """Whether that function is monotonically increasing (not necessarily strictly)."""
    integral: ClassVar[bool] = False
    """Whether all finite elements of the results are integral."""
    interval: ClassVar[Callable[..., Facts] | None] = None
    """Returns the possible values of the results in exact arithmetic, from the facts of the operands (None: absent)."""
    indexes: ClassVar[Literal["axis", "axes"] | None] = None
    """The axes of the first operand along which `indices` selects: the attribute `axis`, or several axes."""
    positions: ClassVar[int | None] = None
    """The result with positions along the attribute `axis` of the first operand."""
    discrete: ClassVar[bool] = False
    """Whether results are discontinuous in the operands: positions, selected rows, decisions."""
    reduction: ClassVar[str] = ""
    """The kind of reduction that joins elements by this op of two operands."""
    integers: ClassVar[Literal["bits", "order"] | None] = None
    """Whether an op on integers depends only on their bits, signed or not, or also on their order."""
    multiplies: ClassVar[Literal["elements", "matrices", "windows"] | None] = None
    """For an op that computes products or sums of products: the parts of the first two operands that are multiplied."""
    commutative: ClassVar[bool] = False
    """Whether the two operands may be swapped."""
    typed: ClassVar[bool] = False
    """Whether the types of the results depend only on the attributes and the types of the operands, not on elements."""
    expands: ClassVar[bool] = False
    """Whether the types of the results are those of other ops that define the op, so that they may be quantized."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.carries = next((c for c in (cls.carries, cls.moves, cls.selects) if c is not None), None)
        cls.defaults = {name: attribute.default for name, attribute in cls.attributes.items()}
        cls.required = [name for name, default in cls.defaults.items() if default is REQUIRED]

    @classmethod
    def checked(cls, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node in their Python types. Raises TypeError or ValueError if one is not as declared,
        unknown or missing.
        """
        for name in attributes.keys() - cls.attributes.keys():
            raise TypeError(f"there is no attribute {name}")
        for name in cls.required:
            if name not in attributes:
                raise TypeError(f"the attribute {name} is missing")
        return {name: cls.attributes[name].checked(name, value) for name, value in attributes.items()}

    @classmethod
    def picks(cls, attributes: Attributes) -> Pick | None:
        """How each element of the first result depends on the operands: an element, a weighted mean of elements, or
        None.
        """
        return "element" if cls.selects is not None else None

    @staticmethod
    def shape(*operands: Any, **attributes: Any) -> Any:
        """The shape of all results, None where its rank is unknown; or a list with the shape of each.

        Operands are values. If the implementation needs an unknown rank, the ranks of the results are unknown. Raises
        ValueError or TypeError if operands do not fit.
        """
        return operands[0].shape

    @staticmethod
    def compute(*operands: Any, **attributes: Any) -> Any:
        """The semantics of the op in NumPy: one result or a tuple of results, in any element type."""
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
        """The operands without trailing None."""
        kept = list(operands)
        while kept and kept[-1] is None:
            kept.pop()
        return kept

    @classmethod
    def padded(cls, operands: Sequence[Any]) -> list[Any]:
        """The operands, with None for omitted trailing ones."""
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
    """Call `function` with `operands`, and with those of `attributes` that are its keywords."""
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
