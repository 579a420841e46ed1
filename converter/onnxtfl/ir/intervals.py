"""Facts about the elements of a tensor (interval, NaN, integrality), and their arithmetic.

Results are those of exact arithmetic; :meth:`Facts.stored` applies the element type, in which integers wrap and floats
are rounded.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import field, replace
from typing import cast

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Atom, Dim, FloorDiv, Monomial, SymDim, floordiv, parts
from onnxtfl.ir.dtypes import DType

INF = math.inf
FINITE = (-float(np.finfo(np.float64).max), float(np.finfo(np.float64).max))
"""The bounds of finite floats."""
EVERYWHERE = (-INF, INF)
"""The bounds of all floats but NaN."""
MOST = (1 << 31) - 1
"""The largest size of an axis, and number of elements."""
_ROUNDED = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
_OF_SIZES = frozenset({DType.INT32, DType.INT64})
_MOST_FACTORS = 64
_ERROR = {DType.FLOAT16: 2.0**-8, DType.BFLOAT16: 2.0**-5}
_ERROR_OF_FLOATS = 2.0**-20
"""The relative error of functions that are not rounded correctly, many times the largest that NumPy has."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All elements are in [`low`, `high`], or NaN if `nan`; if `integral`, the finite ones are integers.

    For integers the bounds are exact. A zero may have either sign. `sizes`: whether they are computed only from sizes
    of axes, positions and constants: their sums and products are assumed to fit the type, as they do for all tensors
    that fit into memory. Other integers wrap.
    """

    low: float = -INF
    high: float = INF
    nan: bool = True
    integral: bool = False
    sizes: bool = field(default=False, compare=False)

    @property
    def is_finite(self) -> bool:
        """Whether no element is infinite or NaN."""
        return not self.nan and self.low > -INF and self.high < INF

    @property
    def magnitude(self) -> float:
        """The largest absolute value that elements may have."""
        return max(-self.low, self.high)

    def inside(self, low: float, high: float) -> bool:
        """Whether all elements are in [`low`, `high`], and none is NaN."""
        return not self.nan and low <= self.low and self.high <= high

    def or_else(self, *others: Facts) -> Facts:
        """The facts of a tensor with elements of this one and of others."""
        return functools.reduce(_joined, others, self)

    def clipped(self, low: float, high: float) -> Facts:
        """The facts of min(max(x, low), high)."""
        return replace(self, low=min(max(self.low, low), high), high=min(max(self.high, low), high))

    def known_inside(self, low: float, high: float) -> Facts:
        """The facts where elements are known to be in [`low`, `high`] as well."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    def stored(self, dtype: DType) -> Facts:
        """Return the facts after storing in an element type: integers wrap, floats round."""
        whole = of_type(dtype)
        if dtype.is_integer or dtype is DType.BOOL:
            fits = not self.nan and whole.low <= self.low and self.high <= whole.high
            if not fits and (self.nan or not self.sizes or dtype not in _OF_SIZES):
                return whole
            low, high = (min(max(x, whole.low), whole.high) for x in (self.low, self.high))
            return replace(self, low=math.ceil(low), high=max(math.floor(high), math.ceil(low)), integral=True)
        if dtype not in _ROUNDED:
            return whole
        with np.errstate(over="ignore"):
            low, high = (float(np.asarray(_float(x)).astype(dtype.numpy)) for x in (self.low, self.high))
        return replace(self, low=low, high=high)

    def __neg__(self) -> Facts:
        return replace(self, low=-self.high, high=-self.low)

    def __add__(self, other: Facts) -> Facts:
        opposite = (self.high == INF and other.low == -INF) or (self.low == -INF and other.high == INF)
        low, high = _sum(self.low, other.low, -INF), _sum(self.high, other.high, INF)
        return replace(_joined(self, other), low=low, high=high, nan=self.nan or other.nan or opposite)

    def __sub__(self, other: Facts) -> Facts:
        return self + -other

    def __mul__(self, other: Facts) -> Facts:
        undefined = (self._has_zero and other._is_unbounded) or (other._has_zero and self._is_unbounded)
        found = _corners(_product, self, other)
        return replace(found, nan=found.nan or undefined)

    def squared(self) -> Facts:
        """The facts of the squares of the elements."""
        size = absolute(self)
        return replace(size * size, nan=self.nan)

    @property
    def of_integers(self) -> bool:
        """Whether these are facts of an integer type, whose bounds are ints."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def _has_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @property
    def _is_unbounded(self) -> bool:
        return self.magnitude == INF


FactsOf = Callable[[int], Facts]
"""The facts of an operand, by its index."""
UNKNOWN = Facts()


@functools.cache
def of_type(dtype: DType) -> Facts:
    """Return the facts that follow from the element type."""
    if dtype is DType.BOOL:
        return Facts(0, 1, False, True)
    if not dtype.is_integer:
        return UNKNOWN
    most = 1 << (dtype.bits - dtype.is_signed)
    return Facts(-most if dtype.is_signed else 0, most - 1, False, True)


def of_array(array: Array) -> Facts:
    """Return the facts of the elements of `array` (numbers or bools; unknown for others); an empty one counts as 0."""
    if array.dtype.kind in "iub":
        return Facts(int(array.min()), int(array.max()), False, True, True) if array.size else ZERO
    if array.dtype.kind not in "fV" or array.dtype.names is not None:
        return UNKNOWN
    wide = array.astype(np.float64)
    if not wide.size:
        return Facts(0.0, 0.0, False, True)
    low, high = float(np.fmin.reduce(wide, axis=None)), float(np.fmax.reduce(wide, axis=None))
    if math.isnan(low):
        return Facts(0.0, 0.0, True, True)
    return Facts(low, high, bool(np.isnan(wide).any()), bool((np.isnan(wide) | (np.floor(wide) == wide)).all()))


ZERO = Facts(0, 0, False, True, True)
SIZES = Facts(0, MOST, False, True, True)
"""The facts of sizes, positions and counts."""


def _joined(a: Facts, b: Facts) -> Facts:
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Facts(low, high, a.nan or b.nan, a.integral and b.integral, a.sizes and b.sizes)


def _float(number: float) -> float:
    """`number`, which may be a large integer, as a float."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(INF, number)


def _sum(a: float, b: float, unknown: float) -> float:
    """a + b, `unknown` for infinities of both signs."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    found = _float(a) + _float(b)
    return unknown if math.isnan(found) else found


def _product(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _float(a) * _float(b) if a and b else 0.0


def _corners(function: Callable[[float, float], float], a: Facts, b: Facts) -> Facts:
    """The facts of a function that is monotonic in each operand, from its values at the bounds."""
    found = [function(x, y) for x, y in itertools.product((a.low, a.high), (b.low, b.high))]
    return replace(_joined(a, b), low=min(found), high=max(found))


def quotient(a: Facts, b: Facts, down: bool = False) -> Facts:
    """The facts of a / b; for integers, truncated or rounded `down`, and never divided by 0."""
    if a.of_integers and b.of_integers:
        divisors = [x for x in (b.low, b.high, -1, 1) if x and b.low <= x <= b.high]
        rounded = _divided_down if down else _truncated
        ends = [rounded(int(x), int(y)) for x in (a.low, a.high) for y in divisors] or [0]
        return replace(_joined(a, b), low=min(ends), high=max(ends))
    if b.low <= 0 <= b.high:  # a zero may be negative
        return UNKNOWN
    found = _corners(_divided, a, b)
    nan = a.nan or b.nan or (a._is_unbounded and b._is_unbounded)
    if not down:
        return replace(found, nan=nan, integral=False)
    low, high = (x if math.isinf(x) else math.floor(x) for x in (found.low, found.high))
    return Facts(low - 1, high + 1, True, True)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _divided_down(a: int, b: int) -> int:
    return a // b


def _divided(a: float, b: float) -> float:
    if math.isinf(b):
        return 0.0 if math.isfinite(a) else math.copysign(INF, a) * math.copysign(1, b)
    found = _float(a) / _float(b)
    return found


def remainder(a: Facts, b: Facts) -> Facts:
    """The facts of the remainder of a / b with the sign of a."""
    integers = a.of_integers and b.of_integers
    most = max(min(a.magnitude, b.magnitude - integers), 0)
    nan = not integers and (not a.is_finite or b.nan or b.low <= 0 <= b.high)
    return replace(_joined(a, b), low=-most if a.low < 0 else 0, high=most if a.high > 0 else 0, nan=nan)


def modulus(a: Facts, b: Facts) -> Facts:
    """The facts of the remainder of a / b with the sign of b."""
    integers = a.of_integers and b.of_integers
    low, high = min(b.low + integers, 0), max(b.high - integers, 0)
    if a.low >= 0 and b.low >= 0 and integers:
        high = min(high, a.high)
    nan = not integers and (not a.is_finite or b.nan or b.low <= 0 <= b.high)
    return replace(_joined(a, b), low=low, high=high, nan=nan)


def larger(a: Facts, b: Facts) -> Facts:
    """The facts of the maximum of both."""
    return replace(_joined(a, b), low=max(a.low, b.low), high=max(a.high, b.high))


def smaller(a: Facts, b: Facts) -> Facts:
    """The facts of the minimum of both."""
    return -larger(-a, -b)


def squared_difference(a: Facts, b: Facts) -> Facts:
    """The facts of (a - b) squared; for floats, whose difference is rounded, only the sign."""
    found = (a - b).squared()
    return found if found.of_integers else replace(found, low=0, high=INF)


def clamped(x: Facts, low: Facts | None, high: Facts | None) -> Facts:
    """The facts of min(max(x, low), high); the bounds may be absent."""
    found = x if low is None else larger(x, low)
    return found if high is None else smaller(found, high)


def sign(x: Facts) -> Facts:
    """The facts of the sign: -1, 0 or 1."""
    return Facts((x.low > 0) - (x.low < 0), (x.high > 0) - (x.high < 0), x.nan, True)


def absolute(x: Facts) -> Facts:
    """The facts of the absolute values."""
    least = 0 if x._has_zero else min(abs(x.low), abs(x.high))
    return replace(x, low=least, high=x.magnitude)


def power(x: Facts, count: int | None) -> Facts:
    """The facts of products of `count` elements (None: of any number); the empty product is 1."""
    if not x.of_integers or count is None or count > _MOST_FACTORS:
        return Facts(0 if x.low >= 0 else -INF, INF, not x.of_integers, x.integral, x.sizes)
    most = int(x.magnitude) ** count
    return replace(x, low=0 if x.low >= 0 else -most, high=max(most, 1))


def mean(x: Facts) -> Facts:
    """The facts of weighted means, possibly with zeros; for floats only the sign, since sums may overflow."""
    if x.of_integers and x.magnitude <= 1 << 53:
        return x.or_else(ZERO)
    return Facts(0 if x.low >= 0 else -INF, 0 if x.high <= 0 else INF)


def total(x: Facts, most: int) -> Facts:
    """Return the facts of sums of at most `most` elements; for floats, which round at each step, only the sign."""
    if x.of_integers:
        return replace(x, low=min(x.low * most, 0), high=max(x.high * most, 0))
    signed = x.low >= 0 or x.high <= 0
    return replace(mean(x), nan=x.nan or not signed)


def some_bits(a: Facts, b: Facts) -> Facts:
    """The facts of integers whose bits are computed from those of both, where two zeros result in 0."""
    if a.low < 0 or b.low < 0:
        return UNKNOWN
    return Facts(0, (1 << int(max(a.high, b.high)).bit_length()) - 1, False, True)


def both_bits(a: Facts, b: Facts) -> Facts:
    """The facts of integers with the bits that are set in both."""
    tops = [x.high for x in (a, b) if x.low >= 0]
    return Facts(0, min(tops), False, True) if tops else UNKNOWN


def inverted(x: Facts) -> Facts:
    """Return the facts of integers with all bits flipped; the full range for bools and unsigned integers."""
    return -x - Facts(1, 1, False, True)


def shifted_down(x: Facts, amounts: Facts) -> Facts:
    """The facts of integers shifted right, with zeros as the highest bits."""
    return Facts(0, x.high, False, True) if x.low >= 0 else UNKNOWN


def truncated(x: Facts) -> Facts:
    """The facts of the elements rounded toward zero to integers; unknown if they may be infinite or NaN."""
    return replace(x, low=math.trunc(x.low), high=math.trunc(x.high), integral=True) if x.is_finite else UNKNOWN


def of_dim(dim: Dim) -> Facts:
    """The facts of a size, or of an integer computed from sizes; they are computed once."""
    if isinstance(dim, int):
        return replace(ZERO, low=dim, high=dim)
    if dim.facts is None:
        dim.facts = _of_sum(dim)
    return cast(Facts, dim.facts)


def _of_sum(dim: SymDim) -> Facts:
    found = ZERO
    for monomial, factor in dim.terms:
        factors = [_of_atom(atom) for atom, power in monomial for _ in range(power)]
        found += functools.reduce(operator.mul, factors, of_dim(factor))
    for monomial, factor in dim.terms:
        rest = _by_remainder(dim, monomial, factor)
        found = found if rest is None else found.known_inside(rest.low, rest.high)
    return found


def _by_remainder(dim: SymDim, monomial: Monomial, factor: int) -> Facts | None:
    """The facts of a sum with k * d * (n // d), which is k * n - k * (n % d): of the padding of SAME, 3 * (n // 3) - n.

    None if the term is no multiple of a quotient by d.
    """
    atom, power = monomial[0] if len(monomial) == 1 else (None, 0)
    if not isinstance(atom, FloorDiv) or power != 1 or not isinstance(atom.denominator, int):
        return None
    count, over = divmod(factor, atom.denominator)
    if over or atom.denominator < 1:
        return None
    whole = dim - floordiv(atom.numerator, atom.denominator) * factor + atom.numerator * count
    return of_dim(whole) - replace(ZERO, high=atom.denominator - 1) * of_dim(count)


def _of_atom(atom: Atom) -> Facts:
    if isinstance(atom, FloorDiv):
        return quotient(of_dim(atom.numerator), of_dim(atom.denominator), down=True)
    sizes = map(of_dim, parts(atom))
    return next(sizes, SIZES).or_else(*sizes)


def positions_below(count: object) -> Facts:
    """The facts of positions in [0, count); `count` may be unknown."""
    return replace(SIZES, high=max(count - 1, 0)) if isinstance(count, int) else SIZES


def with_rounding(x: Facts, dtype: DType) -> Facts:
    """The facts of values computed with an error of some steps of `dtype`; 0 and infinities are exact."""
    error = _ERROR.get(dtype, _ERROR_OF_FLOATS)
    low, high = x.low - abs(x.low) * error if x.low > -INF else -INF, x.high + abs(x.high) * error
    return replace(x, low=low if x.low < INF else FINITE[1], high=high if x.high > -INF else FINITE[0])
