"""Run a model with inputs and outputs by name (the runtime adapters use positions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onnxtfl.checking.models.copies import exact_copy
from onnxtfl.formats import files
from onnxtfl.inputs.description import ModelInfo, describe
from onnxtfl.runtimes import RunOptions, Runtime, Worker

DEFAULT = RunOptions()


def described(path: Path) -> ModelInfo:
    """The inputs and outputs of the model in a file."""
    return describe(path, files.read(path))


def run_named(
    runtime: Runtime,
    path: Path,
    inputs: Mapping[str, Any] | Sequence[Any],
    options: RunOptions = DEFAULT,
    worker: Worker | None = None,
) -> dict[str, Any]:
    """The outputs of the model in a file by name; `inputs` by name or in its order."""
    info = described(path)
    values = [inputs[spec.name] for spec in info.inputs] if isinstance(inputs, Mapping) else inputs
    with TemporaryDirectory() as folder:
        path = exact_copy(path, Path(folder)) or path
        outputs = run_once(runtime, path, values, options) if worker is None else worker.run(path, values, options)
    return dict(zip((spec.name for spec in info.outputs), outputs, strict=True))


def run_once(runtime: Runtime, path: Path, inputs: Sequence[Any], options: RunOptions = DEFAULT) -> list[Any]:
    """The outputs of the model in a file, run in a separate process."""
    with runtime.worker() as worker:
        return worker.run(path, inputs, options)
