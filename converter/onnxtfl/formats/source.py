"""The file or bytes of a model: opened, recognized by its first bytes, named in errors, read in pages, copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, NoReturn

from onnxtfl import platform_calls
from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.formats import TEXT_HEADS
from onnxtfl.ir.data import PathLike, SourceBytes, SourceFile, TensorData
from onnxtfl.ir.model import FormatName
from onnxtfl.ir.scopes import scope

Content = bytes | bytearray | memoryview
PAGE = 1 << 16
CONTAINER = b"LITERTLM"
"""The first bytes of a .litertlm file, whose sections have TFLite models (:mod:`onnxtfl.formats.litertlm`)."""
MAX_PAGES = 128
_KINDS: tuple[tuple[FormatName | None, int, bytes, str], ...] = (
    ("tflite", 4, b"TFL3", "a TFLite model"),
    ("tflite", 0, CONTAINER, "a LiteRT-LM model"),
    (None, 4, b"ORTM", "a model in ONNX Runtime's own format"),
    (None, 0, b"PK\x03\x04", "a ZIP archive"),
    (None, 0, b"\x89HDF", "an HDF5 file"),
    (None, 0, b"version https://git-lfs", "a Git LFS pointer, in place of the file that it points to"),
    ("onnx", 0, b"\x08", "probably an ONNX model"),
    *(("ir", 0, head, "a neutral graph as text") for head in TEXT_HEADS),
)
_TITLES = {"onnx": "an ONNX model", "tflite": "a TFLite model: the identifier TFL3 is missing"}

_HINTS = {
    **dict.fromkeys(("a TFLite model", "a LiteRT-LM model"), "convert it with `tflite_to_onnx`"),
    "probably an ONNX model": "convert it with `onnx_to_tflite`",
    "a neutral graph as text": "convert it with `onnxtfl build|build_model`",
}


def open_source(model: PathLike | Content) -> SourceFile:
    """Open a model. Raises InvalidModelError if it cannot be read, is empty, or is no regular file."""
    if isinstance(model, Content):
        source: SourceFile = SourceBytes(model, "model")
    elif Path(model).is_dir():
        raise InvalidModelError(f"{os.fspath(model)} is a folder", code="E-FILE-002")
    elif os.fspath(model) in platform_calls.STDIN or (Path(model).exists() and not Path(model).is_file()):
        hint = "name a model file, or `- to read it from standard input|pass its bytes`"
        raise InvalidModelError(f"{os.fspath(model)} is not a regular file", hint=hint, code="E-FILE-002")
    else:
        source = SourceFile(model)
    if not source.size:
        raise InvalidModelError(f"{source.path}: the file is empty", code="E-FILE-003")
    return source


def is_container(source: SourceFile) -> bool:
    """Whether a file is a .litertlm."""
    return source.size >= len(CONTAINER) and source.read(0, len(CONTAINER)) == CONTAINER


def format_of(source: SourceFile, wanted: FormatName | None = None) -> FormatName | None:
    """The format of `source` by its first bytes (ONNX if they are unknown); None for a format that cannot be read.

    Raises InvalidModelError if it is not the `wanted` one.
    """
    head = source.read(0, min(32, source.size))
    kinds = [(format_, what) for format_, offset, magic, what in _KINDS if head[offset:].startswith(magic)]
    found, what = kinds[0] if kinds else ("onnx", "")
    if wanted is not None and found != wanted:
        raise InvalidModelError(
            f"{source.path}: {', '.join(filter(None, (what, f'not {_TITLES[wanted]}')))}",
            hint=_HINTS.get(what),
            code="E-FILE-004",
        )
    return found


@contextmanager
def named(model: object) -> Iterator[None]:
    """Add the name of the model (its path, or "model") to each error; exceeded limits of Python become
    InvalidModelError.
    """
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else "model"
    try:
        yield
    except RecursionError as error:
        raise InvalidModelError(f"{name}: graphs are nested too deeply", code="E-FILE-011") from error
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{name}: malformed: a name is not UTF-8", code="E-FILE-005") from error
    except MemoryError as error:
        raise InvalidModelError(f"{name}: does not fit into memory", code="E-RUN-005") from error
    except OnnxtflError as error:
        if name not in error.message:
            error.message = f"{name}: {error.message}"
        raise


class Source:
    """Bounds-checked random access to a model, with a cache of `MAX_PAGES` pages. Weights are read in other ways."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.size = self.file.size
        self._pages: dict[int, bytes] = {}
        self._start, self._page = 0, b""  # the page of the last access

    def fail(self, message: str) -> NoReturn:
        """Raise InvalidModelError naming the source."""
        raise InvalidModelError(f"{self.file.path}: {message}", code="E-FILE-005")

    def check(self, offset: int, length: int) -> None:
        """Raise InvalidModelError if the byte range is not in the source."""
        if offset < 0 or offset + length > self.size:
            self.fail(f"truncated or corrupt: {length} bytes expected at byte {offset}, the file has {self.size}")

    def read(self, offset: int, length: int) -> bytes:
        """The bytes of the range. Raises InvalidModelError if it is not in the source."""
        page, start = self.view(offset, length)
        return page[start : start + length]

    def view(self, offset: int, length: int) -> tuple[bytes, int]:
        """A part of the source that contains the byte range, and the start of the range in it."""
        start = offset - self._start
        if start >= 0 and start + length <= len(self._page):
            return self._page, start
        self.check(offset, length)
        number, start = divmod(offset, PAGE)
        if start + length > PAGE:
            return self.file.read(offset, length), 0
        self._start, self._page = number * PAGE, self._load(number)
        return self._page, start

    def _load(self, number: int) -> bytes:
        if number not in self._pages:
            if len(self._pages) >= MAX_PAGES:
                self._pages.clear()
            start = number * PAGE
            self._pages[number] = self.file.read(start, min(PAGE, self.size - start))
        return self._pages[number]


_COUNTS: ContextVar[Callable[[int], None] | None] = ContextVar("onnxtfl_written", default=None)


def counting_written(count: Callable[[int], None]) -> AbstractContextManager[object]:
    """Call `count` with the number of bytes of each chunk of weights that `copy_data` writes inside."""
    return scope(_COUNTS, count)


def copy_data(data: TensorData, out: BinaryIO) -> None:
    """Write the packed bytes of `data` in chunks. Raises InvalidModelError if a source file has become shorter."""
    written, count = 0, _COUNTS.get()
    for chunk in data.chunks():
        size = out.write(chunk.data)
        written += size
        if count is not None:
            count(size)
    if written != data.nbytes:
        raise InvalidModelError(f"{written} bytes were read of a constant of {data.nbytes}", code="E-FILE-010")
