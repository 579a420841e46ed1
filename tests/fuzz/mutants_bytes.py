"""Changes of the bytes of any file: bits, words, ranges, and the lengths and offsets that they happen to be."""

from __future__ import annotations

import random
from collections.abc import Callable

Random = random.Random
Other = Callable[[], bytes]
_WORDS = (0, 1, 2, 4, 7, 0x7F, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def changed(data: bytes, other: Other, chance: Random) -> bytes:
    """The bytes after one random change; ``other`` returns a file from which ranges are taken."""
    content = bytearray(data or b"\0")
    chance.choice(_CHANGES)(content, other, chance)
    return bytes(content)


def flip(content: bytearray, other: Other, chance: Random) -> None:
    """Flip one to four bits."""
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def set_byte(content: bytearray, other: Other, chance: Random) -> None:
    """Set a byte to an extreme or any value."""
    content[chance.randrange(len(content))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def set_word(content: bytearray, other: Other, chance: Random) -> None:
    """Set an aligned word of 2, 4 or 8 bytes to an extreme value, or change it by a little."""
    size = chance.choice((2, 4, 4, 8))
    position = chance.randrange(len(content)) // size * size
    before = int.from_bytes(content[position : position + size], "little")
    value = chance.choice((*_WORDS, before + chance.choice((-8, -4, -1, 1, 4, 8)), -chance.choice(_WORDS)))
    content[position : position + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


def copy_word(content: bytearray, other: Other, chance: Random) -> None:
    """Copy four bytes to another position."""
    at, source = (chance.randrange(len(content)) // 4 * 4 for _ in range(2))
    content[at : at + 4] = content[source : source + 4]


def truncate(content: bytearray, other: Other, chance: Random) -> None:
    """Remove the end."""
    del content[chance.randrange(len(content)) :]


def remove(content: bytearray, other: Other, chance: Random) -> None:
    """Remove a short range."""
    start = chance.randrange(len(content))
    del content[start : start + chance.choice((1, 2, 4, 16, 64))]


def insert(content: bytearray, other: Other, chance: Random) -> None:
    """Insert random bytes, or repeat a range."""
    start, length = chance.randrange(len(content)), chance.choice((1, 2, 4, 16, 64))
    content[start:start] = chance.randbytes(length) if chance.random() < 0.5 else content[start : start + length]


def splice(content: bytearray, other: Other, chance: Random) -> None:
    """Replace a range by one of another file."""
    source = other()
    start, at, length = chance.randrange(len(content)), chance.randrange(len(source)), chance.choice((4, 16, 64, 256))
    content[start : start + length] = source[at : at + length]


_CHANGES: tuple[Callable[[bytearray, bytes, Random], None], ...] = (
    flip, set_byte, set_byte, set_word, set_word, set_word, copy_word, truncate, remove, insert, splice,
)  # fmt: skip
