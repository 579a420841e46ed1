"""Custom ops of TFLite files as ONNX, against LiteRT; MediaPipe's, which Python has no kernels of, against NumPy."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import pytest
from flatbuffers import flexbuffers

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.custom_attributes import to_options
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, dtype_of, tensor
from tests.harness.litert import run_onnx, run_tflite

RANDOM = np.random.default_rng(4)


def flexible(options: dict[str, Any]) -> bytes:
    builder = flexbuffers.Builder()
    builder.MapFromElements(options)
    return bytes(builder.Finish())


def custom_model(
    name: str, operands: Sequence[Array], inputs: int, results: Sequence[TensorType], options: bytes, version: int = 1
) -> bytes:
    """A .tflite of one custom op whose first operands are inputs."""
    graph, values = Graph(), []
    for i, array in enumerate(operands):
        type_ = TensorType(dtype_of(array.dtype), array.shape)
        values.append(graph.add_input(type_, f"in{i}") if i < inputs else array)
    made = Builder(graph).foreign("tfl", f"custom:{name}", values, results, version, custom_options=options)
    for i, value in enumerate(made):
        value.name = f"out{i}"
    graph.outputs = made
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


def in_onnx(model: bytes, *inputs: Array) -> list[Array]:
    data = onnxtfl.tflite_to_onnx(model, check=False).data
    assert data is not None
    return list(run_onnx(data, {f"in{i}": array for i, array in enumerate(inputs)}).values())


def floats(*shape: int) -> Array:
    return np.asarray(RANDOM.normal(size=shape), np.float32)


DETECTION = {
    "max_detections": 5,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.2,
    "nms_iou_threshold": 0.4,
    "num_classes": 3,
    **{f"{axis}_scale": scale for axis, scale in zip("yxhw", (10.0, 10.0, 5.0, 5.0), strict=True)},
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_classes_per_detection": 2},
        {"use_regular_nms": True},
        {"use_regular_nms": True, "detections_per_class": 1},
    ],
    ids=["fast", "fast, two classes", "regular", "regular, one a class"],
)
def test_detection_postprocess(changes: dict[str, Any]) -> None:
    centers = np.stack(np.meshgrid(np.linspace(0.2, 0.8, 4), np.linspace(0.2, 0.8, 4)), -1).reshape(16, 2)
    anchors = np.concatenate([centers, np.full((16, 2), 0.3)], 1).astype(np.float32)
    scores = np.asarray(RANDOM.uniform(size=(1, 16, 4)), np.float32)
    options = DETECTION | changes
    count = 5 * options["max_classes_per_detection"]
    results = [tensor("float32", 1, count, 4), *[tensor("float32", 1, count)] * 2, tensor("float32", 1)]
    model = custom_model(
        "TFLite_Detection_PostProcess", [floats(1, 16, 4), scores, anchors], 2, results, flexible(options)
    )
    made = onnxtfl.tflite_to_onnx(model, check=False)
    assert onnxtfl.check(model, made.data, data={"in0": floats(1, 16, 4), "in1": scores}).ok


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("name", ["MaxPool3D", "AvgPool3D", "AveragePool3D"])
def test_pools_over_three_axes(name: str, padding: str) -> None:
    """Padding is not counted in the mean. TensorFlow writes the options of its own op."""
    sizes, shape, strides = (5, 6, 7), (2, 3, 4), (2, 1, 3)
    counts = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip(sizes, shape, strides, strict=True)
    ]
    before = [max(0, (m - 1) * s + k - n) // 2 for m, n, k, s in zip(counts, sizes, shape, strides, strict=True)]
    x, wanted = floats(2, *sizes, 3), np.zeros((2, *counts, 3), np.float32)
    for place in np.ndindex(*counts):
        starts = [p * s - f for p, s, f in zip(place, strides, before, strict=True)]
        d, h, w = (slice(max(0, i), i + k) for i, k in zip(starts, shape, strict=True))
        read = x[:, d, h, w]
        wanted[:, *place] = read.max((1, 2, 3)) if name == "MaxPool3D" else read.mean((1, 2, 3))
    options = {"ksize": [1, *shape, 1], "strides": [1, *strides, 1], "padding": padding, "data_format": "NDHWC"}
    model = custom_model(name, [x], 1, [tensor("float32", *wanted.shape)], flexible(options))
    np.testing.assert_allclose(in_onnx(model, x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_a_pool_over_channels_is_refused() -> None:
    options = {"ksize": [1, 2, 2, 2, 2], "strides": [1, 1, 1, 1, 1], "padding": "VALID", "data_format": "NDHWC"}
    model = custom_model("MaxPool3D", [floats(1, 4, 4, 4, 2)], 1, [tensor("float32", 1, 3, 3, 3, 1)], flexible(options))
    with pytest.raises(onnxtfl.OnnxtflError, match="a pool over three axes"):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_litert_reads_options_that_are_written() -> None:
    """As those of another writer of FlexBuffers."""
    anchors = np.full((16, 4), 0.5, np.float32)
    operands = [floats(1, 16, 4), np.asarray(RANDOM.uniform(size=(1, 16, 4)), np.float32), anchors]
    results = [tensor("float32", 1, 5, 4), *[tensor("float32", 1, 5)] * 2, tensor("float32", 1)]
    written, other = (
        run_tflite(custom_model("TFLite_Detection_PostProcess", operands, 2, results, options), operands[:2])
        for options in (to_options(DETECTION), flexible(DETECTION))
    )
    count = int(other[-1][1][0])  # what is after the detections is not initialized
    assert count and written[-1][1] == count
    for (_, found), (_, wanted) in zip(written[:-1], other[:-1], strict=True):
        np.testing.assert_array_equal(found[:, :count], wanted[:, :count])


@pytest.mark.parametrize("squared", [True, False])
def test_audio_spectrogram(squared: bool) -> None:
    options = flexible({"window_size": 24, "stride": 10, "magnitude_squared": squared})
    model = custom_model("AudioSpectrogram", [floats(100, 2)], 1, [tensor("float32", 2, 8, 17)], options)
    assert onnxtfl.tflite_to_onnx(model, check=True).check.ok  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [1, 2])
@pytest.mark.parametrize("hertz", [8000, 16000, 22050])
def test_mfcc(hertz: int, given: int) -> None:
    """At a sample rate in the file, or known at run time only."""
    options = {"upper_frequency_limit": 4000, "lower_frequency_limit": 20, "filterbank_channel_count": 12}
    rate = np.asarray([hertz], np.int32)
    spectra = np.abs(floats(1, 3, 129))
    data = flexible(options | {"dct_coefficient_count": 5})
    model = custom_model("Mfcc", [spectra, rate], given, [tensor("float32", 1, 3, 5)], data)
    made = onnxtfl.tflite_to_onnx(model, check=False)
    inputs = {"in0": spectra, "in1": rate}
    assert onnxtfl.check(model, made.data, data=dict(list(inputs.items())[:given])).ok
    assert onnxtfl.check(model, made.data).ok


@pytest.mark.parametrize(("padding", "name"), [(1, "SAME"), (2, "VALID")])
def test_max_pooling_with_indices_and_back(padding: int, name: str) -> None:
    """Every largest element is back at its place, all others are 0."""
    x = np.abs(floats(2, 4, 6, 3)) + 1
    options = struct.pack("<6i", padding, 2, 2, 2, 2, 0)
    types = [tensor("float32", 2, 2, 3, 3)] * 2
    largest, indices = in_onnx(custom_model("MaxPoolingWithArgmax2D", [x], 1, types, options), x)
    blocks = x.reshape(2, 2, 2, 3, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(2, 2, 3, 3, 4)
    np.testing.assert_array_equal(largest, blocks.max(-1))
    np.testing.assert_allclose(indices, blocks.argmax(-1) + np.float32(0.1))
    model = custom_model("MaxUnpooling2D", [largest, indices], 2, [tensor("float32", 2, 4, 6, 3)], options)
    (back,) = in_onnx(model, largest, indices)
    np.testing.assert_array_equal(back, np.where(np.isin(x, largest), x, 0))
    data = flexible({"padding": name, "ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "include_batch_in_index": False})
    for dtype in ("int32", "int64"):
        types = [tensor("float32", 2, 2, 3, 3), tensor(dtype, 2, 2, 3, 3)]
        again, flat = in_onnx(custom_model("MaxPoolWithArgmax", [x], 1, types, data), x)
        assert flat.dtype == dtype
        read = x.reshape(2, -1)[np.arange(2)[:, None], flat.reshape(2, -1)]
        np.testing.assert_array_equal(read, again.reshape(2, -1))


def test_windows_at_the_border_have_indices_in_their_window() -> None:
    x = floats(1, 3, 3, 1)
    options = struct.pack("<6i", 1, 2, 2, 3, 3, 0)  # SAME: the first window begins outside
    model = custom_model("MaxPoolingWithArgmax2D", [x], 1, [tensor("float32", 1, 2, 2, 1)] * 2, options)
    indices = in_onnx(model, x)[1]
    framed = np.pad(x[0, :, :, 0], 1, constant_values=-np.inf)
    wanted = [[framed[i : i + 3, j : j + 3].argmax() for j in (0, 2)] for i in (0, 2)]
    np.testing.assert_allclose(indices[0, :, :, 0], np.asarray(wanted) + np.float32(0.1))


def test_transposed_convolution_with_bias() -> None:
    """Three by three elements two apart; SAME cuts the result to that of which they are the strided convolution."""
    x, kernel, bias = floats(1, 2, 2, 1), floats(2, 3, 3, 1), floats(2)
    full = np.zeros((5, 5, 2), np.float32) + bias
    for i in range(2):
        for j in range(2):
            full[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += x[0, i, j, 0] * kernel[..., 0].transpose(1, 2, 0)
    valid = custom_model(
        "Convolution2DTransposeBias", [x, kernel, bias], 1, [tensor("float32", 1, 5, 5, 2)], struct.pack("<3i", 2, 2, 2)
    )
    np.testing.assert_allclose(in_onnx(valid, x)[0][0], full, rtol=1e-5, atol=1e-6)
    same = custom_model(
        "Convolution2DTransposeBias", [x, kernel, bias], 1, [tensor("float32", 1, 4, 4, 2)], struct.pack("<3i", 1, 2, 2)
    )
    np.testing.assert_allclose(in_onnx(same, x)[0][0], full[:4, :4], rtol=1e-5, atol=1e-6)


LANDMARKS = np.asarray([[10, 10, 1], [30, 10, 2], [20, 40, 3]], np.float32)


def test_a_matrix_of_upright_landmarks_is_shift_and_scale() -> None:
    options = {
        "left_rotation_idx": 0,
        "right_rotation_idx": 1,
        "target_rotation_radians": 0.0,
        "output_height": 60,
        "output_width": 20,
        "scale_x": 2.0,
        "scale_y": 2.0,
        "subset_idxs": [0, 1, 1, 2],
    }
    marks = LANDMARKS[None]
    type_ = tensor("float32", 1, 4, 4)
    model = custom_model("Landmarks2TransformMatrix", [marks], 1, [type_], flexible(options), version=2)
    wanted = [[2, 0, 0, 0], [0, 1, 0, -5], [0, 0, 1, 0], [0, 0, 0, 1]]  # 20 x 30 around (20, 25), twice as large
    np.testing.assert_allclose(in_onnx(model, marks)[0][0], wanted, atol=1e-5)


def test_the_first_version_of_the_matrix_has_relative_places() -> None:
    options = {
        "dimensions": 3,
        "landmarks_range": 41,
        "left_rotation_idx": 0,
        "right_rotation_idx": 1,
        "bbox_size_multiplier": 1.0,
        "input_hw": [41, 41],
        "output_hw": [31, 21],
        "subset": [0, 1, 2],
    }
    marks = LANDMARKS.reshape(1, 1, 1, 9)
    model = custom_model("Landmarks2TransformMatrix", [marks], 1, [tensor("float32", 1, 4, 4)], flexible(options))
    shrunk = 40 / 41
    wanted = [[shrunk, 0, 0, 10 * shrunk], [0, shrunk, 0, 10 * shrunk], [0, 0, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(in_onnx(model, marks)[0][0], wanted, atol=1e-5)


@pytest.mark.parametrize("version", [1, 2])
def test_landmarks_by_a_matrix(version: int) -> None:
    marks = LANDMARKS[None] if version == 2 else LANDMARKS.reshape(1, 1, 1, 9)
    matrix = np.asarray([[0, -1, 9, 5], [1, 0, 9, 7], [9, 9, 9, 9], [0, 0, 0, 1]], np.float32)[None]
    options = flexible({"dimensions": 3, "scale": 2.0} if version == 1 else {"version": 2})
    type_ = TensorType(dtype_of(marks.dtype), marks.shape)
    model = custom_model("TransformLandmarks", [marks, matrix], 2, [type_], options, version)
    shift = 2 if version == 1 else 1
    wanted = np.stack([5 * shift - LANDMARKS[:, 1], LANDMARKS[:, 0] + 7 * shift, LANDMARKS[:, 2]], -1)
    np.testing.assert_allclose(in_onnx(model, marks, matrix)[0].reshape(3, 3), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "version"), [("TransformTensorBilinear", 1), ("TransformTensorBilinear", 2), ("TransformTensor", 1)]
)
def test_an_image_by_a_matrix(name: str, version: int) -> None:
    """Half an element to the right, twice as dense downward; outside there is 0. Version 2 has centers at 0.5."""
    x = floats(1, 3, 3, 2)
    matrix = np.asarray([[1, 0, 0, 0.5], [0, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)[None]
    options = {"output_size": [2, 3], "mode": "bilinear"} if version == 1 else {"output_height": 2, "output_width": 3}
    model = custom_model(name, [x, matrix], 2, [tensor("float32", 1, 2, 3, 2)], flexible(options), version)
    half = 0.0 if version == 1 else 0.5
    wanted = np.zeros((2, 3, 2))
    for i in range(2):
        for j in range(3):
            column, row = j + 0.5, 0.5 * (i + half) - half
            if 0 <= column <= 2 and 0 <= row <= 2:
                top, left = int(row), int(column)
                parts = [(top, left, 1 - (row - top)), (min(top + 1, 2), left, row - top)]
                wanted[i, j] = sum(w * (x[0, r, c] + x[0, r, min(c + 1, 2)]) / 2 for r, c, w in parts)
    np.testing.assert_allclose(in_onnx(model, x, matrix)[0][0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("data", [b"", b"\x01\x02", flexible({"window_size": 1}), b"\xff" * 9])
def test_options_that_cannot_be_are_one_line(data: bytes) -> None:
    model = custom_model("AudioSpectrogram", [floats(100, 1)], 1, [tensor("float32", 1, 8, 17)], data)
    with pytest.raises(onnxtfl.OnnxtflError, match="AudioSpectrogram"):
        onnxtfl.tflite_to_onnx(model, check=False)


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("edgetpu-custom-op", "Edge TPU"),
        ("ethos-u", "Arm Ethos-U"),
        ("DISPATCH_OP", "LiteRT's compiler plugins"),
        ("NeutronGraph", "NXP eIQ Neutron"),
        ("vsi-npu", "VeriSilicon"),
    ],
)
def test_an_op_of_a_vendor_names_the_vendor(name: str, vendor: str) -> None:
    model = custom_model(name, [floats(2)], 1, [tensor("float32", 2)], b"")
    with pytest.raises(UnsupportedError, match=vendor):
        onnxtfl.tflite_to_onnx(model, check=False)


def test_memory_that_a_custom_op_only_writes_is_no_operand() -> None:
    """The scratch buffer of Ethos-U, which nothing before writes."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    data = custom_model("ethos-u", [floats(2), floats(4)], 2, [tensor("float32", 2)], b"")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    model.signatureDefs = []
    model.subgraphs[0].inputs = model.subgraphs[0].inputs[:1]
    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    with pytest.raises(UnsupportedError, match="Arm Ethos-U"):
        onnxtfl.tflite_to_onnx(bytes(builder.Output()), check=False)
