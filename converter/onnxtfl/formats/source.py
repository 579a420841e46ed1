"""The file or bytes of a model: opened, recognized by its first bytes, and named in errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.ir.data import SourceBytes, SourceFile
from onnxtfl.ir.model import FormatName

PathLike = str | os.PathLike[str]
Content = bytes | bytearray | memoryview
_KINDS: tuple[tuple[FormatName | None, int, bytes, str], ...] = (
    ("tflite", 4, b"TFL3", "a TFLite model"),
    (None, 4, b"ORTM", "a model in ONNX Runtime's own format"),
    (None, 0, b"PK\x03\x04", "a ZIP archive"),
    (None, 0, b"\x89HDF", "an HDF5 file"),
    (None, 0, b"version https://git-lfs", "a Git LFS pointer, in place of the file that it points to"),
    ("onnx", 0, b"\x08", "probably an ONNX model"),
)
_TITLES = {"onnx": "an ONNX model", "tflite": "a TFLite model: the identifier TFL3 is missing"}


def open_source(model: PathLike | Content) -> SourceFile:
    """Open a model; InvalidModelError where it cannot be read, is empty, or is no regular file."""
    if isinstance(model, Content):
        source: SourceFile = SourceBytes(model, "model")
    elif Path(model).exists() and not Path(model).is_file():
        raise InvalidModelError(f"{os.fspath(model)}: not a regular file")
    else:
        source = SourceFile(model)
    if not source.size:
        raise InvalidModelError(f"{source.path}: the file is empty")
    return source


def format_of(source: SourceFile, wanted: FormatName | None = None) -> FormatName | None:
    """The format of `source` by its first bytes (ONNX where they are unknown), None for one that cannot be read.

    InvalidModelError where it is not the `wanted` one.
    """
    head = source.read(0, min(32, source.size))
    kinds = [(format_, what) for format_, offset, magic, what in _KINDS if head[offset:].startswith(magic)]
    found, what = kinds[0] if kinds else ("onnx", "")
    if wanted is not None and found != wanted:
        raise InvalidModelError(f"{source.path}: {', '.join(filter(None, (what, f'not {_TITLES[wanted]}')))}")
    return found


@contextmanager
def named(model: object) -> Iterator[None]:
    """Name the model (its path, or "model") in each error; limits of Python become InvalidModelError."""
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else "model"
    try:
        yield
    except RecursionError as error:
        raise InvalidModelError(f"{name}: graphs are nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{name}: malformed: a name is not UTF-8") from error
    except MemoryError as error:
        raise InvalidModelError(f"{name}: does not fit into memory") from error
    except OnnxtflError as error:
        if name not in error.message:
            error.message = f"{name}: {error.message}"
        raise
