"""Large arrays in blocks of elements: a copy of all of them in float64 would take several times their memory."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtfl.ir.data import Array

BLOCK = 1 << 18


def in_blocks(array: Array) -> Iterator[Array]:
    """The elements in C order, `BLOCK` at a time."""
    flat = array.reshape(-1)
    return (flat[at : at + BLOCK] for at in range(0, flat.size, BLOCK))
