"""Non-maximum suppression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.probe.case import Array, Case, int32
from tools.probe.registry import probe


def _float(value: float) -> Array:
    return np.asarray(value, np.float32)


@probe("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(op: str) -> Iterator[Case]:
    """Five boxes, of which two overlap others; the number of results constant and computed."""
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.1, 1, 3.1], [5, 5, 6, 6]], np.float32)
    scores = np.array([0.9, 0.8, 0.7, 0.95, 0.1], np.float32)
    indices, kept = [3, 0, 0, 0], [0.95, 0.9, 0, 0]
    soft = [_float(0)] if op.endswith("5") else []
    operands = [boxes, scores, int32(4), _float(0.5), _float(0.3), *soft]
    found = [int32(indices), *([np.asarray(kept, np.float32)] if soft else []), int32(2)]
    types = {"T": "float32", "I": "int32", "U": "int32"}
    thresholds = frozenset(range(2, len(operands)))
    yield Case(op, types, operands, found, constants=thresholds, extra={"constant": "max_output_size"})
    yield Case(op, types, operands, found, constants=frozenset({2}), extra={"constant": "max_output_size"})
    yield Case(op, types, operands, found, constants=thresholds - {2}, dynamic=True)
