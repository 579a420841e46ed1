"""Selecting boxes: NonMaxSuppression over batches and classes, SelectBoxes over one list.

Source: neutral-ops 3.82 (NMS), ONNX NonMaxSuppression-11; TensorFlow NonMaxSuppressionV4 and V5.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ, fresh_symbol
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, INDICES, Op, Operand
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType

_INT32 = frozenset({DType.INT32})


class NonMaxSuppression(Op):
    """For each batch and class the boxes, best score first, that overlap no selected one by more than a threshold.

    boxes [b, n, 4], scores [b, c, n] -> int64 [selected, 3] as (batch, class, box). Boxes are two diagonal corners
    (y, x), or with `center_point_box` center and size (x, y, w, h). Defaults: overlap
    threshold 0, no score threshold, limit 0. Source: neutral-ops 3.82, ONNX NonMaxSuppression-11.
    """

    core = True
    documented = "NMS"
    operands = (
        Operand("boxes", FLOATS),
        Operand("scores", FLOATS),
        Operand("max_output_boxes_per_class", INDICES, optional=True),
        Operand("iou_threshold", FLOATS, optional=True, likely=(0, 1)),
        Operand("score_threshold", FLOATS, optional=True),
    )
    discrete = True
    results = (Operand("selected_indices", frozenset({DType.INT64})),)
    attributes = {"center_point_box": Flag(False)}

    @staticmethod
    def shape(boxes: Value, scores: Value, *numbers: Value | None) -> Dims:
        for name, value in (("boxes", boxes), ("scores", scores)):
            if value.tensor_type.rank not in (None, 3):
                raise ValueError(f"{name} of rank {value.rank}")
        _check_corners(boxes)
        _check_numbers(numbers)
        return (fresh_symbol(), 3)

    @staticmethod
    def compute(boxes: Array, scores: Array, *numbers: Array | None, center_point_box: bool) -> Array:
        limit, overlap, least = (None if x is None else x.reshape(-1)[0] for x in numbers)
        count, most = 0 if limit is None else int(limit), 0.0 if overlap is None else float(overlap)
        rows = []
        for b in range(scores.shape[0]):
            corners = as_corners(boxes[b].astype(np.float32), center_point_box)
            for c in range(scores.shape[1]):
                rows += [(b, c, i) for i in select(corners, scores[b, c], count, most, least)]
        return np.asarray(rows, np.int64).reshape(-1, 3)


def _check_numbers(numbers: Sequence[Value | None]) -> None:
    """Raise ValueError for a limit or threshold that does not have one element."""
    for number in numbers:
        if number is not None and number.tensor_type.is_static and math.prod(number.shape) != 1:
            raise ValueError(f"a limit or threshold of shape {list(number.shape)}, not of one element")


def _check_corners(boxes: Value) -> None:
    size = 4 if boxes.tensor_type.shape is None else boxes.shape[-1]
    if differ(size, 4):
        raise ValueError(f"boxes of {size} numbers, not of 4")


def as_corners(boxes: Array, centered: bool) -> Array:
    """Return boxes [n, 4] as minimum and maximum corners."""
    if centered:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], axis=1)


def select(corners: Array, scores: Array, limit: int, overlap: float, least: Any) -> list[int]:
    """Return the indices of the selected boxes, at most `limit`."""
    waiting = np.argsort(-scores.astype(np.float64), kind="stable")
    waiting = waiting if least is None else waiting[scores[waiting] > least]
    chosen: list[int] = []
    while waiting.size and len(chosen) < limit:
        chosen.append(int(waiting[0]))
        waiting = waiting[1:]
        waiting = waiting[_overlaps(corners[chosen[-1]], corners[waiting]) <= overlap]
    return chosen


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of a box [4] and others [n, 4], float64[n]; 0 for boxes without an area."""
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1).astype(np.float64)
    empty = (area <= 0) | (areas <= 0)
    return np.where(empty, 0.0, shared / np.where(empty, 1.0, np.float64(area) + areas - shared))


class SelectBoxes(Op):
    """Select at most `limit` of boxes [n, 4] (diagonal corners) with scores [n]; indices are padded with zeros.

    Boxes whose overlap with a chosen one is >= the threshold are suppressed. With `sigma` > 0 overlaps reduce scores
    instead (soft NMS). Results: indices int32 [limit], their scores [limit], and the number of selected boxes, int32.
    Of equal scores the first is selected first (in TensorFlow their order is undefined). Source: TensorFlow
    NonMaxSuppressionV5 (added); LiteRT kernels/internal/reference/non_max_suppression.h.
    """

    discrete = True

    operands = (
        Operand("boxes", FLOATS),
        Operand("scores", FLOATS),
        Operand("limit", INDICES),
        Operand("iou_threshold", FLOATS),
        Operand("score_threshold", FLOATS),
        Operand("sigma", FLOATS, optional=True),
    )
    results = (Operand("indices", _INT32), Operand("selected_scores", like="scores"), Operand("count", _INT32))

    @staticmethod
    def shape(boxes: Value, scores: Value, limit: Value, *thresholds: Value | None) -> list[Dims]:
        if boxes.tensor_type.rank not in (None, 2) or scores.tensor_type.rank not in (None, 1):
            raise ValueError(f"boxes {boxes.type} with scores {scores.type}")
        _check_corners(boxes)
        _check_numbers([limit, *thresholds])
        known = static_ints(limit)
        size = known[0] if known else fresh_symbol()
        return [(size,), (size,), ()]

    @staticmethod
    def compute(boxes: Array, scores: Array, limit: Array, *thresholds: Array | None) -> tuple[Array, ...]:
        overlap, least, sigma = (0.0 if x is None else float(x.reshape(-1)[0]) for x in thresholds)
        most, corners = int(limit.reshape(-1)[0]), as_corners(boxes.astype(np.float32), False)
        chosen = _select_softly(corners, scores.astype(np.float32), most, overlap, least, sigma)
        indices, found = np.zeros(most, np.int32), np.zeros(most, np.float32)
        for place, (index, score) in enumerate(chosen):
            indices[place], found[place] = index, score
        return indices, found, np.asarray(len(chosen), np.int32)


def _select_softly(
    corners: Array, scores: Array, limit: int, overlap: float, least: float, sigma: float
) -> list[tuple[int, np.float32]]:
    """The indices of the selected boxes, at most `limit`, and their scores, which overlaps may have reduced.

    As in LiteRT, a selected box waits again, and is suppressed by itself, unless its area is 0.
    """
    waiting = [(-score, index, 0) for index, score in enumerate(scores) if score > least]
    heapq.heapify(waiting)
    limit = min(limit, len(waiting))
    chosen: list[tuple[int, np.float32]] = []
    while waiting and len(chosen) < limit:
        before, index, compared = heapq.heappop(waiting)
        score, seen = -before, len(chosen)
        others = [other for other, _ in reversed(chosen[compared:])]
        for shared in _overlaps(corners[index], corners[others]) if others else ():
            if shared >= overlap:
                score = np.float32(-np.inf)
            elif sigma > 0:
                score *= np.float32(math.exp(-0.5 / sigma * shared * shared))
            if score <= least:
                break
        if score == -before:
            chosen.append((index, score))
        if score > least:
            heapq.heappush(waiting, (-score, index, seen))
    return chosen
