"""Why a target does not take a form, said so that the legalizer can do something about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnxtfl.ir.types import DType

Kind = Literal["dtype", "rank", "op", "quantization", "other"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A form that the target does not take.

    `kind`:

    - "dtype": a cast of `operands` (and back of `results`) to an element type of `allowed` helps.
    - "quantization": likewise, `allowed` being the storage types that quantized tensors may have (none: no kernel).
    - "rank": no more than `limit` axes are taken (where shapes differ, if that is said in the message).
    - "other": an option, or an operand that has to be constant, or the number of operands.
    - "op": the target has no such op.

    `operands` and `results`: indices of those at fault; all that share one element type are named together.
    """

    kind: Kind
    message: str
    allowed: frozenset[DType] = frozenset()
    limit: int = 0
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
