"""Varints: protobuf's integers of one to ten bytes, seven bits each, low bits first; decoded as whole arrays.

Source: https://protobuf.dev/programming-guides/encoding (Base 128 Varints).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array

LONGEST = 10
"""Bytes of the longest varint."""


def encode_varint(value: int) -> bytes:
    """`value` (not negative) as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def count_varints(buffer: Array) -> int:
    """The number of varints that end in the uint8 `buffer`."""
    return int(np.count_nonzero(buffer < 0x80))


def decode_varints(buffer: Array) -> tuple[Array, int]:
    """The complete varints of the uint8 `buffer` as uint64, and their bytes; ValueError for over ten bytes in one."""
    stops = np.flatnonzero(buffer < 0x80) + 1
    if not len(stops):
        if len(buffer) >= LONGEST:
            raise ValueError("a varint of more than ten bytes")
        return np.empty(0, np.uint64), 0
    used = int(stops[-1])
    if used == len(stops):
        return buffer[:used].astype(np.uint64), used
    starts = np.concatenate([[0], stops[:-1]])
    lengths = stops - starts
    longest = int(lengths.max())
    if longest > LONGEST:
        raise ValueError("a varint of more than ten bytes")
    values = (buffer[starts] & 0x7F).astype(np.uint64)
    for k in range(1, longest):
        among = np.flatnonzero(lengths > k)
        values[among] |= (buffer[starts[among] + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    return values, used
