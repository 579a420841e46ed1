"""Images as calibration data: files of pictures become arrays of the size, layout and normalization of an input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.errors import RuntimeUnavailableError, UsageError
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.ir.data import PathLike

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
COLOURS = {1: "L", 3: "RGB"}
"""Pillow's mode by number of channels."""


@dataclass(frozen=True)
class Normalization:
    """Pixels from 0 to 1 become ``(pixel - mean) / std``, by channel; one number is that of all channels.

    As ``torchvision.transforms.Normalize`` after ``ToTensor``.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def of(self, pixels: Any) -> Any:
        """uint8 [height, width, channels] -> float32. Raises `UsageError` for another number of channels."""
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, pixels.shape[-1]):
                message = f"`{name}` has {len(numbers)} numbers, the images {pixels.shape[-1]} channels"
                raise UsageError(message, hint="use one number, or one for each channel")
        scaled = pixels.astype(np.float64) / 255
        return ((scaled - self.mean) / self.std).astype(np.float32)


def described(infos: Sequence[TensorInfo]) -> str:
    """Inputs as text: names, element types and sizes."""
    return ", ".join(f"{info.name} {info.dtype} {list(info.shape or ())}" for info in infos)


@dataclass(frozen=True)
class ImageInput:
    """The input that is an image: its name, size, number of channels, and whether these are its second axis."""

    name: str
    height: int
    width: int
    channels: int
    first: bool
    batch: int
    is_float: bool

    @classmethod
    def of(cls, infos: Sequence[TensorInfo]) -> ImageInput:
        """The only input of a model. Raises `UsageError` for others than float or uint8 images of a known size."""
        shape = infos[0].shape or () if len(infos) == 1 else ()
        if len(shape) != 4 or infos[0].dtype not in ("float32", "uint8"):
            raise UsageError(
                f"images do not fit the inputs ({described(infos)})", hint="use .npz files", code="E-QUANT-002"
            )
        first = shape[1] in COLOURS
        channels, height, width = (shape[1], *shape[2:]) if first else (shape[3], *shape[1:3])
        if channels not in COLOURS or not isinstance(height, int) or not isinstance(width, int):
            message = f"images need an input of known size and 1 or 3 channels, not {infos[0].name} {list(shape)}"
            raise UsageError(message, hint="fix its sizes (`input_shapes`), or use .npz files", code="E-QUANT-002")
        batch = shape[0] if isinstance(shape[0], int) else 1
        return cls(infos[0].name, height, width, int(channels), first, batch, infos[0].dtype == "float32")


def image_files(path: PathLike) -> list[Path]:
    """The images at `path`, a file or a folder, in the order of their names; none in a folder with .npz files."""
    found = sorted(Path(path).iterdir()) if os.path.isdir(path) else [Path(path)]
    if any(one.suffix.lower() == ".npz" for one in found):
        return []
    return [one for one in found if one.suffix.lower() in SUFFIXES]


def image_samples(
    paths: Sequence[Path], infos: Sequence[TensorInfo], normalization: Normalization | None
) -> Iterator[dict[str, Any]]:
    """Yield a sample for each image: the part in its middle with the aspect ratio of the input, resized bilinearly.

    Raises `UsageError` for files that are not images, for inputs that are not images, and for a normalization of uint8
    inputs, whose pixels are not changed.
    """
    wanted = ImageInput.of(infos)
    if normalization is not None and not wanted.is_float:
        raise UsageError(f"the input {wanted.name!r} is uint8: pixels as they are", hint="leave out `mean` and `std`")
    for path in paths:
        pixels = _pixels(path, wanted)
        values = (normalization or Normalization()).of(pixels) if wanted.is_float else pixels
        values = np.moveaxis(values, -1, 0) if wanted.first else values
        yield {wanted.name: np.repeat(values[None], wanted.batch, axis=0)}


def require_pillow() -> None:
    """Raise `RuntimeUnavailableError` if Pillow, which reads images, is not installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        hint = "pip install 'onnxtfl[quantize]'"
        raise RuntimeUnavailableError("Pillow, which reads images, is not installed", hint=hint) from None


def _pixels(path: Path, wanted: ImageInput) -> Any:
    """The image as uint8 [height, width, channels]."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened).convert(COLOURS[wanted.channels])
            made = ImageOps.fit(upright, (wanted.width, wanted.height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} is not an image: {error}", code="E-QUANT-002") from error
    return np.asarray(made).reshape(wanted.height, wanted.width, wanted.channels)
