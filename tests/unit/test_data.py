"""Lazy tensor data reads the same numbers as NumPy, in pieces and whole."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import data as data_module
from onnxtfl.ir.data import Array, ArrayData, FileData, PaddedData, SourceFile, TensorData
from onnxtfl.ir.types import DType


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that make small tensors go through the paths of big ones."""
    monkeypatch.setattr(data_module, "CHUNK", 64)
    monkeypatch.setattr(data_module, "STRIP", 96)


def on_file(array: np.ndarray, path: Path, dtype: DType | None = None) -> FileData:
    path.write_bytes(b"head" + array.tobytes())
    return FileData(SourceFile(path), 4, dtype or ArrayData(array).dtype, array.shape)


def written(data: TensorData) -> bytes:
    return b"".join(chunk.tobytes() for chunk in data.chunks())


NUMBERS = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(4))))
def test_transposes_are_written_in_strips(tmp_path: Path, permutation: tuple[int, ...]) -> None:
    moved = on_file(NUMBERS, tmp_path / "w").transpose(permutation)
    assert written(moved) == np.ascontiguousarray(NUMBERS.transpose(permutation)).tobytes()
    assert moved.shape == NUMBERS.transpose(permutation).shape


def test_transforms_compose(tmp_path: Path) -> None:
    factors = np.array([2, 3, 4], np.float32)
    data = (
        on_file(NUMBERS, tmp_path / "w").scale(factors, 1).transpose((1, 0, 3, 2)).cast(DType.FLOAT16).reshape((6, 35))
    )
    wanted = (NUMBERS * factors.reshape(1, 3, 1, 1)).transpose(1, 0, 3, 2).astype(np.float16).reshape(6, 35)
    assert written(data) == wanted.tobytes()
    assert np.array_equal(data.numpy(), wanted)


class Watched(FileData):
    """Remembers the most elements that were read at once."""

    most = 0

    def slab(self, axis: int, start: int, stop: int) -> Array:
        part = super().slab(axis, start, stop)
        Watched.most = max(Watched.most, part.size)
        return part

    def reshape(self, shape: Sequence[int]) -> TensorData:
        return Watched(self.file, self.offset, self.dtype, shape)


@pytest.mark.parametrize("permutation", [(0, 2, 3, 1), (2, 3, 1, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
def test_what_is_scaled_cast_and_moved_is_read_in_strips(
    tmp_path: Path, permutation: tuple[int, ...], dtype: DType
) -> None:
    factors = np.array([2, 3, 4], np.float32)
    plain, Watched.most = on_file(NUMBERS, tmp_path / "w"), 0
    data = Watched(plain.file, plain.offset, plain.dtype, plain.shape).scale(factors, 1).cast(dtype)
    wanted = (NUMBERS * factors.reshape(1, 3, 1, 1)).astype(dtype.numpy).transpose(permutation)
    assert written(data.transpose(permutation)) == wanted.tobytes()
    assert Watched.most <= NUMBERS.size / 2
    assert written(data.reshape((6, 35)).transpose((1, 0)).reshape((5, 42))) == wanted_rows(wanted, permutation)


def wanted_rows(moved: Array, permutation: tuple[int, ...]) -> bytes:
    return moved.transpose(np.argsort(permutation)).reshape(6, 35).T.tobytes()


def test_slabs_of_reshaped_numbers(tmp_path: Path) -> None:
    data = on_file(NUMBERS, tmp_path / "w").transpose((1, 0, 3, 2)).reshape((1, 7, 30))
    wanted = NUMBERS.transpose(1, 0, 3, 2).reshape(1, 7, 30)
    for axis in range(3):
        index = (slice(None),) * axis + (slice(0, 1),)
        assert np.array_equal(data.slab(axis, 0, 1), wanted[index])
    assert np.array_equal(data.slab(1, 2, 5), wanted[:, 2:5])


def test_slabs_of_short_and_long_runs(tmp_path: Path) -> None:
    data = on_file(NUMBERS, tmp_path / "w")
    for axis, size in enumerate(NUMBERS.shape):
        index = (slice(None),) * axis + (slice(1, size),)
        assert np.array_equal(data.slab(axis, 1, size), NUMBERS[index])


def test_unit_axes_do_not_hinder_strips(tmp_path: Path) -> None:
    array = NUMBERS.reshape(1, 6, 1, 35)
    data = on_file(array, tmp_path / "w").transpose((0, 2, 3, 1))
    assert written(data) == np.ascontiguousarray(array.transpose(0, 2, 3, 1)).tobytes()


@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT4, DType.INT2])
def test_packed_types_unpack_and_pack(tmp_path: Path, dtype: DType) -> None:
    packed = np.arange(7, dtype=np.uint8) * 37
    count = 7 * 8 // dtype.bits
    (tmp_path / "w").write_bytes(packed.tobytes())
    data = FileData(SourceFile(tmp_path / "w"), 0, dtype, (count,))
    assert written(ArrayData(data.numpy(), dtype)) == packed.tobytes()
    assert written(data) == packed.tobytes()


def test_equal_numbers_have_equal_keys(tmp_path: Path) -> None:
    data = on_file(NUMBERS, tmp_path / "w")
    assert data.transpose((1, 0, 2, 3)).key == data.transpose((1, 0, 2, 3)).key != data.key
    assert ArrayData(NUMBERS).key == ArrayData(NUMBERS.copy()).key
    assert ArrayData(NUMBERS).key != ArrayData(NUMBERS + 1).key


def test_a_file_that_is_cut_is_an_error(tmp_path: Path) -> None:
    data = on_file(NUMBERS, tmp_path / "w")
    (tmp_path / "w").write_bytes(b"head")
    with pytest.raises(InvalidModelError, match="cut off"):
        data.numpy()


def test_scalars(tmp_path: Path) -> None:
    data = on_file(np.array(3.0, np.float32), tmp_path / "w")
    assert data.cast(DType.FLOAT64).numpy() == 3.0
    assert written(data.scale(np.array([2.0], np.float32), 0).reshape((1,))) == np.float32(6).tobytes()


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("permutation", [(0, 1, 2, 3), (3, 0, 1, 2), (1, 3, 2, 0)])
def test_zeros_at_the_end_of_an_axis(tmp_path: Path, axis: int, permutation: tuple[int, ...]) -> None:
    padded = PaddedData(on_file(NUMBERS, tmp_path / "w"), axis, 2).transpose(permutation)
    wanted = np.pad(NUMBERS, [(0, 2 if i == axis else 0) for i in range(4)]).transpose(permutation)
    assert written(padded) == np.ascontiguousarray(wanted).tobytes()
    np.testing.assert_array_equal(padded.numpy(), wanted)
