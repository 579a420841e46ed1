"""Quantization parameters as a part of a tensor's type: real = scale * (stored - zero_point)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantization:
    """How real numbers are stored as integers; carried bit for bit, never re-estimated.

    One scale and zero point for the tensor (`axis` None), one for each index of `axis`, or one for each block of
    `block` elements along `axis` (then `scales` is row-major over the blocked shape).
    `scales` are the float32 values widened to Python floats, which keeps them exact.
    """

    storage: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points):
            raise ValueError(f"{len(self.scales)} scales but {len(self.zero_points)} zero points")
        if self.axis is None and len(self.scales) != 1:
            raise ValueError("several scales need an axis")

    @property
    def per_tensor(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return self.axis is None

    def __str__(self) -> str:
        where = "" if self.axis is None else f" axis={self.axis}"
        where += "" if self.block is None else f" block={self.block}"
        pairs = " ".join(f"{s!r}:{z}" for s, z in zip(self.scales, self.zero_points, strict=True))
        return f"quant<{self.storage}{where} {pairs}>"
