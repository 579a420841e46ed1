"""Forms of TFLite ops that few models have: strings, float64, shapes and counts that only a run knows."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import DType, TensorType

FLOAT, INT, STRING = DType.FLOAT32, DType.INT32, DType.STRING
IMAGE = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}


class OneOp:
    """A .tflite of one op, or of several, one after the other."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, dtype: DType, *shape: Any) -> Value:
        sizes = tuple(symbol(d) if isinstance(d, str) else d for d in shape)
        return self.graph.add_input(TensorType(dtype, sizes), f"in{len(self.graph.inputs)}")

    def op(self, name: str, operands: list[Any], dtype: DType, **options: Any) -> Value:
        types = [TensorType(dtype, None)]
        (result,) = Builder(self.graph).foreign("tfl", name, operands, types, options.pop("version", 1), **options)
        return result

    def onnx(self, result: Value) -> bytes:
        """The checked conversion."""
        self.graph.outputs, result.name = [result], "out"
        file = io.BytesIO()
        writer.write(Model(self.graph), file)
        data = onnxtfl.tflite_to_onnx(file.getvalue(), check="require").data
        assert data is not None
        return data


def run(data: bytes, *inputs: Any) -> Any:
    session = onnxruntime.InferenceSession(data)
    return session.run(None, {f"in{i}": value for i, value in enumerate(inputs)})[0]


WORDS = np.array(["a", "bb", "c", "bb"], object)


@pytest.mark.parametrize(
    ("op", "operands", "options", "expected"),
    [
        ("GATHER", [[2, 0]], {"axis": 0, "batch_dims": 0}, ["c", "a"]),
        ("GATHER_ND", [[[3], [0]]], {}, ["bb", "a"]),
        ("RESHAPE", [[2, 2]], {}, [["a", "bb"], ["c", "bb"]]),
        ("EXPAND_DIMS", [0], {}, [["a", "bb", "c", "bb"]]),
        ("SLICE", [[1], [2]], {}, ["bb", "c"]),
        ("STRIDED_SLICE", [[0], [4], [2]], {}, ["a", "c"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_strings_are_moved(op: str, operands: list[Any], options: dict[str, Any], expected: list[Any]) -> None:
    made = OneOp()
    constants = [np.array(operand, np.int32) for operand in operands]
    data = made.onnx(made.op(op, [made.input(STRING, 4), *constants], STRING, **options))
    assert run(data, WORDS).tolist() == expected


@pytest.mark.parametrize(("op", "expected"), [("EQUAL", [False, True]), ("NOT_EQUAL", [True, False])])
def test_strings_are_compared(op: str, expected: list[bool]) -> None:
    made = OneOp()
    data = made.onnx(made.op(op, [made.input(STRING, 2), made.input(STRING, 2)], DType.BOOL))
    assert run(data, WORDS[:2], np.array(["b", "bb"], object)).tolist() == expected


def test_atan2_of_float64_is_as_exact_as_float64() -> None:
    """ONNX Runtime's Atan has float32 only."""
    made = OneOp()
    data = made.onnx(made.op("ATAN2", [made.input(DType.FLOAT64, 8), made.input(DType.FLOAT64, 8)], DType.FLOAT64))
    y = np.array([1.0, -1.0, 0.0, -0.0, 1e-300, 1e300, np.inf, 3.0])
    x = np.array([1.0, 2.0, -1.0, -1.0, 1.0, 1e-10, 1.0, -4.0])
    np.testing.assert_allclose(run(data, y, x), np.arctan2(y, x), rtol=1e-15)


def test_multinomial_with_a_count_known_at_run_time() -> None:
    made = OneOp()
    operands = [made.input(FLOAT, "n", 3), made.input(INT)]
    data = made.onnx(made.op("MULTINOMIAL", operands, DType.INT64, seed=1, seed2=2))
    shares = np.array([[0.1, 0.2, 0.7], [0.6, 0.4, 0.0]])
    drawn = run(data, np.log(np.maximum(shares, 1e-30)).astype(np.float32), np.array(20_000, np.int32))
    found = [np.bincount(row, minlength=3) / len(row) for row in drawn]
    np.testing.assert_allclose(found, shares, atol=0.02)


@pytest.mark.parametrize("op", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_random_tensors_of_a_shape_known_at_run_time(op: str) -> None:
    made = OneOp()
    data = made.onnx(made.op(op, [made.input(INT, 2)], FLOAT, seed=1, seed2=2))
    assert run(data, np.array([2, 5], np.int32)).shape == (2, 5)


@pytest.mark.parametrize("multiplier", [0, 1, 2, 3])
def test_a_depth_multiplier_that_disagrees_with_the_filter_is_ignored(multiplier: int) -> None:
    """The kernel divides the channels of the filter by those of the image."""
    random, made = np.random.default_rng(0), OneOp()
    filter_, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 3, 4), (4,)))
    operands = [made.input(FLOAT, 1, 4, 4, 2), filter_, bias]
    made.onnx(made.op("DEPTHWISE_CONV_2D", operands, FLOAT, depth_multiplier=multiplier, **IMAGE))


def test_a_grouped_convolution_of_open_channels() -> None:
    random, made = np.random.default_rng(0), OneOp()
    filter_ = random.standard_normal((4, 3, 3, 2)).astype(np.float32)
    operands = [made.input(FLOAT, 1, 4, 4, "channels"), filter_, np.ones(4, np.float32)]
    made.onnx(made.op("CONV_2D", operands, FLOAT, **IMAGE))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (DType.INT4, [-8, -7, -2, 0, 0, 1, 7]),
        (DType.UINT4, [0, 0, 0, 0, 0, 1, 15]),
        (DType.INT2, [-2, -2, -2, 0, 0, 1, 1]),
        (DType.BFLOAT16, [-9, -7.59375, -2.5, -0.5, 0.5, 1.5, 100]),
    ],
)
def test_casts_to_small_types_and_back(dtype: DType, expected: list[float]) -> None:
    """Integers saturate, and are truncated, not rounded."""
    made = OneOp()
    small = made.op("CAST", [made.input(FLOAT, 7)], dtype, version=7)
    data = made.onnx(made.op("CAST", [small], FLOAT, version=7))
    assert run(data, np.array([-9, -7.6, -2.5, -0.5, 0.5, 1.5, 100], np.float32)).tolist() == expected


@pytest.mark.parametrize(("dtype", "held"), [(DType.INT4, np.int8), (DType.UINT4, np.uint8)])
def test_inputs_and_outputs_of_4_bits_are_held_in_8(dtype: DType, held: type) -> None:
    made = OneOp()
    data = made.onnx(made.op("CAST", [made.input(dtype, 3)], FLOAT, version=7))
    assert run(data, np.array([1, 2, 7], held)).tolist() == [1, 2, 7]
    made = OneOp()
    data = made.onnx(made.op("CAST", [made.input(FLOAT, 3)], dtype, version=7))
    found = run(data, np.array([1, 2, 100], np.float32))
    assert (found.dtype, found[0]) == (held, 1)


@pytest.mark.parametrize("axes", [(), (1,)])
def test_sums_of_segments_are_squeezed(axes: tuple[int, ...]) -> None:
    made, segments = OneOp(), np.array([0, 0, 1, 1], np.int32)
    summed = made.op("SEGMENT_SUM", [made.input(FLOAT, 4, 1, 3), segments], FLOAT)
    data = made.onnx(made.op("SQUEEZE", [summed], FLOAT, squeeze_dims=axes))
    assert run(data, np.ones((4, 1, 3), np.float32)).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("op", ["SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"])
def test_as_many_blocks_as_an_image_has_axes_between_batch_and_channels(op: str) -> None:
    """A file may leave the lengths of both vectors open."""
    into = op == "SPACE_TO_BATCH_ND"
    shape = (1, 4, 3) if into else (2, 2, 3)
    made = OneOp()
    operands = [made.input(FLOAT, "n", "length", "c"), made.input(INT, "blocks"), made.input(INT, "b", "ends")]
    graph = made.graph
    result = made.op(op, operands, FLOAT)
    graph.outputs, result.name = [result], "out"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    data = onnxtfl.tflite_to_onnx(file.getvalue(), check=False).data
    assert data is not None
    x = np.arange(12, dtype=np.float32).reshape(shape)
    found = run(data, x, np.array([2], np.int32), np.array([[0, 0]], np.int32))
    rows = x.reshape(2, 2, 3)
    np.testing.assert_array_equal(found, rows.transpose(1, 0, 2) if into else rows.transpose(1, 0, 2).reshape(1, 4, 3))
