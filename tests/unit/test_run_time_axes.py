"""Axes, permutations, block sizes, dilations and bounds that are inputs of a TFLite model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.tflite_ops import Case, run_both

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
Y = np.arange(6 * 3 * 9, dtype=np.int32).reshape(6, 3, 9)
IMAGE = np.arange(4 * 4 * 6 * 3, dtype=np.float32).reshape(4, 4, 6, 3)
MASKS = dict.fromkeys((f"{n}_mask" for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")), 0)


def ints(*values: Any) -> Any:
    return np.asarray(values, np.int32)


def scalar(value: int) -> Any:
    return np.asarray(value, np.int32)


PERMUTED: list[Case] = [
    ("TRANSPOSE", [X, ints(2, 0, 1)], 2, {}),
    ("TRANSPOSE", [X > 7, ints(-1, 1, 0)], 2, {}),
    ("TRANSPOSE", [X[:0], ints(1, 2, 0)], 2, {}),
    ("TRANSPOSE", [X[0, 0], ints(0)], 2, {}),
    ("REVERSE_V2", [X, ints(-1)], 2, {}),
    ("REVERSE_V2", [X, ints(2, 1)], 2, {}),
    ("REVERSE_V2", [X[:, :0], ints(1)], 2, {}),
]
SPLIT: list[Case] = [
    ("SPLIT", [scalar(-1), Y], 1, {"num_splits": 3}),
    ("SPLIT", [ints(0), Y], 1, {"num_splits": 3}),
    ("SPLIT_V", [Y, ints(1, 3, 2), scalar(0)], 3, {"num_splits": 3}),
    ("SPLIT_V", [Y, ints(4, -1, 2), scalar(-1)], 3, {"num_splits": 3}),
    ("ARG_MAX", [X, scalar(-2)], 2, {"output_type": "INT32"}),
    ("ARG_MIN", [X, scalar(0)], 2, {"output_type": "INT32"}),
    ("ARG_MAX", [X[0, 0], ints(0)], 2, {"output_type": "INT32"}),
]
SIZES: list[Case] = [
    ("SPACE_TO_BATCH_ND", [IMAGE, ints(3, 2), ints([1, 1], [0, 0])], 3, {}),
    ("BATCH_TO_SPACE_ND", [IMAGE, ints(2, 1), ints([1, 0], [0, 2])], 3, {}),
    ("DILATE", [X, ints(2, 1, 3), np.asarray(7, np.float32)], 3, {}),
]
COUNTS: list[Case] = [
    ("STRIDED_SLICE", [X, ints(0, 1, -3), ints(2, 1, 3), ints(1, 1, 2)], 2, {**MASKS, "offset": True}),
    ("STRIDED_SLICE", [X, ints(1, 1, -3), ints(2, 9, 3), ints(1, 1, 2)], 2, {**MASKS, "offset": True, "begin_mask": 1,
     "shrink_axis_mask": 2}),
    ("STRIDED_SLICE", [X, ints(1, 2, -1), ints(-2, 1, -3), ints(-1, 1, -1)], 4, {**MASKS, "begin_mask": 7,
     "end_mask": 3, "offset": False}),
    ("STRIDED_SLICE", [X[0], ints(-9, 3), ints(-9, 2147483647), ints(-1, -1)], 4, {**MASKS, "offset": False}),
    ("STRIDED_SLICE", [X[0], ints(1, 3), ints(0, 2147483647), ints(-1, -1)], 2, {**MASKS, "offset": False}),
    ("STRIDED_SLICE", [X[0], ints(-9, 3), ints(0, 0), ints(-1, -1)], 2, {**MASKS, "end_mask": 3, "offset": False}),
    ("SLICE", [X[0, 0, 0], ints(), ints()], 3, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", [*PERMUTED, *SPLIT, *SIZES, *COUNTS], ids=lambda case: case[0])
def test_the_kernel_reads_it_in_each_run(case: Case) -> None:
    run_both(case)


QUANTIZED = "quant<int8 0.5:-5>"
STORED = np.arange(-12, 12, dtype=np.int8).reshape(1, 4, 3, 2)


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("TRANSPOSE@1(%x, %a)", ints(3, 1, 0, 2)),
        ("REVERSE_V2@1(%x, %a)", ints(1)),
        ("SPACE_TO_BATCH_ND@1(%x, %a, %p)", ints(3, 3)),
        ("DILATE@1(%x, %a, %v)", ints(1, 2, 3, 1)),
    ],
)
def test_quantized_tensors_keep_their_scales(op: str, given: Any) -> None:
    """What is filled in is a stored 0."""
    from tests.unit.test_quantized_tfl import both

    text = f"""
    graph main(%x: tensor<1x4x3x2xfloat32, {QUANTIZED}>, %a: tensor<{len(given)}xint32>) -> (%y) {{
      %p = constant tensor<2x2xint32> [1, 1, 0, 0]
      %v = constant tensor<float32, {QUANTIZED}> [-5]
      %y = tfl.{op} : tensor<*xfloat32, {QUANTIZED}>
    }}"""
    wanted, found = both(text, STORED, given)
    np.testing.assert_array_equal(found, wanted)


def test_an_axis_outside_of_the_rank_is_an_error_in_both_runtimes() -> None:
    import onnxtfl
    from tests.harness.litert import run_onnx, run_tflite
    from tests.unit.tflite_ops import model

    data = model("ARG_MAX", [X, scalar(0)], 2, {"output_type": "INT32"})
    found = onnxtfl.tflite_to_onnx(data, check=False).data
    assert isinstance(found, bytes)
    for axis in (3, -4):
        feeds = {"in0": X, "in1": scalar(axis)}
        with pytest.raises(RuntimeError):
            run_tflite(data, feeds)
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            run_onnx(found, feeds)
