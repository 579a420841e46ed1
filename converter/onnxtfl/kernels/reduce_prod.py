"""TFLite's REDUCE_PROD of int8 and int16, which scales after each factor and keeps 32 bits of the product.

Products of 2^31 and more steps wrap around, and the factor has 15 bits, so that int16 is off by some steps.

Source: LiteRT kernels/reduce.cc (GetQuantProdScaling), kernels/internal/reference/reduce.h (QuantizedReduceProd),
kernels/internal/common.cc (MultiplyByQuantizedMultiplier of int64).
Test: tests/unit/test_kernel_arithmetic.py (test_products).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape, transpose_and_merge
from onnxtfl.ir.types import DType
from onnxtfl.kernels.multipliers import multiplier_and_shift
from onnxtfl.rewriting.stored_integers import integers_of, with_quantization

_MOST_FACTORS = 64
"""The most factors that are multiplied by separate ops."""
_LEAST, _MOST = 2.0**-31, 2.0**14
"""The range of the factor that rescales each product, which the kernel splits into a multiplier and a shift."""
_BITS = 15
"""The bits of the multiplier that rescales each product."""


def by_steps(b: Builder, node: Node, axes: Sequence[int]) -> Value | None:
    """Return the product over `axes` as the kernel computes it; None if it is computed from real values.

    These agree with the kernel for int8 operands whose products fit into 32 bits, and are used for an unknown or large
    number of factors.
    """
    x, y, shape = quantization_of(node.operand(0)), quantization_of(node.result), node.operand(0).shape
    if x is None or y is None or x.storage != y.storage or x.storage not in ("int8", "int16"):
        return None
    sizes = [shape[axis] for axis in axes]
    count = math.prod(sizes) if is_static(sizes) else 0
    scaling = x.scales[0] / y.scales[0] ** (1 / count) if count > 1 else 1.0
    if count < 2 or not _LEAST <= scaling < _MOST or (x.storage == "int8" and _fits(x, scaling, count)):
        return None
    if count > _MOST_FACTORS:
        text = f"LiteRT's kernel rounds after each of {count} factors; the result is computed from real values"
        node.remarks += (Remark("kernel", "REDUCE_PROD", text),)
        return None
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    factors = transpose_and_merge(b, integers_of(b, node.operand(0)), [rest, sorted(axes)])
    found = _product(b, factors, count, scaling, x.zero_points[0]) + y.zero_points[0]
    stored = found.clamp(*limits(y.dtype)).to(y.dtype).value
    dims = [1 if axis in axes else shape[axis] for axis in range(len(shape)) if axis in rest or node.attr("keep_dims")]
    return with_quantization(b, reshape(b, stored, dims, node.operand(0)), y)


def _fits(x: Quantization, scaling: float, count: int) -> bool:
    """Whether the product of `count` integers has less than 32 bits after each step."""
    zero = x.zero_points[0]
    most = max(127 - zero, 128 + zero)
    return float(most) * max(1.0, most * scaling) ** (count - 1) * max(1.0, scaling) < 1 << 31


def _product(b: Builder, factors: Value, count: int, scaling: float, zero: int) -> Term:
    """The product of `factors` [outer, count], each less `zero`, with `scaling` after each of them."""
    whole = Term(b, factors).to(DType.INT64) - zero
    multiplier, shift = multiplier_and_shift(scaling)
    short = (multiplier + (1 << _BITS)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    parts = [whole.at(i, 1) for i in range(count)]
    found = parts[0]
    for part in parts[1:]:
        found = _scaled(found * part, short, _BITS - shift)
    return _scaled(found, short, _BITS - shift)


def _scaled(x: Term, multiplier: int, shift: int) -> Term:
    """x * multiplier / 2^shift, halves rounded up, of which 32 bits are kept."""
    return ((x * multiplier + (1 << (shift - 1))) // (1 << shift)).to(DType.INT32).to(DType.INT64)
