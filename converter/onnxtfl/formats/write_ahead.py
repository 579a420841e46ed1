"""Writing in a second thread: the next part of a weight is read and transposed while the last one is written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

AHEAD = 8 << 20
"""The most bytes that wait to be written, besides the last part."""
SMALL = 1 << 16
"""Parts of fewer bytes are written at once where none is waiting."""


@contextmanager
def writing_ahead(out: BinaryIO) -> Iterator[BinaryIO]:
    """A stream with `write` only, whose parts are written to `out` in order, all of them when the context ends.

    A part must not change until then. An error of writing is raised by a later `write`, or at the end.
    """
    stream = _Stream(out)
    try:
        yield cast(BinaryIO, stream)
        stream.finish()
    finally:
        stream.close()


class _Stream:
    """`waiting`: the parts that the thread writes, of `size` bytes; None is the last one."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._waiting: deque[memoryview | None] = deque()
        self._size = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, part: bytes | memoryview) -> int:
        """Write `part` now or later; returns its size in bytes."""
        view = memoryview(part).cast("B")
        if not self._size and len(view) < SMALL and self._error is None:
            return self._out.write(view)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        with self._changed:
            self._wait(AHEAD)
            self._waiting.append(view)
            self._size += len(view)
            self._changed.notify_all()
        return len(view)

    def finish(self) -> None:
        """Wait until all is written."""
        with self._changed:
            self._wait(0)

    def close(self) -> None:
        """End the thread after the part that it is writing."""
        if self._thread is not None:
            with self._changed:
                self._waiting.clear()
                self._waiting.append(None)
                self._changed.notify_all()
            self._thread.join()

    def _wait(self, most: int) -> None:
        """Wait until at most `most` bytes are waiting; raise what failed."""
        while self._size > most and self._error is None:
            self._changed.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                part = self._waiting.popleft()
            if part is None:
                return
            try:
                self._out.write(part)
            except BaseException as error:
                self._error = error
            with self._changed:
                self._size -= len(part)
                self._changed.notify_all()
            del part  # its array, which may be large
