"""LSH_PROJECTION: ONNX Runtime computes the hashes of LiteRT's kernel."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import DType, TensorType, dtype_of
from tests.harness.litert import Array, run_onnx, run_tflite

SEEDS = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
X = np.array([12345, -54321, 0, 2**31 - 1], np.int32)
WEIGHTS = np.array([0.5, -1.5, 2.0, 0.25], np.float32)


def model(kind: str, x: Array, *weights: Array) -> bytes:
    """One op, whose seeds and weights are constants."""
    graph = Graph()
    operand = graph.add_input(TensorType(dtype_of(x.dtype), x.shape), "x")
    operands = [SEEDS, operand, *weights]
    graph.outputs = Builder(graph).foreign(
        "tfl", "LSH_PROJECTION", operands, [TensorType(DType.INT32, None)], 1, type=kind
    )
    graph.outputs[0].name = "y"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["SPARSE", "DENSE"])
@pytest.mark.parametrize("x", [X, X.astype(np.int64) * 2**30 + 7], ids=["int32", "int64"])
@pytest.mark.parametrize("weights", [(), (WEIGHTS,)], ids=["plain", "weighted"])
def test_hashes(kind: str, x: Array, weights: tuple[Any, ...]) -> None:
    data = model(kind, x, *weights)
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data or b"", {"x": x}).values()
    assert len(set(wanted.tolist())) > 1
    np.testing.assert_array_equal(found, wanted)


def test_rows_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no numbers of 32 or 64 bits"):
        onnxtfl.tflite_to_onnx(model("DENSE", X.reshape(2, 2)), check=False)
