"""ONNX's ops on quantized operands with explicit parameters (QLinearConv and similar), as forms of nodes on quantized
types: the float op's form, with scale and zero point after each quantized operand.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT, QLinearRow, Quantized
from onnxtfl.ir.builder import Operand
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization, product_quantization
from onnxtfl.ir.quantized import quantization_of, scale_and_zero_point
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, lower_quantized

_EIGHT_BIT = ("int8", "uint8")


def linear_domain(dtype: DType, opset: int) -> str:
    """The domain of QuantizeLinear and DequantizeLinear of `dtype`: before opset 21, ONNX Runtime's for 16 bits."""
    return MICROSOFT if opset < 21 and dtype in (DType.INT16, DType.UINT16) else ""


def quantized_operand(operand: object, storage: str | None = None, axis: int | None = None) -> Quantization | None:
    """The quantization of an 8-bit operand, per tensor or along `axis`; None for other operands.

    `storage`: the one of the activations, which weights may differ from only where these are uint8.
    """
    quantization = quantization_of(operand) if isinstance(operand, Value) else None
    if quantization is None or quantization.storage not in _EIGHT_BIT or quantization.block is not None:
        return None
    if storage is not None and quantization.storage != storage and (storage != "uint8" or axis is None):
        return None
    return quantization if quantization.per_tensor or quantization.axis == axis else None


def bias_in_steps(bias: object, x: Quantization, w: Quantization) -> bool:
    """Whether `bias` is absent, or its scale is that of `x` times that of `w` (up to rounding, as in files)."""
    found = quantization_of(bias) if isinstance(bias, Value) else None
    if found is None:
        return bias is None
    scales = np.asarray(found.scales), np.asarray(product_quantization(x, w).scales)
    return found.storage == "int32" and not any(found.zero_points) and bool(np.allclose(*scales, rtol=1e-5, atol=0))


def qoperator(name: str, row: QLinearRow, domain: str = "") -> None:
    """Register the op `name` as the form of nodes whose float op is that of `row`."""
    lower_quantized(row.of, name, domain)(partial(_form, row=row, name=name, domain=domain))


def _form(node: Node, form: Form, row: QLinearRow, name: str, domain: str) -> Form | None:
    """The op `name` for `node`, whose float op is `form`; None if its operands or result do not fit."""
    y, count = quantization_of(node.result), len(row.operands)
    first = next(o for o in row.operands if isinstance(o, Quantized))
    if y is None or not y.per_tensor or len(form.operands) not in (count, count + (row.bias is not None)):
        return None
    places: dict[int, Operand] = dict(zip(row.result, scale_and_zero_point(y), strict=True))
    found: list[Quantization] = []
    for operand, value in zip(row.operands, form.operands, strict=False):
        if isinstance(operand, int):
            if not isinstance(value, Value) or value.is_quantized:
                return None
            places[operand] = value
            continue
        axis = None if operand is first else _weight_axis(node, row, operand)
        quantization = quantized_operand(value, y.storage, axis)
        if quantization is None or not isinstance(value, Value):
            return None
        found.append(quantization)
        places |= dict(
            zip(
                (operand.elements, operand.scale, operand.zero),
                (value, *scale_and_zero_point(quantization)),
                strict=True,
            )
        )
    if len(form.operands) > count and row.bias is not None:
        bias = form.operands[count]
        if not isinstance(bias, Value) or not bias_in_steps(bias, *found[:2]):
            return None
        places[row.bias] = bias
    return Form(name, _in_order(places), form.attributes, domain=domain)


def _weight_axis(node: Node, row: QLinearRow, operand: Quantized) -> int | None:
    """The axis along which weights may have scales: that of the output features, which is not fixed before layout
    assignment. None for other operands.
    """
    if row.bias is None and operand.axis == 0:
        return None
    rank = node.operand(1).tensor_type.rank
    given = node.attributes.get("kernel_output_feature_dimension")
    return given if given is not None else None if rank is None else operand.axis % rank


def _in_order(places: dict[int, Operand]) -> tuple[Operand, ...]:
    return tuple(places.get(i) for i in range(max(places) + 1))
