"""Element types, quantization and strings as TFLite files hold them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType

_SPECIAL = {"FLOAT8_E4M3FN": DType.FLOAT8E4M3FN, "FLOAT8_E5M2": DType.FLOAT8E5M2}
_NAMES = {dtype: name for name, dtype in _SPECIAL.items()}


def type_name(dtype: DType) -> str:
    """The name of an element type in the format's TensorType."""
    return _NAMES.get(dtype) or dtype.value.upper()


def dtype_named(name: str) -> DType:
    """The element type with the format's `name`; ValueError where it is none (RESOURCE, VARIANT)."""
    return _SPECIAL.get(name) or DType(name.lower())


def encode_strings(strings: Iterable[object]) -> bytes:
    """A string tensor's buffer: count, offset of each string and of the end, characters.

    Source: LiteRT's tflite/string_util.h.
    """
    raw = [s if isinstance(s, bytes) else str(s).encode() for s in strings]
    offsets = [4 * (len(raw) + 2)]
    for item in raw:
        offsets.append(offsets[-1] + len(item))
    return struct.pack(f"<i{len(offsets)}i", len(raw), *offsets) + b"".join(raw)


def quantization_table(quantization: Quantization) -> dict[str, Any]:
    """The values of a QuantizationParameters table."""
    return {
        "scale": quantization.scales,
        "zero_point": quantization.zero_points,
        "quantized_dimension": quantization.axis,
    }
