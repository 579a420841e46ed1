"""Tables between strings and integers: LabelEncoder, CategoryMapper."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnxtfl.mappings.control.hash_tables import LISTS, SINGLE

from onnxtfl.build.attributes import ML, ints, texts, texts_of
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx

_DEFAULTS = {DType.INT64: -1, DType.STRING: "_Unused", DType.FLOAT32: -0.0}


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
    """Of equal keys, the first one counts. Keys and values are lists or tensors; in the last version, a key may be
    NaN."""
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
    like = dtype if dtype in SINGLE else DType.FLOAT32 if dtype.is_float else DType.INT64
    return constant(_array(node.attr(f"default_{SINGLE[like]}", _DEFAULTS[like]), dtype), dtype)


def _listed(node: Node, side: str) -> TensorData:
    """The keys, or values, of a LabelEncoder."""
    found = node.attr(f"{side}_tensor")
    if isinstance(found, TensorData):
        return found
    dtype = next((d for d in LISTS if f"{side}_{LISTS[d]}" in node.attributes), None)
    if dtype is None:
        raise InvalidModelError(f"there are no {side}", code="E-FILE-009")
    return ArrayData(_array(node.attr(f"{side}_{LISTS[dtype]}"), dtype), dtype)


def _array(items: Any, dtype: DType) -> Array:
    return np.asarray(items, object if dtype is DType.STRING else dtype.numpy)
