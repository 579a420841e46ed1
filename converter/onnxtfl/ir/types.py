"""Types of the neutral graph: tensors (with quantization), sequences, optionals, tuples and resources."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import Dim, Shape, differ, is_static, parse_dim
from onnxtfl.ir.dtypes import DType, dtype_of
from onnxtfl.ir.quantization import Quantization

__all__ = [
    "DType",
    "MapsType",
    "OptionalType",
    "ResourceType",
    "SequenceType",
    "TensorType",
    "TupleType",
    "Type",
    "compatible",
    "dtype_of",
    "plain_type",
    "rank_of",
    "shape_of",
    "shapes_compatible",
    "tensor",
]


MOST_AXES = 32
"""The most axes of a tensor: those of NumPy."""


class _Known:
    """The slots for what most passes ask of the types of most values: their hash, and whether all sizes are known."""

    __slots__ = ("_hash", "is_static")
    _hash: int
    is_static: bool


@dataclass(frozen=True, slots=True)
class TensorType(_Known):
    """A tensor type. `dtype`: the type of the elements, a float type for quantized tensors. `shape`: None if even the
    rank is unknown. `quantization`: how quantized elements are stored. `is_static`: whether the rank and all dimensions
    are known.
    """

    dtype: DType
    shape: Shape | None
    quantization: Quantization | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_static", is_static(self.shape))

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.dtype, self.shape, self.quantization)))
            return self._hash

    @property
    def rank(self) -> int | None:
        """The number of axes; None if it is unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def storage(self) -> DType:
        """The element type as stored."""
        return self.quantization.dtype if self.quantization else self.dtype

    def with_shape(self, shape: Shape | None) -> TensorType:
        """The same type with another shape."""
        return replace(self, shape=shape)

    def permuted(self, permutation: Sequence[int]) -> TensorType:
        """The type of the transposed tensor; ValueError if its rank (blockwise quantized: its shape) is unknown."""
        if self.quantization is None:
            return _permuted(self, tuple(permutation))
        quantization = None if self.shape is None else self.quantization.permuted(permutation, self.shape)
        return replace(_permuted(self.stored_as(None), tuple(permutation)), quantization=quantization)

    def reshaped(self, shape: Shape) -> TensorType | None:
        """The type of the tensor reshaped to `shape`; None if this splits or merges a quantized axis."""
        quantization = self.quantization
        if quantization is not None and not quantization.per_tensor:
            quantization = None if self.shape is None else quantization.reshaped(self.shape, shape)
            if quantization is None:
                return None
        return TensorType(self.dtype, shape, quantization)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type; quantization is kept for float types only."""
        return TensorType(dtype, self.shape, self.quantization if dtype.is_float else None)

    def stored_as(self, quantization: Quantization | None) -> TensorType:
        """The same type with another `quantization` (None: not quantized)."""
        return replace(self, quantization=quantization)

    def __str__(self) -> str:
        return self.text()

    def text(self, naming: Callable[[Dim], str] = str) -> str:
        """Return the type as text; `naming` returns the texts of dynamic sizes."""
        dims = "*x" if self.shape is None else "".join(f"{_dim_text(d, naming)}x" for d in self.shape)
        quantization = f", {self.quantization}" if self.quantization else ""
        return f"tensor<{dims}{self.dtype.value}{quantization}>"


@functools.lru_cache(4096)
def plain_type(dtype: DType, shape: tuple[int, ...]) -> TensorType:
    """The unquantized type of a constant, one object for all that are equal: looking up what is remembered of a type
    compares objects first.
    """
    return TensorType(dtype, shape)


@functools.lru_cache(4096)
def _permuted(type_: TensorType, permutation: tuple[int, ...]) -> TensorType:
    """The permuted unquantized type; the values of a deep network share their few types."""
    if type_.shape is None:
        raise ValueError(f"{type_} cannot be transposed")
    return TensorType(type_.dtype, tuple(type_.shape[p] for p in permutation))


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of values of one type (ONNX seq(...))."""

    element: Type

    def __str__(self) -> str:
        return f"sequence<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapsType(SequenceType):
    """A sequence of maps (ONNX seq(map(...))), which is read as one of vectors: the values, sorted by key."""

    key: DType = DType.INT64


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent at run time (ONNX optional(...))."""

    element: Type

    def __str__(self) -> str:
        return f"optional<{self.element}>"


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple of values (XLA); its text has the first four."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        shown = [*map(str, self.elements[:4]), *(["..."] if len(self.elements) > 4 else [])]
        return f"tuple<{', '.join(shown)}>"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A handle to state (TFLite resources and variants)."""

    kind: str = "variable"

    def __str__(self) -> str:
        return f"resource<{self.kind}>"


Type = TensorType | SequenceType | OptionalType | TupleType | ResourceType


def shape_of(type_: Type | None) -> Shape | None:
    """The shape of a tensor type; None if it is unknown or not a tensor type."""
    return type_.shape if isinstance(type_, TensorType) else None


def rank_of(type_: Type | None) -> int | None:
    """The rank of a tensor type; None if it is unknown or not a tensor type."""
    return type_.rank if isinstance(type_, TensorType) else None


def differ_in_unit_axes(a: Type | None, b: Type | None) -> bool:
    """Whether both are tensors of one element, of different ranks."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape is None or b.shape is None:
        return False
    return len(a.shape) != len(b.shape) and all(size == 1 for size in (*a.shape, *b.shape))


def compatible(a: Type | None, b: Type | None) -> bool:
    """Whether two types can be equal at run time: they differ only where one has an unknown rank or size."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype is b.dtype and a.quantization == b.quantization and shapes_compatible(a.shape, b.shape)
    if isinstance(a, SequenceType | OptionalType) and a.__class__ is b.__class__:
        return compatible(a.element, b.element)
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.elements) == len(b.elements):
        return all(map(compatible, a.elements, b.elements))
    return a == b


def shapes_compatible(a: Shape | None, b: Shape | None) -> bool:
    """Whether two shapes can be equal at run time."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and not any(map(differ, a, b))


def tensor(dtype: DType | str, *shape: Dim | str) -> TensorType:
    """A TensorType, for tests and mappings: ``tensor("float32", 1, "n", 3)``."""
    dims = tuple(parse_dim(d) if isinstance(d, str) else d for d in shape)
    return TensorType(DType(dtype) if isinstance(dtype, str) else dtype, dims)


def _dim_text(dim: Dim, naming: Callable[[Dim], str]) -> str:
    return str(dim) if isinstance(dim, int) else f"[{naming(dim)}]"
