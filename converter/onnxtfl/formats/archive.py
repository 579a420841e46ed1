"""Associated files of a model: a zip archive at the end of a .tflite file.

It is copied without decompression: only the offsets in its directory depend on its position in the file.
Source: APPNOTE.TXT of the zip format, sections 4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from onnxtfl.formats.source import copy_data
from onnxtfl.ir.data import ArrayData, FileData, SourceBytes, SourceFile
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.metadata import Archive

MAX_DIRECTORY = 1 << 20
MAX_EXPANDED = 1 << 20
"""The most bytes that are decompressed, of all files together."""
_END, _ENTRY, _FILE = b"PK\x05\x06", b"PK\x01\x02", b"PK\x03\x04"
_END_SIZE, _ENTRY_SIZE = 22, 46
_MAX_COMMENT = (1 << 16) - 1
_MAX_OFFSET = (1 << 32) - 1


def find_archive(file: SourceFile, header: int = 0) -> Archive | None:
    """The archive at the end of `file`, after at least `header` bytes; None without one.

    None also for archives of more than 4 GB, with a directory of more than 1 MB, and malformed ones.
    """
    start = max(header, file.size - _END_SIZE - _MAX_COMMENT)
    tail = file.read(start, max(0, file.size - start))
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        return None
    *_, count, size, offset, comment = struct.unpack("<HHHHIIH", tail[at + 4 : at + _END_SIZE])
    directory = start + at - size
    if at + _END_SIZE + comment != len(tail) or size > MAX_DIRECTORY or directory < header:
        return None
    entries = bytearray(file.read(directory, size))
    places = list(_entries(entries))
    if len(places) != count:
        return None
    moved = directory - offset
    first = min((_offset(entries, p) + moved for p in places), default=directory)
    if not header <= first <= directory or (places and file.read(first, 4) != _FILE):
        return None
    _shift(entries, places, moved - first)
    end = bytearray(tail[at:])
    struct.pack_into("<I", end, 16, directory - first)
    return Archive(FileData(file, first, DType.UINT8, (directory - first,)), bytes(entries), bytes(end))


def write_archive(archive: Archive, out: BinaryIO, position: int = 0) -> None:
    """Write an archive to `out`, `position` bytes after the start of the file, to which its offsets refer.

    Offsets beyond 4 GB do not fit the fields; they are relative to the start of the archive, which zip readers accept.
    """
    entries, end = bytearray(archive.directory), bytearray(archive.end)
    if position + archive.body.nbytes <= _MAX_OFFSET:
        _shift(entries, list(_entries(entries)), position)
        struct.pack_into("<I", end, 16, position + archive.body.nbytes)
    copy_data(archive.body, out)
    out.write(entries + end)


def archive_bytes(archive: Archive) -> bytes:
    """The archive as a file of its own."""
    out = io.BytesIO()
    write_archive(archive, out)
    return out.getvalue()


def archive_of(content: bytes) -> Archive | None:
    """Return the archive in the bytes of a zip file; None for other bytes."""
    found = find_archive(SourceBytes(content))
    if found is None:
        return None
    return Archive(ArrayData(found.body.numpy(), DType.UINT8), found.directory, found.end)


def texts(archive: Archive) -> dict[str, str]:
    """The files of an archive that are text by name, at most a megabyte together when decompressed."""
    found: dict[str, str] = {}
    left = MAX_EXPANDED
    try:
        with zipfile.ZipFile(io.BytesIO(archive_bytes(archive))) as opened:
            for info in opened.infolist():
                if info.file_size > left or info.is_dir():
                    continue
                with opened.open(info) as member:
                    content = member.read(left + 1)
                left -= len(content)
                if left < 0:
                    break
                with contextlib.suppress(UnicodeDecodeError):
                    found[info.filename] = content.decode()
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, OSError, EOFError, NotImplementedError):
        pass  # encrypted, compressed by an unknown method, malformed: it is copied unchanged
    return found


def file_names(archive: Archive | None) -> tuple[str, ...]:
    """The names of the files in an archive, from its directory."""
    directory = bytearray(archive.directory) if archive is not None else bytearray()
    lengths = [(at, struct.unpack_from("<H", directory, at + 28)[0]) for at in _entries(directory)]
    names = (bytes(directory[at + _ENTRY_SIZE : at + _ENTRY_SIZE + length]) for at, length in lengths)
    return tuple(name.decode(errors="replace") for name in names)


def _entries(directory: bytearray) -> Iterator[int]:
    """The position of each entry in a directory, up to one that is malformed."""
    at = 0
    while directory[at : at + 4] == _ENTRY and at + _ENTRY_SIZE <= len(directory):
        yield at
        at += _ENTRY_SIZE + sum(struct.unpack_from("<HHH", directory, at + 28))


def _offset(directory: bytearray, at: int) -> int:
    return int(struct.unpack_from("<I", directory, at + 42)[0])


def _shift(directory: bytearray, places: list[int], by: int) -> None:
    """Add `by` to the offset of each entry."""
    for at in places:
        struct.pack_into("<I", directory, at + 42, (_offset(directory, at) + by) & _MAX_OFFSET)
