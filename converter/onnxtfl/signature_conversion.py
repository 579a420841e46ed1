"""The entry points (signatures) of a TFLite model: their names, and the conversion of each to a separate file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtfl.api import PathLike, tflite_to_onnx
from onnxtfl.arguments import checked, model_kind
from onnxtfl.conversion import Conversion
from onnxtfl.errors import CheckFailedError, OutputError, UsageError


def signatures_to_onnx(
    model: PathLike | bytes,
    directory: PathLike,
    *,
    on_conversion: Callable[[str, Path, Conversion], None] | None = None,
    **options: Any,
) -> dict[str, Conversion]:
    """Convert each signature of a TFLite model to a separate file, KEY.onnx in ``directory``, which is created.

    ``on_conversion``: called with key, path and result of each. ``options``: keyword arguments of `tflite_to_onnx`.
    Returns the conversions by key. Raises the errors of `tflite_to_onnx`, that of a failed check after all conversions,
    and `UsageError` for a model without signatures.
    """
    checked(directory=directory, on_conversion=on_conversion)
    folder, keys = Path(os.fspath(directory)), signatures(model)
    if not keys:
        raise UsageError("the model has no signatures", hint="convert it without a signature", code="E-USE-005")
    with _folder(folder):
        return _converted(model, folder, keys, on_conversion, options)


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Create a folder; if the conversions fail and leave it empty, remove it. Raises OutputError."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the directory {folder}: {error.strerror or error}") from error
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it has files
            if is_new:
                folder.rmdir()
        raise


def _converted(
    model: PathLike | bytes,
    folder: Path,
    keys: Sequence[str],
    on_conversion: Callable[[str, Path, Conversion], None] | None,
    options: dict[str, Any],
) -> dict[str, Conversion]:
    """Return the conversions of all signatures to `folder`, by key."""
    found, failures = dict[str, Conversion](), list[CheckFailedError]()
    for key, name in _file_names(keys).items():
        path = folder / f"{name}.onnx"
        try:
            found[key] = tflite_to_onnx(model, path, signature=key, **options)
        except CheckFailedError as error:
            failures.append(error)
            found[key] = error.conversion
        if found[key] is not None:
            found[key] = replace(found[key], report=replace(found[key].report, other_signatures=()))
        if on_conversion is not None:
            on_conversion(key, path, found[key])
    if failures:
        raise failures[0]
    return found


def _file_names(keys: Sequence[str]) -> dict[str, str]:
    """Return a file name for each key: letters, digits, "_", "-" and "."; two keys have different names."""
    names: dict[str, str] = {}
    for key in keys:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", key).strip(".") or "signature"
        while name.lower() in {other.lower() for other in names.values()}:
            name += "_"
        names[key] = name
    return names


def signatures(model: PathLike | bytes) -> tuple[str, ...]:
    """Return the keys of the signatures of a TFLite model, in its order."""
    from onnxtfl.formats.tflite.reader import read

    model_kind(model, "model", ("a path", "bytes"))

    return tuple(signature.key for signature in read(model).signatures)
