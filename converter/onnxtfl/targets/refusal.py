"""Why a target does not take a form, said so that the legalizer can do something about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["dtype", "rank", "op", "quantization", "other"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A form that the target does not take.

    `kind` and `allowed` (what would be taken):

    - "dtype": a frozenset of DType; a cast of `operands` (and back of `results`) to one of them helps.
    - "quantization": a frozenset of the storage DType that quantized tensors may have; empty where none may be.
    - "rank": the highest rank (int).
    - "other": an option, an operand that has to be constant; the values allowed, or None.
    - "op": the target has no such op; None.

    `operands` and `results`: indices of those at fault; all that share one element type are named together.
    """

    kind: Kind
    message: str
    allowed: Any = None
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
