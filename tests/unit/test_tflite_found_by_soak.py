"""The smallest TFLite models of what random graphs and damaged models found: what LiteRT computes, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import onnxtfl
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
