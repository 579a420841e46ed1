"""The user's files of arrays, for a check or for calibration."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np

from onnxtfl.errors import UsageError
from onnxtfl.ir.data import Array, PathLike

_DAMAGED = (ValueError, EOFError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""What NumPy and zipfile raise for files that are no archives of arrays, damaged, or encrypted."""


def data_files(path: PathLike, code: str = "E-USE-002") -> list[Path]:
    """The .npz file at ``path``, or all in that directory, in the order of their names.

    Raises `UsageError` (with ``code``) if there is none.
    """
    path = Path(path)
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UsageError(f"{path} is not a regular file", hint="name an .npz file, or a folder of them", code=code)
    found = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not found:
        hint = "write one for each set of inputs, with numpy.savez"
        raise UsageError(f"{path} has no .npz files", hint=hint, code=code)
    return found


def read_arrays(file: Path, code: str = "E-USE-002") -> dict[str, Array]:
    """The arrays of an .npz file by name; that of an .npy file is "arr_0". Raises `UsageError` if there are none."""
    hint = "write it with numpy.savez, with an array for each input"
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):  # an .npy file
            return {"arr_0": loaded}
        with loaded as arrays:
            found = {name: arrays[name] for name in arrays.files}
        if other := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{other[0]} is no array")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}", code=code) from error
    except MemoryError as error:
        raise UsageError(
            f"{file} has arrays that do not fit into memory", hint="write fewer samples", code=code
        ) from error
    except _DAMAGED as error:
        raise UsageError(f"{file} is not an .npz file of numbers", hint=hint, code=code) from error
    if not found:
        raise UsageError(f"{file} has no arrays", hint=hint, code=code)
    return found
