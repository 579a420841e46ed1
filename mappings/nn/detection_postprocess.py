"""TFLite_Detection_PostProcess, the custom op at the end of SSD detectors.

Boxes are decoded from their anchors, then selected over all classes at once (fast) or class by class (regular).
Source: LiteRT kernels/detection_postprocess.cc. The results are padded with zeros to max_detections; the kernel's fast
form leaves that memory uninitialized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.build.custom_options import custom_options
from onnxtfl.build.sizes import slice_axes
from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl


@dataclass(frozen=True)
class _Options:
    """The op's options. `per_class`: the most boxes per class. `labels`: the number of classes returned per box."""

    most: int
    labels: int
    per_class: int
    is_regular: bool
    score: np.float32
    overlap: np.float32
    classes: int
    scales: tuple[float, ...]


def _options(node: Node) -> _Options:
    given = custom_options(node)
    per_class = given.get("detections_per_class")
    most, labels, classes = (
        int(given.get(name) or 0) for name in ("max_detections", "max_classes_per_detection", "num_classes")
    )
    scales = tuple(float(given.get(f"{axis}_scale") or 0.0) for axis in "yxhw")
    found = _Options(
        most,
        labels,
        100 if per_class is None else int(per_class),
        bool(given.get("use_regular_nms")),
        np.float32(given.get("nms_score_threshold") or 0.0),
        np.float32(given.get("nms_iou_threshold") or 0.0),
        classes,
        scales,
    )
    if most < 1 or labels < 1 or found.per_class < 1 or classes < 1 or 0.0 in scales or not 0 < found.overlap <= 1:
        raise ValueError(f"options {given}")
    return found


@lift_tfl("custom:TFLite_Detection_PostProcess")
def _detection_postprocess(b: Builder, node: Node) -> list[Value]:
    options = _options(node)
    encodings, scores, anchors = (node.operand(i) for i in range(3))
    boxes = _decoded(b, reshape(b, encodings, encodings.shape[1:]), anchors, options)
    background = scores.shape[2] - options.classes
    if scores.shape[0] != 1 or background not in (0, 1):
        raise ValueError(f"scores of shape {scores.shape} for {options.classes} classes")
    scores = slice_axes(b, reshape(b, scores, scores.shape[1:]), {1: slice(background, None)})
    return (_regular if options.is_regular else _fast)(b, boxes, scores, options)


def _decoded(b: Builder, encodings: Value, anchors: Value, options: _Options) -> Value:
    """Return boxes [n, 4] (ymin, xmin, ymax, xmax) from encodings and anchors (y, x, h, w)."""
    middle, size = (Term(b, slice_axes(b, anchors, {1: slice(i, i + 2)})) for i in (0, 2))
    shift, growth = (Term(b, slice_axes(b, encodings, {1: slice(i, i + 2)})) for i in (0, 2))
    scales = np.asarray(options.scales, np.float32)
    center = shift / Term(b, constant(scales[:2])) * size + middle
    half = (growth / Term(b, constant(scales[2:]))).exp() * 0.5 * size
    return (center - half).apply(ops.Concatenate, center + half, axis=1).value


def _selected(b: Builder, boxes: Value, scores: Value, most: int, options: _Options) -> Value:
    """Return the selected rows (0, class, box) of scores [class, box], of boxes at or above the score threshold."""
    one = [reshape(b, boxes, (1, *boxes.shape)), reshape(b, scores, (1, *scores.shape))]
    least = np.nextafter(options.score, np.float32(-np.inf))  # the kernel keeps a box whose score equals the threshold
    limits = [np.asarray([most], np.int64), np.asarray([options.overlap]), np.asarray([least])]
    return b(ops.NonMaxSuppression, *one, *limits)


def _padded(b: Builder, x: Value, count: int) -> Value:
    """Return the vector padded with `count` zeros at the end."""
    return b(ops.Pad, x, np.asarray([[0, count]]))


def _column(b: Builder, rows: Value, i: int) -> Value:
    return b(ops.Gather, rows, np.asarray(i), axis=1)


def _fast(b: Builder, boxes: Value, scores: Value, options: _Options) -> list[Value]:
    """Select by the best score of each box, then return the best classes of each."""
    best = Term(b, scores).reduce("max", [1], keepdims=False)
    rows = _selected(b, boxes, reshape(b, best.value, (1, *best.value.shape)), options.most, options)
    picked = _column(b, rows, 2)
    places = slice_axes(b, _padded(b, picked, options.most), {0: slice(0, options.most)})
    count = min(options.labels, options.classes)
    top, labels = b.many(ops.TopK, scores, np.asarray([count]), axis=1)
    found = _kept(b, picked, options)
    chosen = [found.choose(Term(b, b(ops.Gather, v, places, axis=0)).to(DType.FLOAT32), 0.0) for v in (labels, top)]
    wide = [(0, 0), (0, options.labels - count)]
    chosen = [v if count == options.labels else v.apply(ops.Pad, np.asarray(wide)) for v in chosen]
    corners = found.choose(Term(b, b(ops.Gather, boxes, places, axis=0)), 0.0)
    each = b(ops.Tile, unsqueezed(b, corners.value, [1]), np.asarray([1, options.labels, 1]))
    if count < options.labels:
        each = b(ops.Mul, each, (np.arange(options.labels) < count).astype(np.float32)[:, None])
    flat = [
        reshape(b, v, (1, options.most * options.labels, *rest))
        for v, rest in zip((each, *(c.value for c in chosen)), ((4,), (), ()), strict=True)
    ]
    return [*flat, _count(b, picked)]


def _kept(b: Builder, picked: Value, options: _Options) -> Term:
    """Return a column: whether each output row is a detection."""
    index = np.arange(options.most, dtype=np.int64)
    below = b(ops.Compare, index, b(ops.Shape, picked), comparison_direction="LT")
    return Term(b, unsqueezed(b, below, [1]))


def _count(b: Builder, picked: Value, most: int | None = None) -> Value:
    number = Term(b, b(ops.Shape, picked))
    return (number if most is None else number.min(most)).to(DType.FLOAT32).value


def _regular(b: Builder, boxes: Value, scores: Value, options: _Options) -> list[Value]:
    """Select class by class, then keep the best of all."""
    by_class, most = transposed(b, scores, (1, 0)), options.most
    rows = _selected(b, boxes, by_class, min(options.per_class, most), options)
    labels, places = (_column(b, rows, i) for i in (1, 2))
    own = b(ops.GatherND, by_class, slice_axes(b, rows, {1: slice(1, 3)}))
    lowest = np.asarray(np.finfo(np.float32).min)
    ranked = b(ops.Pad, own, np.asarray([[0, most]]), lowest)
    top, order = b.many(ops.TopK, ranked, np.asarray([most]), axis=0)
    labels, places = (b(ops.Gather, _padded(b, v, most), order, axis=0) for v in (labels, places))
    found = _kept(b, own, options)
    corners = found.choose(Term(b, b(ops.Gather, boxes, places, axis=0)), 0.0)
    flat: list[Any] = [
        Term(b, reshape(b, found.value, (most,))).choose(Term(b, v).to(DType.FLOAT32), 0.0) for v in (labels, top)
    ]
    results = [unsqueezed(b, v.value, [0]) for v in (corners, *flat)]
    repeated = most * options.labels
    if options.labels > 1:  # the kernel writes only the first ones
        results = [b(ops.Pad, v, np.asarray([(0, 0), (0, repeated - most), *[(0, 0)] * (v.rank - 2)])) for v in results]
    return [*results, _count(b, own, most)]
