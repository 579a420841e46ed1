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
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
from tests.unit.tflite_ops import run_both

SEEDS = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
X = np.array([12345, -54321, 0, 2**31 - 1], np.int32)
WEIGHTS = np.array([0.5, -1.5, 2.0, 0.25], np.float32)


def model(kind: str, x: Array, *weights: Array, seeds: Array = SEEDS) -> bytes:
    """One op, whose seeds and weights are constants."""
    graph = Graph()
    operand = graph.add_input(TensorType(dtype_of(x.dtype), x.shape), "x")
    operands = [seeds, operand, *weights]
    graph.outputs = Builder(graph).foreign(
        "tfl", "LSH_PROJECTION", operands, [TensorType(DType.INT32, None)], 1, type=kind
    )
    graph.outputs[0].name = "y"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


def assert_equal(data: bytes, x: Array) -> None:
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data or b"", {"x": x}).values()
    assert len(set(wanted.tolist())) > 1
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["SPARSE", "DENSE"])
@pytest.mark.parametrize("x", [X, X.astype(np.int64) * 2**30 + 7], ids=["int32", "int64"])
@pytest.mark.parametrize("weights", [(), (WEIGHTS,)], ids=["plain", "weighted"])
def test_hashes(kind: str, x: Array, weights: tuple[Any, ...]) -> None:
    assert_equal(model(kind, x, *weights), x)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *[("uint8", (4,)), ("int8", (4, 3)), ("uint16", (4, 2)), ("int32", (4, 2)), ("bool", (4, 5))],
        ("uint64", (4, 2)),
        *[("int16", (4, 3, 5)), ("int32", (4, 12)), ("int64", (4, 8)), ("uint8", (4, 189)), ("float32", (4, 3))],
    ],
)
def test_elements_of_several_numbers(dtype: str, shape: tuple[int, ...]) -> None:
    """Each length of a key has a hash of its own: up to 7, 16, 32, 64 bytes, and longer."""
    bits = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 256, (*shape, np.dtype(dtype).itemsize))
    x = bits.astype(np.uint8).view(dtype)[..., 0]
    assert_equal(model("DENSE", x, WEIGHTS), x)


@pytest.mark.parametrize("bits", [31, 32])
@pytest.mark.parametrize("kind", ["SPARSE", "DENSE"])
def test_hashes_as_wide_as_the_result(kind: str, bits: int) -> None:
    seeds = np.random.default_rng(2).standard_normal((3, bits)).astype(np.float32)
    assert_equal(model(kind, X, WEIGHTS, seeds=seeds), X)


def test_keys_that_are_too_long_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="elements of 2000 values, at most 1020 bytes"):
        onnxtfl.tflite_to_onnx(model("DENSE", np.zeros((2, 2000), np.uint8)), check=False)


@pytest.mark.parametrize("keys", [[1, 3, 9], [9, 3, 1], [3, 3, 3], [-(2**31), 0, 2**31 - 1]])
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_table_is_searched_as_its_kernel_does(keys: list[int], inputs: int) -> None:
    """Keys out of order, equal ones, and keys whose difference has more than 32 bits."""
    query = np.asarray([9, 3, 1, 0, -(2**31), 2**31 - 1], np.int32)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    run_both(("HASHTABLE_LOOKUP", [query, np.asarray(keys, np.int32), rows], inputs, {}))


def test_a_table_with_open_columns() -> None:
    def build(g: TfliteGraph) -> Any:
        rows = g.given(SAMPLE[0], open_axes=(1,))
        keys = g.constant([2, 5, 7], "int32")
        return g.op("HASHTABLE_LOOKUP", [g.constant([5, 3], "int32"), keys, rows], "float32", "uint8")

    assert_same_as_litert(build, [(3, 7)])


def test_a_table_whose_size_only_a_run_knows_is_refused() -> None:
    shape = "tensor<[n]xfloat32>"
    inputs = ", ".join(f"%{name}: {shape}" for name in "abcd")
    text = f"graph main({inputs}) -> (%y) {{\n%y = tfl.HASHTABLE_FIND@1(%a, %b, %c, %d) : {shape}\n}}"
    with pytest.raises(onnxtfl.UnsupportedError, match="the size of a table has to be known"):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)
