"""Complex numbers toward ONNX, which has no kernels for them: two real tensors, inputs and outputs as pairs."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UsageError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, tensor

Body = Callable[[Builder, Value], Value]


def _op(b: Builder, name: str, *operands: object, dtype: str = "complex64", **options: object) -> Value:
    return b.foreign("tfl", name, operands, [TensorType(tensor(dtype).dtype, None)], 1, **options)[0]  # type: ignore[arg-type]


def _model(type_: TensorType, body: Body) -> bytes:
    graph = Graph()
    x = graph.add_input(type_, "x")
    y = body(Builder(graph), x)
    y.name = "y"
    graph.outputs = [y]
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


def _square(b: Builder, x: Value) -> Value:
    """|x * x * c| of complex numbers, with a constant that broadcasts."""
    product = _op(b, "MUL", _op(b, "MUL", x, x), np.asarray([1 + 2j, 3e18 - 1j, 0], np.complex64))
    return _op(b, "COMPLEX_ABS", product, dtype="float32")


def _reshaped(b: Builder, x: Value) -> Value:
    return _op(b, "RESHAPE", _op(b, "MUL", x, x), np.asarray([3, 2], np.int32))


def _spectrum(*lengths: int) -> Body:
    return lambda b, x: _op(b, "RFFT2D", x, np.asarray(lengths, np.int32))


def _loudness(b: Builder, x: Value) -> Value:
    """As the mel front end of a classifier of sounds: complex numbers are multiplied and read again."""
    spectrum = _op(b, "RFFT2D", x, np.asarray([1, 8], np.int32))
    return _op(b, "CAST", _op(b, "MUL", spectrum, spectrum), dtype="float32")


def _blocks(b: Builder, x: Value) -> Value:
    """Padded with zeros, split into blocks, and together again without its first column."""
    block = np.asarray([1, 2], np.int32)
    parts = _op(b, "SPACE_TO_BATCH_ND", x, block, np.asarray([[0, 0], [1, 0]], np.int32))
    return _op(b, "BATCH_TO_SPACE_ND", parts, block, np.asarray([[0, 0], [1, 0]], np.int32))


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (tensor("complex64", 2, 3), _square),
        (tensor("complex64", 1, 2, 3, 2), _blocks),
        (tensor("complex64", 2, 3), _reshaped),
        (tensor("float32", 3), lambda b, x: _op(b, "CAST", x)),
        (tensor("complex64", 3), lambda b, x: _op(b, "IMAG", x, dtype="float32")),
        (tensor("float32", 2, 1, 8), _loudness),
        (tensor("float32", 2, 6, 6), _spectrum(4, 4)),  # of a part
        (tensor("float32", 2, 3, 3), _spectrum(4, 8)),  # longer than the input
        (tensor("float32", 4, 3), _spectrum(4, 2)),
        (tensor("float32", "n", 3), _spectrum(2, 4)),  # of an open size
    ],
)
def test_complex_numbers_compute_as_in_litert(type_: TensorType, body: Body) -> None:
    made = onnxtfl.tflite_to_onnx(_model(type_, body), check=True)
    assert made.check is not None and made.check.ok


def test_lengths_may_be_known_to_a_run_only() -> None:
    graph = Graph()
    x, lengths = graph.add_input(tensor("float32", 3, 6), "x"), graph.add_input(tensor("int32", 2), "lengths")
    graph.outputs = [_op(Builder(graph), "RFFT2D", x, lengths)]
    graph.outputs[0].name = "y"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    feed = {"x": np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32), "lengths": np.int32([4, 4])}
    made = onnxtfl.tflite_to_onnx(file.getvalue(), check=False)
    check = onnxtfl.check(file.getvalue(), made.data, data=feed)
    assert check.ok


def test_the_report_names_what_has_pairs() -> None:
    report = onnxtfl.tflite_to_onnx(
        _model(tensor("complex64", 2), lambda b, x: _op(b, "MUL", x, x)), check=False
    ).report
    assert report.complex_names == ("x", "y")
    assert report.inputs[0].shape == report.outputs[0].shape == (2, 2)


def test_the_pairs_of_complex_numbers_stay_the_last_axis() -> None:
    """They are no channels: ONNX's DFT reads them there."""
    data = _model(tensor("complex64", 1, 4, 5, 3), lambda b, x: _op(b, "MUL", x, x))
    report = onnxtfl.tflite_to_onnx(data, check=False, io_layout="channels-first").report
    assert report.inputs[0].shape == report.outputs[0].shape == (1, 4, 5, 3, 2)
    with pytest.raises(UsageError, match="'x' has no axis order to move"):
        onnxtfl.tflite_to_onnx(data, check=False, io_layout={"x": "channels-first"})
