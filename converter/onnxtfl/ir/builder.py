"""The builder: inserts nodes into a graph, infers their types, propagates known values, folds shape arithmetic."""

from __future__ import annotations

import contextlib
import marshal
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError, reason
from onnxtfl.ir.budget import MOST_NODES_OF_RULE, current_budget
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.declaration import ANY
from onnxtfl.ir.declaration import Operand as Declared
from onnxtfl.ir.dims import (
    Symbol,
    SymDim,
    at_most,
    is_nonnegative,
    is_static,
    known_size,
    known_sizes,
    product,
    symbols,
)
from onnxtfl.ir.graph import KNOWN_LIMIT, Graph, Node, Value, constant
from onnxtfl.ir.op import Op, attributes_of, foreign_op
from onnxtfl.ir.quantized import with_kept
from onnxtfl.ir.shapes import dims_of, normalize_axes, possible_rank
from onnxtfl.ir.shown_sizes import operand_types
from onnxtfl.ir.types import DType, ResourceType, TensorType, TupleType, Type, compatible, rank_of, shape_of

Operand = Value | Array | TensorData | Sequence[int] | None
Made = TypeVar("Made")
"""The results of a rule, or None."""


class Builder:
    """Inserts nodes into `graph` before the node `before` (None: at the end).

    Operands are values, or arrays and lists of ints, which become constants (int64 for lists). New nodes inherit the
    source nodes and remarks of `cause` (by default `before`); `maker` is the rule or pass to record for them.
    """

    def __init__(self, graph: Graph, before: Node | None = None, *, cause: Node | None = None, maker: str = "") -> None:
        self.graph = graph
        self.before = before
        self.maker = maker
        self.cause = before if cause is None else cause
        self.created: list[Node] = []

    def __call__(self, op: type[Op], *operands: Operand, **attributes: Any) -> Value:
        """Make a node with one result and return the result."""
        results = self.many(op, *operands, **attributes)
        if len(results) != 1:
            raise ValueError(f"{op.name} has {len(results)} results")
        return results[0]

    def many(self, op: type[Op], *operands: Operand, **attributes: Any) -> list[Value]:
        """Make a node and return all its results; if all elements are known, return constants instead."""
        current_budget().step(None if self.cause is None else self.cause.name, op.name)
        node = Node(op, [self.value(v) for v in operands], attributes)
        types = infer(node)
        known = propagate(node, types)
        folded = _as_constants(known, types)
        if folded is not None:
            for i in range(len(node.operands)):
                node.set_operand(i, None)
            return folded
        for type_, contents in zip(types, known, strict=True):
            node.add_result(type_).known = contents
        return self._insert(node)

    def computed(self, op: type[Op], *operands: Operand, **attributes: Any) -> Value:
        """The result of an op: a constant if its operands are constants in memory, else that of a new node.

        Rules use it to compute with sizes. A constant may be larger than its operands, up to `Budget.largest_constant`
        elements.
        """
        values = [self.value(v) for v in operands]
        if not all(v is None or (v.data is not None and v.data.in_memory) for v in values):
            return self(op, *values, **attributes)
        node = Node(op, values, attributes)
        (type_,) = infer(node)
        found = _evaluated(node, type_)
        for i in range(len(values)):
            node.set_operand(i, None)
        return self(op, *values, **attributes) if found is None else found

    def remade(self, node: Node, *operands: Operand, **changes: Any) -> list[Value]:
        """Make a copy of `node` with other operands and attributes; its results keep their quantization.

        ValueError if a result quantized along an axis changes its shape.
        """
        results = self.many(node.op, *operands, **{**node.attributes, **changes})
        for new, old in zip(results, node.results, strict=True):
            before, after = old.type, new.type
            if isinstance(before, TensorType) and isinstance(after, TensorType) and not after.quantization:
                new.type = after.stored_as(before.quantization)
                if before.quantization and not before.quantization.per_tensor and before.shape != after.shape:
                    raise ValueError(f"the quantization of {before} does not fit {after}")
        return results

    def foreign(
        self,
        dialect: str,
        name: str,
        operands: Sequence[Operand],
        types: Sequence[Type | None],
        version: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Make a node of a file's dialect with results of `types`."""
        node = Node(foreign_op(dialect, name, version, domain), [self.value(v) for v in operands], attributes)
        for type_ in types:
            node.add_result(type_)
        return self._insert(node)

    def _insert(self, node: Node) -> list[Value]:
        self.graph.insert(node, self.before)
        if self.cause is not None:
            node.sources, node.made_by, node.remarks = self.cause.sources, self.cause.made_by, self.cause.remarks
        if self.maker:
            node.add_history(made_by=self.maker)
        self.created.append(node)
        if len(self.created) > MOST_NODES_OF_RULE:
            self._check_number()
        return node.results

    def _check_number(self) -> None:
        """Raise UnsupportedError if one node becomes too many."""
        cause = self.cause
        if cause is None or len(self.created) > MOST_NODES_OF_RULE + 20 * (len(cause.operands) + len(cause.results)):
            name, op = (None, None) if cause is None else (cause.name, cause.op.name)
            raise UnsupportedError(
                f"it would become more than {MOST_NODES_OF_RULE} ops", node=name, op=op, code="E-OP-008"
            )

    def tried(self, rule: Callable[[Builder, Node], Made], node: Node) -> Made:
        """The results of a rule for a node. If the rule returns None or raises an error, the graph is unchanged."""
        before = len(self.created)
        try:
            result = rule(self, node)
        except Exception:
            with contextlib.suppress(ValueError):  # where it has changed other nodes too
                self.undo(before)
            raise
        if result is None and len(self.created) > before:
            self.undo(before)
        return result

    def undo(self, before: int = 0) -> None:
        """Remove all created nodes after the first `kept` ones."""
        while len(self.created) > before:
            made = self.created.pop()
            if made.graph is not None:
                made.graph.remove(made)

    def value(self, operand: Operand) -> Value | None:
        """`operand` as a value; arrays and lists become constants."""
        if operand is None or isinstance(operand, Value):
            return operand
        if isinstance(operand, TensorData):
            return constant(operand)
        if isinstance(operand, (np.ndarray, np.generic)):
            return constant(np.asarray(operand))
        return constant(np.asarray(operand, np.int64))

    def scalar(self, number: float, like: Value | DType) -> Value:
        """A constant of rank 0 with the element type of `like`."""
        return constant(np.asarray(number), like if isinstance(like, DType) else like.dtype)


def _evaluated(node: Node, type_: Type) -> Value | None:
    """Return the constant result of `node` with constant operands; None if quantized or beyond the budget."""
    if (
        not isinstance(type_, TensorType)
        or type_.quantization is not None
        or not node.is_pure
        or not node.op.folds(node)
    ):
        return None
    sizes = [v.tensor_type for v in node.present_operands] + [type_]
    if any(t.quantization is not None or not t.is_static for t in sizes):
        return None
    *read, made = (math.prod(map(known_size, t.shape or ())) for t in sizes)
    budget = current_budget()
    if max(made, *read, 0) > budget.largest_constant or not budget.may_compute(made + sum(read)):
        return None
    operands = [None if v is None else v.numpy() for v in node.operands]
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(node.op.evaluate(attributes_of(node), *operands))
    except NotImplementedError:
        return None
    return constant(result.astype(type_.dtype.numpy, copy=False), type_=type_)


class ElementTypeError(TypeError):
    """An element type for which an op is not defined. The ONNX op may allow it: most allow more types than runtimes
    compute.
    """


def infer(node: Node) -> list[Type]:
    """Infer the types of the node's results from its operands (see :mod:`onnxtfl.ir.quantized`); its attributes get the
    Python types that the op declares.

    OnnxtflError with the op and the operand types if the operands do not fit. The nodes of a deep network have few
    different types: those of static sizes are inferred once.
    """
    key = _inference_key(node) if node.op.typed else None
    found = None if key is None else _INFERRED.get(key)
    if found is not None:
        types, attributes = found
        node.attributes = dict(attributes)
        return list(types)
    made = _infer(node)
    if key is not None and all(isinstance(type_, TensorType) and type_.is_static for type_ in made):
        if len(_INFERRED) >= _MOST_INFERRED:
            _INFERRED.clear()
        _INFERRED[key] = tuple(made), dict(node.attributes)
    return made


_INFERRED: dict[Hashable, tuple[tuple[Type, ...], dict[str, Any]]] = {}
"""The result types and checked attributes of nodes by `_inference_key`."""
_MOST_INFERRED = 4096


def _inference_key(node: Node) -> Hashable:
    """Everything on which the result types of a `typed` op depend; None for quantized operands, those of dynamic sizes,
    and attributes that are not plain.
    """
    types = []
    for value in node.operands:
        type_ = None if value is None else value.type
        if type_.__class__ is TensorType and (type_.quantization is not None or not type_.is_static):
            return None
        types.append(type_)
    try:
        return node.op, tuple(types), marshal.dumps(node.attributes, 2)  # exact: 0.0 and -0.0, 1 and True differ
    except ValueError:
        return None


def _infer(node: Node) -> list[Type]:
    try:
        _check_operands(node)
        _check_attributes(node)
        types = with_kept(node, node.op.infer(node))
        for type_ in types:
            _check_sizes(type_)
        return types
    except OnnxtflError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError) as error:
        raise InvalidModelError(
            f"operands do not fit: {reason(error)}", op=node.op.name, type_=operand_types(node), code="E-FILE-009"
        ) from error


def infers_better_sizes(node: Node) -> bool:
    """Whether inference finds fewer unknown sizes of the results by now, or those of its operands instead of others:
    an operand was replaced by a value whose sizes have other names, so that these cannot be computed from it.
    """
    before = [r.type for r in node.results]
    if node.regions or not any(map(_is_open, before)):
        return False
    own, read = _symbols(before), _symbols([v.type for v in node.present_operands])
    if own <= read:
        return False
    after = infer(node)
    found = _symbols(after)
    return (len(found) < len(own) or found <= read) and all(map(compatible, before, after))


def _is_open(type_: Type | None) -> bool:
    return type_.__class__ is not TensorType or not type_.is_static


def _symbols(types: Sequence[Type | None]) -> set[Symbol]:
    shapes = (type_.shape or () for type_ in types if isinstance(type_, TensorType))
    return {symbol for shape in shapes for dim in shape for symbol in symbols(dim)}


def check(node: Node) -> None:
    """Repeat `infer` for operands whose types have become more precise; raise its error with the node."""
    try:
        infer(node)
    except OnnxtflError as error:
        error.node = error.node or node.shown_name or None
        raise


LARGEST_SIZE = 1 << 48
"""The least size that an axis of a tensor cannot have."""


def _check_sizes(type_: Type) -> None:
    shape = shape_of(type_) or ()
    possible_rank(len(shape))
    for size in known_sizes(shape):
        if not 0 <= size < LARGEST_SIZE:
            raise ValueError(f"the result would have an axis of size {size}")


def _check_operands(node: Node) -> None:
    declared = node.op.operands
    if not declared:
        return
    if len(node.operands) > len(declared) and not declared[-1].variadic:
        raise ValueError(f"{len(node.operands)} operands, at most {len(declared)} expected")
    for i in range(max(len(declared), len(node.operands))):
        operand, value = declared[min(i, len(declared) - 1)], node.optional(i)
        if value is None:
            if not operand.optional and not operand.variadic:
                raise ValueError(f"operand {operand.name} is absent")
        elif isinstance(value.type, TensorType) and value.type.dtype not in operand.dtypes:
            raise ElementTypeError(f"operand {operand.name} cannot be {value.type.dtype.value}")
        elif isinstance(value.type, TupleType) and operand.dtypes != ANY:
            raise TypeError(f"operand {operand.name} is a sequence: {value.name!r}")
        elif isinstance(value.type, ResourceType) and operand.dtypes != ANY:
            raise TypeError(f"operand {operand.name} is a {value.type}: {value.name!r}")
        elif operand.like:
            _check_alike(node, operand, value)


def _check_alike(node: Node, operand: Declared, value: Value) -> None:
    """Raise TypeError if `value` has another element type than the operand whose type it must have."""
    other = node.optional([o.name for o in node.op.operands].index(operand.like))
    if other is not None and other.dtype is not value.dtype:
        raise TypeError(f"operand {operand.name} is {value.dtype.value}, {operand.like} is {other.dtype.value}")


def _check_attributes(node: Node) -> None:
    if node.op.dialect == "neutral":
        node.attributes = node.op.checked(node.attributes)
    shared = node.op.shared_axes
    rank = None if shared is None or not shared.attributes else rank_of(node.operand(0).type)
    if shared is not None and rank is not None:
        given = [node.attr(name) for name in shared.attributes]
        normalize_axes([axis for axes in given for axis in ((axes,) if isinstance(axes, int) else axes)], rank)


def propagate(node: Node, types: Sequence[Type | None]) -> list[Array | None]:
    """The known elements of the results (small integer tensors; None for others, and for comparisons).

    If an expression becomes too large for the budget, all results are unknown.
    """
    before = current_budget().unknown
    known = _propagated(node, types)
    return known if current_budget().unknown == before else [None] * len(types)


def _propagated(node: Node, types: Sequence[Type | None]) -> list[Array | None]:
    nothing: list[Array | None] = [None] * len(types)
    known = node.op.known_results(node)
    if known is not None:
        return [_within(k, t) for k, t in zip(known, types, strict=True)]
    if not node.op.propagates or any(v is not None and v.known is None for v in node.operands):
        return nothing
    if not all(isinstance(t, TensorType) and t.dtype.is_integer and _small(t) for t in types):
        return nothing
    try:
        result = node.op.evaluate(attributes_of(node), *(None if v is None else v.known for v in node.operands))
    except (TypeError, ZeroDivisionError, NotImplementedError):
        return nothing
    results = result if isinstance(result, tuple) else (result,)
    return [_within(np.asarray(r, object), t) for r, t in zip(results, types, strict=True)]


def _within(contents: Array | None, type_: Type | None) -> Array | None:
    """Known elements of a tensor: ints wrapped around; None if a symbolic one may leave the range of its type.

    Symbolic elements of 32 and 64 bits are assumed not to overflow.
    """
    if contents is None or not isinstance(type_, TensorType) or not type_.dtype.is_integer:
        return contents
    if any(isinstance(d, SymDim) and _may_wrap(d, type_.dtype) for d in contents.reshape(-1)):
        return None
    wrapped = np.empty(contents.shape, object)
    for index, d in np.ndenumerate(contents):
        wrapped[index] = d if isinstance(d, SymDim) else _wrapped_int(int(d), type_.dtype)
    return wrapped


def _wrapped_int(number: int, dtype: DType) -> int:
    """`number` wrapped around like the arithmetic of `dtype`."""
    low = number & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.is_signed and low >> (dtype.bits - 1) else low


def _may_wrap(dim: SymDim, dtype: DType) -> bool:
    """Whether `dim` may leave the range of `dtype`; sizes are assumed to fit into 32 bits."""
    if dtype.bits < 32 or (not dtype.is_signed and not is_nonnegative(dim)):
        return True
    return any(abs(c) >> (dtype.bits - 1) for _, c in dim.terms)


def _small(type_: TensorType) -> bool:
    return type_.is_static and at_most(product(type_.shape or ()), KNOWN_LIMIT)


def _as_constants(known: Sequence[Array | None], types: Sequence[Type]) -> list[Value] | None:
    values = []
    for contents, type_ in zip(known, types, strict=True):
        if contents is None or not isinstance(type_, TensorType):
            return None
        if not is_static(dims_of(contents)):
            return None
        values.append(constant(_wrapped(contents, type_.dtype)))
    return values or None


def _wrapped(contents: Array, dtype: DType) -> Array:
    """Exact integers as elements of `dtype`, wrapped around like its arithmetic."""
    masked = [int(d) & ((1 << dtype.bits) - 1) for d in contents.reshape(-1)]
    return np.asarray(masked, np.uint64).astype(dtype.numpy).reshape(contents.shape)
