"""Images as calibration data: sizes, layouts, normalization, and what is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxtfl
from onnxtfl.errors import RuntimeUnavailableError, UsageError
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.kinds import Channels, RefusedError
from onnxtfl.quantizing import images as calibration_images
from onnxtfl.quantizing.images import Normalization, image_files, image_samples
from tests.unit.tiny_models import onnx_model

needs_pillow = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="Pillow is not installed")
needs_library = pytest.mark.skipif(
    importlib.util.find_spec("litert_quantizer") is None, reason="litert-quantizer is not installed"
)
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def info(*shape: Any, dtype: str = "float32") -> list[TensorInfo]:
    return [TensorInfo("x", dtype, shape)]


def image(path: Path, pixels: Any) -> Path:
    from PIL import Image

    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def striped(height: int, width: int) -> Any:
    """Red on the left half, green on the right half."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = pixels[:, width // 2 :, 1] = 255
    return pixels


@needs_pillow
def test_values_are_normalized_by_channel(tmp_path: Path) -> None:
    path = image(tmp_path / "a.png", striped(8, 8))
    (first,) = image_samples([path], info(1, 3, 8, 8), IMAGENET)
    assert first["x"].shape == (1, 3, 8, 8) and first["x"].dtype == np.float32
    np.testing.assert_allclose(first["x"][0, :, 0, 0], [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], rtol=1e-6)
    (last,) = image_samples([path], info("batch", 8, 8, 3), IMAGENET)
    np.testing.assert_array_equal(last["x"], first["x"].transpose(0, 2, 3, 1))
    (plain,) = image_samples([path], info(1, 3, 8, 8), None)
    assert (plain["x"].min(), plain["x"].max()) == (0, 1)
    (pixels,) = image_samples([path], info(1, 3, 8, 8), Normalization((0.0,), (1 / 255,)))
    np.testing.assert_allclose(pixels["x"].max(), 255, rtol=1e-6)


@needs_pillow
def test_the_middle_is_resized(tmp_path: Path) -> None:
    """Of an image twice as wide as the input, the outer quarters are cut off."""
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, 8:24] = 200
    path = image(tmp_path / "a.png", pixels)
    (found,) = image_samples([path], info(2, 8, 8, 1, dtype="uint8"), None)
    assert found["x"].shape == (2, 8, 8, 1) and found["x"].dtype == np.uint8
    assert (found["x"][:, :, 2:-2] == 200).all()


def test_which_files_are_images(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "notes.txt"):
        (tmp_path / name).touch()
    assert [one.name for one in image_files(tmp_path)] == ["a.JPG", "b.png"]
    assert image_files(tmp_path / "b.png") == [tmp_path / "b.png"]
    (tmp_path / "c.npz").touch()
    assert image_files(tmp_path) == []


@needs_pillow
@pytest.mark.parametrize(
    ("infos", "normalization", "message"),
    [
        (info(1, 64), None, "images do not fit the inputs"),
        ([*info(1, 3, 8, 8), TensorInfo("k", "int64", (1,))], None, "images do not fit the inputs"),
        (info(1, 3, "h", "w"), None, "images need an input of known size"),
        (info(1, 4, 8, 8), None, "1 or 3 channels"),
        (info(1, 1, 8, 8), IMAGENET, "mean has 3 numbers, the images 1 channels"),
        (info(1, 3, 8, 8, dtype="uint8"), IMAGENET, "the input 'x' is uint8"),
    ],
)
def test_what_images_do_not_fit(
    tmp_path: Path, infos: list[TensorInfo], normalization: Normalization | None, message: str
) -> None:
    path = image(tmp_path / "a.png", striped(8, 8))
    with pytest.raises(UsageError, match=message):
        list(image_samples([path], infos, normalization))


@needs_pillow
def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no")
    with pytest.raises(UsageError, match=r"a\.png is not an image"):
        list(image_samples([tmp_path / "a.png"], info(1, 3, 8, 8), None))


def test_numbers_of_channels() -> None:
    kind = Channels(is_positive=True)
    assert kind.read("1/255,0.5") == (1 / 255, 0.5)
    assert kind.check("std", 2) == (2.0,) and kind.check("std", (1, 2, 3)) == (1.0, 2.0, 3.0)
    for text in ("", "a", "1/0", "1,"):
        with pytest.raises(ValueError, match="is not NUMBER"):
            kind.read(text)
    for value in (0, -1, (), "0.5", (1, float("nan"))):
        with pytest.raises(RefusedError):
            kind.check("std", value)


def classifier() -> ModelProto:
    """x [1,3,16,16] -> Conv -> Relu -> GlobalAveragePool -> y."""
    weight = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    inputs, outputs = [("x", TensorProto.FLOAT, [1, 3, 16, 16])], [("y", TensorProto.FLOAT, [1, 8, 1, 1])]
    return onnx_model(nodes, inputs, outputs, {"w": weight})


@needs_pillow
@needs_library
def test_a_model_is_calibrated_with_a_folder_of_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(4):
        image(tmp_path / f"{k}.png", rng.integers(0, 256, (20, 24, 3)))
    made = onnxtfl.onnx_to_tflite(
        classifier(), quantize="int8", calibration=tmp_path, mean=IMAGENET.mean, std=IMAGENET.std
    )
    assert made.check is not None and made.check.ok
    arrays = image_samples(image_files(tmp_path), info(1, 3, 16, 16), IMAGENET)
    assert made.data == onnxtfl.onnx_to_tflite(classifier(), quantize="int8", calibration=list(arrays)).data
    assert made.data != onnxtfl.onnx_to_tflite(classifier(), quantize="int8", calibration=tmp_path).data


@needs_library
def test_mean_and_std_are_for_images() -> None:
    with pytest.raises(UsageError, match="mean and std are for calibration images"):
        onnxtfl.onnx_to_tflite(classifier(), quantize="int8", calibration="random", mean=0.5)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(RuntimeUnavailableError, match="Pillow, which reads images, is not installed"):
        calibration_images.require_pillow()
