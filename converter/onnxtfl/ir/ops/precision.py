"""Rounding to the values of a smaller type: ReducePrecision."""

from __future__ import annotations

from onnxtfl.ir.attributes import Choice, Flag
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand, SharedAxes
from onnxtfl.ir.small_types import SMALL_FLOATS, rounded
from onnxtfl.ir.types import DType


class ReducePrecision(Formula):
    """The values of `dtype` (bfloat16, float8, float4) that are nearest to float32 elements, as float32.

    `saturate`: floats beyond a float8 type's range become its largest rather than NaN or infinity. `rounding`, of
    float8e8m0: "nearest", "up" or "down". Source: ONNX Cast, XLA's reduce_precision (added).
    """

    operands = (Operand("input", frozenset({DType.FLOAT32})),)
    attributes = {
        "dtype": Choice(*(dtype for dtype in DType if dtype in SMALL_FLOATS)),
        "saturate": Flag(True),
        "rounding": Choice("nearest", "up", "down", default="nearest"),
    }
    shared_axes = SharedAxes(None)
    widens = False

    @staticmethod
    def shape(x: Value, **attributes: object) -> Dims | None:
        return x.tensor_type.shape

    @classmethod
    def formula(cls, x: Term, *, dtype: DType, saturate: bool, rounding: str) -> Term:
        return rounded(x, dtype, saturate, rounding)
