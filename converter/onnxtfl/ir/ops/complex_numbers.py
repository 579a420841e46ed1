"""Complex numbers and their parts: Complex Real Imag."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.op import FLOATS, Elementwise, Operand, computed_by
from onnxtfl.ir.types import DType

REAL_OF = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
_COMPLEX_OF = {
    **dict.fromkeys((DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32), DType.COMPLEX64),
    DType.FLOAT64: DType.COMPLEX128,
}


class Part(Elementwise, register=False):
    """Base of Real and Imag; a real operand has imaginary part 0."""

    operands = (Operand("input", FLOATS | frozenset(REAL_OF)),)
    results = (Operand("output", becomes=REAL_OF),)
    core = True


Real = computed_by(Part, "Real", np.real, "The real part. Source: neutral-ops 3.91.")
Imag = computed_by(Part, "Imag", np.imag, "The imaginary part. Source: neutral-ops 3.67.")


class Complex(Elementwise):
    """lhs + i * rhs. Source: neutral-ops 3.25. TFLite has no kernel for it."""

    operands = (Operand("lhs", FLOATS), Operand("rhs", FLOATS))
    results = (Operand("output", becomes=_COMPLEX_OF),)

    @staticmethod
    def compute(a: Array, b: Array) -> Array:
        return np.asarray(a + 1j * b)
