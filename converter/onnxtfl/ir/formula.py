"""Formulas over neutral ops: ``(x * 0.5).exp() + 1`` builds Mul, Exp and Add; and ops that are defined by other ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.attributes import REQUIRED, Attribute, of_annotation
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import OPS, Graph, Node, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Attributes, Op, Operand, attributes_of
from onnxtfl.ir.types import DType, Type, dtype_of

Number = int | float | bool
Vector = Sequence[int]


def _unary(op: str, meaning: str) -> Callable[[Term], Term]:
    def method(self: Term) -> Term:
        return self.apply(op)

    method.__doc__ = meaning
    return method


@dataclass(frozen=True, eq=False)
class Term:
    """A value with arithmetic operators. Numbers and arrays become constants; ``x * 1`` and ``x + 0`` return `x`.

    Ops are looked up by name, since the modules of `ir/ops` import this one.
    """

    b: Builder
    value: Value
    stands_for_number: ClassVar[bool] = True
    """An attribute that is a number may be a Term in the template of a formula."""

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.dtype

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.value.rank

    def apply(self, op: type[Op] | str, *others: Term | Value | Array | Vector | Number | None, **given: Any) -> Term:
        """Apply `op` (a class, or its name) with the attributes `given` to this term and `others`."""
        kind = OPS[op] if isinstance(op, str) else op
        return Term(self.b, self.b.computed(kind, self.value, *(self._other(o) for o in others), **given))

    def _other(self, other: Term | Value | Array | Vector | Number | None) -> Value | Array | Vector | None:
        if isinstance(other, Term):
            return other.value
        return self.b.scalar(other, self.value) if isinstance(other, Number) else other

    def constant(self, number: Number) -> Term:
        """A constant with the element type of this term."""
        return Term(self.b, self.b.scalar(number, self.value))

    def __add__(self, other: Term | Number) -> Term:
        return self if other == 0 else self.apply("Add", other)

    def __radd__(self, other: Number) -> Term:
        return self + other

    def __sub__(self, other: Term | Number) -> Term:
        return self if other == 0 else self.apply("Sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self.constant(other) - self

    def __mul__(self, other: Term | Number) -> Term:
        return self if other == 1 else self.apply("Mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self * other

    def __truediv__(self, other: Term | Number) -> Term:
        return self if other == 1 else self.apply("Div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.constant(other) / self

    def __floordiv__(self, other: Term | Number) -> Term:
        """The quotient rounded down."""
        return self if other == 1 else self.apply("FloorDiv", other)

    def __mod__(self, other: Term | Number) -> Term:
        """The remainder with the divisor's sign."""
        return self.apply("FloorMod", other)

    def __neg__(self) -> Term:
        return self.apply("Neg")

    def __xor__(self, other: Term | Number) -> Term:
        return self.apply("Xor", other)

    def __and__(self, other: Term | Number) -> Term:
        return self.apply("And", other)

    def __or__(self, other: Term | Number) -> Term:
        return self.apply("Or", other)

    def __lt__(self, other: Term | Number) -> Term:
        return self.compared("LT", other)

    def __le__(self, other: Term | Number) -> Term:
        return self.compared("LE", other)

    def __gt__(self, other: Term | Number) -> Term:
        return self.compared("GT", other)

    def __ge__(self, other: Term | Number) -> Term:
        return self.compared("GE", other)

    def compared(self, direction: str, other: Term | Number) -> Term:
        """Compare elementwise: bools."""
        return self.apply("Compare", other, comparison_direction=direction)

    def equals(self, other: Term | Number) -> Term:
        """Whether both are equal."""
        return self.compared("EQ", other)

    def is_nan(self) -> Term:
        """Whether each element is NaN."""
        return self.apply("IsNaN")

    def differs(self, other: Term | Number) -> Term:
        """Whether they are not equal."""
        return self.compared("NE", other)

    def choose(self, on_true: Term, on_false: Term | Number) -> Term:
        """Select `on_true` where this term (bools) is true, else `on_false`."""
        other = on_false if isinstance(on_false, Term) else on_true.constant(on_false)
        return self.apply("Select", on_true, other)

    def max(self, other: Term | Number) -> Term:
        """The elementwise maximum."""
        return self.apply("Max", other)

    def min(self, other: Term | Number) -> Term:
        """The elementwise minimum."""
        return self.apply("Min", other)

    def clamp(self, low: Term | Number | None, high: Term | Number | None) -> Term:
        """Clamp to [`low`, `high`]; None: no bound."""
        return self.apply("Clamp", low, high)

    def power(self, exponent: Term | Number) -> Term:
        """Raise to the power `exponent`."""
        return self.apply("Pow", exponent)

    abs = _unary("Abs", "The absolute value.")
    erf = _unary("Erf", "The error function.")
    exp = _unary("Exp", "The exponential function.")
    floor = _unary("Floor", "Rounded down.")
    log = _unary("Log", "The natural logarithm.")
    relu = _unary("Relu", "max(this, 0).")
    rsqrt = _unary("Rsqrt", "1 over the square root.")
    sigmoid = _unary("Sigmoid", "1 / (1 + exp(-this)).")
    sign = _unary("Sign", "-1, 0 or 1.")
    sqrt = _unary("Sqrt", "The square root.")
    tanh = _unary("Tanh", "The hyperbolic tangent.")

    def reduce(self, kind: str, axes: Sequence[int] | Term | None = None, keepdims: bool = True) -> Term:
        """Reduce by `kind` (sum, mean, max, ...) along `axes` (None: all)."""
        along = axes.value if isinstance(axes, Term) else axes if axes is None else list(axes)
        return self.apply("Reduce", along, kind=kind, keepdims=keepdims)

    def mean(self, axes: Sequence[int] | Term | None) -> Term:
        """The mean along `axes`, which are kept with size 1."""
        return self.reduce("mean", axes)

    def dot(self, other: Term | Value | Array, axes: Vector, other_axes: Vector, **given: Any) -> Term:
        """The sums of products along `axes`, and `other_axes` of `other`; `given`: attributes of DotGeneral."""
        along = {"lhs_contracting_dimensions": tuple(axes), "rhs_contracting_dimensions": tuple(other_axes)}
        return self.apply("DotGeneral", other, **along, **given)

    def along(self, axis: int, rank: int) -> Term:
        """Append unit axes to this vector, so that it broadcasts along `axis` of a tensor of `rank`."""
        after = [1] * (rank - 1 - axis)
        sizes = [size_or(d, -1) for d in self.value.shape]
        return self.apply("Reshape", np.asarray([*sizes, *after])) if after else self

    def at(self, index: int, axis: int) -> Term:
        """The elements at `index` along `axis`, which is dropped."""
        return self.apply("Gather", np.asarray(index), axis=axis)

    def to(self, dtype: DType) -> Term:
        """Convert to element type `dtype`."""
        return self if dtype is self.dtype else self.apply("Convert", dtype=dtype)

    def bits(self, dtype: DType) -> Term:
        """Reinterpret the bits as elements of `dtype`."""
        return self if dtype is self.dtype else self.apply("BitcastConvert", dtype=dtype)


def real_type(*terms: Term) -> DType:
    """The float type in which a rule computes with `terms`: float64 where all are known, float32 where a run does."""
    return DType.FLOAT64 if all(term.value.is_constant for term in terms) else DType.FLOAT32


class Derived(Op, register=False):
    """An op that is defined by `expand`. Its types are those of the expansion, quantized ones too, unless it declares
    the `shape` of its results.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.expands = cls.shape is Derived.shape

    @classmethod
    def expand(cls, b: Builder, *operands: Any, **attributes: Any) -> Value | Sequence[Value]:
        """Return the results in terms of core ops. `operands`: values, None if absent."""
        raise NotImplementedError

    @classmethod
    def expansion(cls, b: Builder, node: Node) -> list[Value]:
        """Return the results of `node` in terms of core ops."""
        results = cls.expand(b, *cls.padded(node.operands), **attributes_of(node))
        return [results] if isinstance(results, Value) else list(results)

    @staticmethod
    def shape(*operands: Any, **attributes: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        if not cls.expands:
            return super().infer(node)
        graph = Graph()
        stand_ins = [None if v is None else _stand_in(graph, v) for v in node.operands]
        results = cls.expansion(Builder(graph), Node(node.op, stand_ins, node.attributes))
        return [r.type for r in results if r.type is not None]

    @classmethod
    def compute(cls, *operands: Array | None, **attributes: Any) -> Array | tuple[Array, ...]:
        graph = Graph()
        given = [None if x is None else constant(x, dtype_of(x.dtype)) for x in operands]
        node = Node(cls, given, attributes)
        graph.outputs = cls.expansion(Builder(graph), node)
        results = run(graph, [])
        made = graph.nodes if node.regions else graph.walk()  # regions of `node` may be those of the model
        for one in (node, *made):
            one.detach()  # frees the operands, which garbage collection would do later
        return results[0] if len(results) == 1 else tuple(results)


def _stand_in(graph: Graph, value: Value) -> Value:
    if value.data is not None:
        return constant(value.data, type_=value.type)
    copy = graph.add_input(value.type)
    copy.known = value.known
    return copy


class Formula(Derived, register=False):
    """An op defined by a formula over other ops, which is its evaluation, type inference and default decomposition.

    An explicit decomposition for a target is tried before the formula.
    """

    widens = True

    @classmethod
    def formula(cls, *operands: Any, **attributes: Any) -> Term:
        """The result. `operands`: Terms, None if absent. `attributes`: values; floats may be Terms."""
        raise NotImplementedError

    @classmethod
    def check(cls, attributes: Attributes) -> bool:
        """Whether `attributes`, found in constants, are valid for this op; else the formula is not replaced."""
        return True

    @classmethod
    def expand(cls, b: Builder, *operands: Any, **attributes: Any) -> Value:
        return cls.formula(*(None if v is None else Term(b, v) for v in operands), **attributes).value


def by_expansion(
    *operands: Operand, attributes: Mapping[str, Attribute] | None = None, **declared: Any
) -> Callable[[Callable[..., Any]], type[Derived]]:
    """Declare an op by the decorated function: `Derived.expand`, with the attributes and their defaults by name.

    `attributes`: those whose kind the annotation does not say.
    """

    def declare(expand: Callable[..., Any]) -> type[Derived]:
        namespace = _declared_by(expand, len(operands) + 1, "expand", attributes or {})
        return type(expand.__name__, (Derived,), {**namespace, "operands": operands, **declared})

    return declare


def by_formula(
    kind: type[Op], attributes: Mapping[str, Attribute] | None = None, **declared: Any
) -> Callable[[Callable[..., Term]], type[Formula]]:
    """Declare an op like `kind` by the formula that the decorated function returns.

    The parameters after those for the operands are the attributes, with their defaults. `attributes`: those whose kind
    the annotation does not say.
    """

    def declare(formula: Callable[..., Term]) -> type[Formula]:
        namespace = _declared_by(formula, len(declared.get("operands", kind.operands)), "formula", attributes or {})
        bases = (kind,) if issubclass(kind, Formula) else (kind, Formula)
        return type(formula.__name__, bases, {**namespace, "core": False, **declared})

    return declare


def _declared_by(function: Callable[..., Any], count: int, name: str, given: Mapping[str, Attribute]) -> dict[str, Any]:
    """The members of an op class with the function `name`, whose parameters after the first `count` are attributes.

    `given`: those of them of which the annotation says too little.
    """
    parameters = dict(list(inspect.signature(function).parameters.items())[count:])
    defaults = {name: REQUIRED if p.default is p.empty else p.default for name, p in parameters.items()}
    attributes = {name: of_annotation(p.annotation, defaults[name]) for name, p in parameters.items()}
    members = {"__doc__": function.__doc__, "__module__": function.__module__, name: staticmethod(function)}
    return {**members, "attributes": {**attributes, **given}}
