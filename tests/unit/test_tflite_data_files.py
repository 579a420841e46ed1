"""TFLite models whose weights are in other files (ExternalBuffer, schema version 3d)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from tests.harness.litert import run_onnx
from tests.unit.test_tflite_reader import minimal, table

WEIGHTS = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
ID = 1 << 31  # as LiteRT's tools number them


def model(file: str = "weights.bin", shape: tuple[int, ...] = (2, 3), **external: Any) -> bytes:
    """y = x * w, where w is at byte 64 of another file."""
    tensors = [
        table("Tensor", shape=(2, 3), name="x"),
        table("Tensor", shape=shape, name="w", external_buffer=ID),
        table("Tensor", shape=(2, 3), name="y"),
    ]
    buffer = {"id": ID, "group": 1, "offset": 64, "length": WEIGHTS.nbytes, "packing": "unpacked", **external}
    return minimal(
        [table("Operator", inputs=(0, 1), outputs=(2,))],
        (2,),
        tensors,
        operator_codes=[table("OperatorCode", builtin_code="MUL", deprecated_builtin_code=18)],
        external_buffer_groups=[{"name": ""}, {"name": file}],
        external_buffers=[buffer],
    )


def saved(folder: Path, content: bytes) -> Path:
    (folder / "weights.bin").write_bytes(bytes(64) + WEIGHTS.tobytes())
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def test_weights_in_another_file_are_read_and_checked(tmp_path: Path) -> None:
    """LiteRT's interpreter leaves such tensors unwritten: the check runs a copy that has them."""
    made = onnxtfl.tflite_to_onnx(saved(tmp_path, model()), check=True)
    assert made.check is not None and made.check.ok
    x = np.full((2, 3), 2, np.float32)
    assert made.data is not None
    np.testing.assert_array_equal(run_onnx(made.data, {"x": x})["y"], 2 * WEIGHTS)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (model("other.bin"), InvalidModelError, r"external data is missing: no file .*other\.bin"),
        (model("../weights.bin"), InvalidModelError, r"'\.\.' is not allowed"),
        (model(offset=80), InvalidModelError, "is truncated"),
        (model(length=8), InvalidModelError, "8 bytes of external data"),
        (model(group=2), InvalidModelError, "there is no external buffer"),
        (model(id=3), InvalidModelError, "there is no external buffer"),
        (model(packing="blocked"), UnsupportedError, "packed as 'blocked'"),
    ],
)
def test_what_is_not_there_is_an_error(content: bytes, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        onnxtfl.tflite_to_onnx(saved(tmp_path, content), check=False)


def test_a_model_in_memory_has_no_other_files() -> None:
    with pytest.raises(InvalidModelError, match=r"has its data in the file 'weights\.bin'; pass the model as a path"):
        onnxtfl.tflite_to_onnx(model(), check=False)
