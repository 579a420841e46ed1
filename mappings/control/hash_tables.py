"""Tables. The importer resolves variables and handles of tables (:mod:`onnxtfl.formats.tflite.states`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.build.attributes import ML
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import real_of_stored_zero
from onnxtfl.ir.reshape import broadcast, reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_tfl, lower_onnx

LISTS = {DType.INT64: "int64s", DType.STRING: "strings", DType.FLOAT32: "floats"}
SINGLE = {DType.INT64: "int64", DType.STRING: "string", DType.FLOAT32: "float"}
"""The attributes of LabelEncoder by element type: lists and single values."""


@lift_tfl("HASHTABLE_FIND")
def _find(b: Builder, node: Node) -> Value:
    """Operands: keys, values, query, default (only its first element is used)."""
    if len(node.operands) != 4:
        raise UnsupportedError("the contents of the table are not constant", code="E-OP-007")
    keys, values, query, default = (node.operand(i) for i in range(4))
    keys, values = (reshape(b, v, (product(v.shape),)) for v in (keys, values))
    known_size(keys.shape[0], "the size of a table")
    if keys.shape == (0,):
        return b(ops.BroadcastTo, default, b(ops.Shape, query))
    first = b(ops.Gather, reshape(b, default, (product(default.shape),)), np.asarray(0), axis=0)
    return b(ops.Lookup, query, keys, values, first)


@lift_tfl("HASHTABLE_LOOKUP")
def _lookup(b: Builder, node: Node) -> Sequence[Value]:
    """Return rows of `values` (zero bytes for a missing key), and whether the key exists."""
    query, keys, values = (node.operand(i) for i in range(3))
    (count,) = keys.shape
    count = known_size(count, "the size of a table")
    if not count:
        raise ValueError("a table without rows, which the kernel refuses")
    check_elements(count, "the positions in a table")
    places = _searched(Term(b, query), Term(b, keys), count).value
    missing = "" if values.dtype is DType.STRING else real_of_stored_zero(values)
    zeros = broadcast(b, constant(np.asarray(missing), values.dtype), (1, *values.shape[1:]), values)
    rows = b(ops.Concatenate, values, zeros, axis=0)
    found = b(ops.Compare, places, np.asarray(count), comparison_direction="LT")
    return b(ops.Gather, rows, places, axis=0), b(ops.Convert, found, dtype=node.results[1].dtype)


def _searched(query: Term, keys: Term, count: int) -> Term:
    """Return the index of each element in `keys` as int64, `count` if the kernel finds none.

    For constant sorted keys, compare all. Otherwise reproduce the kernel's binary search, which misses unsorted keys,
    returns any of several equal keys, and compares by a 32-bit difference.
    Source: LiteRT kernels/hashtable_lookup.cc (bsearch of the C library).
    """
    known = static_ints(keys.value)
    if known is not None and (np.diff(known) > 0).all() and known[-1] - known[0] < 1 << 31:
        return Term(keys.b, keys.b(ops.Lookup, query.value, keys.value, np.arange(count), np.asarray(count)))
    zeros = (query * 0).to(DType.INT64)
    low, high, found = zeros, zeros + count, zeros + count
    for _ in range(count.bit_length()):
        middle = (low + high).apply(ops.ShiftRightArithmetic, 1, in_range=True)
        difference = query - Term(keys.b, keys.b(ops.Gather, keys.value, middle.min(count - 1).value, axis=0))
        is_open = low < high
        found = (is_open & difference.equals(0)).choose(middle, found)
        low, high = (
            (is_open & (difference > 0)).choose(middle + 1, low),
            (is_open & (difference < 0)).choose(middle, high),
        )
    return found


@lower_onnx(ops.Lookup)
def _label_encoder(node: Node, opset: int) -> Form | None:
    """LabelEncoder: the attributes are the table; of equal keys the last one counts."""
    query, keys, values, default = (node.operand(i) for i in range(4))
    if not (keys.is_constant and values.is_constant and default.is_constant) or values.rank != 1:
        return None
    if keys.dtype not in LISTS or values.dtype not in LISTS:
        return None
    table: dict[Any, Any] = dict(zip(keys.numpy().tolist()[::-1], values.numpy().tolist()[::-1], strict=True))
    attributes = {f"keys_{LISTS[keys.dtype]}": tuple(table), f"values_{LISTS[values.dtype]}": tuple(table.values())}
    attributes[f"default_{SINGLE[values.dtype]}"] = default.numpy().reshape(-1).tolist()[0]
    return Form("LabelEncoder", (query,), attributes, domain=ML)


@decompose(ops.Lookup, "onnx", order="operands")
def _by_position(b: Builder, node: Node) -> Value | None:
    """Look up the index in the constant keys, then gather the row of the computed values."""
    query, keys, values, default = (node.operand(i) for i in range(4))
    (count,) = keys.shape
    if not keys.is_constant or (values.rank == 1 and values.dtype is DType.INT64):
        return None
    if keys.dtype is DType.INT32:
        query, keys = (b(ops.Convert, v, dtype=DType.INT64) for v in (query, keys))
    check_elements(count, "the positions in a table")
    places = b(ops.Lookup, query, keys, np.arange(count, dtype=np.int64), np.asarray(count))
    return b(ops.Gather, b(ops.Concatenate, values, b(ops.Unsqueeze, default, [0]), axis=0), places, axis=0)
