"""Selection of boxes.

==============  =============================================================================================
ONNX            NonMaxSuppression 10 11
TFLite          NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5: one list of boxes at a time
==============  =============================================================================================

TFLite suppresses a box whose overlap is >= the threshold, ONNX a box whose overlap is > the threshold. LiteRT's kernel
removes a chosen box only because it overlaps itself: a box of area 0, or any box at a threshold above 1, is chosen
again in each iteration. Among equal scores ONNX Runtime chooses the first box, LiteRT depends on the order of its heap
(kernels/internal/reference/non_max_suppression.h): boxes above the lowest score are therefore sorted first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.build.sizes import as_int32, range_below, slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.ops.loops import scan_attributes
from onnxtfl.ir.reshape import (
    as_int64,
    concatenated,
    dim_value,
    iota,
    reshape,
    stacked_along,
    transposed,
    unsqueezed,
)
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType, Type, tensor
from onnxtfl.rewriting.registry import Form, decompose, lift_tfl, lower_tfl

_LOWEST = float(np.finfo(np.float32).min)
_TINY = 1e-37
_FAR = 2.0**60


row(ops.NonMaxSuppression, onnx="NonMaxSuppression", since=(10, 11), attributes="center_point_box")


@lift_tfl("NON_MAX_SUPPRESSION_V4")
def _tfl_select_boxes(b: Builder, node: Node) -> list[Value]:
    indices, _, count = _selected(b, node)
    return [indices, count]


@lift_tfl("NON_MAX_SUPPRESSION_V5")
def _tfl_select_boxes_softly(b: Builder, node: Node) -> list[Value]:
    return _selected(b, node)


def _selected(b: Builder, node: Node) -> list[Value]:
    """Limit and thresholds have one element and any shape."""
    numbers = [v if v is None or product(v.shape) != 1 else reshape(b, v, ()) for v in node.operands[2:]]
    return b.many(ops.SelectBoxes, node.operand(0), node.operand(1), *numbers)


@lower_tfl(ops.SelectBoxes)
def _select_boxes(node: Node) -> Form | None:
    """V4 has no scores as a result; V5 has them, also without soft selection."""
    if node.optional(5) is not None:
        return Form("NON_MAX_SUPPRESSION_V5", tuple(node.operands))
    scores = node.results[1]
    if scores.uses or (node.graph is not None and node.graph.is_output(scores)):
        return Form("NON_MAX_SUPPRESSION_V5", (*node.operands[:5], np.asarray(0, np.float32)))
    return Form("NON_MAX_SUPPRESSION_V4", tuple(node.operands[:5]), results=(0, 2))


@decompose(ops.NonMaxSuppression, "tfl")
def _class_by_class(b: Builder, node: Node) -> Value:
    """Select the boxes of each batch and class separately, as rows (batch, class, box)."""
    boxes, scores = node.operand(0), node.operand(1)
    never, *thresholds = _thresholds(b, node)
    operands = [_limit(b, node.optional(2), scores), *thresholds]
    if not is_static(counts := scores.shape[:2]):
        return _list_by_list(b, node, [never.value, *operands])
    batches, classes = counts
    parts, margin = [], np.asarray([[0, 0], [2, 0]])
    for batch in range(batches):
        centered = bool(node.attr("center_point_box"))
        corners = _with_one_more(b, _item(b, boxes, batch), centered, never, boxes)
        rows = _item(b, scores, batch)
        for label in range(classes):
            indices, count = _first_of_equals(b, corners, _item(b, rows, label), operands)
            chosen = b(ops.Slice, indices, [0], reshape(b, count, (1,)), [1])
            columns = b(ops.Pad, reshape(b, chosen, (*chosen.shape, 1)), margin)
            parts.append(b(ops.Add, columns, np.asarray([[batch, label, 0]], np.int32)))
    if not parts:
        return constant(np.zeros((0, 3), np.int64))
    return b(ops.Convert, concatenated(b, parts, 0), dtype=DType.INT64)


def _first_of_equals(b: Builder, corners: Value, scores: Value, operands: Sequence[Value]) -> tuple[Value, Value]:
    """Return the chosen boxes of one list (the first of equal scores first) and their number.

    The boxes above the lowest score (few in most models) are sorted; their ranks, counted from the end, replace the
    scores. A box of rank 0 is never chosen, and always exists.
    """
    limit, overlap, least = operands
    inside = b(ops.NonZero, (Term(b, scores) > Term(b, least)).value)
    last = b(ops.Convert, dim_value(b, scores.shape[0], scores), dtype=DType.INT64)
    found = b(ops.Concatenate, b(ops.Reshape, inside, [-1]), last, axis=0)
    more = b(ops.Pad, scores, np.asarray([[0, 1]]), b.scalar(_LOWEST, scores))
    count = b(ops.Shape, found)
    _, places = b.many(ops.TopK, b(ops.Gather, more, found, axis=0), count, axis=0, dtype=DType.INT32)
    order = b(ops.Convert, b(ops.Gather, found, places, axis=0), dtype=DType.INT32)
    numbers = Term(b, iota(b, as_int32(b, count)))
    ranks = (Term(b, reshape(b, as_int32(b, count), ())) - 1 - numbers).to(DType.FLOAT32)
    in_order = b(ops.Gather, corners, order, axis=0)
    indices, _, kept = b.many(ops.SelectBoxes, in_order, ranks.value, limit, overlap, b.scalar(0.5, DType.FLOAT32))
    return b(ops.Gather, order, indices, axis=0), kept


def _list_by_list(b: Builder, node: Node, operands: Sequence[Value]) -> Value:
    """Select in a loop over a dynamic number of batches and classes, each selection padded to the limit.

    `operands`: whether no overlap exceeds the threshold, the limit, the thresholds. Rows [r, j] with j below the count
    of list r are kept; r determines batch and class.
    """
    boxes, scores = node.operand(0), node.operand(1)
    batches, classes, count = scores.shape
    lists = reshape(b, scores, (batches * classes, count), scores)
    per_batch = as_int64(b, dim_value(b, classes, scores))
    owners = Term(b, range_below(b, batches * classes, lists)) // Term(b, per_batch)
    captures = [boxes, *(v for v in operands if not v.is_constant)]
    types = [tensor(scores.dtype, count), tensor(DType.INT64), *(v.type for v in captures)]
    body = _round_of_lists(types, operands, bool(node.attr("center_point_box")))
    flags = scan_attributes(0, (0, 0), (0, 0))
    indices, counts = b.many(ops.Scan, None, lists, owners.value, *captures, body=body, **flags)
    places = Term(b, range_below(b, indices.shape[1], indices)).to(DType.INT32)
    chosen = b(ops.NonZero, (places < Term(b, unsqueezed(b, counts, [1]))).value)
    number = Term(b, b(ops.Gather, chosen, np.asarray(0), axis=0))
    batch = number // Term(b, per_batch)
    kept = Term(b, b(ops.GatherND, indices, transposed(b, chosen, (1, 0)))).to(DType.INT64)
    columns = (batch, number - batch.apply(ops.Mul, per_batch), kept)
    return stacked_along(b, [column.value for column in columns], 1)


def _round_of_lists(types: Sequence[Type | None], operands: Sequence[Value], centered: bool) -> Graph:
    """Return the loop body: from the scores of one list and its batch index, the selection and its length."""
    region = Graph("round")
    b = Builder(region)
    scores, batch, boxes, *captured = (region.add_input(t) for t in types)
    given = iter(captured)
    never, *operands = [v if v.is_constant else next(given) for v in operands]
    corners = _with_one_more(b, b(ops.Gather, boxes, batch, axis=0), centered, Term(b, never), boxes)
    region.outputs = [*_first_of_equals(b, corners, scores, operands)]
    return region


def _item(b: Builder, x: Value, index: int) -> Value:
    return b(ops.Gather, x, np.asarray(index, np.int32), axis=0)


def _limit(b: Builder, limit: Value | None, scores: Value) -> Value:
    """Return min(limit, number of boxes) as an int32 scalar."""
    if limit is None:
        return constant(np.asarray(0, np.int32))
    asked, count = (reshape(b, v, ()) for v in (as_int64(b, limit), dim_value(b, scores.shape[2], scores)))
    return Term(b, asked).min(Term(b, count)).max(0).to(DType.INT32).value


def _thresholds(b: Builder, node: Node) -> tuple[Term, Value, Value]:
    """Return whether no overlap can exceed the threshold, the next larger float (at most 1), and the lowest score."""
    overlap, least = node.optional(3), node.optional(4)
    score = b.scalar(_LOWEST, DType.FLOAT32) if least is None else reshape(b, least, ())
    limit = b.scalar(0.0, DType.FLOAT32) if overlap is None else reshape(b, overlap, ())
    if limit.is_constant:
        number = np.float32(limit.numpy().reshape(-1)[0])
        above = max(np.nextafter(number, np.float32(np.inf)), np.float32(_TINY))
        return Term(b, constant(np.asarray(number >= 1))), constant(np.asarray(min(above, np.float32(1)))), score
    term = Term(b, limit)
    return term >= 1, (term * (1 + 2**-23) + _TINY).min(1).value, score


def _corners(b: Builder, boxes: Value, centered: bool) -> Term:
    """Return boxes [n, 4] as minimum and maximum corners [n + 1, 4], the last ones 0."""
    first, second = (Term(b, slice_axes(b, boxes, {1: slice(i, i + 2)})) for i in (0, 2))
    half = second * 0.5
    low, high = (first - half, first + half) if centered else (first.min(second), first.max(second))
    return low.apply(ops.Concatenate, high, axis=1).apply(ops.Pad, np.asarray([[0, 1], [0, 0]]))


def _with_one_more(b: Builder, boxes: Value, centered: bool, never: Term, source: Value) -> Value:
    """Return corners [n + 1, 4] such that the kernel chooses each box at most once, and the added last one never.

    Boxes that suppress no other box are moved to where each overlaps only itself; `never`: whether all are such.
    `source` [batches, n, 4]: from which n is read, so that this arithmetic does not wait for the ops on the corners.
    """
    constantly = never.value.is_constant
    if constantly and never.value.numpy().item():
        return _distant(b, source).value
    corners = _corners(b, boxes, centered)
    low, high = (Term(b, slice_axes(b, corners.value, {1: slice(i, i + 2)})) for i in (0, 2))
    # a box given by its center may have a negative size: its area counts as 0
    is_flat = (high - low).max(0.0).reduce("prod", [1]) <= 0
    return (is_flat if constantly else is_flat | never).choose(_distant(b, source), corners).value


def _distant(b: Builder, source: Value) -> Term:
    """Return [n + 1, 4] disjoint boxes of area 1, far from any real box, for `source` [batches, n, 4]."""
    numbers = Term(b, iota(b, dim_value(b, source.shape[1] + 1, source))).to(DType.FLOAT32)
    first = (numbers.along(0, 2) + 1) * _FAR
    unit = np.asarray([[1, 0, 1, 0]], np.float32)
    return first.apply(ops.Mul, unit) + Term(b, constant(np.asarray([[0, 0, _FAR / 2, 2 / _FAR]], np.float32)))


@decompose(ops.SelectBoxes, "onnx")
def _select_in_onnx(b: Builder, node: Node) -> list[Value]:
    """Run NonMaxSuppression on one batch and one class, its result padded with zeros to the limit."""
    boxes, scores, limit, overlap, least = (node.operand(i) for i in range(5))
    sigma = node.optional(5)
    if not _is_zero(sigma) or (overlap.is_constant and float(overlap.numpy()) <= 0):
        return _select_softly(b, node, b.scalar(0.0, boxes) if sigma is None else sigma)
    _assume_overlaps(node, boxes, overlap)
    one = [reshape(b, boxes, (1, *boxes.shape)), reshape(b, scores, (1, 1, *scores.shape))]
    below = (Term(b, overlap) * (1 - 2**-23)).value
    vectors = [reshape(b, v, (1,)) for v in (b(ops.Convert, limit, dtype=DType.INT64), below, least)]
    rows = b(ops.NonMaxSuppression, *one, *vectors)
    chosen = b(ops.Convert, b(ops.Gather, rows, np.asarray(2), axis=1), dtype=DType.INT32)
    count = b(ops.Shape, chosen)
    missing = b(ops.Concatenate, np.zeros(1, np.int64), b(ops.Sub, vectors[0], count), axis=0)
    table = reshape(b, missing, (1, 2))
    kept = b(ops.Gather, scores, chosen, axis=0)
    padded = [b(ops.Pad, v, table) for v in (chosen, kept)]
    for value, old in zip(padded, node.results, strict=False):
        value.type = old.type
    return [*padded, reshape(b, b(ops.Convert, count, dtype=DType.INT32), ())]


def _is_zero(sigma: Value | None) -> bool:
    return sigma is None or (sigma.is_constant and float(sigma.numpy()) == 0.0)


def _assume_overlaps(node: Node, boxes: Value, overlap: Value) -> None:
    """Record the assumptions under which LiteRT never chooses a box again, as ONNX: LiteRT removes boxes whose overlap
    with the chosen one is >= the threshold, so a box of area 0 stays, and a threshold of 0 removes all boxes.
    """
    corners = boxes.numpy() if boxes.is_constant else None
    if corners is None or (corners[:, :2] == corners[:, 2:]).any():
        assume(f"each box of {shown_name(node)} has a positive area (LiteRT chooses a box of area 0 in each iteration)")
    if not overlap.is_constant:
        assume(f"the IoU threshold of {shown_name(node)} is above 0")


def _select_softly(b: Builder, node: Node, sigma: Value) -> list[Value]:
    """Choose the box with the highest score `limit` times; each time, reduce the scores of boxes that overlap it.

    ::

        scores = scores > least & overlap < threshold ? scores * exp(-0.5 / sigma * overlap**2) : -inf

    A box overlaps itself, so it is chosen once, unless its area is 0. LiteRT reduces a score only when it pops the box
    from its heap; the result is the same if no score is negative.
    """
    boxes, scores, limit, overlap, least = (node.operand(i) for i in range(5))
    if not _is_zero(sigma) and not (least.is_constant and float(least.numpy()) >= 0):
        assume(f"no score of {shown_name(node)} that is above its threshold is negative")
    corners = _corners(b, boxes, False).value
    one_more = Term(b, b(ops.Pad, scores, np.asarray([[0, 1]]), b.scalar(-np.inf, scores)))
    spread = Term(b, reshape(b, sigma, ()))
    scale = (spread > 0).choose(spread.constant(-0.5) / spread, 0.0)
    count = (Term(b, scores) > Term(b, least)).to(DType.INT32).reduce("sum", [0], keepdims=False)
    captures = [corners, *(reshape(b, v, ()) for v in (overlap, least)), scale.value, count.value]
    carried = [one_more.value, constant(np.asarray(0, np.int32))]
    body = _round_of_soft_selection([v.type for v in (*carried, *captures)])
    rounds = reshape(b, b(ops.Convert, limit, dtype=DType.INT64), ())
    flags = scan_attributes(2, result_axes=(0, 0))
    _, chosen, indices, kept = b.many(ops.Scan, rounds, *carried, *captures, body=body, **flags)
    for value, old in zip((indices, kept), node.results, strict=False):
        value.type = old.type
    return [indices, kept, chosen]


def _round_of_soft_selection(types: Sequence[Type | None]) -> Graph:
    """Return scores and count after an iteration, and the chosen index and score (0 if none is left)."""
    region = Graph("round")
    b = Builder(region)
    scores, chosen, corners, overlap, least, scale, count = (Term(b, region.add_input(t)) for t in types)
    best = scores.apply(ops.ArgMax, axis=0, keepdims=False, dtype=DType.INT32)
    top = scores.apply(ops.Gather, best, axis=0)
    is_left = (top > least) & (chosen < count)
    shared = _overlaps(corners, corners.apply(ops.Gather, best, axis=0))
    sunk = scores * (scale * shared * shared).exp()
    after = ((scores > least) & (shared < overlap)).choose(sunk, -np.inf)
    more = is_left.to(DType.INT32)
    results = (after, chosen + more, best * more, is_left.choose(top, 0.0))
    region.outputs = [term.value for term in results]
    return region


def _overlaps(boxes: Term, box: Term) -> Term:
    """Return the intersection over union of boxes [n, 4] and a box [4] as [n]; 0 for boxes of area 0."""
    b = boxes.b
    low, high = (Term(b, slice_axes(b, boxes.value, {1: slice(i, i + 2)})) for i in (0, 2))
    low_of, high_of = (Term(b, slice_axes(b, box.value, {0: slice(i, i + 2)})) for i in (0, 2))
    sizes = ((high - low), (high_of - low_of), (high.min(high_of) - low.max(low_of)).max(0.0))
    areas = [size.at(0, size.rank - 1) * size.at(1, size.rank - 1) for size in sizes]
    found = areas[2] / (areas[0] + areas[1] - areas[2])
    return ((areas[0] > 0) & (areas[1] > 0)).choose(found, 0.0)
