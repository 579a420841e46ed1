"""Random access to a .tflite file or its bytes, every access checked, tables read a page at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.data import SourceBytes, SourceFile

PAGE = 1 << 16
MAX_PAGES = 128


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that stay where they are in the source."""

    offset: int
    length: int


class Source:
    """Where a model is read from: pages of it are kept for a while, weights are not read at all."""

    def __init__(self, model: str | os.PathLike[str] | bytes | bytearray | memoryview) -> None:
        if isinstance(model, (bytes, bytearray, memoryview)):
            self.file: SourceFile = SourceBytes(model, "model")
        else:
            if Path(model).exists() and not Path(model).is_file():
                raise InvalidModelError(f"{model}: not a regular file")
            self.file = SourceFile(model)
        self.size = self.file.size
        self._pages: dict[int, bytes] = {}
        self._start, self._page = 0, b""  # the page that was used last

    def fail(self, message: str) -> NoReturn:
        """Raise InvalidModelError naming the source."""
        raise InvalidModelError(f"{self.file.path}: {message}")

    def check(self, offset: int, length: int) -> None:
        """Make sure that the source holds these bytes; InvalidModelError where it does not."""
        if offset < 0 or offset + length > self.size:
            self.fail(f"cut off or garbled: {length} bytes wanted at {offset}, the file has {self.size}")

    def read(self, offset: int, length: int) -> bytes:
        """These bytes; InvalidModelError where the source ends before."""
        page, place = self.view(offset, length)
        return page[place : place + length]

    def view(self, offset: int, length: int) -> tuple[bytes, int]:
        """Some bytes of the source, and the place in them where the bytes asked for begin."""
        place = offset - self._start
        if place >= 0 and place + length <= len(self._page):
            return self._page, place
        self.check(offset, length)
        number, place = divmod(offset, PAGE)
        if place + length > PAGE:
            return self.file.read(offset, length), 0
        self._start, self._page = number * PAGE, self._load(number)
        return self._page, place

    def _load(self, number: int) -> bytes:
        if number not in self._pages:
            if len(self._pages) >= MAX_PAGES:
                self._pages.clear()
            start = number * PAGE
            self._pages[number] = self.file.read(start, min(PAGE, self.size - start))
        return self._pages[number]
