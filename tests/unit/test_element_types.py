"""Ops of ONNX on element types that ONNX allows and few runtimes compute: the same values, or an error that names them.

Expected values are those of ONNX Runtime, where it has no kernel, of ONNX's reference.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.io_types import IoTypes
from tests.harness.litert import Array, run_tflite

_RANDOM = np.random.default_rng(5)


def model(signature: str, body: str, opset: int = 23) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["" : {opset}]> g {signature}'
    return parser.parse_model(f"{head} {{ {body} }}")


def converted(source: onnx.ModelProto, *inputs: Array) -> list[Array]:
    made = onnxtfl.onnx_to_tflite(source, check=False)
    assert made.data is not None
    types = IoTypes(made.report)
    return types.read([array for _, array in run_tflite(made.data, types.given(list(inputs)))])


def as_reference(source: onnx.ModelProto, *inputs: Array) -> list[Array]:
    feeds = dict(zip((value.name for value in source.graph.input), inputs, strict=True))
    return [np.asarray(found) for found in ReferenceEvaluator(source).run(None, feeds)]


def check(source: onnx.ModelProto, *inputs: Array) -> None:
    for found, wanted in zip(converted(source, *inputs), as_reference(source, *inputs), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_nan_and_infinity_of_float8(name: str) -> None:
    x = np.asarray([0, -1.5, np.nan, np.inf, -np.inf, 2], np.float32).astype(getattr(ml_dtypes, name))
    written = name.replace("_", "")
    wide = x.astype(np.float32)
    nan = model(f"({written}[6] x) => (bool[6] y)", "y = IsNaN (x)")
    assert converted(nan, x)[0].tolist() == np.isnan(wide).tolist()
    infinite = model(f"({written}[6] x) => (bool[6] y)", "y = IsInf <detect_positive: int = 0> (x)")
    assert converted(infinite, x)[0].tolist() == np.isneginf(wide).tolist()


def test_booleans_are_resized_and_made_unique() -> None:
    x = np.asarray([[[[True, False], [False, True]]]])
    scales = "<float[4] s = {1, 1, 2, 2}>"
    larger = model(f"(bool[1,1,2,2] x) => (bool[1,1,4,4] y) {scales}", 'y = Resize <mode: string = "nearest"> (x,,s)')
    np.testing.assert_array_equal(converted(larger, x)[0], x.repeat(2, 2).repeat(2, 3))
    found = converted(model("(bool[4] x) => (bool[n] y, int64[n] i)", "y, i = Unique (x)"), x.reshape(4)[::-1].copy())
    assert [a.tolist() for a in found] == [[False, True], [1, 0]]


@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "int32", "int64", "uint32", "uint64"])
def test_the_nearest_elements_of_integers(name: str) -> None:
    x = (_RANDOM.integers(0, 2, (1, 2, 4, 5)) * 100 + (1 << 24) * (name[-2:] in ("32", "64"))).astype(name)
    grid = _RANDOM.uniform(-1.2, 1.2, (1, 3, 3, 2)).astype(np.float32)
    text = f"({name}[1,2,4,5] x, float[1,3,3,2] grid) => ({name}[1,2,3,3] y)"
    check(model(text, 'y = GridSample <mode: string = "nearest"> (x, grid)'), x, grid)


@pytest.mark.parametrize(("mode", "name"), [("cubic", "uint8"), ("cubic", "int32"), ("linear", "int16")])
def test_weighted_integers_are_rounded_where_no_runtime_has_them(mode: str, name: str) -> None:
    """What overshoots saturates."""
    x = np.asarray([0, 0, 250, 250, 0, 30], name).reshape(1, 1, 1, 6)
    text = f"({name}[1,1,1,6] x) => ({name}[1,1,1,15] y) <float[4] s = {{1, 1, 1, 2.5}}>"
    check(model(text, f'y = Resize <mode: string = "{mode}"> (x,,s)'), x)


def test_regions_and_their_numbers_may_have_sizes_of_two_names() -> None:
    text = "(float[1,1,4,4] x, float[r,4] rois, int64[k] at) => (float[r,1,1,1] y)"
    x, rois = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.asarray([[0, 0, 2, 2], [1, 1, 3, 3]], np.float32)
    source = model(text, "y = RoiAlign <sampling_ratio: int = 2> (x, rois, at)")
    found = converted(source, x, rois, np.zeros(2, np.int64))[0]
    np.testing.assert_allclose(found, as_reference(source, x, rois, np.zeros(2, np.int64))[0], rtol=1e-5)


def test_scales_that_are_integers_or_powers_of_two() -> None:
    x = np.asarray([-7, 5, 100, 2000], np.int32)
    check(model("(int32[4] x) => (int8[4] y) <int32 s = {4}, int8 z = {1}>", "y = QuantizeLinear (x, s, z)"), x)
    scale = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT8E8M0, [], np.uint8([129]).tobytes(), raw=True)
    source = model("(int8[3] x) => (float[3] y)", "y = DequantizeLinear <output_dtype: int = 1> (x, s)", 24)
    source.graph.initializer.append(scale)
    assert converted(source, np.int8([-3, 0, 9]))[0].tolist() == [-12, 0, 36]


REFUSED: dict[str, tuple[str, str]] = {
    "operand input cannot be string": (
        "(string[1,1,2,2] x) => (string[1,1,4,4] y) <float[4] s = {1, 1, 2, 2}>",
        "y = Resize (x,,s)",
    ),
    "operand input cannot be int64": ("(int64[4] x) => (bool[4] y)", "y = Not (x)"),
    "operand rhs cannot be int32": ("(bool[4] x, int32[4] z) => (bool[4] y)", "y = And (x, z)"),
    "interpolated elements of type int32": (
        "(int32[1,1,2,2] x, float[1,1,1,2] g) => (int32[1,1,1,1] y)",
        "y = GridSample (x, g)",
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused_is_valid_and_can_be_cast(message: str) -> None:
    signature, body = REFUSED[message]
    with pytest.raises(UnsupportedError, match=message) as caught:
        onnxtfl.onnx_to_tflite(model(signature, body), check=False)
    hint: Any = caught.value.hint
    assert "cast" in hint


@pytest.mark.parametrize(
    "body",
    [
        'y = ScatterElements <reduction = "add"> (x, i, x)',
        'y = ScatterND <reduction = "max"> (x, j, x)',
        "y = Unique (x)",
    ],
)
def test_complex_numbers_that_no_kernel_has_are_refused_as_such(body: str) -> None:
    """The model is valid, so the error is none of the file."""
    source = model("(complex64[4] x, int64[4] i, int64[4,1] j) => (complex64[n] y)", body)
    with pytest.raises(UnsupportedError, match=r"cannot be complex64 in .*cut the model around it"):
        onnxtfl.onnx_to_tflite(source, check=False)
