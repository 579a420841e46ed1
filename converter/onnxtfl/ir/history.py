"""The history of nodes: the rules and passes that made them, and what these tell for the report of a conversion."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

Kind = Literal["island", "float", "bias", "kernel", "dynamic"]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a user should know about a node and the nodes that replace it.

    `kind`:

    - "island": the op `op` is quantized in the source and computes in float, because of `text`.
    - "float": the op `op` of the source reads or makes float tensors next to quantized ones; `text` says which.
    - "bias": the bias has another scale than in the source; `text` names both.
    - "dynamic": the op `op` multiplies what the source quantizes at run time; `text` is the name of its result.
    - "kernel": the source's runtime computes something else than the op `op` means; `text` says what.
    """

    kind: Kind
    op: str
    text: str


@functools.lru_cache(4096)
def with_name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """`names` and `name`, once; nodes with the same history share one tuple."""
    return names if name in names else (*names, name)
