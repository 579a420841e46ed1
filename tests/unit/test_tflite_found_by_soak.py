"""The smallest TFLite models of what random graphs and damaged models found: what LiteRT computes, in ONNX Runtime."""

from __future__ import annotations

import io

import numpy as np
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tflite_ops import model, run_both

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.mark.parametrize("keys", [[1, 3, 9], [9, 3, 1], [3, 3, 3], [-(2**31), 0, 2**31 - 1]])
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_table_is_searched_as_its_kernel_does(keys: list[int], inputs: int) -> None:
    """Keys out of order, equal ones, and keys whose difference has more than 32 bits."""
    query = np.asarray([9, 3, 1, 0, -(2**31), 2**31 - 1], np.int32)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    run_both(("HASHTABLE_LOOKUP", [query, np.asarray(keys, np.int32), rows], inputs, {}))


def test_the_angle_of_infinities_and_zeros() -> None:
    pairs = [(y, x) for y in (np.inf, -np.inf, 0.0, -0.0, 1.0) for x in (np.inf, -np.inf, 0.0, -0.0, -1.0)]
    y, x = np.asarray(pairs, np.float32).T
    data = model("ATAN2", [y, x], 2, {})
    ((_, wanted),) = run_tflite(data, [y, x])
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data, {"in0": y, "in1": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def selection(threshold: float) -> bytes:
    """A NON_MAX_SUPPRESSION_V5 with sigma 0 of three boxes, of which the last is far from the others."""
    text = f"""
    graph main(%s: tensor<3xfloat32>, %b: tensor<3x4xfloat32>) -> (%i, %t, %n) {{
      %m = constant tensor<int32> [3]
      %o = constant tensor<float32> [{threshold}]
      %l = constant tensor<float32> [0.0]
      %z = constant tensor<float32> [0.0]
      %i, %t, %n = tfl.NON_MAX_SUPPRESSION_V5@1(%b, %s, %m, %o, %l, %z)
        : tensor<3xint32>, tensor<3xfloat32>, tensor<int32>
    }}"""
    file = io.BytesIO()
    writer.write(Model(parse_graph(text)), file)
    return file.getvalue()


@pytest.mark.parametrize("threshold", [-1.0, 0.0])
def test_a_threshold_of_0_lets_no_second_box_pass(threshold: float) -> None:
    given = {
        "s": np.asarray([0.5, 0.9, 0.7], np.float32),
        "b": np.asarray([[0, 0, 1, 1], [0, 0, 1, 2], [5, 5, 6, 6]], np.float32),
    }
    data = selection(threshold)
    found = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data, given)
    for (name, wanted), other in zip(run_tflite(data, given), found.values(), strict=True):
        np.testing.assert_array_equal(other, wanted, err_msg=name)


def test_the_report_says_that_boxes_have_an_area() -> None:
    (assumed,) = onnxtfl.tflite_to_onnx(selection(0.5), check=False).report.assumptions
    assert "has an area" in assumed
