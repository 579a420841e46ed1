"""NMS with its limits as attributes."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.attributes import Choice, Float
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.detection import NonMaxSuppression

_NAMES = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")


def _printed(node: Node) -> Statement | None:
    given = {name: node.optional(2 + i) for i, name in enumerate(_NAMES)}
    values = {name: value for name, value in given.items() if value is not None}
    if not all(value.is_constant for value in values.values()):
        return None
    found = {name: value.numpy().reshape(-1)[0].item() for name, value in values.items()}
    return Statement(node.operands[:2], {**found, "center_point_box": int(node.attr("center_point_box"))})


@document_form(
    NonMaxSuppression,
    Operand("boxes"),
    Operand("scores"),
    attributes={"score_threshold": Float(None), "center_point_box": Choice(0, 1, default=0)},
    printed=_printed,
)
def _nms(
    b: Builder,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float | None = None,
    center_point_box: int = 0,
) -> Value:
    """The limits are attributes; `center_point_box` is 0 or 1."""
    numbers = [np.asarray([max_output_boxes_per_class]), np.asarray([iou_threshold], np.float32)]
    least = None if score_threshold is None else np.asarray([score_threshold], np.float32)
    return b(NonMaxSuppression, boxes, scores, *numbers, least, center_point_box=bool(center_point_box))
