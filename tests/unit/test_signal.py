"""Fourier transforms and mel bands whose axis, lengths and sizes are known only at run time, in both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl import onnx_to_tflite
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import floats
from tests.unit.tiny_models import Array, onnx_model

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")
_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


def check(
    op: str, shapes: list[Any], arrays: list[Array | None], atol: float, opset: int = 20, **attributes: Any
) -> None:
    """One node whose operands are all inputs, of these declared shapes: LiteRT computes what ONNX Runtime does."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    feeds = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    inputs = [(n, _TYPES[feeds[n].dtype.name], s) for n, s in zip(names, shapes, strict=True) if n]
    model = onnx_model([helper.make_node(op, names, ["y"], **attributes)], inputs, [("y", 1, None)], opset=opset)
    model.graph.output[0].ClearField("type")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    (wanted,) = run_onnx(model.SerializeToString(), feeds).values()
    ((_, found),) = run_tflite(onnx_to_tflite(model, check=False).data or b"", feeds, kernels="builtin")
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=atol)


@pytest.mark.parametrize(("inverse", "onesided", "parts"), [(0, 0, 2), (0, 1, 1), (1, 0, 2), (0, 0, 1)])
@pytest.mark.parametrize("axis", [1, -3])
def test_dft_along_an_axis_known_at_run_time(axis: int, inverse: int, onesided: int, parts: int) -> None:
    arrays = [floats(2, 5, 6, parts), None, np.asarray(axis)]
    check("DFT", [["n", "h", 6, parts], None, []], arrays, 2e-5, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("length", [4, 5, 9])
def test_dft_of_a_length_and_a_size_known_at_run_time(length: int) -> None:
    check("DFT", [[1, "n", 2], []], [floats(1, 6, 2), np.asarray(length)], 2e-5, opset=17)


@pytest.mark.parametrize("windowed", [False, True])
def test_stft_of_steps_known_at_run_time(windowed: bool) -> None:
    window = np.hanning(8).astype(np.float32) if windowed else None
    arrays = [floats(2, 37, 1), np.asarray(3), window, np.asarray(8)]
    check("STFT", [[2, "n", 1], [], ["w"], []], arrays, 2e-5, opset=17)


@pytest.mark.parametrize("size", [37, "n"])
def test_stft_of_signals_without_an_axis_of_parts(size: int | str) -> None:
    arrays = [floats(2, 37), np.asarray(3), np.hanning(8).astype(np.float32), np.asarray(8)]
    check("STFT", [[2, size], [], ["w"], []], arrays, 2e-5, opset=17)


def test_mel_bands_of_sizes_known_at_run_time() -> None:
    arrays = [np.asarray(x, t) for x, t in ((8, "i8"), (64, "i8"), (16000, "i8"), (20.0, "f4"), (4000.0, "f4"))]
    check("MelWeightMatrix", [[]] * 5, arrays, 1e-6, opset=17)
