"""Rare TFLite builtins in ONNX: bits of floats, random bits, sparse lookups, random values of computed shapes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, dtype_of, tensor
from onnxtfl.targets import onnx as onnx_target
from tests.harness.litert import run_onnx


def one_op(
    op: str,
    inputs: list[Array],
    constants: list[Array],
    results: list[TensorType],
    open_: bool = False,
    **options: Any,
) -> tuple[bytes, dict[str, Array]]:
    """A .tflite of one op, and values for its inputs; `open_`: of open sizes."""
    graph = Graph()
    values: list[Any] = [
        graph.add_input(TensorType(dtype_of(a.dtype), (symbol(f"n{i}"),) * a.ndim if open_ else a.shape), f"in{i}")
        for i, a in enumerate(inputs)
    ]
    graph.outputs = Builder(graph).foreign("tfl", op, [*values, *constants], results, 1, **options)
    for i, value in enumerate(graph.outputs):
        value.name = f"out{i}"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue(), {f"in{i}": array for i, array in enumerate(inputs)}


def converted(model: bytes) -> bytes:
    data = onnxtfl.tflite_to_onnx(model, check=False).data
    assert data is not None
    return data


def test_bits_as_floats_before_onnx_had_bitcast() -> None:
    floats = np.asarray([0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38], np.float32)
    bits = np.concatenate([floats.view(np.int32), np.random.default_rng(0).integers(-(2**31), 2**31, 90)])
    bits = bits.astype(np.int32)
    model, feed = one_op("BITCAST", [bits], [], [tensor("float32", 100)])
    found, wanted = run_onnx(converted(model), feed)["out0"], bits.view(np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(wanted)]), np.signbit(wanted[~np.isnan(wanted)]))


FLOATS = np.asarray([[0, -0.0, 1.5, np.inf], [-np.inf, np.nan, 1e-45, -3e38]])


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "int32"), ("float16", "uint8"), ("float64", "uint32")])
def test_bits_of_floats_take_the_opset_that_has_them(dtype: str, bits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX has BitCast since opset 26; the report says so. Where an opset is asked for, it is not exceeded: the bits of
    float32 are computed, others refused.
    """
    with np.errstate(over="ignore"):
        x = FLOATS.astype(dtype)
    wanted = x.view(bits).reshape(*x.shape, -1)
    wanted = wanted if wanted.shape[-1] > 1 else wanted[..., 0]
    model, feed = one_op("BITCAST", [x], [], [tensor(bits, *wanted.shape)])
    for newest, asked in ((99, 24), (0, None)):
        monkeypatch.setattr(onnx_target, "_newest_opset", lambda known=newest: known)
        if dtype == "float32":
            older = onnxtfl.tflite_to_onnx(model, check=False, opset=asked)
            np.testing.assert_array_equal(run_onnx(older.data or b"", feed)["out0"], wanted)
        else:
            with pytest.raises(UnsupportedError, match=f"opset {asked or 21} cannot run this"):
                onnxtfl.tflite_to_onnx(model, check=False, opset=asked)
    monkeypatch.undo()
    if onnx_target._newest_opset() < 26:
        pytest.skip("an older ONNX Runtime is installed")
    made = onnxtfl.tflite_to_onnx(model, check=False)
    assert made.report.opset == "26, which 'out0' needs (by default it is 21)"
    assert made.report.opset in str(made.report)
    assert made.data is not None
    np.testing.assert_array_equal(run_onnx(made.data, feed)["out0"], wanted)


@pytest.mark.parametrize(("dtype", "other"), [("int64", "int8"), ("uint8", "int64"), ("int16", "uint32")])
def test_bits_of_integers_are_arithmetic(dtype: str, other: str) -> None:
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 200, 77, 0, 3, 128]
    x = np.asarray(ends, np.int64).astype(dtype).reshape(1, -1)
    wanted = x.view(other).reshape(1, -1)
    model, feed = one_op("BITCAST", [x.reshape(_parted(x, other))], [], [tensor(other, *_whole(x, other))])
    made = onnxtfl.tflite_to_onnx(model, check=False, opset=13)
    assert made.data is not None
    found = run_onnx(made.data, feed)["out0"]
    np.testing.assert_array_equal(found.reshape(1, -1), wanted)


def _parted(x: Array, other: str) -> list[int]:
    """The shape of the operand of a BITCAST: with an axis of the parts of wider elements."""
    parts = np.dtype(other).itemsize // x.itemsize
    return [x.size // parts, parts] if parts > 1 else [x.size]


def _whole(x: Array, other: str) -> list[int]:
    parts = x.itemsize // np.dtype(other).itemsize
    return [x.size, parts] if parts > 1 else [x.nbytes // np.dtype(other).itemsize]


def test_the_open_axis_of_the_parts_of_wider_elements() -> None:
    graph = Graph()
    x = graph.add_input(tensor("int32", 3, symbol("n")), "in0")
    graph.outputs = Builder(graph).foreign("tfl", "BITCAST", [x], [tensor("int64", 3)], 1)
    file = io.BytesIO()
    writer.write(Model(graph), file)
    made = onnxtfl.tflite_to_onnx(file.getvalue(), check=False)
    assert made.data is not None
    assert any("has 2 elements" in text for text in made.report.assumptions)
    parts = np.asarray([[1, 2], [-1, -1], [5, -7]], np.int32)
    [found] = run_onnx(made.data, {"in0": parts}).values()
    np.testing.assert_array_equal(found, parts.view(np.int64)[:, 0])


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
@pytest.mark.parametrize(("algorithm", "size"), [("THREEFRY", 2), ("PHILOX", 2), ("PHILOX", 3)])
def test_random_bits_are_those_of_litert(algorithm: str, size: int, dtype: str) -> None:
    """The low word of the counter overflows in the first block."""
    state = np.asarray([0xFEDCBA9876543210, 0xFFFFFFFF, 0x8000000180000001][:size], np.uint64)
    types = [tensor("uint64", size), tensor(dtype, 3, 3)]
    model, feed = one_op("STABLEHLO_RNG_BIT_GENERATOR", [state], [], types, algorithm=algorithm)
    assert onnxtfl.check(model, converted(model), data=feed).ok


@pytest.mark.parametrize("combiner", ["SUM", "MEAN", "SQRTN"])
def test_a_sparse_lookup(combiner: str) -> None:
    """Two rows of the table at one place, none at others."""
    table = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    places = np.asarray([[0, 1, 0], [0, 1, 1], [1, 0, 0]], np.int32)
    inputs = [np.asarray([1, 3, 0], np.int32), places, np.asarray([2, 2, 2], np.int32)]
    weights = np.asarray([1, 2, 4], np.float32)
    graph_type = tensor("float32", 2, 2, 3, 2)
    model, feed = one_op(
        "EMBEDDING_LOOKUP_SPARSE", inputs[:1], [*inputs[1:], weights, table], [graph_type], combiner=combiner
    )
    assert onnxtfl.check(model, converted(model), data=feed).ok


@pytest.mark.parametrize("op", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_random_values_of_a_shape_that_a_run_computes(op: str) -> None:
    shape = np.asarray([3, 400], np.int32)
    model, feed = one_op(op, [shape], [], [TensorType(dtype_of(np.dtype("float32")), None)])
    found = run_onnx(converted(model), feed)["out0"]
    assert found.shape == (3, 400)
    assert abs(float(found.mean()) - 0.5 * (op == "RANDOM_UNIFORM")) < 0.2 < float(found.std()) < 1.2


def test_a_reshape_with_an_empty_shape_beside_its_options() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model, feed = one_op("RESHAPE", [x], [np.zeros(0, np.int32)], [tensor("float32", 6, 4)], new_shape=[6, 4])
    np.testing.assert_array_equal(run_onnx(converted(model), feed)["out0"], x.reshape(6, 4))


@pytest.mark.parametrize("open_", [False, True])
def test_a_reshape_of_one_element_with_an_empty_shape_is_a_scalar(open_: bool) -> None:
    """Whatever its options say; LiteRT refuses every other number of elements of an open size."""
    empty = np.zeros(0, np.int32)
    model, feed = one_op("RESHAPE", [np.float32([3])], [empty], [tensor("float32")], open_, new_shape=[1])
    assert onnxtfl.check(model, converted(model), data=feed).ok
    assert run_onnx(converted(model), feed)["out0"].shape == ()


def test_a_strided_slice_with_limits_counted_from_the_starts() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    vectors = [np.int32(v) for v in ([0, 1, 2], [1, 2, 1], [1, 1, 1])]
    model, feed = one_op("STRIDED_SLICE", [x], vectors, [tensor("float32", 1, 2, 1)], offset=True)
    assert onnxtfl.check(model, converted(model), data=feed).ok


@pytest.mark.parametrize(
    ("begin", "counts", "strides", "masks", "message"),
    [
        ([0, 1, 0], [2, 9, 2], [1, 1, 1], {}, "9 elements of axis 1 of 3 from 1 on"),
        ([0, 0, 2], [2, 3, -3], [1, 1, -1], {}, "-3 elements of axis 2 of 4 from 2 on"),  # through the begin
        ([0, -9, 0], [2, 1, 2], [1, 1, 1], {}, "1 elements of axis 1 of 3 from -9 on"),
        ([0, 7, 0], [2, 1, 5], [1, 1, 1], {"begin_mask": 6}, "5 elements of axis 2 of 4 from 0 on"),
        ([1], [1], [1], {}, "axes without an entry"),
        ([0, 1], [2, 1], [1, 1], {"ellipsis_mask": 1}, "axes without an entry"),
        ([0, 0, 0, 0], [2, 1, 1, 1], [1, 1, 1, 1], {"new_axis_mask": 1}, "2 elements of axis 0 of 1 from 0 on"),
    ],
)
def test_a_strided_slice_that_counts_elements_beyond_the_axis_is_refused(
    begin: list[int], counts: list[int], strides: list[int], masks: dict[str, int], message: str
) -> None:
    """LiteRT sizes the result by the count and copies what there is: the rest is what the memory had."""
    vectors = [np.int32(v) for v in (begin, counts, strides)]
    x = np.zeros((2, 3, 4), np.float32)
    model, _ = one_op("STRIDED_SLICE", [x], vectors, [tensor("float32", *map(abs, counts))], offset=True, **masks)
    with pytest.raises(UnsupportedError, match=message):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_the_report_names_counts_from_starts_of_a_run() -> None:
    x, vectors = np.zeros((2, 4), np.float32), [np.int32(v) for v in ([2, 2], [1, 1])]
    model, feed = one_op("STRIDED_SLICE", [x, np.int32([0, 1])], vectors, [tensor("float32", 2, 2)], offset=True)
    made = onnxtfl.tflite_to_onnx(model, check=False)
    assert any("are within the axes" in text for text in made.report.assumptions)
    assert onnxtfl.check(model, made.data, data=feed).ok


def test_log_softmax_without_axes() -> None:
    """It is 0; LiteRT writes nothing."""
    model, feed = one_op("LOG_SOFTMAX", [np.asarray(2.5, np.float32)], [], [tensor("float32")])
    assert run_onnx(converted(model), feed)["out0"] == 0.0


def test_the_report_names_a_pad_that_may_leave_nothing() -> None:
    graph = Graph()
    x, value = graph.add_input(tensor("float32", 3, symbol("n")), "x"), graph.add_input(tensor("float32"), "v")
    options = {"edge_padding_low": [0, 0], "edge_padding_high": [0, -1], "interior_padding": [0, 0]}
    results = [tensor("float32", 3, symbol("n") - 1)]
    graph.outputs = Builder(graph).foreign("tfl", "STABLEHLO_PAD", [x, value], results, 1, **options)
    file = io.BytesIO()
    writer.write(Model(graph), file)
    made = onnxtfl.tflite_to_onnx(file.getvalue(), check=False)
    assert any("is not empty" in text for text in made.report.assumptions)
