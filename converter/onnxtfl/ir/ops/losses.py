"""Losses: BCELoss CTCLoss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Formula, Term, by_expansion, by_formula
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.op import FLOATS, INDICES, Operand
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.cumulative import CumSum
from onnxtfl.ir.ops.gathering import Gather, GatherElements
from onnxtfl.ir.ops.loops import Scan, scan_attributes
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.reshape import broadcast, dim_value, iota, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType, TensorType, Type


@by_formula(
    Formula,
    operands=(
        Operand("input", FLOATS, likely=(0, 1)),
        Operand("target", FLOATS),
        Operand("weight", FLOATS, optional=True),
    ),
    attributes={"reduction": Choice("none", "sum", "mean", default="mean")},
)
def BCELoss(x: Term, target: Term, weight: Term | None, reduction: str = "mean") -> Term:
    """-(target * log(input) + (1 - target) * log(1 - input)) * weight, and its `reduction`.

    Logarithms are clamped to -100. Source: neutral-ops 3.16; torch.nn.BCELoss.
    """
    yes, no = (y.log().max(-100) for y in (x, 1 - x))
    loss = -(target * yes + (1 - target) * no)
    loss = loss if weight is None else loss * weight
    return loss if reduction == "none" else loss.reduce(reduction, keepdims=False)


@by_expansion(
    Operand("input", FLOATS),
    *(Operand(name, INDICES) for name in ("targets", "input_lengths", "target_lengths")),
    results=(Operand("loss"), Operand("alpha")),
)
def CTCLoss(
    b: Builder, x: Value, targets: Value, input_lengths: Value, target_lengths: Value, blank: int = 0
) -> list[Value]:
    """Connectionist temporal classification: -log of the probability of `targets`, over all their alignments.

    input: log-probabilities [T, N, C] (or [T, C]); targets [N, S] (or [S]), of which the first `target_lengths` [N]
    are valid, none of them `blank`; of rank 1 for a batch, the valid ones of all, concatenated. Results: loss [N] (or a
    scalar) and alpha [N, T, 2 S + 1], the log-probabilities of the targets so far, with blanks between them, after each
    step; steps from `input_lengths` [N] on keep them.
    Infinite where a target has no alignment. Source: neutral-ops 3.33; PyTorch.
    """
    if x.rank == 2:
        vectors = (reshape(b, v, (1,)) for v in (input_lengths, target_lengths))
        loss, alpha = b.many(CTCLoss, unsqueezed(b, x, [1]), unsqueezed(b, targets, [0]), *vectors, blank=blank)
        return [reshape(b, loss, ()), reshape(b, alpha, alpha.shape[1:], alpha)]
    targets = _as_matrix(b, targets, target_lengths, blank) if targets.rank == 1 else targets
    batch, width = x.shape[1], 2 * known_size(targets.shape[1], "the length of the targets") + 1
    states, may_skip = _states(b, targets, blank, width)
    rows = transposed(b, x, (1, 2, 0))
    emitted = b(GatherElements, rows, broadcast(b, unsqueezed(b, states, [2]), (batch, width, x.shape[0]), x), axis=1)
    first = np.full((1, width), -np.inf)
    first[0, 0] = 0.0
    start = broadcast(b, constant(first, x.dtype), (batch, width), x)
    steps, lengths = iota(b, dim_value(b, x.shape[0], x)), Term(b, input_lengths).to(DType.INT64).value
    body = _step([start.type, start.type, TensorType(DType.INT64, ()), may_skip.type, lengths.type])
    flags = scan_attributes(1, (2, 0), (1,))
    final, alpha = b.many(Scan, None, start, emitted, steps, may_skip, lengths, body=body, **flags)
    last = Term(b, unsqueezed(b, target_lengths, [1])).to(DType.INT64) * 2
    label, end = (Term(b, b(GatherElements, final, i.value, axis=1)) for i in ((last - 1).max(0), last))
    label = last.equals(0).choose(label.constant(-np.inf), label)
    return [reshape(b, (-_log_sum(label, end)).value, (batch,), x), alpha]


def _as_matrix(b: Builder, targets: Value, lengths: Value, blank: int) -> Value:
    """Return concatenated targets as a matrix [N, S], S the number of all; what is after a target is `blank`."""
    size = known_size(targets.shape[0], "the length of the targets")
    count = Term(b, lengths).to(DType.INT64)
    ends = count.apply(CumSum, np.asarray(0))
    columns = Term(b, constant(np.arange(size)))
    firsts, counts = (Term(b, unsqueezed(b, v.value, [1])) for v in (ends - count, count))
    is_valid, places = columns < counts, (firsts + columns).min(size - 1)
    padded = Term(b, b(Pad, targets, np.asarray([[0, int(size == 0)]])))  # an element to gather, if there is none
    return is_valid.choose(padded.apply(Gather, places.max(0).value, axis=0), blank).value


def _states(b: Builder, targets: Value, blank: int, width: int) -> tuple[Value, Value]:
    """Return the labels [N, width] with blanks between them, and which may follow the state before the blank."""
    labels = Term(b, unsqueezed(b, targets, [2])).to(DType.INT64)
    pairs = b(Concatenate, (labels * 0 + blank).value, labels.value, axis=2)
    flat = reshape(b, pairs, (targets.shape[0], width - 1), targets)
    states = b(Pad, flat, np.asarray([[0, 0], [0, 1]]), b.scalar(blank, flat))
    before = b(Pad, states, np.asarray([[0, 0], [2, -2]]), b.scalar(blank, flat))
    term = Term(b, states)
    return states, (term.differs(blank) & term.differs(Term(b, before))).value


def _step(types: Sequence[Type | None]) -> Graph:
    """Return the body of the Scan: alpha [N, width] after a step, and as an element of all."""
    body = Graph("step")
    b = Builder(body)
    alpha, emitted, number, may_skip, lengths = (Term(b, body.add_input(t)) for t in types)
    least = b.scalar(-np.inf, alpha.value)
    one, two = (Term(b, b(Pad, alpha.value, np.asarray([[0, 0], [n, -n]]), least)) for n in (1, 2))
    total = _log_sum(alpha, one, may_skip.choose(two, -np.inf)) + emitted
    valid = Term(b, unsqueezed(b, (lengths > number).value, [1]))
    after = valid.choose(total, alpha).value
    body.outputs = [after, after]
    return body


def _log_sum(*terms: Term) -> Term:
    """Return log(sum(exp(terms))), -infinity if all of them are."""
    largest = terms[0]
    for term in terms[1:]:
        largest = largest.max(term)
    shift = largest.max(float(np.finfo(np.float32).min))
    total = (terms[0] - shift).exp()
    for term in terms[1:]:
        total = total + (term - shift).exp()
    return total.log() + shift
