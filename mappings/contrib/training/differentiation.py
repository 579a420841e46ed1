"""Gradient of ai.onnx.preview.training: reverse-mode differentiation of a value with respect to others.

    adjoint(y) = 1        adjoint(x) = sum over the users u of x of adjoint(u) * du/dx

An op without a rule here is expanded to other ops first, if it has an expansion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import broadcast, reshape, transposed
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints
from onnxtfl.rewriting.registry import expand, lift_onnx

_Rule = Callable[[Node, Term, Term], Sequence[Term | None]]
"""(node, adjoint of its result, its result) -> the adjoint of each operand, or None if it is not differentiable."""
_RULES: dict[type[Op], _Rule] = {}
_DOMAIN = "ai.onnx.preview.training"


@lift_onnx("Gradient", since=(1,), domain=_DOMAIN)
def _gradient(b: Builder, node: Node) -> list[Value]:
    """dy/dx for each x of `xs`, at the point given by the first operands.

    Operands: the values of xs and zs at this point; then the values named by xs, zs and y, which the reader appends.
    """
    wanted, count = len(node.attr("xs")), len(node.attr("xs")) + len(node.attr("zs", ()))
    if len(node.operands) != 2 * count + 1:
        raise ValueError(f"Gradient needs {count} operands, one for each name in xs and zs")
    point, named, y = node.operands[:count], node.operands[count : 2 * count], node.operand(2 * count)
    point_of = {name: value for name, value in zip(named, point, strict=True) if name is not None and value is not None}
    sources = [v for v in named[:wanted] if v is not None]
    tape = _Tape(b, point_of)
    for node_between in _nodes_between(sources, y, point_of):
        tape.record(node_between)
    return tape.gradients(point_of.get(y, y), [point_of[v] for v in sources])


def _nodes_between(sources: Sequence[Value], last: Value, ends: Mapping[Value, Value]) -> list[Node]:
    """The nodes on paths from `sources` to `last`, in topological order; producers of `ends` are not visited."""
    needed, work = set[Node](), [last]
    while work:
        value = work.pop()
        producer = None if value in ends else value.producer
        if producer is not None and producer not in needed:
            needed.add(producer)
            work += producer.present_operands
    depends, found = set(sources), list[Node]()
    graph = last.producer.graph if last.producer is not None else None
    for node in graph.nodes if graph is not None else ():
        if node in needed and any(v in depends for v in node.operands):
            depends.update(node.results)
            found.append(node)
    return found


class _Tape:
    """Copies of nodes, computed at another point, in order. `values`: maps values of the graph to those of the tape."""

    def __init__(self, b: Builder, values: dict[Value, Value]) -> None:
        self._b, self._values = b, values
        self._nodes: list[Node] = []

    def record(self, node: Node) -> None:
        """Add a copy of `node` to the tape. Raises UnsupportedError for an op with neither a rule nor an expansion."""
        operands = [None if v is None else self._values.get(v, v) for v in node.operands]
        if node.op in _RULES:
            copied = self._b.many(node.op, *operands, **node.attributes)
            self._nodes += [v.producer for v in copied[:1] if v.producer is not None]
        elif hasattr(node.op, "expansion"):
            copied = self._expanded(node, operands)
        else:
            raise UnsupportedError(f"the derivative of {node.op.name} is not supported", code="E-OP-006")
        self._values.update(zip(node.results, copied, strict=True))

    def _expanded(self, node: Node, operands: Sequence[Value | None]) -> list[Value]:
        """The results of the expansion of `node`, whose nodes are recorded instead."""
        inner = Builder(self._b.graph, self._b.before)
        results = expand(inner, Node(node.op, operands, node.attributes))
        for inner_node in inner.created:
            self.record(inner_node)
        return [self._values.get(v, v) for v in results]

    def gradients(self, y: Value, wanted: Iterable[Value]) -> list[Value]:
        """The derivative of sum(y) with respect to each of `wanted`; 0 where y does not depend on it."""
        adjoints = {y: _zeros(self._b, y) + 1.0}
        for node in reversed(self._nodes):
            adjoint = adjoints.get(node.result)
            if adjoint is not None:
                self._add(adjoints, node, adjoint)
        return [adjoints[v].value if v in adjoints else _zeros(self._b, v).value for v in wanted]

    def _add(self, adjoints: dict[Value, Term], node: Node, adjoint: Term) -> None:
        """Add to `adjoints` what the result of `node`, with this adjoint, contributes to its operands."""
        parts = _RULES[node.op](node, adjoint, Term(self._b, node.result))
        for operand, part in zip(node.operands, parts, strict=False):
            if operand is not None and part is not None and operand.dtype.is_float:
                summed = _sum_to_shape(part, operand)
                adjoints[operand] = adjoints[operand] + summed if operand in adjoints else summed


def _zeros(b: Builder, like: Value) -> Term:
    """Zeros in the shape and dtype of `like`."""
    return Term(b, broadcast(b, b.scalar(0.0, like), like.shape, like))


def _sum_to_shape(adjoint: Term, operand: Value) -> Term:
    """The adjoint in the shape of `operand`: summed over the axes along which the operand was broadcast."""
    found, wanted = adjoint.value.shape, operand.shape
    extra = len(found) - len(wanted)
    axes = [*range(extra), *(i + extra for i, d in enumerate(wanted) if d == 1 and found[i + extra] != 1)]
    if any(d not in (n, 1) for d, n in zip(wanted, found[extra:], strict=True)):
        raise UnsupportedError(
            "the derivative of a broadcast along axes of unknown size is not supported", code="E-SHAPE-001"
        )
    if not axes:
        return adjoint
    return Term(adjoint.b, reshape(adjoint.b, adjoint.reduce("sum", axes).value, wanted, operand))


# --- derivatives by op -----------------------------------------------------------------------------------------------


def _derivative(*kinds: type[Op]) -> Callable[[_Rule], _Rule]:
    """A decorator that registers a derivative rule for these ops."""

    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def _unary(kind: type[Op], slope: Callable[[Term, Term], Term]) -> None:
    """Register an elementwise op; `slope`: dy/dx from x and y."""

    def rule(node: Node, g: Term, y: Term) -> Sequence[Term]:
        return [g * slope(Term(g.b, node.operand(0)), y)]

    _RULES[kind] = rule


def _binary(kind: type[Op], rule: Callable[[Term, Term, Term, Term], Sequence[Term]]) -> None:
    """Register y = op(x, z); `rule`: the adjoints of x and z from g (the adjoint of y), x, z and y."""
    _RULES[kind] = lambda node, g, y: rule(g, Term(g.b, node.operand(0)), Term(g.b, node.operand(1)), y)


_binary(ops.Add, lambda g, x, z, y: (g, g))
_binary(ops.Sub, lambda g, x, z, y: (g, -g))
_binary(ops.Mul, lambda g, x, z, y: (g * z, g * x))
_binary(ops.Div, lambda g, x, z, y: (g / z, -(g * y / z)))
_binary(ops.Pow, lambda g, x, z, y: (g * z * x.power(z - 1.0), g * y * x.log()))
_binary(ops.Max, lambda g, x, z, y: ((x >= z).choose(g, 0.0), (x >= z).choose(g.constant(0.0), g)))
_binary(ops.Min, lambda g, x, z, y: ((x <= z).choose(g, 0.0), (x <= z).choose(g.constant(0.0), g)))
_unary(ops.Neg, lambda x, y: x.constant(-1.0))
_unary(ops.Exp, lambda x, y: y)
_unary(ops.Log, lambda x, y: 1.0 / x)
_unary(ops.Log1p, lambda x, y: 1.0 / (x + 1.0))
_unary(ops.Expm1, lambda x, y: y + 1.0)
_unary(ops.Sqrt, lambda x, y: 0.5 / y)
_unary(ops.Sin, lambda x, y: x.apply(ops.Cos))
_unary(ops.Cos, lambda x, y: -x.apply(ops.Sin))
_unary(ops.Tanh, lambda x, y: 1.0 - y * y)
_unary(ops.Sigmoid, lambda x, y: y * (1.0 - y))
_unary(ops.Relu, lambda x, y: (x > 0.0).choose(x.constant(1.0), 0.0))
_unary(ops.Abs, lambda x, y: x.sign())
_unary(ops.Erf, lambda x, y: (-(x * x)).exp() * (2 / math.sqrt(math.pi)))


@_derivative(ops.Convert)
def _convert(node: Node, g: Term, y: Term) -> Sequence[Term | None]:
    x = node.operand(0)
    return [g.to(x.dtype) if x.dtype.is_float and y.dtype.is_float else None]


@_derivative(ops.Reshape, ops.Squeeze, ops.BroadcastTo)
def _reshape(node: Node, g: Term, y: Term) -> Sequence[Term]:
    """The adjoint in the operand's shape; for BroadcastTo, `_sum_to_shape` reduces it later."""
    x = node.operand(0)
    return [g if node.op is ops.BroadcastTo else Term(g.b, reshape(g.b, g.value, x.shape, x))]


@_derivative(ops.Transpose)
def _transpose(node: Node, g: Term, y: Term) -> Sequence[Term]:
    return [Term(g.b, transposed(g.b, g.value, inverse(node.attr("permutation"))))]


@_derivative(ops.Select)
def _select(node: Node, g: Term, y: Term) -> Sequence[Term | None]:
    condition = Term(g.b, node.operand(0))
    return [None, condition.choose(g, 0.0), condition.choose(g.constant(0.0), g)]


@_derivative(ops.Softmax, ops.LogSoftmax)
def _softmax(node: Node, g: Term, y: Term) -> Sequence[Term]:
    axes = [normalize_axis(node.attr("axis"), y.rank)]
    if node.op is ops.LogSoftmax:
        return [g - y.exp() * g.reduce("sum", axes)]
    return [y * (g - (g * y).reduce("sum", axes))]


@_derivative(ops.Reduce)
def _reduce(node: Node, g: Term, y: Term) -> Sequence[Term]:
    """Broadcast the adjoint along the reduced axes; for a mean, divide it by their size."""
    x, axes, kind = node.operand(0), node.optional(1), node.attr("kind")
    along = range(x.rank) if axes is None else normalize_axes(static_ints(axes) or (), x.rank)
    if kind not in ("sum", "mean") or (axes is not None and static_ints(axes) is None):
        raise UnsupportedError(
            f"the derivative of Reduce ({kind}) is not supported: only sum and mean over constant axes are",
            code="E-OP-006",
        )
    keepdims_adjoint = reshape(g.b, g.value, [1 if i in along else d for i, d in enumerate(x.shape)], x)
    expanded = Term(g.b, broadcast(g.b, keepdims_adjoint, x.shape, x))
    if kind == "sum":
        return [expanded]
    return [expanded / known_size(product([x.shape[i] for i in along]), "the number of averaged elements")]


@_derivative(ops.Concatenate)
def _concatenate(node: Node, g: Term, y: Term) -> Sequence[Term]:
    axis, starts = node.attr("axis"), [0]
    for operand in node.operands:
        size = operand.shape[axis] if operand is not None else 0
        size = known_size(size, "the size of each operand along the concatenation axis")
        starts.append(starts[-1] + size)
    return [Term(g.b, slice_axes(g.b, g.value, {axis: slice(start, end)})) for start, end in pairwise(starts)]


@_derivative(ops.DotGeneral)
def _dot(node: Node, g: Term, y: Term) -> Sequence[Term]:
    """Contract the adjoint with the other operand along the free axes of that operand."""
    lhs, rhs, a = node.operand(0), node.operand(1), attributes_of(node)
    order = tuple(a["output_permutation"]) or tuple(range(y.rank))
    natural = transposed(g.b, g.value, inverse(order))
    roles = {
        side: (tuple(a[f"{side}_batching_dimensions"]), tuple(a[f"{side}_contracting_dimensions"]))
        for side in ("lhs", "rhs")
    }
    batch, lhs_free = len(roles["lhs"][0]), lhs.rank - sum(map(len, roles["lhs"]))
    free_axes = tuple(range(batch, batch + lhs_free)), tuple(range(batch + lhs_free, y.rank))
    return [
        _dot_adjoint(g.b, natural, lhs, rhs, (roles["lhs"], roles["rhs"]), free_axes[1]),
        _dot_adjoint(g.b, natural, rhs, lhs, (roles["rhs"], roles["lhs"]), free_axes[0]),
    ]


_Roles = tuple[tuple[int, ...], tuple[int, ...]]
"""(batching axes, contracting axes) of an operand."""


def _dot_adjoint(
    b: Builder, g: Value, x: Value, other: Value, roles: tuple[_Roles, _Roles], free: Sequence[int]
) -> Term:
    """The adjoint of `x`: g contracted with `other` along the axes `free` of g, which are the free axes of `other`.

    `roles`: those of `x`, those of `other`.
    """
    (batch, contract), (other_batch, other_contract) = roles
    other_free = tuple(i for i in range(other.rank) if i not in other_batch + other_contract)
    contracted = b(
        ops.DotGeneral,
        g,
        other,
        lhs_batching_dimensions=tuple(range(len(batch))),
        rhs_batching_dimensions=other_batch,
        lhs_contracting_dimensions=tuple(free),
        rhs_contracting_dimensions=other_free,
    )
    partners = dict(zip(other_contract, contract, strict=True))
    axes = [*batch, *(i for i in range(x.rank) if i not in batch + contract), *(partners[i] for i in sorted(partners))]
    return Term(b, transposed(b, contracted, inverse(axes)))
