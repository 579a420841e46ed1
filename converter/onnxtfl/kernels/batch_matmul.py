"""TFLite's BATCH_MATMUL of quantized matrices: the scales of the second operand that the kernels read.

Source: LiteRT core/subgraph.cc (GetLegacyQuantization), kernels/internal/reference/batch_matmul.h.
Test: tests/unit/test_quantized_tfl.py (test_products_of_matrices_with_a_scale_for_each_column_are_zeros).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of


def with_one_scale(node: Node) -> Value:
    """Return rhs of batched matrices as the integer kernel reads it: per-axis scales are read as 0.

    A hybrid kernel reads them along the columns, whatever axis the file says. The probe finds zeros with all kernel
    sets.
    """
    rhs = node.operand(1)
    _check_single(node.operand(0), *node.results)
    found = quantization_of(rhs)
    if found is None or found.per_tensor or found.block is not None:
        return rhs
    if not node.operand(0).is_quantized:
        return _along_columns(node, rhs, found)
    if not rhs.is_static:
        _check_single(rhs)
    text = "LiteRT computes zeros, since the second operand has a scale for each column"
    node.remarks += (Remark("kernel", node.op.name_in_file, text),)
    type_ = rhs.tensor_type.stored_as(Quantization(found.storage, (1.0,), (0,)))
    return constant(np.zeros(rhs.shape, found.dtype.numpy), type_=type_)


def _check_single(*values: Value) -> None:
    """UnsupportedError for a value with several scales."""
    for value in values:
        found = quantization_of(value)
        if found is not None and not (found.per_tensor or found.block):
            message = f"TFLite's kernel reads one scale, and this tensor has {len(found.scales)}"
            raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")


def _along_columns(node: Node, rhs: Value, found: Quantization) -> Value:
    """`rhs` with its scales along the columns of the product."""
    columns = rhs.rank - (2 if node.attr("adj_y") else 1)
    if found.axis == columns:
        return rhs
    if rhs.data is None or rhs.shape[columns] != len(found.scales):
        message = f"TFLite's kernel reads a scale for each of {rhs.shape[columns]} columns"
        raise UnsupportedError(message, type_=rhs.type, code="E-QUANT-001")
    return constant(rhs.data, type_=rhs.tensor_type.stored_as(replace(found, axis=columns)))
