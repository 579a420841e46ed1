"""Values that look like data: smooth images, quiet sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.dtypes import Array

COLOURS = (1, 3, 4)
"""The numbers of channels that an image may have."""
SMALLEST = 16
"""The least height and width of an image."""
LONGEST_ROW = 4000
"""From this length on, the last axis of a float input is that of a signal."""
LOUDNESS = 0.1
NOISE = 0.1
DETAIL = 8
"""Pixels for each point of the coarse grid that an image is interpolated from."""


def channels_axis(shape: Sequence[int]) -> int | None:
    """The axis of the channels if a tensor of this shape may be an image (or several); else None."""
    if len(shape) != 4:
        return None
    for channels, height, width in ((1, 2, 3), (3, 1, 2)):
        if shape[channels] in COLOURS and min(shape[height], shape[width]) >= SMALLEST:
            return channels
    return None


def is_signal(shape: Sequence[int]) -> bool:
    """Whether a tensor of this shape may be one or two channels of sound."""
    return len(shape) <= 3 and bool(shape) and shape[-1] >= LONGEST_ROW and all(size <= 8 for size in shape[:-1])


def image(random: np.random.Generator, shape: Sequence[int], channels: int) -> Array:
    """Return smooth float32 images in [-1, 1] of different contrast and brightness, with noise."""
    height, width = (shape[axis] for axis in range(1, 4) if axis != channels)
    count = (shape[0], shape[channels])
    coarse = random.uniform(-1, 1, (*count, height // DETAIL + 2, width // DETAIL + 2)).astype(np.float32)
    rows, columns = (_interpolation(size, size // DETAIL + 2) for size in (height, width))
    smooth = np.einsum("hr,ncrs,ws->nchw", rows, coarse, columns, optimize=True)
    noise = NOISE * random.standard_normal(smooth.shape, dtype=np.float32)
    made: Array = np.clip(smooth + noise, -1, 1)
    return made if channels == 1 else np.ascontiguousarray(made.transpose(0, 2, 3, 1))


def _interpolation(size: int, points: int) -> Array:
    """The matrix [size, points] of linear interpolation."""
    at = np.linspace(0, points - 1, size)
    distance = np.abs(at[:, None] - np.arange(points)[None, :])
    weights: Array = np.maximum(0, 1 - distance).astype(np.float32)
    return weights


def signal(random: np.random.Generator, shape: Sequence[int]) -> Array:
    """Quiet sound in [-1, 1]: some tones that fade in and out, and noise; float32."""
    length, others = shape[-1], int(np.prod(shape[:-1]))
    at = np.arange(length, dtype=np.float32)
    pitches, fades = random.uniform(0.01, 0.8, (others, 4, 1)), random.uniform(1e-3, 1e-2, (others, 4, 1))
    phases = random.uniform(0, 2 * np.pi, (others, 4, 1))
    sound = NOISE * random.standard_normal((others, length), dtype=np.float32)
    tones = (drawn.swapaxes(0, 1).astype(np.float32) for drawn in (pitches, fades, phases))
    for pitch, fade, phase in zip(*tones, strict=True):
        sound += np.sin(pitch * at + phase) * np.sin(fade * at + phase) / 4  # one tone at a time: memory
    made: Array = np.clip(LOUDNESS * sound, -1, 1).reshape(shape)
    return made
