"""Element types, shapes, quantization and strings in the encoding of TFLite."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.schema import enums
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.dims import Dim, Shape, is_static, known_size, symbol
from onnxtfl.ir.quantization import Quantization, StoredNumbers, Zeros, limits
from onnxtfl.ir.types import MOST_AXES, DType, ResourceType, TensorType, Type

_SPECIAL = {"FLOAT8_E4M3FN": DType.FLOAT8E4M3FN, "FLOAT8_E5M2": DType.FLOAT8E5M2}
_NAMES = {dtype: name for name, dtype in _SPECIAL.items()}
_LEAST_NORMAL = 2.0**-126
_KINDS = {"RESOURCE": "variable", "VARIANT": "variant"}
_DTYPES = {d.value.upper(): d for d in DType} | _SPECIAL


def type_name(dtype: DType) -> str:
    """The name of an element type in the enum TensorType."""
    return _NAMES.get(dtype) or dtype.value.upper()


def quantization_table(quantization: Quantization, scales: int = -1) -> dict[str, Any]:
    """The values of a QuantizationParameters table. `scales`: the number of the tensor with the scales of blocks.

    Raises InvalidModelError for scales of blocks that TFLite does not have.
    """
    if quantization.block is not None:
        details = {"scales": scales, "zero_points": -1, "block_size": quantization.block}
        return {"details_type": _DETAILS, "details": (schema.table(_BLOCKS), details)}
    _check_normal(quantization.scales, quantization.dtype, "")
    return {
        "scale": quantization.scales,
        "zero_point": quantization.zero_points,
        "quantized_dimension": quantization.axis,
    }


_BLOCKS = "BlockwiseQuantization"
_DETAILS = schema.unions()["QuantizationDetails"].index(_BLOCKS) + 1


def scales_of_blocks(quantization: Quantization, shape: Shape | None) -> TensorData:
    """The scales of the blocks of a matrix as TFLite has them: float16, [rows, blocks of a row].

    Raises InvalidModelError for blocks of another axis, zero points, and scales that are no float16.
    """
    scales = quantization.scales
    if not is_static(shape) or len(shape) != 2 or quantization.axis != 1 or not quantization.is_centered:
        raise InvalidModelError("TFLite has no such blockwise quantization", type_=shape, code="E-QUANT-001")
    if isinstance(scales, StoredNumbers) and scales.data.dtype is DType.FLOAT16:
        return scales.data.reshape(quantization.blocked(shape))
    halves = np.asarray(scales, np.float16)
    if not np.array_equal(halves, np.asarray(scales, np.float64)):
        raise InvalidModelError("scales of blocks that are no float16", type_=shape, code="E-QUANT-001")
    return ArrayData(halves.reshape(quantization.blocked(shape)))


def read_type(
    tensor: Mapping[str, Any], name: str, shape: Shape | None, stored: Callable[[int], Array] | None = None
) -> Type:
    """The type of a decoded Tensor table with this shape. Raises InvalidModelError if it is malformed.

    `stored`: the elements of the constant with a number, such as the scales of blocks.
    """
    kind = tensor["type"]
    if kind in _KINDS:
        return ResourceType(_KINDS[kind])
    dtype = _DTYPES.get(kind)
    if dtype is None or kind not in enums()["TensorType"][1]:
        raise InvalidModelError(f"unknown element type {kind}", node=name, code="E-TYPE-002")
    quantization = _read_quantization(tensor["quantization"], dtype, shape, name, stored)
    return TensorType(dtype if quantization is None else DType.FLOAT32, shape, quantization)


def _read_quantization(
    table: Mapping[str, Any] | None,
    dtype: DType,
    shape: Shape | None,
    name: str,
    stored: Callable[[int], Array] | None,
) -> Quantization | None:
    """The parameters of an integer tensor with scales, else None: runtimes ignore a table with min and max only.

    They ignore CustomQuantization too (LiteRT core/interpreter_builder.cc).
    """
    if table is None or not dtype.is_integer:
        return None
    details = table["details"][0].name if table["details"] else ""
    if details == _BLOCKS and stored is not None:
        return _read_blocks(table["details"][1], dtype, shape, name, stored)
    if details == "MultiAxisQuantization":
        raise UnsupportedError("no TFLite kernel reads scales of several axes", node=name, code="E-QUANT-001")
    if not table["scale"]:
        return None
    scales, zero_points, axis = table["scale"], table["zero_point"] or (0,), table["quantized_dimension"]
    _check_parameters(scales, zero_points, dtype, name)
    _check_normal(scales, dtype, name)
    if len(zero_points) == 1:
        zero_points = zero_points * len(scales)
    if len(scales) == 1:
        return Quantization(dtype.value, scales, zero_points[:1])
    if len(scales) != len(zero_points):
        raise InvalidModelError(
            f"{len(scales)} scales but {len(zero_points)} zero points", node=name, code="E-QUANT-001"
        )
    if shape is not None and len(shape) == 1:
        axis = 0  # regardless of the declared axis: kernels read a scale for each element of a bias
    if shape is None or not 0 <= axis < len(shape) or shape[axis] != len(scales):
        raise InvalidModelError(
            f"{len(scales)} scales along axis {axis} do not fit the shape", node=name, type_=shape, code="E-QUANT-001"
        )
    return Quantization(dtype.value, scales, zero_points, axis)


def _read_blocks(
    table: Mapping[str, Any], dtype: DType, shape: Shape | None, name: str, stored: Callable[[int], Array]
) -> Quantization:
    """Scales for blocks of the last axis of a matrix, which are the elements of a separate tensor.

    Source: LiteRT's kernels fully_connected.cc and embedding_lookup.cc, which ignore zero points: these have to be 0.
    """
    size = table["block_size"]
    if table["zero_points"] >= 0 and stored(table["zero_points"]).any():
        raise UnsupportedError("blocks with zero points", node=name, code="E-QUANT-001")
    scales = stored(table["scales"]).reshape(-1)
    if shape is None or len(shape) != 2 or size < 1:
        raise InvalidModelError(f"blocks of {size} elements", node=name, type_=shape, code="E-QUANT-001")
    found = Quantization(dtype.value, StoredNumbers(ArrayData(scales)), Zeros(len(scales)), 1, size)
    if not is_static(shape) or known_size(shape[1]) % size or not found.fits(shape):
        message = f"{len(scales)} scales for blocks of {size} do not fit the shape"
        raise InvalidModelError(message, node=name, type_=shape, code="E-QUANT-001")
    _check_parameters(scales[np.isnan(scales)], (0,), dtype, name)
    return found


def _check_parameters(scales: Iterable[float], zero_points: Iterable[int], dtype: DType, name: str) -> None:
    """Raise InvalidModelError for a scale that is infinite or NaN, or a zero point outside of `dtype`."""
    lowest, highest = limits(dtype)
    wrong = [f"the scale {scale}" for scale in scales if math.isnan(scale)]
    wrong += [f"the zero point {zero} of {dtype.value}" for zero in zero_points if not lowest <= zero <= highest]
    if wrong:
        raise InvalidModelError(f"{wrong[0]} is out of range", node=name, code="E-QUANT-001")


def _check_normal(scales: Sequence[float], dtype: DType, name: str) -> None:
    """Raise UnsupportedError for a per-tensor scale that is a subnormal float: LiteRT crashes on its inverse.

    Scales of single channels and of biases are products, whose inverses are not computed.
    """
    if len(scales) == 1 and dtype is not DType.INT32 and 0 < abs(scales[0]) < _LEAST_NORMAL:
        raise UnsupportedError(f"the scale {scales[0]:g} is out of the kernel's range", node=name, code="E-QUANT-001")


def read_shape(tensor: Mapping[str, Any], name: str, fresh: Callable[[str], str]) -> Shape:
    """Return the shape of a decoded Tensor table, with unique symbols (by `fresh`) for dynamic sizes."""
    shape, signature = tensor["shape"] or (), tensor["shape_signature"] or ()
    if len(shape) > MOST_AXES:
        message = f"{len(shape)} axes, at most {MOST_AXES} are possible"
        raise InvalidModelError(message, node=name, code="E-FILE-010")
    if len(signature) != len(shape):
        signature = shape

    def dim(axis: int) -> Dim:
        size = -1 if signature[axis] == -1 else shape[axis]  # LiteRT allocates the shape; the signature only opens it
        if size < -1 or signature[axis] < -1:
            size = min(size, signature[axis])
            raise InvalidModelError(f"invalid size {size} of axis {axis}", node=name, code="E-FILE-010")
        return symbol(fresh(f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_d{axis}")) if size == -1 else int(size)

    return tuple(dim(axis) for axis in range(len(shape)))


def encode_strings(strings: Iterable[object]) -> bytes:
    """The buffer of a string tensor: count, offset of each string and of the end, characters.

    Source: LiteRT's tflite/string_util.h.
    """
    raw = [s if isinstance(s, bytes) else str(s).encode() for s in strings]
    offsets = [4 * (len(raw) + 2)]
    for item in raw:
        offsets.append(offsets[-1] + len(item))
    return struct.pack(f"<i{len(offsets)}i", len(raw), *offsets) + b"".join(raw)


def decode_strings(raw: bytes, name: str) -> list[str | bytes]:
    """The strings in the buffer of a string tensor (bytes where not UTF-8). Raises InvalidModelError if malformed."""
    count = struct.unpack_from("<i", raw)[0] if len(raw) >= 4 else -1
    if count < 0 or 4 * (count + 2) > len(raw):
        raise InvalidModelError("malformed string tensor", node=name, code="E-FILE-010")
    offsets = struct.unpack_from(f"<{count + 1}i", raw, 4)
    if any(not 0 <= a <= b <= len(raw) for a, b in itertools.pairwise(offsets)):
        raise InvalidModelError("malformed string tensor", node=name, code="E-FILE-010")
    return [_text(raw[a:b]) for a, b in itertools.pairwise(offsets)]


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
