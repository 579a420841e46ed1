"""The attributes of an op that only a user's kernel computes: as ONNX has them, and as the options of a TFLite op.

Options that are not a map of what ONNX's attributes can be, or would not be the same bytes again, are kept as bytes in
the attribute `custom_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import ArrayData, TensorData
from onnxtfl.ir.flexbuffer import FlexBufferError, decode, encode
from onnxtfl.ir.types import DType

BYTES = "custom_options"
_TENSOR = {"dtype", "shape", "data"}


def to_options(attributes: Mapping[str, Any]) -> bytes:
    """The options for attributes of an ONNX op; b"" without any. UnsupportedError for graphs, types and the like."""
    if BYTES in attributes:
        raw = attributes[BYTES]
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    if not attributes:
        return b""
    found = {name: _stored(name, value) for name, value in attributes.items()}
    try:
        return encode(found)
    except FlexBufferError as error:
        raise UnsupportedError(f"attributes that the options of a custom op cannot hold: {error}") from error


def _stored(name: str, value: Any) -> Any:
    match value:
        case bool() | int() | float() | str() | bytes():
            return value
        case np.integer() | np.floating():
            return value.item()
        case tuple() | list():
            return [_stored(name, one) for one in value]
        case TensorData() if value.dtype is not DType.STRING:
            data = np.ascontiguousarray(value.numpy())
            return {"dtype": value.dtype.value, "shape": list(value.shape), "data": data.tobytes()}
    raise UnsupportedError(f"the attribute {name!r} of a custom op is no number, text, tensor or list of these")


def from_options(options: bytes) -> dict[str, Any]:
    """The attributes for the options of a TFLite op, so that `to_options` returns the same bytes."""
    if not options:
        return {}
    found: dict[str, Any] = {}
    try:
        values = decode(options)
        for name, value in values.items() if isinstance(values, dict) else ():
            if name and (read := _read(value)) is not None:
                found[name] = read
        if found and to_options(found) == options:
            return found
    except (FlexBufferError, UnsupportedError):
        found = {}
    return {**found, BYTES: options}


def _read(value: Any) -> Any:
    """An option as an ONNX attribute; None if it cannot be one."""
    match value:
        case bool():
            return int(value)
        case int():
            return value if -(1 << 63) <= value < 1 << 63 else None
        case float():
            return float(np.float32(value))
        case str() | bytes():
            return value
        case list():
            return _read_list(value)
        case dict() if set(value) == _TENSOR:
            return _read_tensor(value)
    return None


def _read_list(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    return tuple(_read(value) for value in values) if len(kinds) < 2 and kinds <= {int, float, str} else None


def _read_tensor(value: Mapping[str, Any]) -> TensorData | None:
    try:
        dtype = DType(value["dtype"])
        return ArrayData(np.frombuffer(value["data"], dtype.numpy).reshape(value["shape"]), dtype)
    except (ValueError, TypeError):
        return None
