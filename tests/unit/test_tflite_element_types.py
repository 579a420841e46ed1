"""TFLite ops on element types that few files have: what LiteRT computes, ONNX Runtime does."""

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
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType, dtype_of, tensor
from tests.harness.litert import Array, run_onnx, run_tflite_steps
from tests.unit.test_tflite_rare_ops import one_op

RNG = np.random.default_rng(7)


def unknown(dtype: str) -> TensorType:
    return TensorType(dtype_of(np.dtype(dtype)), None)


def check(
    op: str, inputs: list[Array], constants: list[Array], dtype: str, kernels: str = "builtin", **options: Any
) -> None:
    """ONNX Runtime's result is LiteRT's; complex numbers are pairs there."""
    model, _ = one_op(op, inputs, constants, [unknown(dtype)], **options)
    ((wanted,),) = run_tflite_steps(model, [inputs], kernels)
    feed = {f"in{i}": pairs(x) for i, x in enumerate(inputs)}
    found = run_onnx(onnxtfl.tflite_to_onnx(model, check=False).data or b"", feed)["out0"]
    np.testing.assert_array_equal(found, pairs(wanted))
    assert found.dtype == pairs(wanted).dtype


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


def bools(*shape: int) -> Array:
    return RNG.integers(0, 2, shape).astype(bool)


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"])
def test_reductions_of_bools(op: str) -> None:
    """Which the reference kernels compute only."""
    check(op, [bools(2, 8)], [np.asarray([0], np.int32)], "bool", "reference", keep_dims=False)


@pytest.mark.parametrize("op", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"])
def test_arithmetic_of_bools(op: str) -> None:
    check(f"STABLEHLO_{op}", [bools(2, 8), bools(2, 8)], [], "bool")


@pytest.mark.parametrize("kind", ["ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "uint8"])
def test_windows_of_bools_and_truth_of_numbers(dtype: str, kind: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 3, (5, 6)).astype(dtype)
    window = [np.asarray(sizes, np.int64) for sizes in ([2, 3], [1, 2], [1, 1])]
    check("REDUCE_WINDOW", [x], [np.ones((), dtype), *window], dtype, reduce_function=kind)


@pytest.mark.parametrize("other", ["float32", "int64", "uint8", "int16", "float64"])
def test_bits_of_complex_numbers(other: str) -> None:
    x = (RNG.standard_normal(3) + 1j * RNG.standard_normal(3)).astype(np.complex64)
    parts = np.dtype(other).itemsize
    check("BITCAST", [x.view(other).reshape(3, -1) if parts < 8 else x.view(other)], [], "complex64")
    if other != "float64":
        check("BITCAST", [x], [], other)


@pytest.mark.parametrize("dtype", ["uint32", "int8"])
def test_diagonals(dtype: str) -> None:
    check("MATRIX_DIAG", [np.asarray([[1, 2, 0], [3, 4, 5]], dtype)], [], dtype)


def test_diagonals_whose_elements_the_kernel_tears_are_refused() -> None:
    model, _ = one_op("MATRIX_DIAG", [bools(2, 3)], [], [unknown("bool")])
    with pytest.raises(UnsupportedError, match="does not move whole elements of bool"):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_angles_of_operands_of_two_shapes_are_refused() -> None:
    """LiteRT's kernel reads beyond the second one."""
    model, _ = one_op("ATAN2", [np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)], [], [unknown("float32")])
    with pytest.raises(UnsupportedError, match="needs operands of equal shape"):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_means_at_corners_and_centers_at_once_are_refused() -> None:
    x, size = np.ones((1, 2, 2, 1), np.float32), np.asarray([3, 3], np.int32)
    options = {"align_corners": True, "half_pixel_centers": True}
    model, _ = one_op("RESIZE_BILINEAR", [x, size], [], [unknown("float32")], **options)
    with pytest.raises(UnsupportedError, match="align_corners together with half_pixel_centers"):
        onnxtfl.tflite_to_onnx(model, check=False)


@pytest.mark.parametrize(
    ("op", "dtype", "said"),
    [
        ("ELU", "int8", "int8 without a scale"),
        ("EXP", "int16", "int16 without a scale"),
        ("QUANTIZE", "uint8", "reads uint8 as quantized, and this tensor has no scale"),
        ("SUM", "int16", "takes int16 as quantized, and this tensor has no scale"),
    ],
)
def test_integers_without_a_scale_that_kernels_read_one_of_are_refused(op: str, dtype: str, said: str) -> None:
    """LiteRT runs these with a scale of 0: the model is valid, its results mean nothing."""
    vectors = [np.zeros(1, np.int32)] if op == "SUM" else []
    result = TensorType(dtype_of(np.dtype("float32")), None, Quantization("int8", (0.5,), (0,)))
    model, _ = one_op(op, [np.ones((2, 3), dtype)], vectors, [result if op == "QUANTIZE" else unknown(dtype)])
    with pytest.raises(UnsupportedError, match=said):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_booleans_resized_to_their_nearest() -> None:
    x = np.arange(8).reshape(1, 2, 4, 1) % 3 == 0
    check("RESIZE_NEAREST_NEIGHBOR", [x], [np.asarray([3, 6], np.int32)], "bool")


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_the_largest_of_integers_without_a_scale(dtype: str, padding: str) -> None:
    x = RNG.integers(*((0, 200) if dtype == "uint8" else (-100, -1)), (1, 5, 4, 2)).astype(dtype)
    sizes = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 1}
    check("MAX_POOL_2D", [x], [], dtype, padding=padding, fused_activation_function="NONE", **sizes)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_bfloat16_as_integers(dtype: str) -> None:
    """ONNX Runtime does not compare bfloat16: values are float32 before they are limited."""
    x = np.asarray([1.5, -300.0, 300.0, -0.75], np.float32)
    graph = Graph()
    b = Builder(graph)
    (half,) = b.foreign("tfl", "CAST", [graph.add_input(tensor("float32", 4), "in0")], [tensor("bfloat16", 4)], 1)
    graph.outputs = b.foreign("tfl", "CAST", [half], [tensor(dtype, 4)], 1)
    file = io.BytesIO()
    writer.write(Model(graph), file)
    ((wanted,),) = run_tflite_steps(file.getvalue(), [[x]], "builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(file.getvalue(), check=False).data or b"", {"in0": x}).values()
    np.testing.assert_array_equal(found, wanted)
