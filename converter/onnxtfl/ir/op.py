"""What an op is: a class that declares operands, attributes, results and effects, and from which the rest follows.

An op of the neutral graph is a subclass of :class:`Op` in ``ir/ops``; its name is the class's. Ops of a file's own
dialect (``onnx.Conv`` since version 11, ``tfl.CONV_2D`` version 3) are made by :func:`foreign`: nothing is known of
them but name and version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType, TensorType, Type

FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMERIC = FLOATS | INTEGERS
BOOLS = frozenset({DType.BOOL})
INDICES = frozenset({DType.INT32, DType.INT64})
ANY = frozenset(DType)

Permutation = tuple[int, ...]


class Effect(Enum):
    """What running an op does besides giving results; only pure ops may be removed, merged or folded."""

    PURE = "pure"
    RANDOM = "random"
    READS = "reads"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or result: its name, the element types it takes, and whether it may be absent or is many."""

    name: str
    dtypes: frozenset[DType] = ANY
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Relabeled:
    """How an op reads when its operands lie in memory with permuted axes.

    `operands[i]` and `results[i]`: the permutation under which that value lies (None: as it is). `attributes`: those
    that change. `vectors[i]`: operand i is a vector with an entry an axis (pads, sizes, starts) and its entries are
    permuted so. `axes[i]`: operand i holds axis numbers, which become those of the same axes under this permutation.
    """

    operands: tuple[Permutation | None, ...]
    results: tuple[Permutation | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[int, Permutation] = field(default_factory=dict)
    axes: Mapping[int, Permutation] = field(default_factory=dict)


class Op:
    """Base of all ops. Subclasses of ``ir/ops`` are registered under their class name."""

    name: ClassVar[str] = "Op"
    dialect: ClassVar[str] = "neutral"
    domain: ClassVar[str] = ""
    version: ClassVar[int] = 0
    operands: ClassVar[tuple[Operand, ...]] = ()
    results: ClassVar[tuple[Operand, ...]] = (Operand("output"),)
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Attribute names with defaults; an attribute whose default is ``REQUIRED`` has to be given."""
    effect: ClassVar[Effect] = Effect.PURE
    core: ClassVar[bool] = False
    follows_values: ClassVar[bool] = False
    """Whether `evaluate` also works on object arrays of dims, so that shape arithmetic is followed through it."""

    def __init_subclass__(cls, register: bool = True, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if register and cls.dialect == "neutral":
            cls.name = cls.__name__
            OPS[cls.name] = cls

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        """The types of the results; OnnxtflError (or ValueError, TypeError) where the operands do not fit."""
        raise NotImplementedError(f"{cls.name} has no type inference")

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array | tuple[Array, ...]:
        """What the op means, in NumPy. `attributes` holds every declared attribute, defaults filled in."""
        raise NotImplementedError(f"{cls.name} has no evaluation")

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        """The op when operand `index` (-1: the first result) lies with `permutation`; None where it cannot."""
        return None

    @classmethod
    def prefers(cls, node: Node, channels_last: bool) -> Relabeled | None:
        """For ops with dimension numbers: how the op reads when its operands lie as channels-last (or channels-first)
        kernels take them, dimension numbers renumbered to match. None for ops without a preference.
        """
        return None

    @classmethod
    def offers(cls, node: Node) -> Iterator[Relabeled]:
        """For ops whose operands may each lie in several ways: all of them, the plainest first. None for others."""
        return iter(())

    @classmethod
    def effect_of(cls, node: Node) -> Effect:
        """The effect of this node (ops with subgraphs have those of the nodes in them)."""
        for graph in node.subgraphs():
            for inner in graph.nodes:
                if (effect := inner.op.effect_of(inner)) is not Effect.PURE:
                    return effect
        return cls.effect


class Elementwise(Op, register=False):
    """An op whose result at an index depends on its operands at that index only, under NumPy broadcasting."""

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        """Every operand of full rank takes the permutation; those of rank 0, and of one element, need none.

        None where a rank is unknown, or between.
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
        return Relabeled(operands, (permutation,) * len(node.results))


def is_single(value: Value | None) -> bool:
    """Whether `value` is a tensor of one element, by its type."""
    shape = value.tensor_type.shape if value is not None else None
    return shape is not None and all(d == 1 for d in shape)


def inverse(permutation: Permutation) -> Permutation:
    """The permutation that undoes `permutation`."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
OPS: dict[str, type[Op]] = {}
_FOREIGN: dict[tuple[str, str, int, str], type[Op]] = {}
Evaluate = Callable[..., Array | tuple[Array, ...]]


def foreign(dialect: str, name: str, version: int = 1, domain: str = "") -> type[Op]:
    """The op `name` of a file format (`dialect`: "onnx" or "tfl"), of which nothing is known but this.

    The same class each time, in all threads.
    """
    key = dialect, name, version, domain
    if key not in _FOREIGN:
        namespace = {"dialect": dialect, "name": f"{dialect}.{name}", "version": version, "domain": domain}
        made = type(name, (Op,), namespace | {"effect": Effect.WRITES}, register=False)
        _FOREIGN.setdefault(key, made)
    return _FOREIGN[key]


def attributes_of(node: Node) -> dict[str, Any]:
    """The attributes of `node` with the op's defaults filled in; ValueError where a required one lacks."""
    filled = {**node.op.defaults, **node.attributes}
    for name, value in filled.items():
        if value is REQUIRED:
            raise ValueError(f"{node.op.name} needs the attribute {name}")
    return filled
