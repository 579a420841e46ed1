"""Fourier transforms, and the parts of complex values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tools.probe.case import Array, Case, draw, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


@probe("RFFT2D")
def rfft2d(op: str) -> Iterator[Case]:
    """Over the last two axes, whose sizes are powers of two."""
    for rank in (2, 3, 4, 5, 6, 7, 8):
        x = draw("float32", (*sizes(rank - 2), 4, 8))
        y = np.fft.rfft2(x).astype(np.complex64)
        types = {"T": "float32", "I": "int32", "U": "complex64"}
        fixed = {"constant": "fft_length"}
        yield Case(op, types, [x, int32([4, 8])], [y], constants=frozenset({1}), extra=fixed)
        yield Case(op, types, [x, int32([4, 8])], [y], dynamic=True)


@probe("REAL", "IMAG", "COMPLEX_ABS")
def parts_of_complex(op: str) -> Iterator[Case]:
    """complex64 to float32."""
    parts: dict[str, Callable[[Array], Any]] = {"REAL": np.real, "IMAG": np.imag, "COMPLEX_ABS": np.abs}
    for rank in RANKS:
        x = draw("complex64", sizes(rank))
        yield Case(op, {"T": "complex64", "U": "float32"}, [x], [np.asarray(parts[op](x), np.float32)])
