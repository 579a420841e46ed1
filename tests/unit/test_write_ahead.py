"""Weights are written in a second thread: in order, with bounded memory, and no error is lost."""

from __future__ import annotations

import io
import threading

import pytest

from onnxtfl.formats.write_ahead import AHEAD, SMALL, writing_ahead


class _Slow(io.BytesIO):
    """A file that is written only after `may_write` is set, by which thread it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.writers = set[threading.Thread]()

    def write(self, part: object) -> int:
        self.may_write.wait(60)
        self.writers.add(threading.current_thread())
        return super().write(part)  # type: ignore[arg-type]


class _Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, part: object) -> int:
        raise OSError(28, "No space left on device")


def test_parts_are_written_in_order_while_the_caller_computes() -> None:
    out, parts = _Slow(), [bytes([k]) * size for k, size in enumerate((SMALL, 3, 2 * SMALL, 0, SMALL, 1))]
    with writing_ahead(out) as ahead:
        assert [ahead.write(part) for part in parts] == list(map(len, parts))
        out.may_write.set()
    assert out.getvalue() == b"".join(parts)
    assert threading.current_thread() not in out.writers


def test_few_bytes_wait() -> None:
    out, part, done = _Slow(), bytes(AHEAD), list[int]()

    def write() -> None:
        with writing_ahead(out) as ahead:
            done.extend(ahead.write(part) for _ in range(4))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.5)
    assert len(done) == 2  # one is being written, one waits
    out.may_write.set()
    thread.join(60)
    assert out.tell() == 4 * len(part)


@pytest.mark.parametrize("size", [1, SMALL, AHEAD])
def test_an_error_of_writing_is_raised(size: int) -> None:
    with pytest.raises(OSError, match="No space left"), writing_ahead(_Full()) as ahead:
        ahead.write(bytes(size))


def test_an_error_of_the_caller_ends_the_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="mine"), writing_ahead(io.BytesIO()) as ahead:
        ahead.write(bytes(SMALL))
        raise ValueError("mine")
    assert threading.active_count() == before
