"""Feature preprocessing of the domain ai.onnx.ml: scaling, normalization, imputation, encoding, selection.

========  ===============================================================================================
ONNX      Scaler 1, Normalizer 1, Binarizer 1, Imputer 1, OneHotEncoder 1, FeatureVectorizer 1,
          ArrayFeatureExtractor 1
========  ==============================================================================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import as_rows

from onnxtfl.build.attributes import ML, floats, ints, texts, texts_of
from onnxtfl.build.indices import nonnegative
from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import differ, known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import concatenated, reshape, unsqueezed
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


def _per_feature(node: Node, parameter: Array, name: str) -> Array:
    """`parameter`, checked to have one element, or one for each feature (axis 1; axis 0 of a vector).

    Raises ValueError for another number.
    """
    x = node.operand(0)
    size = x.shape[min(1, x.rank - 1)] if x.rank else 1
    if parameter.size != 1 and (x.rank > 2 or (differ(size, parameter.size))):
        raise ValueError(
            f"{name} has {parameter.size} elements for {size} features: 1, or 1 for each feature, expected"
        )
    return parameter


@lift_onnx("Scaler", since=(1,), domain=ML)
def _scaler(b: Builder, node: Node) -> Value:
    """(x - offset) * scale."""
    offset, scale = (floats(node, name) for name in ("offset", "scale"))
    if not scale.size or offset.size != scale.size:
        raise ValueError(f"{offset.size} offsets for {scale.size} scales: as many, and at least one, expected")
    x = Term(b, node.operand(0)).to(DType.FLOAT32)
    centered = x.apply(ops.Sub, _per_feature(node, offset, "offset"))
    return centered.apply(ops.Mul, _per_feature(node, scale, "scale")).value


@lift_onnx("Normalizer", since=(1,), domain=ML)
def _normalizer(b: Builder, node: Node) -> Value:
    """Divide each row by its largest element (MAX), or its L1 or L2 norm; if the divisor is 0, the row is unchanged."""
    norm, x = texts_of(node.attr("norm", "MAX")), Term(b, node.operand(0)).to(DType.FLOAT32)
    if x.rank not in (1, 2):
        raise ValueError(f"features of rank {x.rank}: rank 1 or 2 expected")
    match norm:
        case "MAX":
            size = x.reduce("max", [-1])
        case "L1":
            size = x.abs().reduce("sum", [-1])
        case "L2":
            size = (x * x).reduce("sum", [-1]).sqrt()
        case _:
            raise ValueError(f"norm is {norm!r}, not MAX, L1 or L2")
    return (x / size.equals(0.0).choose(size.constant(1.0), size)).value


@lift_onnx("Binarizer", since=(1,), domain=ML)
def _binarizer(b: Builder, node: Node) -> Value:
    """1 where x > threshold, else 0, in the dtype of x."""
    x = Term(b, node.operand(0))
    threshold = float(node.attr("threshold", 0.0))
    real = x if x.dtype.is_float else x.to(DType.FLOAT32)
    return (real > threshold).to(x.dtype).value


@lift_onnx("Imputer", since=(1,), domain=ML)
def _imputer(b: Builder, node: Node) -> Value:
    """x with elements equal to `replaced_value` (NaN equals NaN) replaced by one value, or one for each feature."""
    x = Term(b, node.operand(0))
    kind = "float" if x.dtype.is_float else "int64"
    values = floats(node, "imputed_value_floats") if x.dtype.is_float else ints(node, "imputed_value_int64s")
    if not values.size:
        raise ValueError(f"the attribute imputed_value_{kind}s is missing or empty")
    replaced_value = node.attr(f"replaced_value_{kind}", 0)
    size = x.value.shape[min(1, x.rank - 1)]
    if values.size not in (1, size):
        known_size(size, "the number of features, each with an imputed value,")
        values = values[:1]  # ONNX Runtime uses the first value if their number is wrong
    if x.rank > 2 and values.size > 1:
        raise ValueError(f"features of rank {x.rank}: rank 1 or 2 expected")
    is_missing = x.is_nan() if np.isnan(replaced_value) else x.equals(replaced_value)
    return is_missing.apply(ops.Select, values.astype(x.dtype.numpy), x).value


@lift_onnx("OneHotEncoder", since=(1,), domain=ML)
def _one_hot_encoder(b: Builder, node: Node) -> Value:
    """One-hot vectors [..., categories] of the elements' categories; among equal categories, the last one counts."""
    x, strings = Term(b, node.operand(0)), texts(node, "cats_strings")
    categories = np.asarray(strings, object) if strings else ints(node, "cats_int64s")
    if not categories.size:
        raise ValueError("cats_int64s or cats_strings is missing or empty")
    if (x.dtype is DType.STRING) != bool(strings):
        raise ValueError(f"the categories are {'strings' if strings else 'integers'}, the elements are {x.dtype}")
    if not node.attr("zeros", 1):
        assume(f"every element that OneHotEncoder {shown_name(node)} encodes is one of its categories")
    x = x if strings else x.to(DType.INT64)
    one_hot = Term(b, unsqueezed(b, x.value, [-1])).equals(Term(b, constant(categories)))
    last_index = {category: index for index, category in enumerate(categories.tolist())}
    if len(last_index) < len(categories):
        is_last_of_equal = np.asarray([last_index[c] == index for index, c in enumerate(categories.tolist())])
        one_hot = one_hot.apply(ops.And, is_last_of_equal)
    return one_hot.to(DType.FLOAT32).value


@lift_onnx("FeatureVectorizer", since=(1,), domain=ML)
def _feature_vectorizer(b: Builder, node: Node) -> Value:
    """The operands as float32 rows, each cropped or zero-padded to its size in `inputdimensions`, then concatenated."""
    sizes = ints(node, "inputdimensions").tolist()
    if len(sizes) != len(node.operands):
        raise ValueError(f"inputdimensions has {len(sizes)} elements for {len(node.operands)} operands")
    parts = [_rows_of_size(b, node.operand(i), size) for i, size in enumerate(sizes)]
    return concatenated(b, parts, 1)


def _rows_of_size(b: Builder, x: Value, size: int) -> Value:
    """`x` as float32 rows [n, size], cropped or padded with zeros."""
    rows = Term(b, reshape(b, x, (x.shape[0], product(x.shape[1:])), x) if x.rank > 2 else x)
    flat = as_rows(b, rows.value).value
    width = flat.shape[1]
    if width == size:
        return flat
    padding = size - size_or(width, 0)  # for a dynamic size, always enough: the slice below crops it
    if padding > 0:
        flat = b(ops.Pad, flat, np.asarray([[0, 0], [0, padding]]))
    return slice_axes(b, flat, {1: slice(0, size)}) if flat.shape[1] != size else flat


@lift_onnx("ArrayFeatureExtractor", since=(1,), domain=ML)
def _array_feature_extractor(b: Builder, node: Node) -> Value:
    """Gather along the last axis; a vector is treated as one row.

    ONNX Runtime refuses negative indices; skl2onnx writes -1 for "no neighbor" and multiplies that element by 0.
    """
    x, indices = node.operand(0), node.operand(1)
    if x.rank < 1 or 0 in indices.shape:
        raise ValueError("a scalar, or no indices")
    flat = nonnegative(b, reshape(b, indices, (product(indices.shape),)), x.shape[-1], x)
    if all(d == 1 for d in x.shape[:-1]):  # TFLite's string tables have one axis
        row = b(ops.Gather, reshape(b, x, x.shape[-1:]), flat, axis=0)
        return reshape(b, row, (*([1] * max(1, x.rank - 1)), *row.shape))
    return b(ops.Gather, x, flat, axis=x.rank - 1)
