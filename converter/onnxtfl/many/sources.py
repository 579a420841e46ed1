"""The models that several paths name, and the path of each result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxtfl.errors import InvalidModelError, UsageError

SUFFIXES = {"tflite": (".onnx",), "onnx": (".tflite", ".lite", ".litertlm")}
"""By the format of the result, the suffixes of the models in a folder."""


@dataclass(frozen=True)
class Pair:
    """The path of a model and that of its result."""

    source: Path
    target: Path


def pairs_of(models: Iterable[str | os.PathLike[str]], directory: str | os.PathLike[str], to: str) -> list[Pair]:
    """Return the models and their results in ``directory``, with the structure of the folders kept.

    Raises InvalidModelError for a path that does not exist, UsageError for two models with the same result, and if
    there is no model.
    """
    folder, found, owners = Path(directory), list[Pair](), dict[Path, Path]()
    names = [os.fspath(model) for model in models]
    for source, place in (pair for name in names for pair in _models(Path(name), folder, to)):
        target = folder / place.with_suffix(f".{to}")
        if target in owners and owners[target] == source:
            continue
        if target in owners:
            message = f"{owners[target]} and {source} would both become {target}"
            raise UsageError(message, hint="convert them into different folders", code="E-USE-006")
        owners[target] = source
        found.append(Pair(source, target))
    if not found:
        wanted = " or ".join(SUFFIXES[to])
        raise UsageError(f"there is no {wanted} file in {', '.join(names) or 'no folder'}", code="E-USE-006")
    return found


def _models(path: Path, output: Path, to: str) -> Iterator[tuple[Path, Path]]:
    """Yield each model of a path with its path in the output folder, whose contents are not sources."""
    if not path.is_dir():
        if not path.exists():
            raise InvalidModelError(f"{path}: No such file or folder", code="E-FILE-001")
        yield path, Path(path.name)
        return
    inside = output.resolve()
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and (here / f).resolve() != inside)
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES[to]) and not name.startswith("."):
                yield here / name, (here / name).relative_to(path)
