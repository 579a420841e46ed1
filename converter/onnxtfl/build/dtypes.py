"""Element types by their code in ONNX (onnx.proto, TensorProto.DataType), for attributes like Cast's `to`."""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.types import DType

_D = DType
_IN_ORDER = (
    *(_D.FLOAT32, _D.UINT8, _D.INT8, _D.UINT16, _D.INT16, _D.INT32, _D.INT64, _D.STRING, _D.BOOL, _D.FLOAT16),
    *(_D.FLOAT64, _D.UINT32, _D.UINT64, _D.COMPLEX64, _D.COMPLEX128, _D.BFLOAT16, _D.FLOAT8E4M3FN),
    *(_D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ, _D.UINT4, _D.INT4, _D.FLOAT4E2M1, _D.FLOAT8E8M0),
    *(_D.UINT2, _D.INT2),
)
_NUMBERS = {dtype: number for number, dtype in enumerate(_IN_ORDER, 1)}


def dtype_from(number: int) -> DType:
    """The element type with the ONNX code `number`. Raises UnsupportedError for an unknown code."""
    if not 1 <= number <= len(_IN_ORDER):
        raise UnsupportedError(f"no element type has the number {number}", code="E-TYPE-002")
    return _IN_ORDER[number - 1]


def number_of(dtype: DType) -> int:
    """The ONNX code of `dtype`."""
    return _NUMBERS[dtype]
