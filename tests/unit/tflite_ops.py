"""Runs a model of one TFLite op in LiteRT and, converted to ONNX, in ONNX Runtime; for a worker process."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, dtype_of
from onnxtfl.options import Options
from onnxtfl.pipeline import tflite_to_onnx
from tests.harness.litert import run_onnx, run_tflite

Case = tuple[str, Sequence[Any], int, dict[str, Any]]
RESULTS = {"UNPACK": 4, "SPLIT": 3, "SPLIT_V": 3, "TOPK_V2": 2, "UNIQUE": 2, "HASHTABLE_LOOKUP": 2}
MAIN = {"SPLIT": 1, "EMBEDDING_LOOKUP": 1, "HASHTABLE_LOOKUP": 2, "SCATTER_ND": 1, "FILL": 1, "ONE_HOT": 2}
"""The operand whose dtype the result has, where it is not the first."""
VERSIONS = {"BROADCAST_TO": 2}
DTYPES = {
    "ARG_MAX": "int32",
    "ARG_MIN": "int32",
    "SHAPE": "int32",
    "RANK": "int32",
    "WHERE": "int64",
    "BROADCAST_ARGS": "int32",
}


def model(op: str, operands: Sequence[Array | None], inputs: int, options: dict[str, Any]) -> bytes:
    """A .tflite of one op; result types are open, kernels find them."""
    graph = Graph()
    values: list[Any] = []
    for i, operand in enumerate(operands):
        array = None if operand is None else np.asarray(operand)
        is_input = i < inputs or (op == "SPLIT" and i == 1)
        if array is not None and is_input:
            values.append(graph.add_input(TensorType(dtype_of(array.dtype), array.shape), f"in{i}"))
        else:
            values.append(array)
    main = operands[MAIN.get(op, 0)]
    assert main is not None
    dtype = dtype_of(np.dtype(DTYPES.get(op, np.asarray(main).dtype.name)))
    types = [TensorType(dtype, None)] + [TensorType(dtype, None)] * (RESULTS.get(op, 1) - 1)
    if op in ("TOPK_V2", "UNIQUE"):
        types[1] = TensorType(dtype_of(np.dtype(np.int32)), None)
    if op == "HASHTABLE_LOOKUP":
        types[1] = TensorType(dtype_of(np.dtype(np.uint8)), None)
    graph.outputs = Builder(graph).foreign("tfl", op, values, types, VERSIONS.get(op, 1), **options)
    for i, value in enumerate(graph.outputs):
        value.name = f"out{i}"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


def run_both(case: Case) -> None:
    """AssertionError where the two runtimes differ."""
    op, operands, inputs, options = case
    data = model(op, operands, inputs, options)
    given = {
        f"in{i}": np.asarray(v)
        for i, v in enumerate(operands)
        if v is not None and (i < inputs or (op == "SPLIT" and i == 1))
    }
    wanted = run_tflite(data, given)
    file = io.BytesIO()
    tflite_to_onnx(data, file, Options(opset=18))
    found = run_onnx(file.getvalue(), given)
    for name, array in wanted:
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
