"""The origin of a value: a tensor of the source model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxtfl.ir.dims import Shape
from onnxtfl.ir.quantization import Quantization


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor of the source model that is stored in a value: reshaped to `shape`, then transposed by `permutation`.

    `shape` None: not reshaped. Axis i of the value is axis `permutation[i]`; None: not transposed.
    """

    tensor: str
    permutation: tuple[int, ...] | None = None
    quantization: Quantization | None = None
    shape: Shape | None = None

    def permuted(self, permutation: Sequence[int]) -> Origin:
        """The origin of the transposed value."""
        before = self.permutation or tuple(range(len(permutation)))
        after = tuple(before[p] for p in permutation)
        return replace(self, permutation=None if after == tuple(range(len(after))) else after)

    def reshaped(self, shape: Shape) -> Origin | None:
        """The origin of the reshaped value; None if it was transposed before."""
        return replace(self, shape=shape) if self.permutation is None else None
