"""Coordinates and weights for resizing one axis: the arithmetic of ONNX Resize-19.

Coordinates are computed in float32 like ONNX Runtime's, since ties depend on the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.data import Array

PLACES = (
    "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners", "half_pixel_symmetric",
    "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


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
        """Read the attributes of a Resize. Raises ValueError for unknown modes."""
        sampling = cls(**{name: attributes[name] for name in cls.__dataclass_fields__})
        known = sampling.nearest_mode in NEAREST if sampling.mode == "nearest" else sampling.mode in ("linear", "cubic")
        if not known:
            raise ValueError(f"unknown mode {sampling.mode} or nearest_mode {sampling.nearest_mode}")
        if sampling.coordinate_transformation_mode not in PLACES:
            raise ValueError(f"unknown coordinate_transformation_mode {sampling.coordinate_transformation_mode}")
        return sampling

    def coordinates(self, size: int, resized: int, scale: float, roi: tuple[float, float] = (0.0, 1.0)) -> Array:
        """The coordinate on the axis of `size` for each index of the resized axis, float32 [resized]."""
        check_elements(resized, "the coordinates of an axis")
        numbers = np.asarray([size, resized, scale, *roi], np.float32).reshape(-1, 1)
        old, new, factor, *ends = numbers
        return np.asarray(self.places(np.arange(resized, dtype=np.float32), old, new, factor, ends, np.where))

    def places(
        self, x: Any, size: Any, resized: Any, scale: Any, roi: Sequence[Any], choose: Callable[..., Any]
    ) -> Any:
        """The coordinates for the indices `x`. All are float32 arrays, or terms; `choose`: np.where, or Select.

        A scale of 1 does not change an axis, for any roi (as in ONNX Runtime; ONNX's reference crops it).
        """
        match self.coordinate_transformation_mode:
            case "asymmetric":
                return x / scale
            case "half_pixel":
                return (x + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return choose(resized > 1, (x + 0.5) / scale - 0.5, 0.0)
            case "tf_half_pixel_for_nn":
                return (x + 0.5) / scale
            case "align_corners":
                return x * (size - 1) / choose(resized > 1, resized - 1, resized)
            case "half_pixel_symmetric":
                offset = size / 2 * (1 - resized / (scale * size))
                return offset + (x + 0.5) / scale - 0.5
        start, end = roi
        spread = start * (size - 1) + x * (end - start) * (size - 1) / choose(resized > 1, resized - 1, resized)
        cropped = choose(resized > 1, spread, (start + end) * 0.5 * (size - 1))
        return choose((scale < 1.0) | (scale > 1.0), cropped, x)

    def rounded(self, x: Any, floor: Callable[[Any], Any], ceil: Callable[[Any], Any]) -> Any:
        """The coordinates `x` rounded to the nearest integers."""
        match self.nearest_mode:
            case "round_prefer_floor":
                return ceil(x - 0.5)
            case "round_prefer_ceil":
                return floor(x + 0.5)
        return floor(x) if self.nearest_mode == "floor" else ceil(x)

    def nearest(self, coordinates: Array, size: int) -> Array:
        """The index of the nearest element for each coordinate, int64."""
        return np.asarray(
            np.clip(self.rounded(coordinates.astype(np.float64), np.floor, np.ceil), 0, size - 1), np.int64
        )

    def cubic(self, x: Any) -> tuple[Any, Any]:
        """The weights of elements at the distance `x`, up to 1 and from 1 to 2."""
        a = self.cubic_coeff_a
        return ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def matrix(self, coordinates: Array, size: int, scale: float) -> Array:
        """The weight of each element for each index of the resized axis, float32 [resized, size]."""
        check_elements(len(coordinates) * size, "the weights of a resized axis")
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
        x = np.abs(distance) * self._shrink(scale)
        if self.mode == "linear":
            weights = np.clip(1 - x, 0, 1)
        else:
            near, far = self.cubic(x)
            weights = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
