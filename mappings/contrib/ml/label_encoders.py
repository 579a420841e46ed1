"""Lookup tables from keys to values, such as strings to integers: LabelEncoder, CategoryMapper."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnxtfl.mappings.control.hash_tables import LISTS, SINGLE

from onnxtfl.build.attributes import ML, ints, texts, texts_of
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
    """Map strings to their indices in `classes_strings`, or indices to strings."""
    classes = np.asarray(texts(node, "classes_strings"), object)
    return _map_strings(b, node, classes, np.arange(len(classes)))


@lift_onnx("CategoryMapper", since=(1,), domain=ML)
def _from_category_mapper(b: Builder, node: Node) -> Value:
    """Map strings to integers, or integers to strings, by the pairs of `cats_strings` and `cats_int64s`."""
    return _map_strings(b, node, np.asarray(texts(node, "cats_strings"), object), ints(node, "cats_int64s"))


def _map_strings(b: Builder, node: Node, strings: Array, integers: Array) -> Value:
    """Map strings to integers, or integers to strings, depending on the operand's dtype.

    Among equal keys, the last one counts.
    """
    query = node.operand(0)
    if not len(strings) or len(strings) != len(integers):
        raise ValueError(f"{len(strings)} strings for {len(integers)} integers: as many, and at least one, expected")
    if query.dtype is DType.STRING:
        return b(ops.Lookup, query, strings[::-1], integers[::-1], np.asarray(int(node.attr("default_int64", -1))))
    default = constant(np.asarray(texts_of(node.attr("default_string", "_Unused")), object), DType.STRING)
    return b(ops.Lookup, query, integers[::-1], strings[::-1], default)


@lift_onnx("LabelEncoder", since=(2, 4), domain=ML)
def _from_label_encoder(b: Builder, node: Node) -> Value:
    """Map keys to values; among equal keys, the first one counts.

    Keys and values are attributes: lists, or tensors. From version 4 on, a key may be NaN, which Lookup cannot compare:
    NaN elements are mapped by their index.
    """
    query, keys, values = node.operand(0), _keys_or_values(node, "keys"), _keys_or_values(node, "values")
    if values.size != keys.size or keys.dtype is not query.dtype:
        raise ValueError(f"{keys.size} {keys.dtype} keys for {values.size} values and elements of type {query.dtype}")
    table, default = constant(values.numpy().reshape(-1), values.dtype), _default(node, values.dtype)
    key_array = keys.numpy().reshape(-1)
    if not keys.size:
        return b(ops.BroadcastTo, default, b(ops.Shape, query))
    if query.dtype is DType.INT16:  # Lookup has no int16 kernel
        query, key_array = b(ops.Convert, query, dtype=DType.INT32), key_array.astype(np.int32)
    if not keys.dtype.is_float or node.op.version < 4 or not np.isnan(key_array).any():
        return b(ops.Lookup, query, key_array, table, default)
    indices = Term(b, b(ops.Lookup, query, key_array, np.arange(keys.size), np.asarray(keys.size)))
    nan_index = indices.constant(int(np.isnan(key_array).argmax()))
    indices = Term(b, query).is_nan().choose(nan_index, indices)
    return b(ops.Gather, b(ops.Concatenate, table, reshape(b, default, (1,)), axis=0), indices.value, axis=0)


def _default(node: Node, dtype: DType) -> Value:
    """The value for elements that are not among the keys, as a scalar constant."""
    attribute: TensorData | Any = node.attr("default_tensor")
    if isinstance(attribute, TensorData):
        if attribute.dtype is not dtype or attribute.size != 1:
            raise ValueError(f"default_tensor has to be a single element of type {dtype}")
        return constant(attribute.numpy().reshape(()), dtype)
    attribute_dtype = dtype if dtype in SINGLE else DType.FLOAT32 if dtype.is_float else DType.INT64
    return constant(_array(node.attr(f"default_{SINGLE[attribute_dtype]}", _DEFAULTS[attribute_dtype]), dtype), dtype)


def _keys_or_values(node: Node, side: str) -> TensorData:
    """The keys or values (`side`) of a LabelEncoder, from a tensor or list attribute."""
    attribute = node.attr(f"{side}_tensor")
    if isinstance(attribute, TensorData):
        return attribute
    dtype = next((d for d in LISTS if f"{side}_{LISTS[d]}" in node.attributes), None)
    if dtype is None:
        raise ValueError(f"the attribute {side}_tensor, or a list of {side}, is missing")
    return ArrayData(_array(node.attr(f"{side}_{LISTS[dtype]}"), dtype), dtype)


def _array(items: Any, dtype: DType) -> Array:
    """`items` as an array of `dtype`; strings are objects."""
    return np.asarray(items, object if dtype is DType.STRING else dtype.numpy)
