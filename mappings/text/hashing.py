"""TFLite's LSH_PROJECTION (locality-sensitive hashing): the sides of random planes on which an operand is, as bits.

Source: LiteRT's kernel lsh_projection.cc, and FarmHash's Fingerprint64.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_SEEDS = 0x226BB95B4E64B6D4, 0x134A747F856D0526
"""The initial state for keys of more than 64 bytes, besides their first word."""
_MOST_BITS = 32
_LONGEST = 1024
"""The longest key in bytes: each block of 64 takes about 150 ops."""
_LOW_HALF = 0xFFFFFFFF


@lift_tfl("LSH_PROJECTION")
def _lsh_projection(b: Builder, node: Node) -> Value:
    """Return sum(weight * hash(seed, element)) > 0 for each seed [rows, bits], as bits or as one int per row.

    An element is a slice along the first axis. The kernel reads the bits of seeds of any 32-bit dtype.
    """
    seeds, x, weights, kind = node.operand(0), node.operand(1), node.optional(2), node.attr("type")
    rows, bits = seeds.shape
    if not is_static((rows, bits)) or known_size(bits) > _MOST_BITS or seeds.dtype.bits != 32:
        raise UnsupportedError("seeds that are not 32 bits each, or hashes of more than 32 bits", code="E-OP-006")
    if weights is not None and weights.dtype is not DType.FLOAT32:
        raise UnsupportedError(f"weights of type {weights.dtype.value}, float32 expected", code="E-OP-006")
    if kind not in ("SPARSE", "DENSE"):
        raise ValueError(f"type {kind}")
    key = _key(b, reshape(b, seeds, (product(seeds.shape), 1)), x)
    hashes = _fingerprint(key).bits(DType.INT64).to(DType.FLOAT64)
    terms = hashes if weights is None else hashes * Term(b, weights).to(DType.FLOAT64)
    signs = (terms.reduce("sum", [1], keepdims=False) > 0.0).to(DType.INT32)
    return signs.value if kind == "DENSE" else _packed(b, signs.value, known_size(rows), known_size(bits))


def _packed(b: Builder, signs: Value, rows: int, bits: int) -> Value:
    """Pack bits [rows * bits] into one int32 per row, the first bit highest, with the row index above them.

    Bits beyond 32 are lost; 1 << 32 is 1, as processors shift.
    """
    places = np.asarray([1 << i for i in reversed(range(bits))], np.int64).astype(np.int32)
    table = Term(b, reshape(b, signs, (rows, bits))) * Term(b, constant(places))
    first = np.arange(rows, dtype=np.int64) << (bits % _MOST_BITS)
    return table.reduce("sum", [1], keepdims=False).apply(ops.Add, constant(first.astype(np.int32))).value


# --- keys ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Key:
    """Little-endian bytes: `parts` are consecutive (offset, uint64 of the bytes up to the next offset)."""

    parts: list[tuple[int, int, Term]]
    length: int

    def word(self, place: int, size: int = 8) -> Term:
        """Return `size` bytes from offset `place` as uint64."""
        found = [_shift(x, 8 * (place - at)) for at, width, x in self.parts if at < place + size and at + width > place]
        word = found[0]
        for part in found[1:]:
            word = word | part
        return word if size == 8 else word & ((1 << 8 * size) - 1)


def _key(b: Builder, seeds: Value, x: Value) -> _Key:
    """Return the key for each seed [s, 1] and element of `x` [n]: the bytes of the seed, then those of the element."""
    if x.dtype is DType.STRING or x.dtype.is_complex or x.dtype.bits < 8:
        raise UnsupportedError(f"elements of type {x.dtype.value}", code="E-OP-006")
    inner, size = known_size(product(x.shape[1:]), "the number of values per element"), x.dtype.bits // 8
    if 4 + inner * size > _LONGEST:
        raise UnsupportedError(f"elements of {inner} values, at most {_LONGEST - 4} bytes expected", code="E-OP-006")
    rows = Term(b, reshape(b, x, (x.shape[0], inner), x)).bits(_STORED[size])
    parts = [(0, 4, _unsigned(Term(b, seeds).bits(DType.INT32)))]
    parts += [(4 + i * size, size, _unsigned(rows.at(i, 1))) for i in range(inner)]
    return _Key(parts, 4 + inner * size)


_STORED = {1: DType.UINT8, 2: DType.UINT16, 4: DType.INT32, 8: DType.INT64}


def _unsigned(x: Term) -> Term:
    """Reinterpret the bits as uint64 (int32: as its low half)."""
    wide = x.to(DType.INT64)
    low = wide & Term(x.b, constant(np.asarray(_LOW_HALF, np.int64))) if x.dtype is DType.INT32 else wide
    return low.bits(DType.UINT64)


# --- FarmHash --------------------------------------------------------------------------------------------------------


def _fingerprint(key: _Key) -> Term:
    """Return Fingerprint64 of the key as uint64."""
    if key.length > 64:
        return _hash_of_many(key)
    return _hash_to_16(key) if key.length <= 16 else _hash_to_32(key) if key.length <= 32 else _hash_to_64(key)


def _hash_to_16(key: _Key) -> Term:
    """Hash 4 to 16 bytes."""
    length, factor = key.length, _wrapped(_K2 + 2 * key.length)
    if length < 8:
        return _joined(_shift(key.word(0, 4), -3) + length, key.word(length - 4, 4), factor)
    a, b = key.word(0) + _K2, key.word(length - 8)
    return _joined(_rotated(b, 37) * factor + a, (_rotated(a, 25) + b) * factor, factor)


def _ends(key: _Key, first: int) -> tuple[Term, Term]:
    """Return two hashes of the first and last 16 bytes."""
    length, factor = key.length, _wrapped(_K2 + 2 * key.length)
    a, b = key.word(0) * first, key.word(8)
    c, d = key.word(length - 8) * factor, key.word(length - 16) * _K2
    return _rotated(a + b, 43) + _rotated(c, 30) + d, a + _rotated(b + _K2, 18) + c


def _hash_to_32(key: _Key) -> Term:
    """Hash 17 to 32 bytes."""
    return _joined(*_ends(key, _K1), _wrapped(_K2 + 2 * key.length))


def _hash_to_64(key: _Key) -> Term:
    """Hash 33 to 64 bytes."""
    length, factor = key.length, _wrapped(_K2 + 2 * key.length)
    y, z = _ends(key, _K2)
    z = _joined(y, z, factor)
    e, f = key.word(16) * factor, key.word(24)
    g, h = (y + key.word(length - 32)) * factor, (z + key.word(length - 24)) * factor
    return _joined(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + key.word(0) * _K2, 18) + g, factor)


@dataclass(frozen=True)
class _State:
    """The state that each block of 64 bytes updates."""

    x: Term
    y: Term
    z: Term
    v: tuple[Term, Term]
    w: tuple[Term, Term]

    def after(self, key: _Key, place: int, factor: int | Term, last: bool = False) -> _State:
        """Return the state after the block at `place`; the `last` block multiplies some words by nine."""
        y_of_v, x_of_w = (self.v[0] * 9, self.w[1] * 9) if last else (self.v[0], self.w[1])
        x = _rotated(self.x + self.y + self.v[0] + key.word(place + 8), 37) * factor
        y = _rotated(self.y + self.v[1] + key.word(place + 48), 42) * factor
        x, y = x ^ x_of_w, y + y_of_v + key.word(place + 40)
        z = _rotated(self.z + self.w[0], 33) * factor
        v = _weak(key, place, self.v[1] * factor, x + self.w[0])
        w = _weak(key, place + 32, z + self.w[1], y + key.word(place + 16))
        return _State(z, y, x, v, w)


def _weak(key: _Key, place: int, a: Term, b: Term) -> tuple[Term, Term]:
    """Return two hashes of 32 bytes and two seeds."""
    words = [key.word(place + i) for i in (0, 8, 16, 24)]
    a = a + words[0]
    b = _rotated(b + a + words[3], 21)
    most = a + words[1] + words[2]
    return most + words[3], b + _rotated(most, 44) + a


def _hash_of_many(key: _Key) -> Term:
    """Hash more than 64 bytes: all full blocks, then the last 64 bytes."""
    first, (y, z) = key.word(0), _SEEDS
    zero = first * 0
    state = _State(first + _wrapped(81 * _K2), zero + y, zero + z, (zero, zero), (zero, zero))
    rest = (key.length - 1) % 64
    for place in range(0, key.length - 1 - rest, 64):
        state = state.after(key, place, _K1)
    factor = (state.z & 0xFF) * 2 + _K1
    w = state.w[0] + rest
    v = state.v[0] + w
    state = replace(state, v=(v, state.v[1]), w=(w + v, state.w[1])).after(key, key.length - 64, factor, last=True)
    first = _joined(state.v[0], state.w[0], factor) + _mixed(state.y) * _K0 + state.z
    return _joined(first, _joined(state.v[1], state.w[1], factor) + state.x, factor)


def _joined(u: Term, v: Term, factor: int | Term) -> Term:
    """Combine two hashes."""
    a = _mixed((u ^ v) * factor)
    return _mixed((v ^ a) * factor) * factor


def _mixed(x: Term) -> Term:
    return x ^ _shift(x, 47)


def _wrapped(number: int) -> int:
    return number % 2**64


def _shift(x: Term, count: int) -> Term:
    """Shift right logically, or left for a negative count."""
    amount = constant(np.asarray(abs(count), np.uint64))
    return x.apply(ops.ShiftLeft if count < 0 else ops.ShiftRightLogical, amount) if count else x


def _rotated(x: Term, count: int) -> Term:
    return _shift(x, count) | _shift(x, count - 64)
