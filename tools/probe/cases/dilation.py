"""DILATE."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.probe.case import NUMBERS, Case, draw, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


@probe("DILATE")
def dilate(op: str) -> Iterator[Case]:
    """Fill values between the elements along some axes."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS[2:]:
            x, filler = draw(element, sizes(rank)), draw(element, (), seed="v")
            steps = [1 + i % 3 for i in range(rank)]
            y = np.full([(d - 1) * s + 1 for d, s in zip(x.shape, steps, strict=True)], filler, filler.dtype)
            y[tuple(slice(None, None, s) for s in steps)] = x
            types, fixed = {"T": element, "I": "int32"}, {"constant": "dilations"}
            yield Case(op, types, [x, int32(steps), filler], [y], constants=frozenset({1, 2}), extra=fixed)
            yield Case(op, types, [x, int32(steps), filler], [y], dynamic=True)
