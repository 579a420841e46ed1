"""Generate inputs for a model: seeded, and sensible (see `facts`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.checking.describe import Dim, TensorInfo
from onnxtfl.checking.facts import Range
from onnxtfl.errors import UsageError
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.quantization import quantize

Array = np.ndarray[Any, np.dtype[Any]]

# Sizes to try for dimensions that the model leaves open, smallest first: (leading dimension, others).
OPEN_SIZES = ((2, 16), (2, 64), (1, 64), (1, 224), (1, 1024), (1, 8000))
SPATIAL = 32  # least size of an open dimension after the second of four or more: small images vanish in deep CNNs
WORDS = np.array(["alpha", "beta", "gamma", "delta", "a", "", "zwölf", "7"], dtype=object)


class UnknownInputError(Exception):
    """No values can be generated for an input (a sequence, a type without NumPy values)."""


def open_shapes(infos: Sequence[TensorInfo], fixed: Mapping[str, Sequence[int]]) -> Iterator[list[tuple[int, ...]]]:
    """Yield shapes for all inputs, one list for each of `OPEN_SIZES`; a single one where nothing is open.

    ``fixed``: shapes by input name; they also settle the symbols that they meet.
    """
    known: dict[str, int] = {}
    for info in infos:
        for dim, size in zip(info.shape or (), fixed.get(info.name, ()), strict=False):
            if isinstance(dim, str):
                known.setdefault(dim, int(size))
    seen: list[list[tuple[int, ...]]] = []
    for sizes in OPEN_SIZES:
        symbols = dict(known)
        shapes = [tuple(fixed[i.name]) if i.name in fixed else _shape(i.shape or (), sizes, symbols) for i in infos]
        if shapes not in seen:
            seen.append(shapes)
            yield shapes


def _shape(dims: tuple[Dim, ...], sizes: tuple[int, int], symbols: dict[str, int]) -> tuple[int, ...]:
    """Return ``dims`` with sizes for all that is open; a symbol keeps the size that it got first."""
    shape = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        size = sizes[0] if axis == 0 and len(dims) > 1 else sizes[1]
        if axis >= 2 and len(dims) >= 4:
            size = max(size, SPATIAL)
        shape.append(symbols.setdefault(dim, size) if isinstance(dim, str) else size)
    return tuple(shape)


def make_input(info: TensorInfo, shape: tuple[int, ...], known: Range | None, seed: Sequence[int]) -> tuple[Array, str]:
    """Return values for an input and how they were chosen, in words.

    ``known``: sensible values by the graph. Raises `UnknownInputError`.
    """
    random = np.random.default_rng(list(seed))
    known = known or _by_name(info)
    if info.kind != "tensor":
        raise UnknownInputError(f"no values for the {info.kind} {info.name!r}")
    if info.dtype == "string":
        return WORDS[random.integers(0, len(WORDS), shape)], "words"
    dtype = numpy_type(info.dtype)
    if info.dtype == "bool" and known is not None and known.high <= 1:
        return np.zeros(shape, dtype), "False"
    if info.dtype == "bool" or (known is not None and known.kind == "mask"):
        return mask(random, shape).astype(dtype), "0 or 1"
    if known is not None:
        return _within(random, shape, known, info).astype(dtype), f"{known.kind} in [{known.low:g}, {known.high:g})"
    if info.dtype.startswith(("int", "uint")):
        low, high = _integer_span(info)
        return random.integers(low, high, shape).astype(dtype), f"integers in [{low}, {high})"
    if info.dtype.startswith("complex"):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype), "normal"
    return np.asarray(random.standard_normal(shape, dtype=np.float32)).astype(dtype), "normal"


def numpy_type(name: str) -> np.dtype[Any]:
    """Return the NumPy (or ml_dtypes) type of a dtype name. Raises `UnknownInputError`."""
    try:
        return DType(name).numpy
    except ValueError as error:
        raise UnknownInputError(f"no values for an input of type {name}") from error


def mask(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return zeros and ones; each row begins with 1 and ends with 0, so that no row of a softmax is all masked."""
    values = random.integers(0, 2, shape)
    if shape and shape[-1] > 1:
        values[..., 0], values[..., -1] = 1, 0
    return np.asarray(values)


def _by_name(info: TensorInfo) -> Range | None:
    """Return a mask for a numeric input with "mask" in its name, about which the graph says nothing."""
    return Range("mask", 0, 2) if "mask" in info.name.lower() and info.dtype != "string" else None


def _within(random: np.random.Generator, shape: tuple[int, ...], known: Range, info: TensorInfo) -> Array:
    """Return values in ``known``; those of a quantized input are quantized."""
    if known.kind == "range" and info.quantization is not None:
        return quantize(random.uniform(known.low, known.high, shape), info.quantization)
    if known.kind == "index" or not info.dtype.startswith(("float", "bfloat")):
        low = int(np.ceil(known.low))
        return np.asarray(random.integers(low, max(int(known.high), low + 1), shape))
    return np.asarray(random.uniform(known.low, known.high, shape))


def _integer_span(info: TensorInfo) -> tuple[int, int]:
    """Return the range of an integer input: all of its type where that is a byte or quantized, else [1, 8).

    Positive, since they may be divisors or sizes.
    """
    if info.quantization is not None or info.dtype in ("uint8", "int8"):
        limits = np.iinfo(info.dtype)
        return int(limits.min), int(limits.max) + 1
    return 1, 8


def merge_user_inputs(names: Sequence[str], given: Mapping[str, Any] | None) -> dict[str, Array]:
    """Return the user's inputs as arrays. Raises `UsageError` for a name that the model does not have."""
    arrays = {name: np.asarray(value) for name, value in (given or {}).items()}
    unknown = [name for name in arrays if name not in names]
    if unknown:
        raise UsageError(f"the model has no input {unknown[0]!r}", hint=f"its inputs are {list(names)}")
    return arrays
