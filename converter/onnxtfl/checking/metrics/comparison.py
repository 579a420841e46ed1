"""Compare one output of two models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.blocks import BLOCK, in_blocks
from onnxtfl.ir.dtypes import Array, dtype_of
from onnxtfl.ir.quantization import Quantization, dequantize, with_other_sign
from onnxtfl.ir.small_types import from_held, holds_bits
from onnxtfl.metrics.bias import Bias, measure_bias
from onnxtfl.metrics.errors import TINY, Allowed, Errors, largest_finite, measure_errors, widened
from onnxtfl.metrics.noise import Noise
from onnxtfl.metrics.slices import slice_peaks
from onnxtfl.tables import shape as shape_text

NOT_FINITE = "no finite value to compare"
EMPTY = "no element to compare"
RANDOM = "random: only dtype and shape compared"
OUTLIERS, FARTHER = 0.01, 4.0
"""Of a quantized float model: the share of elements that may be `FARTHER` times as far off as the rest."""
FINEST = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}


@dataclass(frozen=True)
class Expectation:
    """How close an output has to be: ``|b - a| <= rtol |a| + atol max|a|`` for floats, equality for the rest.

    ``step``: the values are multiples of it; a difference of one step is allowed, a mean error is not. ``drawn``: the
    output depends on random values, so only dtype and shape are compared. ``roundings``: how many steps are allowed
    instead of one. ``levels``: a step is at least the largest value divided by this, `OUTLIERS` of the elements may be
    `FARTHER` times as far off, and there may be a mean error. ``least``: an error that is always allowed. ``absolute``:
    whether ``atol`` is not relative to the largest value. ``in_steps``: whether steps count. ``unbiased``: whether a
    mean error is a fault; ``coarse``: the measured error of kernels in steps, which allows a mean error. ``per_slice``:
    the tolerance follows the peaks of slices where these differ (see `slice_peaks`). ``noise``: that of the source,
    which allows more (see `Noise.floor`). ``quantization_a``, ``quantization_b``: if one side is quantized and the
    other is float, the integers are dequantized first.
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
    per_slice: bool = False
    unbiased: bool = True
    coarse: float = 0.0
    absolute: bool = False
    in_steps: bool = True


def compare(name: str, a: Any, b: Any, expect: Expectation) -> OutputCheck:
    """Compare output ``name``: ``a`` is the expected value, ``b`` the judged one; arrays or lists of arrays."""
    if isinstance(a, list) or isinstance(b, list):
        return _compare_lists(name, a, b, expect)
    if a is None or b is None:
        return _judged(OutputCheck(name, a is b, "none", None, message="" if a is b else "one of the two is absent"))
    a, b, note = _same_kind(np.asarray(a), np.asarray(b), expect)
    dtype, shape, message = dtype_name(a), tuple(a.shape), ""
    if shape != tuple(b.shape):
        message = f"shape {shape_text(shape)} became {shape_text(b.shape)}"
    elif dtype != dtype_name(b):
        message = f"dtype {dtype} became {dtype_name(b)}"
    elif expect.drawn:
        return OutputCheck(name, True, dtype, shape, note=RANDOM, compared=False, drawn=True)
    elif a.dtype.kind != "O":
        return _compare_numbers(name, a, b, expect, note)
    elif wrong := int(np.sum(a != b)):
        message = f"{wrong} of {a.size} strings differ"
    found = OutputCheck(name, not message, dtype, shape, message=message, note="" if message else note)
    return _judged(found, is_fault=dtype != dtype_name(b))


def _judged(
    found: OutputCheck, by: CriterionName = "tolerance", is_fault: bool = False, differing: float | None = None
) -> OutputCheck:
    """The comparison as the judgment of the tolerance: a value beyond it is inconclusive, another type is a fault.

    ``differing``: the share of the elements beyond the tolerance.
    """
    if not found.compared:
        return found
    missed = Verdict.REJECT if is_fault else Verdict.INCONCLUSIVE
    evidence = {
        "differing": differing,
        "max_abs": found.max_abs,
        "max_rel": found.max_rel,
        "steps": found.steps,
        "bias": found.bias,
    }
    measured = {key: value for key, value in evidence.items() if value is not None}
    return found.judged(Judgment(by, Verdict.ACCEPT if found.ok else missed, found.message, measured))


def _unheld(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Return both arrays in the type of `a`, if `b` stores that type (small integers in 8 bits); None for other
    types.
    """
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
        return _judged(OutputCheck(name, False, "sequence", None, message="sequences of different length"))
    parts = [compare(f"{name}[{k}]", x, y, expect) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    bad = next((part for part in parts if not part.ok), None)
    largest = max((part.max_abs for part in parts if part.max_abs is not None), default=None)
    relative = max((part.max_rel for part in parts if part.max_rel is not None), default=None)
    message = f"{bad.name}: {bad.message}" if bad else ""
    return _judged(OutputCheck(name, bad is None, "sequence", (len(a),), largest, relative, message))


def _same_kind(a: Array, b: Array, expect: Expectation) -> tuple[Array, Array, str]:
    """Convert both arrays to one dtype if only their storage differs: float64 as float32, another quantization."""
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
        return a, with_other_sign(b), f"{dtype_name(a)} became {dtype_name(b)}"
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
        return _judged(OutputCheck(name, False, dtype, shape, message=stray, note=note))
    peak, step = largest_finite(a), _step(a, expect)
    if expect.levels is not None and not exact:
        step = max(step or 0.0, peak / expect.levels) or None
    errors = measure_errors(a, b, peak, _allowed(a, peak, step, dtype, expect))
    has_values = bool(a.size) and (exact or bool(np.isfinite(a).any()))
    note = note if has_values else NOT_FINITE if a.size else EMPTY
    found = OutputCheck(name, True, dtype, shape, errors.largest, errors.relative, note=note, compared=has_values)
    if step is None:
        message = _place_of(errors, a, b) if errors.bad else ""
        return _judged(replace(found, ok=not message, message=message), differing=errors.bad / max(1, errors.count))
    share = errors.within / a.size if a.size else 1.0
    bias = measure_bias(a, b, step) if errors.largest else Bias()
    message = _missed_steps(errors, bias, step, expect, _place_of(errors, a, b)) if errors.bad else ""
    found = replace(found, step=step, steps=errors.largest / step, share=share, within=expect.roundings, bias=bias.mean)
    by: CriterionName = "quantization-steps" if errors.bad else "tolerance"
    biased = bool(message) and expect.levels is None and errors.excused == errors.count
    return _judged(replace(found, ok=not message, message=message, biased=biased), by)


def _allowed(a: Array, peak: float, step: float | None, dtype: str, expect: Expectation) -> Allowed:
    atol = expect.atol if expect.absolute else expect.atol * peak
    least, rtol = max(atol, expect.least, TINY), max(expect.rtol, FINEST.get(dtype, 0.0))
    width = step and step * expect.roundings
    peaks = slice_peaks(a, peak) if expect.per_slice and step is None and not expect.absolute else None
    if peaks is None:
        return Allowed(rtol, least, width, expect.noise)
    return Allowed(rtol, max(expect.least, TINY), width, expect.noise, expect.atol, peaks)


def _missed_steps(errors: Errors, bias: Bias, step: float, expect: Expectation, place: str) -> str:
    """Return why quantized values are beyond the tolerance; "" if they are not."""
    if expect.levels is not None:
        few = errors.excused >= (1 - OUTLIERS) * errors.count
        return "" if few and errors.largest <= FARTHER * expect.roundings * step else place
    if errors.excused < errors.count:
        return place
    if expect.unbiased and bias.is_fault(expect.coarse):
        return f"mean error of {bias.mean:.2g} steps, which rounding does not make"
    return ""


def _step(a: Array, expect: Expectation) -> float | None:
    """Return the step of which all values are multiples; None if there is none."""
    if not expect.in_steps:
        return None
    if a.dtype.kind in "iu":
        return 1.0 if expect.quantization_a or expect.quantization_b else None
    if expect.step is not None:
        return expect.step
    scales = [q.scales for q in (expect.quantization_a, expect.quantization_b) if q is not None]
    return max(scales[0]) if scales else None


def _unclipped(x: Array, y: Array) -> Array:
    """`x`, with infinities instead of the largest and lowest float32 where `y` is infinite.

    LiteRT's builtin kernels clip results to the finite numbers, as an activation (CalculateActivationRange).
    """
    if x.dtype.name != "float32" or not np.isinf(y).any():
        return x
    most = np.finfo(np.float32).max
    clipped = np.isinf(y) & (x == np.where(y > 0, most, -most))
    return np.where(clipped, y, x) if clipped.any() else x


def _stray(x: Array, y: Array) -> str:
    """Describe where only one array is NaN or infinite; "" if there is no such place."""
    for what, at in (("NaN", np.isnan), ("infinity", np.isinf)):
        count, first = 0, 0
        for k, (p, q) in enumerate(zip(in_blocks(x), in_blocks(y), strict=True)):
            at_p, at_q = at(p), at(q)
            differ = at_p != at_q
            if what == "infinity":
                differ |= at_p & at_q & (p != q)
            first = first if count or not differ.any() else k * BLOCK + int(differ.argmax())
            count += int(np.count_nonzero(differ))
        if count:
            return f"{what} at different places: {count} of {x.size} elements, first at {_place(first, x.shape)}"
    return ""


def _place_of(errors: Errors, a: Array, b: Array) -> str:
    """Text: how many elements of ``b`` differ, and the one with the largest error."""
    if not errors.bad:
        return ""
    expected, got = (widened(values.reshape(-1)[errors.worst : errors.worst + 1])[0] for values in (a, b))
    return (
        f"{errors.bad} of {errors.count} elements differ, worst at {_place(errors.worst, a.shape)}: "
        f"{_number(expected)} became {_number(got)}"
    )


def _place(flat: Any, shape: tuple[int, ...]) -> str:
    return shape_text(tuple(map(int, np.unravel_index(int(flat), shape))))


def _number(value: Any) -> str:
    return f"{value:.6g}"


@dataclass(frozen=True)
class Choices:
    """The elements at the positions in two arrays: ``first``, ``second``; ``peak``: the largest magnitude."""

    first: Array
    second: Array
    peak: float
    differ: Array

    @property
    def flips(self) -> int:
        """How many positions differ."""
        return int(np.count_nonzero(self.differ))

    @property
    def tied(self) -> Array:
        """Where different positions have equal elements."""
        return np.asarray(self.differ & (self.first == self.second))

    @property
    def ties(self) -> int:
        return int(np.count_nonzero(self.tied))

    def are_near(self, rtol: float, atol: float) -> bool:
        """Whether all elements differ by at most twice the tolerance, since both models may be inexact."""
        x, y = self.first, self.second
        near = np.abs(x - y) <= 2 * (rtol * np.abs(x) + atol * self.peak)
        return bool(np.all(near | (x == y)))


def chosen_elements(data: Array, axis: int, a: Array, b: Array) -> Choices | None:
    """The elements of ``data`` along ``axis`` at the positions ``a`` and ``b``; None if these do not fit."""
    axis = axis % data.ndim if data.ndim else 0
    rest = data.size // data.shape[axis] if data.size else 0
    if not rest or a.size % rest or a.shape != b.shape or data.dtype.kind not in "fiu":
        return None
    shape = (*data.shape[:axis], a.size // rest, *data.shape[axis + 1 :])
    if min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= data.shape[axis]:
        return None
    wide = data.astype(np.float64)
    x, y = (np.take_along_axis(wide, np.asarray(p, np.int64).reshape(shape), axis) for p in (a, b))
    peak = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    return Choices(x, y, peak, np.asarray(a != b).reshape(shape))
