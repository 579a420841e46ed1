"""Sparse constants of TFLite files: every form that LiteRT's DENSIFY makes dense is read the same way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.tflite import schema
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_tflite_reader import minimal, table

VECTORS = {"Int32Vector": 1, "Uint16Vector": 2, "Uint8Vector": 3}
TYPES = {"float32": "FLOAT32", "float16": "FLOAT16", "int8": "INT8"}


class Stored:
    """An array as levels (D: dense, S: compressed) of its dimensions and blocks in `order`."""

    def __init__(self, dense: Array, order: Sequence[int], levels: str, blocks: dict[int, int], vector: str) -> None:
        self.levels, self.data, self.vector = levels, list[Any](), vector
        sizes = [size // blocks.get(d, 1) for d, size in enumerate(dense.shape)] + list(blocks.values())
        expanded = np.zeros(sizes, dense.dtype)
        for place in itertools.product(*map(range, sizes)):
            found = list(place[: dense.ndim])
            for k, (d, size) in enumerate(blocks.items()):
                found[d] = found[d] * size + place[dense.ndim + k]
            expanded[place] = dense[tuple(found)]
        ordered = expanded.transpose(order)
        self.segments, self.indices = [[0] for _ in levels], [list[int]() for _ in levels]
        self._store(0, ordered)
        self.table = {
            "traversal_order": tuple(order),
            "block_map": tuple(blocks) or None,
            "dim_metadata": [self._level(i, size) for i, size in enumerate(ordered.shape)],
        }

    def _store(self, level: int, part: Array) -> None:
        if level == len(self.levels):
            self.data.append(part)
            return
        for i in range(len(part)):
            if self.levels[level] == "D":
                self._store(level + 1, part[i])
            elif np.any(part[i]):
                self.indices[level].append(i)
                self._store(level + 1, part[i])
        self.segments[level].append(len(self.indices[level]))

    def _level(self, i: int, size: int) -> dict[str, Any]:
        if self.levels[i] == "D":
            return {"format": "DENSE", "dense_size": size}
        kind = VECTORS[self.vector]
        fields: dict[str, Any] = {"format": "SPARSE_CSR", "dense_size": 0}
        for name, numbers in (("array_segments", self.segments[i]), ("array_indices", self.indices[i])):
            values = bytes(numbers) if self.vector == "Uint8Vector" else tuple(numbers)
            fields |= {f"{name}_type": kind, name: (schema.table(self.vector), {"values": values})}
        return fields


def densify(dense: Array, stored: Stored) -> bytes:
    """A model of DENSIFY on the constant."""
    kind, shape = TYPES[dense.dtype.name], dense.shape
    tensors = [
        table("Tensor", shape=shape, name="x"),
        table("Tensor", shape=shape, name="s", type=kind, buffer=1, sparsity=stored.table),
        table("Tensor", shape=shape, name="d", type=kind),
    ]
    return minimal(
        [table("Operator", inputs=(1,), outputs=(2,))],
        (2,),
        tensors,
        buffers=[{}, {"data": np.asarray(stored.data, dense.dtype).tobytes()}],
        operator_codes=[table("OperatorCode", builtin_code="DENSIFY", deprecated_builtin_code=124)],
    )


def values(*shape: int, dtype: str, share: float = 0.3) -> Array:
    random = np.random.default_rng(5)
    return np.asarray(random.integers(-9, 9, shape) * (random.random(shape) < share)).astype(dtype)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "order", "levels", "blocks"),
    [
        ((6,), (0,), "S", {}),
        ((4, 5), (0, 1), "DS", {}),
        ((4, 5), (1, 0), "SS", {}),
        ((4, 6), (0, 1, 2), "DSD", {1: 3}),
        ((4, 6), (1, 0, 3, 2), "DSDD", {0: 2, 1: 3}),
        ((2, 4, 6), (2, 0, 1, 3), "SDSD", {2: 2}),
    ],
    ids=str,
)
def test_a_sparse_constant_is_what_densify_makes(
    shape: tuple[int, ...], order: tuple[int, ...], levels: str, blocks: dict[int, int], dtype: str, vector: str
) -> None:
    dense = values(*shape, dtype=dtype)
    model = densify(dense, Stored(dense, order, levels, blocks, vector))
    x = {"x": np.zeros(shape, np.float32)}
    ((_, wanted),) = run_tflite(model, x, kernels="builtin")
    np.testing.assert_array_equal(wanted, dense)
    np.testing.assert_array_equal(run_onnx(onnxtfl.tflite_to_onnx(model, check=False).data or b"", x)["d"], wanted)


def test_a_sparse_constant_may_store_nothing() -> None:
    dense = np.zeros((2, 3), np.float32)
    model = densify(dense, Stored(dense, (0, 1), "DS", {}, "Int32Vector"))
    found = run_onnx(onnxtfl.tflite_to_onnx(model, check=False).data or b"", {"x": dense})
    np.testing.assert_array_equal(found["d"], dense)


def test_blocks_whose_sizes_the_kernel_mixes_up_are_refused() -> None:
    """LiteRT takes the size of a block from the level of another one, and writes elements to other places."""
    dense = values(2, 6, 8, dtype="float32")
    model = densify(dense, Stored(dense, (0, 1, 2, 5, 3, 4), "DDSDDD", {0: 2, 1: 3, 2: 2}, "Uint8Vector"))
    with pytest.raises(UnsupportedError, match="in an order that LiteRT misreads"):
        onnxtfl.tflite_to_onnx(model, check=False)
