"""The element types that hold every value of another."""

from __future__ import annotations

from onnxtfl.ir.types import DType

# The closest first. int64 is never narrowed.
_WIDER: dict[DType, tuple[DType, ...]] = {
    DType.BOOL: (DType.INT8, DType.UINT8, DType.INT32, DType.FLOAT32),
    DType.INT8: (DType.INT16, DType.INT32, DType.INT64),
    DType.UINT8: (DType.INT16, DType.INT32, DType.INT64),
    DType.INT16: (DType.INT32, DType.INT64),
    DType.UINT16: (DType.INT32, DType.INT64),
    DType.INT32: (DType.INT64,),
    DType.UINT32: (DType.INT64,),
    DType.INT4: (DType.INT8, DType.INT32),
    DType.UINT4: (DType.UINT8, DType.INT32),
    DType.FLOAT16: (DType.FLOAT32,),
    DType.BFLOAT16: (DType.FLOAT32,),
}


def widened(dtype: DType, allowed: frozenset[DType]) -> DType | None:
    """Return the closest wider type of `allowed`; None if there is none, or if `dtype` is allowed."""
    return None if dtype in allowed else next((wide for wide in _WIDER.get(dtype, ()) if wide in allowed), None)
