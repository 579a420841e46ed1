"""Bounds-checked random access to a .tflite file or its bytes, read in pages of 64 KB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.source import Content, PathLike, open_source

PAGE = 1 << 16
MAX_PAGES = 128


@dataclass(frozen=True, slots=True)
class Span:
    """A byte range of the source."""

    offset: int
    length: int


class Source:
    """The file or bytes of a model, with a cache of up to `MAX_PAGES` pages; weights are not read through it."""

    def __init__(self, model: PathLike | Content) -> None:
        self.file = open_source(model)
        self.size = self.file.size
        self._pages: dict[int, bytes] = {}
        self._start, self._page = 0, b""  # the page of the last access

    def fail(self, message: str) -> NoReturn:
        """Raise InvalidModelError naming the source."""
        raise InvalidModelError(f"{self.file.path}: {message}")

    def check(self, offset: int, length: int) -> None:
        """Raise InvalidModelError where the byte range is not in the source."""
        if offset < 0 or offset + length > self.size:
            self.fail(f"truncated or corrupt: {length} bytes expected at byte {offset}, the file has {self.size}")

    def read(self, offset: int, length: int) -> bytes:
        """The bytes of the range; InvalidModelError where it is not in the source."""
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
