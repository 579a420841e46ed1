"""Vectors of sizes and indices that mapping rules need: as constants where they are known, else computed at run time.

What has to be computed is written with Shape, Gather and Concatenate as far as these go, and narrowed to int32 for
TFLite as a whole chain (:func:`as_int32`), since int64 or a cast in it keeps delegates away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Atom, Dim, FloorDiv, SymDim
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.types import DType
from onnxtfl.ir.shapes import known_dims, static_ints

INT32_MAX = (1 << 31) - 1
HUGE = (1 << 63) - 1


def int32(numbers: Sequence[int]) -> np.ndarray:
    """A constant vector as TFLite's kernels take it; numbers beyond int32, which mean "to the end", are clamped."""
    return np.clip(np.asarray(numbers, np.int64), -INT32_MAX, INT32_MAX).astype(np.int32)
