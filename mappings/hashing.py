"""TFLite's LSH_PROJECTION: bits that tell on which side of random planes an operand is (locality-sensitive hashing).

Source: LiteRT's kernel lsh_projection.cc, and FarmHash's Fingerprint64 of 8 to 16 bytes."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

_K2 = 0x9AE16A3B2F90404F
_MOST_BITS = 30


@lift_tfl("LSH_PROJECTION")
def _lsh_projection(b: Builder, node: Node) -> Value:
    """The sign of the sum of weight * hash(seed, element) for each seed [rows, bits]: bits, or one int for each row."""
    seeds, x, weights, kind = node.operand(0), node.operand(1), node.optional(2), node.attr("type")
    rows, bits = seeds.shape
    if x.rank != 1 or x.dtype.bits not in (32, 64) or not static((rows, bits)) or int(str(bits)) > _MOST_BITS:
        raise UnsupportedError("elements that are no numbers of 32 or 64 bits, or hashes of more than 30 bits")
    if kind not in ("SPARSE", "DENSE"):
        raise InvalidModelError(f"type {kind}", code="E-FILE-009")
    columns = Term(b, reshape(b, seeds, (product(seeds.shape), 1))).bits(DType.INT32)
    hashes = _fingerprint(_unsigned(columns), Term(b, unsqueezed(b, x, [0]))).bits(DType.INT64).to(DType.FLOAT64)
    terms = hashes if weights is None else hashes * Term(b, weights).to(DType.FLOAT64)
    signs = (terms.reduce("sum", [1], keepdims=False) > 0.0).to(DType.INT32)
    if kind == "DENSE":
        return signs.value
    places = np.asarray([1 << i for i in reversed(range(int(str(bits))))], np.int32)
    table = Term(b, reshape(b, signs.value, (rows, bits))) * Term(b, constant(places))
    first = np.arange(int(str(rows)), dtype=np.int64) << int(str(bits))
    return table.reduce("sum", [1], keepdims=False).apply(ops.Add, constant(first.astype(np.int32))).value


def _unsigned(x: Term) -> Term:
    """The bits of int32 as the low half of uint64."""
    return (x.to(DType.INT64) & _int64(x.b, 0xFFFFFFFF)).bits(DType.UINT64)


def _int64(b: Builder, number: int) -> Term:
    return Term(b, constant(np.asarray(number, np.int64)))


def _fingerprint(seed: Term, x: Term) -> Term:
    """Fingerprint64 of the 4 bytes of the seed, then the 4 or 8 of the element: uint64."""
    length = 4 + x.dtype.bits // 8
    stored = x.bits(DType.INT32) if x.dtype.bits == 32 else x.bits(DType.INT64)
    low = stored.to(DType.INT64) & _int64(x.b, 0xFFFFFFFF)
    first = seed | _shift(low.bits(DType.UINT64), -32)
    last = first if length == 8 else stored.bits(DType.UINT64)
    factor = (_K2 + 2 * length) % 2**64
    a = first + _K2
    c = _rotated(last, 37) * factor + a
    d = (_rotated(a, 25) + last) * factor
    e = (c ^ d) * factor
    e = (d ^ (e ^ _shift(e, 47))) * factor
    return (e ^ _shift(e, 47)) * factor


def _shift(x: Term, count: int) -> Term:
    """The bits moved right, or left for a negative count."""
    amount = constant(np.asarray(abs(count), np.uint64))
    return x.apply(ops.ShiftLeft if count < 0 else ops.ShiftRightLogical, amount)


def _rotated(x: Term, count: int) -> Term:
    return _shift(x, count) | _shift(x, count - 64)
