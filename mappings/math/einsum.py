"""Einsum (ONNX 12 28) as DotGeneral, Mul, Reduce and Transpose: any number of operands, ellipsis, repeated labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.rewriting.registry import lift_onnx


@dataclass(frozen=True)
class Labeled:
    """A tensor with a label for each axis, no label twice."""

    value: Value
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        """Return the size of the axis `label`, 1 if there is none."""
        dims: tuple[Dim, ...] = self.value.shape
        return dims[self.labels.index(label)] if label in self.labels else 1


@lift_onnx("Einsum", since=(12, 28))
def _einsum(b: Builder, node: Node) -> Value:
    operands = node.present_operands
    terms, output = parse(str(node.attr("equation")), [v.rank for v in operands])
    parts = [_without_repeats(b, v, labels) for v, labels in zip(operands, terms, strict=True)]
    last = {label: i for i, part in enumerate(parts) for label in part.labels}
    result = parts[0]
    for i, part in enumerate(parts[1:], 1):
        needed = {*output, *(label for label in (*result.labels, *part.labels) if last[label] > i)}
        result = _multiplied(b, result, part, needed)
    result = _summed(b, result, set(output))
    return transposed(b, result.value, [result.labels.index(label) for label in output])


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the labels of the operands' and the result's axes; those of an ellipsis are "...0", ... from the end.

    ValueError if the equation does not match the ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ValueError(f"equation {equation!r} for {len(ranks)} operands")
    terms = [_labels(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    widest = max((sum(label.startswith("...") for label in term) for term in terms), default=0)
    spread = [f"...{i}" for i in reversed(range(widest))]
    if not arrow:
        letters = [c for c in left if c.isalpha()]
        return terms, (*spread, *sorted({c for c in letters if letters.count(c) == 1}))
    head, dots, tail = right.partition("...")
    output = (*head, *(spread if dots else ()), *tail)
    if not set(output) <= {label for term in terms for label in term} or len(set(output)) != len(output):
        raise ValueError(f"the result of {equation!r} has labels that no operand has, or one twice")
    return terms, output


def _labels(text: str, rank: int) -> tuple[str, ...]:
    head, dots, tail = text.partition("...")
    count = rank - len(head) - len(tail)
    if count < 0 or (count > 0 and not dots):
        raise ValueError(f"{text!r} for an operand of rank {rank}")
    return (*head, *(f"...{i}" for i in reversed(range(count))), *tail)


def _without_repeats(b: Builder, value: Value, labels: tuple[str, ...]) -> Labeled:
    """Return the diagonal over axes of the same label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            rest = [a for a in range(value.rank) if a not in (i, j)]
            value = b(ops.Diagonal, transposed(b, value, [*rest, i, j]))
            labels = (*(labels[a] for a in rest), label)
    return Labeled(value, labels)


def _summed(b: Builder, part: Labeled, needed: set[str]) -> Labeled:
    """Sum over labels that are not `needed`."""
    axes = [i for i, label in enumerate(part.labels) if label not in needed]
    if not axes:
        return part
    value = b(ops.Reduce, part.value, axes, kind="sum", keepdims=False)
    return Labeled(value, tuple(label for label in part.labels if label in needed))


def _multiplied(b: Builder, lhs: Labeled, rhs: Labeled, needed: set[str]) -> Labeled:
    """Multiply two operands and sum over labels that are not `needed`."""
    common = {x for x in lhs.labels if x in rhs.labels}
    shared = {x for x in common if _agree(lhs.size(x), rhs.size(x))}
    lhs, rhs = (_summed(b, part, needed | shared) for part in (lhs, rhs))
    contracted = [x for x in lhs.labels if x in shared and x not in needed]
    if not contracted:
        return _elementwise(b, lhs, rhs, needed)
    batching = [x for x in lhs.labels if x in rhs.labels and x not in contracted]
    attributes = {
        f"{side}_{kind}_dimensions": tuple(part.labels.index(x) for x in labels)
        for side, part in (("lhs", lhs), ("rhs", rhs))
        for kind, labels in (("batching", batching), ("contracting", contracted))
    }
    value = b(ops.DotGeneral, lhs.value, rhs.value, **attributes)
    taken = {*batching, *contracted}
    return Labeled(value, (*batching, *_but(lhs.labels, taken), *_but(rhs.labels, taken)))


def _agree(a: Dim, b: Dim) -> bool:
    """Whether two axes of the same label have equal sizes; an axis of size 1 broadcasts and is summed separately."""
    return a == b or 1 not in (a, b)


def _but(labels: Iterable[str], taken: set[str]) -> list[str]:
    return [x for x in labels if x not in taken]


def _elementwise(b: Builder, lhs: Labeled, rhs: Labeled, needed: set[str]) -> Labeled:
    labels = (*lhs.labels, *_but(rhs.labels, set(lhs.labels)))
    product = b(ops.Mul, _spread(b, lhs, labels), _spread(b, rhs, labels))
    return _summed(b, Labeled(product, labels), needed)


def _spread(b: Builder, part: Labeled, labels: Sequence[str]) -> Value:
    """Return the tensor with one axis per label, in the order of `labels`."""
    own = [x for x in labels if x in part.labels]
    ordered = transposed(b, part.value, [part.labels.index(x) for x in own])
    return reshape(b, ordered, [part.size(x) for x in labels])
