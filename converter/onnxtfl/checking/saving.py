"""Write the inputs of a check, and the outputs of both models, as .npz files that NumPy and `onnxtfl check` read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.models.side import Side
from onnxtfl.errors import OutputError
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.ir.data import PathLike


def save_run(
    folder: PathLike,
    number: int,
    sides: tuple[Side, Side],
    values: Sequence[Any],
    outputs: tuple[Sequence[Any], Sequence[Any]],
) -> None:
    """Write ``inputs-K.npz``, ``outputs-a-K.npz`` and ``outputs-b-K.npz`` for set ``number`` of inputs: arrays by name.

    Raises `OutputError` if the folder cannot be written.
    """
    path, (a, b) = Path(folder), sides
    try:
        path.mkdir(parents=True, exist_ok=True)
        _save(path / f"inputs-{number}.npz", a.info.inputs, values)
        _save(path / f"outputs-a-{number}.npz", a.info.outputs, outputs[0])
        _save(path / f"outputs-b-{number}.npz", b.info.outputs, outputs[1])
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror or error}") from error


def _save(path: Path, infos: Sequence[TensorInfo], values: Sequence[Any]) -> None:
    arrays = {info.name: value for info, value in zip(infos, values, strict=True) if isinstance(value, np.ndarray)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
