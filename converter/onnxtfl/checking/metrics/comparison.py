"""Compare one output of two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.checking.metrics.errors import BLOCK, TINY, Allowed, Errors, largest_finite, measure_errors, parts, widened
from onnxtfl.checking.metrics.noise import Noise
from onnxtfl.checking.models.facts import Selection
from onnxtfl.checking.report import QUANTIZED_SHARE, OutputCheck
from onnxtfl.ir.dtypes import dtype_of
from onnxtfl.ir.quantization import UINT8_OFFSET, Quantization, dequantize
from onnxtfl.ir.small_types import from_held, holds_bits

Array = np.ndarray[Any, np.dtype[Any]]

NOT_FINITE = "no finite value to compare"
FINEST = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}


@dataclass(frozen=True)
class Expectation:
    """How close an output has to be: ``|b - a| <= rtol |a| + atol max|a|`` for floats, equality for the rest.

    ``step``: the values are multiples of this width, and one step is allowed on 99 % of the elements (the rest may
    differ by anything). ``quantized``: the integers are such a grid themselves. ``drawn``: the output depends on
    random numbers, so only dtype and shape count. ``roundings``: how many steps are allowed instead of one.
    ``levels``: a step is at least the largest value divided by this. ``least``: an error that is always allowed.
    ``noise``: that of the source, which allows more (see `Noise.floor`).
    ``quantization_a``, ``quantization_b``: where one side is
    quantized and the other is float, the integers are made real first.
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    step: float | None = None
    drawn: bool = False
    quantization_a: Quantization | None = None
    quantization_b: Quantization | None = None
    roundings: float = 1.0
    levels: float | None = None
    least: float = 0.0
    noise: Noise | None = None


def compare(name: str, a: Any, b: Any, expect: Expectation) -> OutputCheck:
    """Compare output ``name``: ``a`` is the value expected, ``b`` the one to judge; arrays or lists of them."""
    if isinstance(a, list) or isinstance(b, list):
        return _compare_lists(name, a, b, expect)
    if a is None or b is None:
        return OutputCheck(name, a is b, "none", None, message="" if a is b else "one of the two is absent")
    a, b, note = _same_kind(np.asarray(a), np.asarray(b), expect)
    dtype, shape, message = dtype_name(a), tuple(a.shape), ""
    if shape != tuple(b.shape):
        message = f"shape {_sizes(shape)} became {_sizes(b.shape)}"
    elif dtype != dtype_name(b):
        message = f"dtype {dtype} became {dtype_name(b)}"
    elif expect.drawn:
        note = "random: only dtype and shape compared"
    elif a.dtype.kind != "O":
        return _compare_numbers(name, a, b, expect, note)
    elif wrong := int(np.sum(a != b)):
        message = f"{wrong} of {a.size} strings differ"
    return OutputCheck(name, not message, dtype, shape, message=message, note="" if message else note)


def _unheld(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Both in the type of `a`, if that is held in the type of `b`; integers of few bits in 8; None for other types."""
    if "O" in (a.dtype.kind, b.dtype.kind):
        return None
    before, after = dtype_of(a.dtype), dtype_of(b.dtype)
    bits = holds_bits(before.value, after.value)
    if bits is None:
        return None
    found = from_held(b, before, bits)
    return (a.astype(np.int8), found.astype(np.int8)) if before.is_integer else (a, found)


def dtype_name(array: Array) -> str:
    """Return the dtype as the reports name it."""
    return "string" if array.dtype.kind == "O" else array.dtype.name


def _compare_lists(name: str, a: Any, b: Any, expect: Expectation) -> OutputCheck:
    if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
        return OutputCheck(name, False, "sequence", None, message="sequences of different length")
    parts = [compare(f"{name}[{k}]", x, y, expect) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    bad = next((part for part in parts if not part.ok), None)
    largest = max((part.max_abs for part in parts if part.max_abs is not None), default=None)
    relative = max((part.max_rel for part in parts if part.max_rel is not None), default=None)
    message = f"{bad.name}: {bad.message}" if bad else ""
    return OutputCheck(name, bad is None, "sequence", (len(a),), largest, relative, message)


def _same_kind(a: Array, b: Array, expect: Expectation) -> tuple[Array, Array, str]:
    """Bring the two to one dtype where the difference is one of storage: float64 narrowed, quantized otherwise."""
    q, r = expect.quantization_a, expect.quantization_b
    if q is not None and r is not None and q != r and a.dtype == b.dtype:
        return dequantize(a, q), dequantize(b, r), "real values: the scales differ"
    if (held := _unheld(a, b)) is not None:
        return *held, f"{dtype_name(a)} became {dtype_name(b)}"
    if {dtype_name(a), dtype_name(b)} == {"float32", "float64"}:
        return a.astype(np.float64), b.astype(np.float64), f"{dtype_name(a)} became {dtype_name(b)}"
    if a.dtype.kind == "f" and b.dtype.kind in "iu" and expect.quantization_b:
        return a, dequantize(b, expect.quantization_b).astype(a.dtype), f"{dtype_name(a)} became {dtype_name(b)}"
    if b.dtype.kind == "f" and a.dtype.kind in "iu" and expect.quantization_a:
        return dequantize(a, expect.quantization_a).astype(b.dtype), b, f"{dtype_name(a)} became {dtype_name(b)}"
    if {a.dtype.name, b.dtype.name} == {"int8", "uint8"} and (expect.quantization_a or expect.quantization_b):
        offset = UINT8_OFFSET if a.dtype.kind == "u" else -UINT8_OFFSET  # the same real values
        return a, (b.astype(np.int16) + offset).astype(a.dtype), f"{dtype_name(a)} became {dtype_name(b)}"
    return a, b, ""


def _compare_numbers(name: str, a: Array, b: Array, expect: Expectation, note: str) -> OutputCheck:
    dtype, shape = dtype_name(a), tuple(a.shape)
    exact = a.dtype.kind in "iub"
    if a.dtype.kind == "V":  # types of ml_dtypes: NumPy's functions do not know all of them
        a, b = widened(a), widened(b)
    if not exact:
        a, b = _unclipped(a, b), _unclipped(b, a)
    stray = "" if exact else _stray(a, b)
    if stray:
        return OutputCheck(name, False, dtype, shape, message=stray, note=note)
    peak, step = largest_finite(a), _step(a, expect)
    if expect.levels is not None and not exact:
        step = max(step or 0.0, peak / expect.levels) or None
    least = max(expect.atol * peak, expect.least, TINY)
    rtol = max(expect.rtol, FINEST.get(dtype, 0.0))
    errors = measure_errors(a, b, peak, Allowed(rtol, least, step and step * expect.roundings, expect.noise))
    message = _judge(errors, step is not None, a, b)
    steps = errors.largest / step if step else None
    share = (errors.within / a.size if a.size else 1.0) if step else None
    note = note if exact or not a.size or np.isfinite(a).any() else NOT_FINITE
    return OutputCheck(
        name,
        not message,
        dtype,
        shape,
        errors.largest,
        errors.relative,
        message,
        note,
        step,
        steps,
        share,
        expect.roundings,
    )


def _step(a: Array, expect: Expectation) -> float | None:
    """Return the width of which the values are multiples, None where there is none."""
    if a.dtype.kind in "iu":
        return 1.0 if expect.quantization_a or expect.quantization_b else None
    if expect.step is not None:
        return expect.step
    scales = [q.scales for q in (expect.quantization_a, expect.quantization_b) if q is not None]
    return max(scales[0]) if scales else None


def _unclipped(x: Array, y: Array) -> Array:
    """`x` with the infinities of `y` where it has the largest or the lowest float32.

    LiteRT's builtin kernels clip results to the finite numbers, as an activation (CalculateActivationRange).
    """
    if x.dtype.name != "float32" or not np.isinf(y).any():
        return x
    most = np.finfo(np.float32).max
    clipped = np.isinf(y) & (x == np.where(y > 0, most, -most))
    return np.where(clipped, y, x) if clipped.any() else x


def _stray(x: Array, y: Array) -> str:
    """Return in words where NaN or infinities are at different places, "" where they are not."""
    for what, at in (("NaN", np.isnan), ("infinity", np.isinf)):
        count, first = 0, 0
        for k, (p, q) in enumerate(zip(parts(x), parts(y), strict=True)):
            at_p, at_q = at(p), at(q)
            differ = at_p != at_q
            if what == "infinity":
                differ |= at_p & at_q & (p != q)
            first = first if count or not differ.any() else k * BLOCK + int(differ.argmax())
            count += int(np.count_nonzero(differ))
        if count:
            return f"{what} at different places: {count} of {x.size} elements, first at {_place(first, x.shape)}"
    return ""


def _judge(errors: Errors, quantized: bool, a: Array, b: Array) -> str:
    """Return why the errors of ``b`` are too large, "" where they are not."""
    if not errors.bad or (quantized and errors.excused >= QUANTIZED_SHARE * errors.count):
        return ""
    expected, got = (widened(values.reshape(-1)[errors.worst : errors.worst + 1])[0] for values in (a, b))
    return (
        f"{errors.bad} of {errors.count} elements differ, worst at {_place(errors.worst, a.shape)}: "
        f"{_number(expected)} became {_number(got)}"
    )


def _place(flat: Any, shape: tuple[int, ...]) -> str:
    return _sizes(tuple(int(i) for i in np.unravel_index(int(flat), shape)))


def _sizes(numbers: tuple[int, ...]) -> str:
    return "[" + ",".join(str(n) for n in numbers) + "]"


def _number(value: Any) -> str:
    return f"{value:.6g}"


def flips(data: Array, selection: Selection, a: Array, b: Array, rtol: float, atol: float) -> int | None:
    """Return how many positions differ between ``a`` and ``b``, None where one of them is more than a near-tie.

    ``data``: what both select from, as the first model computes it. Two elements are nearly equal where they differ
    by at most twice what is allowed between the two models, since both may be off.
    """
    axis = selection.axis % data.ndim if data.ndim else 0
    rest = data.size // data.shape[axis] if data.size else 0
    if not rest or a.size % rest or a.shape != b.shape or data.dtype.kind not in "fiu":
        return None
    shape = (*data.shape[:axis], a.size // rest, *data.shape[axis + 1 :])
    if min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= data.shape[axis]:
        return None
    wide = data.astype(np.float64)
    x, y = (np.take_along_axis(wide, np.asarray(p, np.int64).reshape(shape), axis) for p in (a, b))
    peak = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    near = np.abs(x - y) <= 2 * (rtol * np.abs(x) + atol * peak)
    return int(np.sum(a != b)) if bool(np.all(near | (x == y))) else None
