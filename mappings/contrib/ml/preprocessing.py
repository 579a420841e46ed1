"""Features before a model of the domain ai.onnx.ml: scaled, normalized, filled in, encoded, selected.

========  ===============================================================================================
ONNX      Scaler 1, Normalizer 1, Binarizer 1, Imputer 1, OneHotEncoder 1, FeatureVectorizer 1,
          ArrayFeatureExtractor 1
========  ==============================================================================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import rows_of

from onnxtfl.build.attributes import ML, floats, ints, texts, texts_of
from onnxtfl.build.indices import nonnegative
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import differ, known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape, unsqueezed
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


def _per_feature(node: Node, parameter: Array, name: str) -> Array:
    """A parameter with one element, or one for each feature (along axis 1; in a vector, the elements)."""
    x = node.operand(0)
    size = x.shape[min(1, x.rank - 1)] if x.rank else 1
    if parameter.size != 1 and (x.rank > 2 or (differ(size, parameter.size))):
        raise InvalidModelError(f"{parameter.size} values of {name} for {size} features", code="E-FILE-009")
    return parameter


@lift_onnx("Scaler", since=(1,), domain=ML)
def _scaler(b: Builder, node: Node) -> Value:
    offset, scale = (floats(node, name) for name in ("offset", "scale"))
    if not scale.size or offset.size != scale.size:
        raise InvalidModelError(f"{offset.size} offsets and {scale.size} scales", code="E-FILE-009")
    x = Term(b, node.operand(0)).to(DType.FLOAT32)
    centered = x.apply(ops.Sub, _per_feature(node, offset, "offset"))
    return centered.apply(ops.Mul, _per_feature(node, scale, "scale")).value


@lift_onnx("Normalizer", since=(1,), domain=ML)
def _normalizer(b: Builder, node: Node) -> Value:
    """Each row divided by its largest element, or its L1 or L2 norm; if that is 0, the row is unchanged."""
    norm, x = texts_of(node.attr("norm", "MAX")), Term(b, node.operand(0)).to(DType.FLOAT32)
    if x.rank not in (1, 2):
        raise InvalidModelError(f"features of rank {x.rank}: rows of features expected", code="E-FILE-009")
    match norm:
        case "MAX":
            size = x.reduce("max", [-1])
        case "L1":
            size = x.abs().reduce("sum", [-1])
        case "L2":
            size = (x * x).reduce("sum", [-1]).sqrt()
        case _:
            raise InvalidModelError(f"norm is {norm!r}, not MAX, L1 or L2", code="E-FILE-009")
    return (x / size.equals(0.0).choose(size.constant(1.0), size)).value


@lift_onnx("Binarizer", since=(1,), domain=ML)
def _binarizer(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    threshold = float(node.attr("threshold", 0.0))
    real = x if x.dtype.is_float else x.to(DType.FLOAT32)
    return (real > threshold).to(x.dtype).value


@lift_onnx("Imputer", since=(1,), domain=ML)
def _imputer(b: Builder, node: Node) -> Value:
    """The elements, with those equal to `replaced_value` replaced (NaN equals NaN here)."""
    x = Term(b, node.operand(0))
    kind = "float" if x.dtype.is_float else "int64"
    values = floats(node, "imputed_value_floats") if x.dtype.is_float else ints(node, "imputed_value_int64s")
    if not values.size:
        raise InvalidModelError(f"no imputed_value_{kind}s", code="E-FILE-009")
    replaced = node.attr(f"replaced_value_{kind}", 0)
    size = x.value.shape[min(1, x.rank - 1)]
    if values.size not in (1, size):
        known_size(size, "the number of features with a value each")
        values = values[:1]  # as ONNX Runtime does
    if x.rank > 2 and values.size > 1:
        raise InvalidModelError(f"features of rank {x.rank}: rows of features expected", code="E-FILE-009")
    missing = x.differs(x) if np.isnan(replaced) else x.equals(replaced)
    return missing.apply(ops.Select, values.astype(x.dtype.numpy), x).value


@lift_onnx("OneHotEncoder", since=(1,), domain=ML)
def _one_hot_encoder(b: Builder, node: Node) -> Value:
    """A new last axis with 1 at the index of each element among the categories. Of equal categories, the last one
    counts."""
    x, strings = Term(b, node.operand(0)), texts(node, "cats_strings")
    categories = np.asarray(strings, object) if strings else ints(node, "cats_int64s")
    if not categories.size:
        raise InvalidModelError("neither cats_int64s nor cats_strings", code="E-FILE-009")
    if (x.dtype is DType.STRING) != bool(strings):
        raise InvalidModelError("categories of another type than the elements", code="E-FILE-009")
    if not node.attr("zeros", 1):
        assume(f"every element that OneHotEncoder {shown_name(node)} encodes is one of its categories")
    x = x if strings else x.to(DType.INT64)
    found = Term(b, unsqueezed(b, x.value, [-1])).equals(Term(b, constant(categories)))
    last = {category: place for place, category in enumerate(categories.tolist())}
    if len(last) < len(categories):
        counts = np.asarray([last[c] == place for place, c in enumerate(categories.tolist())])
        found = found.apply(ops.And, counts)
    return found.to(DType.FLOAT32).value


@lift_onnx("FeatureVectorizer", since=(1,), domain=ML)
def _feature_vectorizer(b: Builder, node: Node) -> Value:
    """The concatenated operands as floats, each cut or padded with zeros to its size in `inputdimensions`."""
    sizes = ints(node, "inputdimensions").tolist()
    if len(sizes) != len(node.operands):
        raise InvalidModelError(f"{len(sizes)} inputdimensions for {len(node.operands)} operands", code="E-FILE-009")
    parts = [_sized(b, node.operand(i), size) for i, size in enumerate(sizes)]
    return parts[0] if len(parts) == 1 else b(ops.Concatenate, *parts, axis=1)


def _sized(b: Builder, x: Value, size: int) -> Value:
    """Rows of floats, with `size` elements each."""
    rows = Term(b, reshape(b, x, (x.shape[0], product(x.shape[1:])), x) if x.rank > 2 else x)
    flat = rows_of(b, rows.value).value
    have = flat.shape[1]
    if have == size:
        return flat
    missing = size - size_or(have, 0)  # of an open number, more than enough
    if missing > 0:
        flat = b(ops.Pad, flat, np.asarray([[0, 0], [0, missing]]), None, mode="constant")
    return slice_axes(b, flat, {1: slice(0, size)}) if flat.shape[1] != size else flat


@lift_onnx("ArrayFeatureExtractor", since=(1,), domain=ML)
def _array_feature_extractor(b: Builder, node: Node) -> Value:
    """Gather along the last axis; a vector is treated as one row.

    ONNX Runtime refuses negative indices; skl2onnx writes -1 for "no neighbor" and multiplies that element by 0.
    """
    x, indices = node.operand(0), node.operand(1)
    if x.rank < 1 or 0 in indices.shape:
        raise InvalidModelError("a scalar, or no indices", code="E-FILE-009")
    flat = nonnegative(b, reshape(b, indices, (product(indices.shape),)), x.shape[-1], x)
    if all(d == 1 for d in x.shape[:-1]):  # TFLite's string tables have one axis
        row = b(ops.Gather, reshape(b, x, x.shape[-1:]), flat, axis=0)
        return reshape(b, row, (*([1] * max(1, x.rank - 1)), *row.shape))
    return b(ops.Gather, x, flat, axis=x.rank - 1)
