"""Generation of inputs from a seed: plausible for the graph (see `facts`), otherwise like typical data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.inputs import natural
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.ranges import Range
from onnxtfl.ir.dtypes import Array, DType
from onnxtfl.ir.quantization import limits, quantize

WORDS = np.array(["alpha", "beta", "gamma", "delta", "a", "", "zwölf", "7"], dtype=object)
_MOST_WORDS = 12
"""The most words in a single string."""


_MOST_BYTES = 1 << 29
"""The most bytes of one input, with at least 4 bytes for each element (8 for a string, which is a reference). Only
damaged models have larger ones, and their generation needs several times the memory.
"""
_MOST_PERMUTED = 8
"""The most indices that are drawn as a permutation if they are as many as the elements from which they select."""
_MOST_SORTED = 1 << 24
_FLOATS = ("float16", "float32", "float64", "bfloat16")


class UnknownInputError(Exception):
    """No values can be generated for an input (a sequence, a type without NumPy values, too many)."""


def make_input(
    info: TensorInfo,
    shape: tuple[int, ...],
    known: Range | None,
    seed: Sequence[int],
    noisy: bool = False,
    turn: int = 0,
) -> tuple[Array, str]:
    """Return values for an input, and a description of how they were chosen.

    ``known``: sensible values by the graph. ``noisy``: noise instead of images and sound, which reaches more of a
    model. ``turn``: the number of the run, in which indices select other rows of a table; it is a part of the first
    number of ``seed``. Raises `UnknownInputError`, also for more than `_MOST_BYTES`.
    """
    if info.kind == "tensor" and is_too_large(shape, dtype := numpy_type(info.dtype)):
        wanted = "pass its values (`data`; in a conversion `check_data`), or smaller sizes (`input_shapes`)"
        size = _bytes_of(shape, dtype) >> 20
        raise UnknownInputError(f"no values are drawn for the {size} MB of input {info.name!r}; {wanted}")
    random = np.random.default_rng(list(seed))
    known = known or _by_name(info)
    if info.kind != "tensor":
        raise UnknownInputError(f"no values for the {info.kind} {info.name!r}")
    if info.dtype == "string":
        return _texts(random, shape), "words"
    dtype = numpy_type(info.dtype)
    if not noisy and (made := _like_data(random, shape, known, info)) is not None:
        return made
    if info.dtype == "bool" and known is not None and known.high <= 1:
        return np.zeros(shape, dtype), "False"
    if info.dtype == "bool" or (known is not None and known.kind == "mask"):
        return mask(random, shape).astype(dtype), "0 or 1"
    if known is not None:
        if (
            known.kind == "index"
            and known.distinct is None
            and (rows := _in_turn(random, shape, known, seed, turn)) is not None
        ):
            return rows.astype(dtype), f"index in [{known.low:g}, {known.high:g})"
        return _within(random, shape, known, info).astype(dtype), f"{known.kind} in [{known.low:g}, {known.high:g})"
    if info.dtype.startswith(("int", "uint")):
        low, high = _integer_span(info)
        return random.integers(low, high, shape).astype(dtype), f"integers in [{low}, {high})"
    if info.dtype.startswith("complex"):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype), "normal"
    return np.asarray(random.standard_normal(shape, dtype=np.float32)).astype(dtype), "normal"


def _texts(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return strings of one word each; a single string has several words."""
    if math.prod(shape) == 1:
        words = " ".join(WORDS[random.integers(0, len(WORDS), random.integers(1, _MOST_WORDS + 1))])
        return np.full(shape, words, WORDS.dtype)
    return np.asarray(WORDS[random.integers(0, len(WORDS), shape)], WORDS.dtype)


def is_too_large(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Whether an input of this shape and type has more than `_MOST_BYTES`."""
    return _bytes_of(shape, dtype) > _MOST_BYTES


def _bytes_of(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * max(4, dtype.itemsize)


def _like_data(
    random: np.random.Generator, shape: tuple[int, ...], known: Range | None, info: TensorInfo
) -> tuple[Array, str] | None:
    """Images and sound for inputs of such shapes; None for others."""
    dtype = numpy_type(info.dtype)
    if (known is not None and known.kind != "pixels") or dtype.kind not in "fiuV":
        return None
    channels = natural.channels_axis(shape)
    if channels is not None and info.dtype in (*_FLOATS, "uint8", "int8"):
        made, what = natural.image(random, shape, channels), "smooth images"
    elif natural.is_signal(shape) and info.dtype in (*_FLOATS, "int16") and info.quantization is None:
        made, what = natural.signal(random, shape), "quiet sound"
    else:
        return None
    if info.dtype in _FLOATS and known is None:
        return made.astype(dtype), f"{what} in [-1, 1]"
    low, high = (0, 255) if info.dtype in _FLOATS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    scaled = low + (made.astype(np.float64) + 1) / 2 * (high - low)
    return np.round(scaled).astype(dtype), f"{what} in [{low}, {high}]"


def numpy_type(name: str) -> np.dtype[Any]:
    """Return the NumPy (or ml_dtypes) type of a dtype name. Raises `UnknownInputError`."""
    try:
        return DType(name).numpy
    except ValueError as error:
        raise UnknownInputError(f"no values for an input of type {name}") from error


def mask(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return zeros and ones; each row begins with 1 and ends with 0, so that no row of a softmax is masked
    completely.
    """
    values = random.integers(0, 2, shape)
    if shape and shape[-1] > 1:
        values[..., 0], values[..., -1] = 1, 0
    return np.asarray(values)


def _by_name(info: TensorInfo) -> Range | None:
    """Return a mask for a numeric input named "...mask...", if the graph implies nothing else."""
    return Range("mask", 0, 2) if "mask" in info.name.lower() and info.dtype != "string" else None


def _within(random: np.random.Generator, shape: tuple[int, ...], known: Range, info: TensorInfo) -> Array:
    """Return values in ``known``; those of a quantized input are quantized."""
    if known.kind == "range" and info.quantization is not None:
        return quantize(random.uniform(known.low, known.high, shape), info.quantization)
    if known.kind == "index" or not info.dtype.startswith(("float", "bfloat")):
        low = int(np.ceil(known.low))
        high = max(int(known.high), low + 1)
        if known.kind == "index" and (chosen := _distinct(random, shape, high - low, known.distinct)) is not None:
            return low + chosen
        return np.asarray(random.integers(low, high, shape))
    return np.asarray(random.uniform(known.low, known.high, shape))


def _in_turn(
    random: np.random.Generator, shape: tuple[int, ...], known: Range, seed: Sequence[int], turn: int
) -> Array | None:
    """Indices of the next rows after ``turn`` runs, so that all runs together select as many rows as possible; None if
    they may have to be a permutation, or there are too many.
    """
    low = int(np.ceil(known.low))
    count, size = max(int(known.high) - low, 1), math.prod(shape)
    if count > _MOST_SORTED or (shape == (count,) and count <= _MOST_PERMUTED):
        return None
    order = np.random.default_rng([seed[0] - turn, *seed[1:]]).permutation(count)
    return low + random.permutation(order[(turn * size + np.arange(size)) % count]).reshape(shape)


def _distinct(random: np.random.Generator, shape: tuple[int, ...], count: int, asked: int | None) -> Array | None:
    """Indices below ``count`` that are distinct along the axis ``asked`` (-2: distinct rows, or elements of a vector).
    None if they need not be distinct, or there are too many. Indices that may be a permutation are one.
    """
    if asked is None and shape == (count,) and count <= _MOST_PERMUTED:
        asked = 0
    if asked == -2 and len(shape) == 1:
        asked = 0
    if asked == -2:  # rows differ where their first elements do
        rows = math.prod(shape[:-1])
        chosen = random.permutation(count)[:rows] if rows <= count <= _MOST_SORTED else None
        return None if chosen is None else np.broadcast_to(chosen.reshape(*shape[:-1], 1), shape)
    if asked is None or not -len(shape) <= asked < len(shape) or shape[asked] > count:
        return None
    size = [count if i == asked % len(shape) else n for i, n in enumerate(shape)]
    if math.prod(size) > _MOST_SORTED:
        return None
    return np.take(np.argsort(random.random(size), axis=asked), np.arange(shape[asked]), axis=asked)


def _integer_span(info: TensorInfo) -> tuple[int, int]:
    """Return the range of an integer input: that of its type if it has 8 bits or is quantized, else [1, 8): positive,
    since they may be divisors or sizes.
    """
    if info.quantization is not None or info.dtype in ("uint8", "int8"):
        least, greatest = limits(DType(info.dtype))
        return least, greatest + 1
    return 1, 8
