"""Complex tensors as two real ones, for targets without kernels for complex numbers.

::

    %z: complex64 = Complex(%a, %b)                (%a, %b)
    %p: complex64 = Mul(%z, %w)              ->    %pr = %a * %wr - %b * %wi;  %pi = %a * %wi + %b * %wr
    %t: complex64 = Transpose(%p)                  %tr = Transpose(%pr);  %ti = Transpose(%pi)
    %m: float32 = Abs(%t)                          %m = Sqrt(%tr * %tr + %ti * %ti)

Complex inputs and outputs become one real tensor with a trailing axis of size 2, as in ONNX's DFT. Regions may compute
complex numbers, but not have them as inputs or outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Op, Value, constant
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.reshape import broadcast, unsqueezed
from onnxtfl.ir.types import TensorType, Type
from onnxtfl.rewriting.sections import Section, new_names

Parts = tuple[Term, Term]
_KEPT = (ops.Shape, ops.Size)
"""Ops that only read the shape of their operand."""
_WITH_ZEROS = (ops.SpaceToBatch, ops.BatchToSpace)
"""Ops that move elements and may insert zeros."""


@dataclass(frozen=True)
class ComplexPairs(Section):
    """`names`: the inputs and outputs whose complex elements became pairs of real ones."""

    names: tuple[str, ...]

    def renamed(self, names: Mapping[str, str]) -> ComplexPairs:
        return ComplexPairs(tuple(new_names(self.names, names)))


def split_complex(graph: Graph) -> ComplexPairs:
    """Replace complex values by real and imaginary parts. UnsupportedError for ops without a rule here."""
    splitting = _Splitting(graph)
    graph.inputs = [splitting.input(v) if _is_complex(v.type) else v for v in graph.inputs]
    splitting.run()
    return ComplexPairs(tuple(splitting.names))


def split_complex_in_region(graph: Graph) -> None:
    """Split complex values in a region. UnsupportedError if its inputs or outputs are complex."""
    if any(_is_complex(v.type) for v in (*graph.inputs, *graph.outputs)):
        raise UnsupportedError("complex numbers as inputs or outputs of a branch or loop", code="E-TYPE-002")
    _Splitting(graph).run()


def _pairs(value: Value) -> list[Origin]:
    """Return the origins of `value` for pairs of real numbers."""
    return [replace(origin, pairs=True) for origin in value.origins]


def _is_complex(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in REAL_OF


class _Splitting:
    """Splits the values of one graph.

    `parts`: real and imaginary part by complex value. `names`: see `ComplexPairs`.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parts: dict[Value, Parts] = {}
        self.names: list[str] = []

    def input(self, value: Value) -> Value:
        """Return the input of pairs that replaces the complex input `value`."""
        type_ = value.tensor_type
        made = Value(TensorType(REAL_OF[type_.dtype], (*value.shape, 2)), value.name)
        made.origins, value.name = _pairs(value), None
        b = Builder(self.graph, self.graph.first, maker="complex numbers")
        pair = Term(b, made)
        self.parts[value] = pair.at(0, value.rank), pair.at(1, value.rank)
        self.names.append(made.name or "")
        return made

    def run(self) -> None:
        """Rewrite the nodes, then the outputs."""
        for node in list(self.graph.nodes):
            if any(v is not None and _is_complex(v.type) for v in (*node.operands, *node.results)):
                self.rewrite(node)
        self.graph.outputs = [
            self.output(v, name) if _is_complex(v.type) else v
            for v, name in zip(self.graph.outputs, self.graph.names_of_outputs, strict=True)
        ]
        for node in reversed(list(self.graph.nodes)):
            if any(_is_complex(v.type) for v in node.results):
                self.graph.remove(node)

    def output(self, value: Value, name: str) -> Value:
        """Return the pairs that replace the complex output `value`."""
        b = Builder(self.graph, cause=value.producer, maker="complex numbers")
        real, imaginary = (unsqueezed(b, part.value, [value.rank]) for part in self.of(b, value))
        made = b(ops.Concatenate, real, imaginary, axis=value.rank)
        made.name, made.origins, value.name = value.name, _pairs(value), None
        self.names.append(name)
        return made

    def of(self, b: Builder, value: Value) -> Parts:
        """Return the parts of a complex value, of equal shape; for a real value, itself and 0."""
        if value in self.parts:
            return Term(b, self.parts[value][0].value), Term(b, self.parts[value][1].value)
        if value.is_constant:
            whole = value.numpy()
            return Term(b, constant(np.real(whole).copy())), Term(b, constant(np.imag(whole).copy()))
        raise UnsupportedError("complex numbers from an op without a rule for them", code="E-TYPE-002")

    def rewrite(self, node: Node) -> None:
        """Compute the parts of the results (or the results, if real)."""
        b = Builder(self.graph, node, maker="complex numbers")
        rule = _RULES.get(node.op)
        if rule is not None and not any(v.is_quantized for v in node.results):
            made = rule(b, node, [v if not _is_complex(v.type) else self.of(b, v) for v in _given(node)])
        elif (node.op.moves is not None or node.op in _WITH_ZEROS) and all(_is_complex(v.type) for v in node.results):
            for result, parts in zip(node.results, self._moved(b, node), strict=True):
                self.parts[result] = parts
            return
        else:
            raise UnsupportedError("complex numbers in this op", node=node.name, op=node.op.name, code="E-TYPE-002")
        if isinstance(made, tuple):
            self.parts[node.result] = made
        else:
            self.graph.substitute(node.result, made)
            self.graph.remove(node)

    def _moved(self, b: Builder, node: Node) -> list[Parts]:
        """Apply an op that moves elements to each part."""
        found = []
        for i in (0, 1):
            chosen = [self.of(b, v)[i].value if v is not None and _is_complex(v.type) else v for v in node.operands]
            found.append([Term(b, v) for v in b.many(node.op, *chosen, **node.attributes)])
        return list(zip(*found, strict=True))


def _given(node: Node) -> list[Value]:
    return node.present_operands


_Given = Sequence[Value | Parts]


def _made(b: Builder, node: Node, given: _Given) -> Parts:
    """Complex(a, b): the operands, broadcast to the same shape."""
    real, imaginary = (v for v in given if isinstance(v, Value))
    return (
        Term(b, broadcast(b, real, imaginary.shape, imaginary)),
        Term(b, broadcast(b, imaginary, real.shape, real)),
    )


def _convert(b: Builder, node: Node, given: _Given) -> Value | Parts:
    x, dtype = given[0], node.attr("dtype")
    if isinstance(x, Value):
        real = Term(b, x).to(REAL_OF[dtype])
        return _made(b, node, [real.value, b.scalar(0.0, real.dtype)])
    if dtype in REAL_OF:
        return x[0].to(REAL_OF[dtype]), x[1].to(REAL_OF[dtype])
    return x[0].to(dtype).value


def _abs(b: Builder, node: Node, given: _Given) -> Value:
    """Return the modulus, scaled by the larger part so that squares neither overflow nor underflow."""
    real, imaginary = _pair(given[0])
    larger, smaller = real.abs().max(imaginary.abs()), real.abs().min(imaginary.abs())
    ratio = smaller / larger.max(float(np.finfo(larger.dtype.numpy).tiny))
    modulus = larger * (ratio * ratio + 1.0).sqrt()
    return (larger < np.inf).choose(modulus, larger).value


def _mul(b: Builder, node: Node, given: _Given) -> Parts:
    (a, bi), (c, d) = map(_pair, given)
    return a * c - bi * d, a * d + bi * c


def _part(b: Builder, node: Node, given: _Given) -> Value:
    return _pair(given[0])[int(node.op is ops.Imag)].value


def _partwise(b: Builder, node: Node, given: _Given) -> Parts:
    """Apply Add, Sub or Neg to each part."""
    pairs = [_pair(v) for v in given]
    made = [pairs[0][i].apply(node.op, *(pair[i] for pair in pairs[1:]), **node.attributes) for i in (0, 1)]
    return made[0], made[1]


def _shape(b: Builder, node: Node, given: _Given) -> Value:
    return b(node.op, _pair(given[0])[0].value, **node.attributes)


def _pair(given: Value | Parts) -> Parts:
    assert not isinstance(given, Value)
    return given


_RULES: dict[type[Op], Callable[[Builder, Node, _Given], Value | Parts]] = {
    ops.Complex: _made,
    ops.Convert: _convert,
    ops.Abs: _abs,
    ops.Mul: _mul,
    **dict.fromkeys((ops.Real, ops.Imag), _part),
    **dict.fromkeys((ops.Add, ops.Sub, ops.Neg), _partwise),
    **dict.fromkeys(_KEPT, _shape),
}
