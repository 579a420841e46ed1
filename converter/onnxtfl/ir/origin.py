"""The origin of a value: a tensor of the source model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.quantization import Quantization


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor of the source model that is stored in a value: reshaped to `shape`, then transposed by `permutation`.

    `shape` None: not reshaped. Axis i of the value is axis `permutation[i]`; None: not transposed.
    `pairs`: its complex elements are pairs of real ones along the last axis of the value.
    """

    tensor: str
    permutation: tuple[int, ...] | None = None
    quantization: Quantization | None = None
    shape: Shape | None = None
    pairs: bool = False

    def permuted(self, permutation: Sequence[int]) -> Origin:
        """The origin of the transposed value."""
        before = self.permutation or tuple(range(len(permutation)))
        after = tuple(before[p] for p in permutation)
        order = None if after == tuple(range(len(after))) else after
        return Origin(self.tensor, order, self.quantization, self.shape, self.pairs)

    def reshaped(self, shape: Shape, before: Shape | None = None) -> Origin | None:
        """The origin of the reshaped value; None if that moves elements which were transposed before.

        `before`: the shape of the value, of which unit axes may be added and left out after a transpose.
        """
        if self.permutation is None:
            return replace(self, shape=shape)
        wide = [(p, n) for p, n in zip(self.permutation, before or (), strict=False) if n != 1]
        if not wide or [n for _, n in wide] != [n for n in shape if n != 1]:
            return None
        sources = iter([p for p, _ in wide])
        places = [-1 if n == 1 else next(sources) for n in shape]
        order = sorted(range(len(shape)), key=places.__getitem__)
        moved = replace(self, permutation=None, shape=tuple(shape[axis] for axis in order))
        return moved.permuted([order.index(axis) for axis in range(len(shape))])


class HasOrigins:
    """Base of values: the tensors of the source that a value represents, in order of addition.

    Thousands of outputs may be one value: origins that are added are kept in a dict until they are read.
    """

    __slots__ = ("_origins",)

    def __init__(self) -> None:
        self._origins: dict[Origin, None] | tuple[Origin, ...] = ()

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The tensors of the source that this value represents."""
        if isinstance(self._origins, dict):
            self._origins = tuple(self._origins)
        return self._origins

    @origins.setter
    def origins(self, origins: Iterable[Origin]) -> None:
        self._origins = tuple(origins)

    @property
    def origin(self) -> Origin | None:
        """The first of `origins`."""
        return self.origins[0] if self.origins else None

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        self.origins = () if origin is None else (origin,)

    def add_origins(self, origins: Iterable[Origin | None]) -> None:
        """Append to `self.origins` those that it does not contain."""
        added = [o for o in origins if o is not None and (not self._origins or o not in self._origins)]
        if not added:
            return
        if not self._origins:
            self._origins = tuple(dict.fromkeys(added)) if len(added) > 1 else (added[0],)
            return
        if isinstance(self._origins, tuple):
            self._origins = dict.fromkeys(self._origins)
        self._origins.update(dict.fromkeys(added))
