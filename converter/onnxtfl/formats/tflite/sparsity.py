"""Sparse constants, expanded to dense ones on access.

Source: schema.fbs (SparsityParameters), LiteRT's sparsity_format_converter.cc. The stored elements are the leaves of a
tree whose levels are the dimensions in traversal order, then those of the blocks: a dense level has every index, a
compressed one (CSR) the slices of `array_indices` between consecutive entries of `array_segments`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.data import Array, ArrayData, TensorData, unpack
from onnxtfl.ir.types import DType

_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class _Level:
    """One dimension: `size` of a dense one, segments and indices of a compressed one."""

    size: int
    segments: Array | None
    indices: Array | None

    def expand(self, count: int, limit: int) -> tuple[Array, Array]:
        """The parent of each child of `count` parents, and its index. Raises ValueError if the level is malformed."""
        if self.segments is None or self.indices is None:
            if self.size < 0 or count * self.size > limit:
                raise ValueError("a dense level is larger than the tensor")
            return np.repeat(np.arange(count), self.size), np.tile(np.arange(self.size), count)
        counts = np.diff(self.segments)
        is_whole = len(self.segments) == count + 1 and self.segments[0] == 0 and self.segments[-1] == len(self.indices)
        if not is_whole or (counts < 0).any():
            raise ValueError("the segments do not fit the parent level or the indices")
        return np.repeat(np.arange(count), counts), self.indices


class SparseData(TensorData):
    """A sparse constant; `stored`: the bytes of its elements, `table`: its SparsityParameters."""

    def __init__(
        self, stored: TensorData, dtype: DType, shape: tuple[int, ...], table: Mapping[str, Any], name: str
    ) -> None:
        self.stored, self.dtype, self.shape, self.name = stored, dtype, shape, name
        self._order = table["traversal_order"] or ()
        self._block_map = table["block_map"] or ()
        self._levels = [_level(metadata) for metadata in table["dim_metadata"] or ()]
        rank, blocks = len(shape), len(self._block_map)
        if self.nbytes > _LIMIT or dtype is DType.STRING:
            raise UnsupportedError("a sparse tensor of over 2 GB, or of strings", node=name, code="E-OP-008")
        if (
            sorted(self._order[:rank]) != list(range(rank))
            or sorted(self._order[rank:]) != list(range(rank, rank + blocks))
            or len(self._levels) != rank + blocks
            or not set(self._block_map) <= set(range(rank))
        ):
            raise self._malformed("its levels do not fit its shape")
        read = [self._levels[number].size for number in self._order[rank:]]  # by sparsity_format_converter.cc
        if read != [self._block_size(rank + i) for i in range(blocks)] or sorted(self._block_map) != [*self._block_map]:
            raise UnsupportedError("a sparse tensor with blocks in an order that LiteRT misreads", node=name)

    @property
    def key(self) -> Hashable:
        return ("sparse", self.stored.key, self.dtype, self.shape, self.name)

    def numpy(self) -> Array:
        dense = np.zeros(self.shape, self.dtype.numpy)
        try:
            indices = self._indices()
            stored = unpack(self.stored.numpy(), self.dtype, (len(indices[0]) if indices else 1,))
            dense[tuple(indices)] = stored
        except (ValueError, IndexError) as error:
            raise self._malformed(str(error)) from error
        return dense

    def chunks(self) -> Iterator[Array]:
        return ArrayData(self.numpy(), self.dtype).chunks()

    def _indices(self) -> list[Array]:
        """The indices of the stored elements: one array for each dimension of the dense tensor."""
        rank, count = len(self.shape), 1
        indices: dict[int, Array] = {}
        for number, level in zip(self._order, self._levels, strict=True):
            parents, own = level.expand(count, math.prod(self.shape))
            indices = {key: value[parents] for key, value in indices.items()}
            indices[number], count = own, len(own)
        for i, dim in enumerate(self._block_map):
            indices[dim] = indices[dim] * self._block_size(rank + i) + indices[rank + i]
        if any((indices[dim] < 0).any() for dim in range(rank)):
            raise ValueError("an index is negative")
        return [indices[dim] for dim in range(rank)]

    def _block_size(self, number: int) -> int:
        return self._levels[self._order.index(number)].size

    def _malformed(self, why: str) -> InvalidModelError:
        return InvalidModelError(f"malformed sparse tensor: {why}", node=self.name, code="E-FILE-010")


def _level(metadata: Mapping[str, Any]) -> _Level:
    if metadata["format"] != "SPARSE_CSR":
        return _Level(metadata["dense_size"], None, None)
    segments, indices = (_vector(metadata[key]) for key in ("array_segments", "array_indices"))
    return _Level(metadata["dense_size"], segments, indices)


def _vector(member: tuple[Any, Mapping[str, Any]] | None) -> Array:
    values = member[1]["values"] if member else None
    if isinstance(values, bytes):
        return np.frombuffer(values, np.uint8).astype(np.int64)
    return np.asarray(values or (), np.int64)
