"""Random values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.probe.case import Case, draw, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


@probe("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random_numbers(op: str) -> Iterator[Case]:
    """Only shapes are compared."""
    for index in ("int32", "int64"):
        for rank in RANKS:
            shape, y = np.asarray(sizes(rank), index), np.zeros(sizes(rank), np.float32)
            types, options = {"I": index, "T": "float32"}, {"seed": 3, "seed2": 5}
            fixed = {"constant": "shape"}
            yield Case(op, types, [shape], [y], options, constants=frozenset({0}), extra=fixed, tolerance=np.inf)
            yield Case(op, types, [shape], [y], options, dynamic=True, tolerance=np.inf)


@probe("MULTINOMIAL")
def multinomial(op: str) -> Iterator[Case]:
    """Only shapes are compared."""
    for result in ("int32", "int64"):
        types = {"T": "float32", "I": "int32", "U": result}
        operands, y = [draw("float32", (2, 3)), int32(5)], np.zeros((2, 5), result)
        options = {"seed": 3, "seed2": 5}
        yield Case(op, types, operands, [y], options, constants=frozenset({1}), tolerance=np.inf)
