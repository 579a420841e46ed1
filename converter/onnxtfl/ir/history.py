"""The history of nodes: the rules and passes that created them, and their remarks for the report."""

from __future__ import annotations

import functools
from typing import Literal

from onnxtfl.dataclass import dataclass

Kind = Literal["island", "faster", "float", "bias", "kernel", "dynamic", "rounded"]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a user should know about a node and the nodes that replace it.

    `kind`:

    - "island": the op `op` is quantized in the source and computes in float, because of `text`.
    - "faster": the op `op` is quantized in the source and computes in float, which is faster, as `text` says.
    - "float": the op `op` of the source has float tensors next to quantized ones; `text` names them.
    - "bias": the bias has another scale than in the source; `text` names both.
    - "dynamic": the op `op` multiplies dynamically quantized values; `text` is the name of its result.
    - "rounded": the scales of the weights of `op` become the nearest float16; `text` is the name of its result.
    - "kernel": the source's runtime deviates from the meaning of the op `op`, as `text` describes.
    """

    kind: Kind
    op: str
    text: str


@functools.lru_cache(4096)
def with_name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """`names` and `name`, once; nodes with the same history share one tuple."""
    return names if name in names else (*names, name)
