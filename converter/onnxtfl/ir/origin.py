"""Where a value comes from: a tensor of the source model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxtfl.ir.dims import Shape
from onnxtfl.ir.quantization import Quantization


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor of the source model that a value holds: reshaped to `shape`, then with permuted axes.

    `shape` is None where it is the source's own. `permutation[i]` is the axis that became axis i; None: none moved.
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
        """The origin of the reshaped value; None where axes were permuted before."""
        return replace(self, shape=shape) if self.permutation is None else None
