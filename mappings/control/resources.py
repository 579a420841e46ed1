"""Tables. Variables and the handles of tables are gone before lifting (:mod:`onnxtfl.formats.tflite.states`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.build.attributes import ML, ints, texts, texts_of
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.dims import known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import real_of_stored_zero
from onnxtfl.ir.reshape import broadcast, reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx

_LISTS = {DType.INT64: "int64s", DType.STRING: "strings", DType.FLOAT32: "floats"}
_SINGLE = {DType.INT64: "int64", DType.STRING: "string", DType.FLOAT32: "float"}
_DEFAULTS = {DType.INT64: -1, DType.STRING: "_Unused", DType.FLOAT32: -0.0}


@lift_tfl("HASHTABLE_FIND")
def _find(b: Builder, node: Node) -> Value:
    """The kernel takes the first element of the default. Operands: keys, values, query, default."""
    if len(node.operands) != 4:
        raise UnsupportedError("the table has no constant contents", code="E-OP-007")
    keys, values, query, default = (node.operand(i) for i in range(4))
    keys, values = (reshape(b, v, (product(v.shape),)) for v in (keys, values))
    known_size(keys.shape[0], "the size of a table")
    if keys.shape == (0,):
        return b(ops.BroadcastTo, default, b(ops.Shape, query))
    first = b(ops.Gather, reshape(b, default, (product(default.shape),)), np.asarray(0), axis=0)
    return b(ops.Lookup, query, keys, values, first)


@lift_tfl("HASHTABLE_LOOKUP")
def _lookup(b: Builder, node: Node) -> Sequence[Value]:
    """Rows of `values`, bytes of 0 for a missing key; and whether there is the key."""
    query, keys, values = (node.operand(i) for i in range(3))
    (count,) = keys.shape
    count = known_size(count, "the size of a table")
    if not count:
        raise InvalidModelError("a table without rows, which its kernel refuses", code="E-FILE-009")
    check_elements(count, "the positions in a table")
    places = _searched(Term(b, query), Term(b, keys), count).value
    missing = "" if values.dtype is DType.STRING else real_of_stored_zero(values)
    zeros = broadcast(b, constant(np.asarray(missing), values.dtype), (1, *values.shape[1:]), values)
    rows = b(ops.Concatenate, values, zeros, axis=0)
    found = b(ops.Compare, places, np.asarray(count), comparison_direction="LT")
    return b(ops.Gather, rows, places, axis=0), b(ops.Convert, found, dtype=node.results[1].dtype)


def _searched(query: Term, keys: Term, count: int) -> Term:
    """The place of each element among `keys` as int64, `count` where the kernel finds none.

    Keys that are known and in order: the place of the equal one. Else the kernel's binary search, which misses keys
    out of order, takes any of equal ones, and compares by a difference of 32 bits.
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


@lift_onnx("LabelEncoder", since=(1,), domain=ML)
def _from_label_encoder_1(b: Builder, node: Node) -> Value:
    """Strings to their places among the classes, or places to strings."""
    classes = np.asarray(texts(node, "classes_strings"), object)
    return _between(b, node, classes, np.arange(len(classes)))


@lift_onnx("CategoryMapper", since=(1,), domain=ML)
def _from_category_mapper(b: Builder, node: Node) -> Value:
    """Strings to integers, or integers to strings."""
    return _between(b, node, np.asarray(texts(node, "cats_strings"), object), ints(node, "cats_int64s"))


def _between(b: Builder, node: Node, strings: Array, numbers: Array) -> Value:
    """The number of each string, or the string of each number; of equal ones the last counts."""
    query = node.operand(0)
    if not len(strings) or len(strings) != len(numbers):
        raise InvalidModelError(f"{len(strings)} strings for {len(numbers)} integers", code="E-FILE-009")
    if query.dtype is DType.STRING:
        return b(ops.Lookup, query, strings[::-1], numbers[::-1], np.asarray(int(node.attr("default_int64", -1))))
    default = constant(np.asarray(texts_of(node.attr("default_string", "_Unused")), object), DType.STRING)
    return b(ops.Lookup, query, numbers[::-1], strings[::-1], default)


@lift_onnx("LabelEncoder", since=(2, 4), domain=ML)
def _from_label_encoder(b: Builder, node: Node) -> Value:
    """Of equal keys the first one counts. Keys and values are lists, or tensors; the last version finds NaN."""
    query, keys, values = node.operand(0), _listed(node, "keys"), _listed(node, "values")
    if values.size != keys.size or keys.dtype is not query.dtype:
        raise InvalidModelError(f"{keys.size} {keys.dtype} keys for {values.size} values", code="E-FILE-009")
    table, default = constant(values.numpy().reshape(-1), values.dtype), _default(node, values.dtype)
    numbers = keys.numpy().reshape(-1)
    if not keys.size:
        return b(ops.BroadcastTo, default, b(ops.Shape, query))
    if query.dtype is DType.INT16:  # kernels compare wider integers
        query, numbers = b(ops.Convert, query, dtype=DType.INT32), numbers.astype(np.int32)
    if not keys.dtype.is_float or node.op.version < 4 or not np.isnan(numbers).any():
        return b(ops.Lookup, query, numbers, table, default)
    places = Term(b, b(ops.Lookup, query, numbers, np.arange(keys.size), np.asarray(keys.size)))
    nan = places.constant(int(np.isnan(numbers).argmax()))
    places = Term(b, query).differs(Term(b, query)).choose(nan, places)
    return b(ops.Gather, b(ops.Concatenate, table, reshape(b, default, (1,)), axis=0), places.value, axis=0)


def _default(node: Node, dtype: DType) -> Value:
    """What a LabelEncoder returns for other keys: a scalar."""
    found: TensorData | Any = node.attr("default_tensor")
    if isinstance(found, TensorData):
        if found.dtype is not dtype or found.size != 1:
            raise InvalidModelError("default_tensor is no single element of the values' type", code="E-FILE-009")
        return constant(found.numpy().reshape(()), dtype)
    like = dtype if dtype in _SINGLE else DType.FLOAT32 if dtype.is_float else DType.INT64
    return constant(_array(node.attr(f"default_{_SINGLE[like]}", _DEFAULTS[like]), dtype), dtype)


def _listed(node: Node, side: str) -> TensorData:
    """The keys, or values, of a LabelEncoder."""
    found = node.attr(f"{side}_tensor")
    if isinstance(found, TensorData):
        return found
    dtype = next((d for d in _LISTS if f"{side}_{_LISTS[d]}" in node.attributes), None)
    if dtype is None:
        raise InvalidModelError(f"there are no {side}", code="E-FILE-009")
    return ArrayData(_array(node.attr(f"{side}_{_LISTS[dtype]}"), dtype), dtype)


def _array(items: Any, dtype: DType) -> Array:
    return np.asarray(items, object if dtype is DType.STRING else dtype.numpy)


@lower_onnx(ops.Lookup)
def _label_encoder(node: Node, opset: int) -> Form | None:
    """LabelEncoder, whose table is attributes. Of equal keys it takes the last one."""
    query, keys, values, default = (node.operand(i) for i in range(4))
    if not (keys.is_constant and values.is_constant and default.is_constant) or values.rank != 1:
        return None
    if keys.dtype not in _LISTS or values.dtype not in _LISTS:
        return None
    table: dict[Any, Any] = dict(zip(keys.numpy().tolist()[::-1], values.numpy().tolist()[::-1], strict=True))
    attributes = {f"keys_{_LISTS[keys.dtype]}": tuple(table), f"values_{_LISTS[values.dtype]}": tuple(table.values())}
    attributes[f"default_{_SINGLE[values.dtype]}"] = default.numpy().reshape(-1).tolist()[0]
    return Form("LabelEncoder", (query,), attributes, domain=ML)


@decompose(ops.Lookup, "onnx", order="operands")
def _by_position(b: Builder, node: Node) -> Value | None:
    """Look up the position in the constant keys, then the row of the values that are not attributes."""
    query, keys, values, default = (node.operand(i) for i in range(4))
    (count,) = keys.shape
    if not keys.is_constant or (values.rank == 1 and values.dtype is DType.INT64):
        return None
    if keys.dtype is DType.INT32:
        query, keys = (b(ops.Convert, v, dtype=DType.INT64) for v in (query, keys))
    check_elements(count, "the positions in a table")
    places = b(ops.Lookup, query, keys, np.arange(count, dtype=np.int64), np.asarray(count))
    return b(ops.Gather, b(ops.Concatenate, values, b(ops.Unsqueeze, default, [0]), axis=0), places, axis=0)
