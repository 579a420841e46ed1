"""Ops of TFLite that move elements: each as a model of its own, in LiteRT and, converted to ONNX, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir.data import Array
from tests.harness.workers import Worker
from tests.unit.tflite_ops import Case

X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
V = np.asarray([3, 1, 3, 2, 1], np.float32)


def i32(*numbers: Any) -> Array:
    return np.asarray(numbers, np.int32)


MASKS = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
CASES: list[Case] = [
    # op, operands, how many of them are inputs (the others are constants), options
    ("RESHAPE", (X, i32(6, -1)), 1, {}),
    ("RESHAPE", (X,), 1, {"new_shape": (6, 20)}),
    ("TRANSPOSE", (X, i32(3, 0, 2, 1)), 1, {}),
    ("SQUEEZE", (X[:, :1],), 1, {"squeeze_dims": (1,)}),
    ("SQUEEZE", (X[:1, :1],), 1, {}),
    ("EXPAND_DIMS", (X, i32(-1)), 1, {}),
    ("EXPAND_DIMS", (X, np.int32(1)), 1, {}),
    ("BROADCAST_TO", (X[:, :1], i32(2, 3, 4, 5)), 1, {}),
    ("BROADCAST_ARGS", (i32(3, 1), i32(2, 1, 4)), 2, {}),
    ("SHAPE", (X,), 1, {"out_type": "INT32"}),
    ("RANK", (X,), 1, {}),
    ("CONCATENATION", (X, X[:, :1]), 2, {"axis": -3, "fused_activation_function": "NONE"}),
    ("PACK", (X, X + 1, X + 2), 3, {"axis": 2, "values_count": 3}),
    ("UNPACK", (X,), 1, {"axis": -2, "num": 4}),
    ("SPLIT", (np.int32(1), X), 0, {"num_splits": 3}),
    ("SPLIT_V", (X, i32(1, -1, 2), np.int32(-1)), 1, {"num_splits": 3}),
    ("TILE", (X, i32(1, 2, 1, 3)), 1, {}),
    ("SLICE", (X, i32(0, 1, 2, 0), i32(2, -1, 1, 3)), 1, {}),
    ("SLICE", (X, i32(0, 1, 2, 0), i32(2, -1, 1, 3)), 3, {}),
    ("STRIDED_SLICE", (X, i32(0, 1, 3, 0), i32(2, 3, 0, 5), i32(1, 1, -1, 2)), 1, MASKS),
    (
        "STRIDED_SLICE",
        (X, i32(0, 1, 3, 1), i32(2, 3, 0, 2), i32(1, 1, -1, 2)),
        1,
        MASKS | {"begin_mask": 8, "end_mask": 12},
    ),
    ("STRIDED_SLICE", (X, i32(1, -1), i32(9, 9), i32(1, 1)), 1, MASKS | {"shrink_axis_mask": 3}),
    ("STRIDED_SLICE", (X, i32(1, 0, 2), i32(2, 0, 4), i32(1, 1, 1)), 1, MASKS | {"ellipsis_mask": 2}),
    ("STRIDED_SLICE", (X, i32(0, 0, 2), i32(0, 0, 4), i32(1, 1, 1)), 1, MASKS | {"new_axis_mask": 1, "end_mask": 2}),
    ("STRIDED_SLICE", (X, i32(0, 1), i32(2, 3), i32(1, 1)), 4, MASKS),
    ("PAD", (X, i32([0, 1], [2, 0], [0, 0], [1, 1])), 1, {}),
    ("PAD", (X, i32([0, 1], [2, 0], [0, 0], [1, 1])), 2, {}),
    ("PADV2", (X, i32([0, 1], [2, 0], [0, 0], [1, 1]), np.float32(7)), 1, {}),
    ("MIRROR_PAD", (X, i32([0, 1], [2, 0], [0, 0], [1, 1])), 1, {"mode": "REFLECT"}),
    ("MIRROR_PAD", (X, i32([0, 1], [3, 0], [0, 0], [1, 1])), 1, {"mode": "SYMMETRIC"}),
    ("REVERSE_V2", (X, i32(2)), 1, {}),
    ("REVERSE_SEQUENCE", (X, i32(1, 3)), 1, {"seq_dim": 2, "batch_dim": 0}),
    ("REVERSE_SEQUENCE", (X, i32(1, 3, 2, 4, 0)), 2, {"seq_dim": 2, "batch_dim": 3}),
    ("RANGE", (np.int32(1), np.int32(9), np.int32(3)), 3, {}),
    ("FILL", (i32(2, 3), np.float32(4)), 1, {}),
    ("ZEROS_LIKE", (X,), 1, {}),
    ("GATHER", (X, i32([0, 2], [1, 1])), 2, {"axis": 1, "batch_dims": 0}),
    ("GATHER", (X, i32([0, 2], [1, 1])), 2, {"axis": 2, "batch_dims": 1}),
    ("GATHER", (X, i32([0, 2], [1, 1])), 2, {"axis": 1, "batch_dims": 1}),
    ("GATHER_ND", (X, i32([[0, 2]], [[1, 1]])), 2, {}),
    ("EMBEDDING_LOOKUP", (i32(1, 0, 1), X[0, :, 0]), 1, {}),
    ("SCATTER_ND", (i32([1], [3], [1]), X[0, :, 0], i32(5, 5)), 2, {}),
    ("SCATTER_ND", (i32([1], [3], [1]), X[0, :, 0], i32(5, 5)), 0, {}),
    ("WHERE", (X > 100,), 1, {}),
    ("TOPK_V2", (X % 7, np.int32(2)), 1, {}),
    ("ONE_HOT", (i32([0, 2], [5, -1]), np.int32(3), np.float32(2), np.float32(-1)), 1, {"axis": -1}),
    ("ONE_HOT", (i32([0, 2], [5, -1]), np.int32(3), np.float32(2), np.float32(-1)), 1, {"axis": 0}),
    ("DEPTH_TO_SPACE", (X[..., :4],), 1, {"block_size": 2}),
    ("SPACE_TO_DEPTH", (X[:, :2],), 1, {"block_size": 2}),
    ("SPACE_TO_BATCH_ND", (X, i32(2, 3), i32([1, 0], [0, 2])), 1, {}),
    ("BATCH_TO_SPACE_ND", (np.concatenate([X, X]), i32(2, 2), i32([1, 0], [0, 2])), 1, {}),
    ("SPACE_TO_BATCH_ND", (X[0], i32(2), i32([[2, 0]])[0]), 1, {}),
    ("MATRIX_DIAG", (X[0, 0],), 1, {}),
    ("MATRIX_SET_DIAG", (X, -X[:, :, :, 0]), 2, {}),
    ("MATRIX_SET_DIAG", (X[..., :3], -X[:, :, :3, 0]), 2, {}),
    ("DYNAMIC_UPDATE_SLICE", (X, -X[:1, :2, :, :3], i32(1, 0, 0, 9)), 3, {}),
    ("SEGMENT_SUM", (X[0, :, 0], i32(0, 0, 1)), 1, {}),
    ("SEGMENT_SUM", (X[0, :, 0], i32(0, 1, 1)), 2, {}),
    ("UNSORTED_SEGMENT_SUM", (X[0, 0], i32(3, 0, 3, 1), np.int32(5)), 2, {}),
    ("UNSORTED_SEGMENT_PROD", (X[0, 0], i32(3, 0, 3, 1), np.int32(5)), 2, {}),
    ("UNSORTED_SEGMENT_MAX", (X[0, 0], i32(3, 0, 3, 1), np.int32(4)), 2, {}),
    ("UNSORTED_SEGMENT_MIN", (X[0, 0], i32(3, 0, 3, 1), np.int32(4)), 2, {}),
    ("UNIQUE", (V,), 1, {"idx_out_type": "INT32"}),
    ("DILATE", (X[0, 0], i32(2, 3), np.float32(-1)), 1, {}),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_runs_alike_in_onnx(case: Case, worker: Worker) -> None:
    outcome = worker.run("tests.unit.tflite_ops:run_both", case, timeout=60)
    assert outcome.kind == "done", f"{outcome.message}\n{outcome.detail}"
