"""What a model takes and returns, and which format a file has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.files import sniff
from onnxtfl.ir.quantization import Quantization
from tests.harness.named import described
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_scale, saved, tflite_scale


def test_describe_onnx(tmp_path: Path) -> None:
    model = onnx_scale(shape=("batch", 3))
    model.graph.input.append(helper.make_tensor_value_info("factor", TensorProto.FLOAT, []))  # has an initializer
    model.graph.input.append(helper.make_tensor_value_info("open", TensorProto.INT64, [0, None]))
    info = described(saved(model, tmp_path / "m.onnx"))
    assert [(i.name, i.dtype, i.shape) for i in info.inputs] == [
        ("x", "float32", ("batch", 3)),
        ("open", "int64", (None, None)),
    ]
    assert info.format == "onnx"


def test_describe_tflite(tmp_path: Path) -> None:
    info = described(saved(tflite_scale(names=("a", "b")), tmp_path / "m.tflite"))
    assert [(i.name, i.dtype, i.shape) for i in info.inputs] == [("a", "float32", (2, 3))]
    assert info.outputs[0].name == "b"
    info = described(saved(tflite_scale(signature=False), tmp_path / "m.tflite"))
    assert info.outputs[0].name == "y"


def test_garbage(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    good = {".onnx": onnx_scale().SerializeToString(), ".tflite": tflite_scale()}
    for suffix, data in good.items():
        path = tmp_path / f"m{suffix}"
        for cut in range(0, len(data), 7):
            path.write_bytes(data[:cut])
            _described_or_invalid(path)
        for _ in range(100):
            garbled = bytearray(data)
            for at in random.integers(8, len(data), 3):
                garbled[at] = int(random.integers(0, 256))
            path.write_bytes(garbled)
            _described_or_invalid(path)
    with pytest.raises(InvalidModelError, match="no-such"):
        described(tmp_path / "no-such.onnx")
    with pytest.raises(InvalidModelError, match="empty"):
        sniff(saved(b"", tmp_path / "m.onnx"))
    with pytest.raises(InvalidModelError, match="TFL3"):
        sniff(saved(b"something else", tmp_path / "m.tflite"))


def _described_or_invalid(path: Path) -> None:
    try:
        described(path)
    except (InvalidModelError, UnsupportedError) as error:
        assert "\n" not in str(error)


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
def test_quantization_is_described() -> None:
    info = described(CORPUS / "tflite" / "coral" / "mobilenet_v1_0.25_128_quant.tflite")
    assert info.inputs[0].dtype == "uint8"
    assert info.inputs[0].quantization == Quantization("uint8", (0.0078125,), (128,))
