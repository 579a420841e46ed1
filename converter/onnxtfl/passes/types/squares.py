"""Roots of sums of squares in two steps, where squares leave the range of float16: for targets that compute in it.

::

    %y = Rsqrt(Add(Reduce(Mul(%x, %x)), %e))    ->    %m = Max(Reduce(Abs(%x), max), 2^-12)
                                                      %q = Reduce(Mul(%x / %m, %x / %m))
                                                      %r = Rsqrt(%q + (sqrt(%e) / %m)^2)
                                                      %y = %r / %m;    Mul(%x, %y) = Mul(%x / %m, %r)

The reduction is a sum or a mean; Sqrt likewise, and Max(.., %e). So written are layer, instance, group and RMS
normalizations, L2 norms and deviations, whether they were one op or several. The two steps cost a maximum and a
division, so they are written only where elements are known to be large, or where inputs of the model make them so:
those of the user, else such as a check generates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.half import LARGEST
from onnxtfl.ir.interpret import values_of
from onnxtfl.ir.matching import made_by, splat_value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import TensorType

Inputs = Callable[[Graph], Sequence[Mapping[Value, Array]]]
"""Sets of inputs for a graph, none if they are unknown."""
MOST = LARGEST / 4
"""The largest sum of squares of these inputs that is left alone: others may have larger ones."""
LEAST = 2.0**-17
"""The smallest one: below, float16 has less than 8 bits."""
SMALLEST = 2.0**-12
"""The smallest divisor; its square is still a float16."""
MOST_WORK = 1 << 29
"""The largest graph that is evaluated, by elements read and written, and multiplications / 8: some seconds."""
_ROUNDS = 100
"""The iterations of a loop, for its work."""


@dataclass(frozen=True)
class _Root:
    """A square root of a sum, or mean, of squares of `x`. `added`: what is added to it; `least`: its lower bound."""

    node: Node
    x: Value
    reduce: Node
    added: float = 0.0
    least: float = 0.0

    def is_known_to_leave(self) -> bool:
        """Whether bounds of `x` are known, and their squares leave the range."""
        bound = facts_of(self.x).magnitude
        return bound < float(np.finfo(np.float32).max) and bound * bound > MOST

    def leaves(self, x: Array) -> bool:
        """Whether the squares of these elements, their sums, or the mean below the root leave the range."""
        axes = ops.reduced_axes(self.reduce)
        squares = np.square(x, dtype=np.float64)
        if not squares.size or not np.isfinite(squares).all():
            return False
        sums = np.sum(squares, axis=axes)
        count = squares.size / max(1, sums.size)
        below = np.maximum(sums / count if self.reduce.attr("kind") == "mean" else sums, self.least) + self.added
        return bool(sums.max() > MOST or below.min() < LEAST)


def scale_squares(graph: Graph, inputs: Inputs) -> None:
    """Rewrite the roots of `graph` whose squares leave the range of float16."""
    roots = list(_roots(graph))
    wanted = {root for root in roots if root.is_known_to_leave()}
    wanted |= _observed(graph, [root for root in roots if root not in wanted], inputs)
    for root in roots:
        if root in wanted:
            _rewrite(graph, root)


def _roots(graph: Graph) -> Iterator[_Root]:
    for node in graph.nodes:
        if node.op in (ops.Sqrt, ops.Rsqrt) and not node.result.is_quantized:
            found = _below(node, node.operand(0))
            if found is not None:
                yield found


def _below(root: Node, value: Value) -> _Root | None:
    """The root of `value`: a reduction of squares, to which a number >= 0 is added, or whose lower bound it is."""
    node = made_by(value, ops.Add, ops.Max, ops.Reduce)
    if node is None:
        return None
    if node.op is not ops.Reduce:
        for i in (0, 1):
            number, found = splat_value(node.operand(1 - i)), _below(root, node.operand(i))
            if found is not None and number is not None and number >= 0 and not (found.added or found.least):
                return replace(found, added=number) if node.op is ops.Add else replace(found, least=number)
        return None
    square = made_by(node.operand(0), ops.Mul, ops.Pow)
    if node.attr("kind") not in ("sum", "mean") or not ops.reduced_axes(node) or square is None:
        return None
    x, other = square.operand(0), square.operand(1)
    is_square = x is other if square.op is ops.Mul else splat_value(other) == 2
    return _Root(root, x, node) if is_square and x.is_static and 0 not in x.shape else None


def _observed(graph: Graph, roots: Sequence[_Root], inputs: Inputs) -> set[_Root]:
    """Those whose squares leave the range for the inputs."""
    found = set[_Root]()
    if not roots or _work(graph) > MOST_WORK:
        return found
    for given in inputs(graph):
        try:
            elements = values_of(graph, dict(given), [root.x for root in roots])
        except Exception:  # the inputs do not suit the model: nothing is known
            break
        found |= {root for root, x in zip(roots, elements, strict=True) if root.leaves(x)}
    return found


def _work(graph: Graph) -> int:
    """About the work of evaluating `graph`: a product of M x K and K x N has M K N = sqrt(MK KN MN) multiplications."""
    total = 0
    for node in graph.nodes:
        values = [v for v in (*node.operands, *node.results) if v is not None and isinstance(v.type, TensorType)]
        sizes = [math.prod(known_sizes(v.tensor_type.shape or ())) for v in values]
        total += sum(sizes) + sum(_ROUNDS * _work(region) for region in node.regions)
        if node.op.multiplies in ("matrices", "windows"):
            total += math.isqrt(sizes[0] * sizes[1] * sizes[-1]) // 8
    return total


def _rewrite(graph: Graph, root: _Root) -> None:
    """Replace a root by that of scaled values, and quotients x / root by quotients of scaled values."""
    scaled, inner, divisor = _in_two_steps(Builder(graph, root.node, maker="squares"), root)
    is_inverse = root.node.op is ops.Rsqrt
    for user, _ in list(root.node.result.uses):
        if user.op is (ops.Mul if is_inverse else ops.Div) and user.graph is graph and _is_of(user, root):
            b = Builder(graph, user, maker="squares")
            found = Term(b, scaled).apply(user.op, Term(b, inner))
            graph.replace(user, [found.value])
    b = Builder(graph, root.node, maker="squares")
    whole = Term(b, inner).apply(ops.Div if is_inverse else ops.Mul, Term(b, divisor))
    graph.replace(root.node, [whole.value])


def _is_of(user: Node, root: _Root) -> bool:
    """Whether `user` joins `x` and its root, which has the same number of axes."""
    joins = user.operand(0) is root.x or (user.op is ops.Mul and user.operand(1) is root.x)
    return joins and root.node.result.rank == root.x.rank and not user.result.is_quantized


def _in_two_steps(b: Builder, root: _Root) -> tuple[Value, Value, Value]:
    """x / m, the root (or its inverse) of the sums of its squares, and m."""
    x, shape = Term(b, root.x), root.reduce.result.shape
    axes = list(ops.reduced_axes(root.reduce) or ())
    largest = x.abs().reduce("max", axes).max(SMALLEST)
    scaled = x / largest
    inner = (scaled * scaled).reduce(root.reduce.attr("kind"), axes, keepdims=root.reduce.attr("keepdims"))
    divisor = Term(b, reshape(b, largest.value, shape))
    if root.least:
        part = math.sqrt(root.least) / divisor
        inner = inner.max(part * part)
    if root.added:
        part = math.sqrt(root.added) / divisor
        inner = inner + part * part
    return scaled.value, inner.apply(root.node.op).value, divisor.value
