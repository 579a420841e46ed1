"""Counter-based random bits: Threefry and Philox. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3";
LiteRT kernels/rng_bit_generator.cc, rng_util.cc. 32-bit words are stored in int64.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape, stacked_along
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl

_WORD = 1 << 32
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_FACTORS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)

Words = list[Term]


@lift_tfl("STABLEHLO_RNG_BIT_GENERATOR")
def _random_bits(b: Builder, node: Node) -> list[Value]:
    """Return the new state and the bits. The state is key, counter, and optionally two more words for Philox."""
    state, wanted = Term(b, node.operand(0)).to(DType.INT64), node.results[1]
    shape = known_sizes(wanted.shape)
    threefry, size = node.attr("algorithm") == "THREEFRY", state.value.shape[0]
    if len(shape) < wanted.rank or size not in ((2,) if threefry else (2, 3)) or not wanted.dtype.is_integer:
        raise UnsupportedError(f"random bits of shape {wanted.shape} by a state of {size} elements")
    each, count = (2 if threefry else 4), math.prod(shape) * wanted.dtype.bits // 32
    blocks = -(-count // each)
    check_elements(blocks * each, "the random bits")
    key, counter = state.at(0, 0), state.at(1, 0)
    counters = counter + Term(b, constant(np.arange(blocks)))
    if threefry:
        words = _threefry(_split(key), _split(counters))
    else:
        rest = _split(state.at(2, 0) if size == 3 else key)
        words = _philox(_split(key), [*_split(counters), *rest])
    flat = reshape(b, stacked_along(b, [w.value for w in words], 1), (blocks * each,))
    bits = Term(b, slice_axes(b, flat, {0: slice(0, count)}))
    if wanted.dtype.bits == 64:
        pairs = Term(b, reshape(b, bits.value, (count // 2, 2)))
        bits = pairs.at(0, 1) + pairs.at(1, 1) * _WORD
    after = [key, counter + blocks, *([state.at(2, 0)] if size == 3 else [])]
    kept = b(ops.Concatenate, *(reshape(b, v.value, (1,)) for v in after), axis=0)
    return [Term(b, kept).to(DType.UINT64).value, reshape(b, bits.to(wanted.dtype).value, shape)]


def _split(x: Term) -> Words:
    """Return the low and the high word."""
    low = x % _WORD
    return [low, (x - low).apply(ops.Div, _WORD) % _WORD]


def _product(x: Term, factor: int) -> Words:
    """Return the low and the high word of a product of words, by halves of `x` to avoid overflow."""
    half = 1 << 16
    first = x % half * factor
    second = x.apply(ops.Div, half) * factor + first.apply(ops.Div, half)
    return [second % half * half + first % half, second.apply(ops.Div, half)]


def _threefry(key: Words, block: Words) -> Words:
    keys = [*key, key[0] ^ key[1] ^ _PARITY]
    x, y = ((word + k) % _WORD for word, k in zip(block, keys, strict=False))
    for turn in range(5):
        for distance in _ROTATIONS[turn % 2]:
            x = (x + y) % _WORD
            low, high = _split(y * (1 << distance))  # at most 29: the product is below 2**61
            y = (low + high) ^ x
        x = (x + keys[(turn + 1) % 3]) % _WORD
        y = (y + keys[(turn + 2) % 3] + (turn + 1)) % _WORD
    return [x, y]


def _philox(key: Words, block: Words) -> Words:
    first, second = key
    a, b, c, d = block
    for _ in range(10):
        (low_a, high_a), (low_c, high_c) = (_product(x, f) for x, f in zip((a, c), _FACTORS, strict=True))
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = (first + _STEPS[0]) % _WORD, (second + _STEPS[1]) % _WORD
    return [a, b, c, d]
