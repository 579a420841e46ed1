"""Complex numbers and their parts: Complex Real Imag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, Elementwise, Operand
from onnxtfl.ir.shapes import broadcast_shapes, same_type
from onnxtfl.ir.types import DType, TensorType, Type

_COMPLEX = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}


class Part(Elementwise, register=False):
    """A real part of complex numbers; real operands have themselves and 0."""

    operands = (Operand("input", FLOATS | frozenset(_COMPLEX)),)
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_ = node.operand(0).tensor_type
        return [TensorType(_COMPLEX.get(type_.dtype, type_.dtype), type_.shape)]


class Real(Part):
    """The real part. Source: neutral-ops 3.91."""

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.real(x).copy()


class Imag(Part):
    """The imaginary part. Source: neutral-ops 3.67."""

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.imag(x).copy()


class Complex(Elementwise):
    """lhs + i * rhs. Source: neutral-ops 3.25. No TFLite kernel makes complex numbers of parts."""

    operands = (Operand("lhs", FLOATS), Operand("rhs", FLOATS))

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        a, b = node.operand(0).tensor_type, node.operand(1).tensor_type
        dtype = DType.COMPLEX128 if a.dtype is DType.FLOAT64 else DType.COMPLEX64
        return [same_type(a.with_dtype(dtype), broadcast_shapes(a.shape, b.shape))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        a, b = operands
        assert a is not None and b is not None
        return np.asarray(a + 1j * b).astype(np.complex128 if a.dtype == np.float64 else np.complex64)
