"""Coordinates and weights for resizing one axis: the arithmetic of ONNX Resize-19.

Coordinates are computed in float32 like ONNX Runtime's, since ties depend on the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array

_PLACES = (
    "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners", "half_pixel_symmetric",
    "tf_crop_and_resize",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Sampling:
    """The attributes of Resize that determine how an axis is resampled, with ONNX's names."""

    mode: str
    coordinate_transformation_mode: str
    nearest_mode: str
    cubic_coeff_a: float
    exclude_outside: bool
    antialias: bool

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Sampling:
        """Read the attributes of a Resize; ValueError for unknown modes."""
        sampling = cls(**{name: attributes[name] for name in cls.__dataclass_fields__})
        if sampling.mode not in ("nearest", "linear", "cubic") or sampling.nearest_mode not in _NEAREST:
            raise ValueError(f"unknown mode {sampling.mode} or nearest_mode {sampling.nearest_mode}")
        if sampling.coordinate_transformation_mode not in _PLACES:
            raise ValueError(f"unknown coordinate_transformation_mode {sampling.coordinate_transformation_mode}")
        return sampling

    def coordinates(self, size: int, resized: int, scale: float, roi: tuple[float, float] = (0.0, 1.0)) -> Array:
        """The coordinate on the axis of `size` for each index of the resized axis, float32 [resized]."""
        f = np.float32
        x, factor, n = np.arange(resized, dtype=f), f(scale), f(resized)
        match self.coordinate_transformation_mode:
            case "asymmetric":
                return x / factor
            case "half_pixel":
                return (x + f(0.5)) / factor - f(0.5)
            case "pytorch_half_pixel":
                return (x + f(0.5)) / factor - f(0.5) if resized > 1 else np.zeros(resized, f)
            case "tf_half_pixel_for_nn":
                return (x + f(0.5)) / factor
            case "align_corners":
                return x * f(size - 1) / (n - f(1)) if resized > 1 else np.zeros(resized, f)
            case "half_pixel_symmetric":
                offset = f(size) / f(2) * (f(1) - n / (factor * f(size)))
                return offset + (x + f(0.5)) / factor - f(0.5)
            case "tf_crop_and_resize":
                start, end = f(roi[0]), f(roi[1])
                if resized > 1:
                    return start * f(size - 1) + x * (end - start) * f(size - 1) / (n - f(1))
                return np.full(resized, f(0.5) * (start + end) * f(size - 1), f)
        raise ValueError(f"unknown coordinate_transformation_mode {self.coordinate_transformation_mode}")

    def nearest(self, coordinates: Array, size: int) -> Array:
        """The index of the nearest element for each coordinate, int64."""
        x = coordinates.astype(np.float64)
        match self.nearest_mode:
            case "round_prefer_floor":
                rounded = np.ceil(x - 0.5)
            case "round_prefer_ceil":
                rounded = np.floor(x + 0.5)
            case "floor":
                rounded = np.floor(x)
            case _:
                rounded = np.ceil(x)
        return np.asarray(np.clip(rounded, 0, size - 1), np.int64)

    def matrix(self, coordinates: Array, size: int, scale: float) -> Array:
        """The weight of each element for each index of the resized axis, float32 [resized, size]."""
        rows = np.zeros((len(coordinates), size), np.float64)
        if self.mode == "nearest":
            rows[np.arange(len(coordinates)), self.nearest(coordinates, size)] = 1.0
            return rows.astype(np.float32)
        base = np.floor(coordinates).astype(np.int64)
        taps = self._taps(scale)
        weights = self._kernel((taps[None, :] - (coordinates - base).astype(np.float64)[:, None]), scale)
        places = base[:, None] + taps[None, :]
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= size), 0.0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
        np.add.at(rows, (np.arange(len(coordinates))[:, None], np.clip(places, 0, size - 1)), weights)
        return rows.astype(np.float32)

    def _shrink(self, scale: float) -> float:
        """The factor on distances for antialiasing, which widens the filter; 1 without."""
        return min(float(scale), 1.0) if self.antialias else 1.0

    def _taps(self, scale: float) -> Array:
        """The offsets of the elements in the filter from the element at or before the coordinate."""
        radius = {"linear": 1, "cubic": 2}[self.mode]
        start = int(np.floor(-radius / self._shrink(scale))) + 1
        return np.arange(start, 2 - start)

    def _kernel(self, distance: Array, scale: float) -> Array:
        """The weights at `distance` from the coordinate, normalized to a sum of 1."""
        x, a = np.abs(distance) * self._shrink(scale), self.cubic_coeff_a
        if self.mode == "linear":
            weights = np.clip(1 - x, 0, 1)
        else:
            near = ((a + 2) * x - (a + 3)) * x * x + 1
            far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
            weights = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
