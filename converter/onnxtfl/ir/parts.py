"""Evaluation of a node in parts, so that large operands are never dequantized, widened or copied whole.

A part is evaluated like a node: quantize(evaluate(dequantize)) of parts of the stored operands. It is divided again
along another axis if it is still large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.declaration import Attributes
from onnxtfl.ir.divisions import Division, Index, Part, at
from onnxtfl.ir.dtypes import Array, DType
from onnxtfl.ir.graph import Op
from onnxtfl.ir.quantization import Quantization, dequantize, quantize

LARGEST = 1 << 16
"""The elements of operands and result above which a node is evaluated in parts."""
_WORTHWHILE = 0.75
"""The largest share of the elements that a part may have, since each part reads all of some operands."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An operand: the stored elements of real values of type `dtype`."""

    array: Array
    quantization: Quantization | None = None
    dtype: DType = DType.FLOAT32

    def __getitem__(self, index: Index) -> Stored:
        grid = self.quantization
        return self if not index else Stored(self.array[index], None if grid is None else grid.part(index), self.dtype)

    @property
    def real(self) -> Array:
        """The real values."""
        return self.array if self.quantization is None else dequantize(self.array, self.quantization, self.dtype)


def evaluate_in_parts(
    op: type[Op],
    attributes: Attributes,
    operands: Sequence[Stored | None],
    results: Sequence[Quantization | None],
    made: int,
) -> list[Array]:
    """Evaluate `op`, in parts if it is large and can be divided. `results`: the quantization of each result.

    `made`: the number of elements of the result, as far as it is known.
    """
    division, count = _division(op, attributes, operands, made) if len(results) == 1 else (None, 1)
    if division is None:
        return _whole(op, attributes, operands, results)
    whole, step = np.empty(0), -(-division.size // count)
    for start in range(0, division.size, step):
        stop = min(start + step, division.size)
        part, index = division.part(start, stop), at(division.axis, start, stop)
        grids = [None if grid is None else grid.part(index) for grid in results]
        changed, share = {**attributes, **part.attributes}, made * (stop - start) // division.size
        (result,) = evaluate_in_parts(op, changed, _parts(operands, part), grids, share)
        if start == 0:
            shape = [division.size if axis == division.axis else n for axis, n in enumerate(result.shape)]
            whole = np.empty(shape, result.dtype)
        whole[index] = result
    return [whole]


def _whole(
    op: type[Op], attributes: Attributes, operands: Sequence[Stored | None], results: Sequence[Quantization | None]
) -> list[Array]:
    with np.errstate(all="ignore"):
        made: Any = op.evaluate(attributes, *(None if x is None else x.real for x in operands))
    arrays = [np.asarray(r) for r in (made if isinstance(made, tuple) else (made,))]
    if not any(results):
        return arrays
    return [array if grid is None else quantize(array, grid) for array, grid in zip(arrays, results, strict=True)]


def _parts(operands: Sequence[Stored | None], part: Part) -> list[Stored | None]:
    return [None if x is None else x[index] for x, index in zip(operands, part.operands, strict=True)]


def _division(
    op: type[Op], attributes: Attributes, operands: Sequence[Stored | None], made: int
) -> tuple[Division | None, int]:
    """The division into the smallest parts, and their number; None if the op is small or cannot be divided."""
    arrays = [None if x is None else x.array for x in operands]
    read = sum(x.size for x in arrays if x is not None)
    if 0 < made <= LARGEST - read:
        return None, 1
    divisions = [d for d in op.divisions({**op.defaults, **attributes}, arrays) if d.size > 1]
    made = max(made, math.prod(d.size for d in divisions))
    whole = read + made
    if not divisions or whole <= LARGEST:
        return None, 1

    def largest_part(division: Division) -> int:
        step = -(-division.size // count)
        part = _parts(operands, division.part(0, step))
        return made // division.size * step + sum(x.array.size for x in part if x is not None)

    count = -(-whole // LARGEST)
    best = min(divisions, key=largest_part)
    return (best, count) if largest_part(best) <= _WORTHWHILE * whole else (None, 1)
