"""The smallest TFLite models of what random graphs and damaged models found: what LiteRT computes, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.tflite_ops import run_both

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.mark.parametrize("keys", [[1, 3, 9], [9, 3, 1], [3, 3, 3], [-(2**31), 0, 2**31 - 1]])
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_table_is_searched_as_its_kernel_does(keys: list[int], inputs: int) -> None:
    """Keys out of order, equal ones, and keys whose difference has more than 32 bits."""
    query = np.asarray([9, 3, 1, 0, -(2**31), 2**31 - 1], np.int32)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    run_both(("HASHTABLE_LOOKUP", [query, np.asarray(keys, np.int32), rows], inputs, {}))
