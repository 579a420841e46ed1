"""Shape arithmetic: simplification of gathers and concatenations of short vectors of sizes.

::

    Gather(Gather(v, [0, 2, 3]), [1])               ->  Gather(v, [2])
    Gather(Concatenate(a, b), [2]), 2 entries in a  ->  Gather(b, [0])
    Concatenate(Gather(v, [2]), Gather(v, [3]))     ->  Gather(v, [2, 3])
    Reshape(Gather(v, 2)) [1]                       ->  Gather(v, [2])
    Gather(v, [0, 1, 2]), 3 entries in v            ->  v
    Max(v, [0]), no entry of v below 0              ->  v
    Gather(Convert(v), [2])                         ->  Convert(Gather(v, [2]))
    Concatenate(Convert(a), Convert(b))             ->  Convert(Concatenate(a, b))
    Convert(Div(Convert(x) int32, c) int32) int64   ->  Div(x, c) int64, if the elements of x fit into int32
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import at_most
from onnxtfl.ir.facts import fits_int32, never_negative
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.reshape import concatenated
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.patterns import Patterns

SHAPE_ARITHMETIC = Patterns()
CONVERSIONS = Patterns()
"""Conversions moved after gathers and concatenations. Not for TFLite: int64 in the chain prevents delegation."""
LONGEST = 16
"""The longest vector that is simplified."""
Entry = tuple[Value, int]
"""A vector and the index of one of its entries."""


def _length(value: Value | None) -> int | None:
    """The number of entries of a short vector of integers; None for other values."""
    type_ = value.type if value is not None else None
    if not isinstance(type_, TensorType) or type_.shape is None or len(type_.shape) != 1 or not type_.dtype.is_integer:
        return None
    (size,) = type_.shape
    return size if at_most(size, LONGEST) else None


def _gathered(value: Value, rank: int = 1) -> list[Entry] | None:
    """Return the entries that a Gather (indices of rank `rank`) reads to produce `value`, else None."""
    node = made_by(value, ops.Gather)
    size = _length(node.operand(0)) if node is not None else None
    if node is None or size is None or node.attr("batch_dims") or node.operand(1).data is None:
        return None
    indices = node.operand(1).numpy()
    if indices.ndim != rank or indices.size > LONGEST:
        return None
    return [(node.operand(0), normalize_axis(int(i), size)) for i in indices.reshape(-1)]


def _whole(vector: Value) -> list[Entry]:
    return [(vector, i) for i in range(_length(vector) or 0)]


def _read(value: Value) -> list[Entry] | None:
    """Return the entries that a Gather or Concatenate reads to produce `value`, else None."""
    joined = made_by(value, ops.Concatenate)
    if joined is None:
        return _gathered(value)
    parts = [v for v in joined.present_operands if _length(v) is not None]
    return [e for v in parts for e in _whole(v)] if len(parts) == len(joined.operands) else None


@SHAPE_ARITHMETIC.on(ops.Gather)
def gather(b: Builder, node: Node) -> Value | None:
    """Gather from the vectors of which the operand is a gather or concatenation."""
    found = _gathered(node.result)
    if found is None:
        return None
    vector = node.operand(0)
    if found == _whole(vector):
        return vector
    inner = _read(vector)
    runs = _runs([inner[i] for _, i in found]) if inner else []
    fewer = vector.producer is not None and len(runs) <= len(vector.producer.operands)
    return _joined(b, [_gather(b, run, node.operand(1)) for run in runs]) if runs and fewer else None


@SHAPE_ARITHMETIC.on(ops.Concatenate)
def concatenate(b: Builder, node: Node) -> Value | None:
    """Flatten nested concatenations; merge adjacent gathers from one vector."""
    if _length(node.result) is None or _read(node.result) is None:
        return None
    flat: list[Value] = []
    for part in filter(None, node.operands):
        inner = made_by(part, ops.Concatenate) if single_use(part, b.graph) else None
        flat += filter(None, inner.operands) if inner is not None else [part]
    merged = flat[:1]
    for part in flat[1:]:
        before, mine = _gathered(merged[-1]), _gathered(part)
        if before and mine and before[0][0] is mine[0][0] and part.producer is not None:
            merged[-1] = _gather(b, [*before, *mine], part.producer.operand(1))
        else:
            merged.append(part)
    return None if merged == node.operands else _joined(b, merged)


@SHAPE_ARITHMETIC.on(ops.Reshape)
def entry_as_vector(b: Builder, node: Node) -> Value | None:
    """Gather a vector of one entry instead of reshaping a gathered scalar."""
    found = _gathered(node.operand(0), rank=0) if _length(node.result) == 1 else None
    made = node.operand(0).producer
    return _gather(b, found, made.operand(1)) if found is not None and made is not None else None


@SHAPE_ARITHMETIC.on(ops.Max)
def at_least_zero(b: Builder, node: Node) -> Value | None:
    """Sizes are at least 0."""
    vector, least = node.operand(0), node.operand(1)
    is_zero = least.data is not None and least.tensor_type.dtype.is_integer and not np.any(least.numpy())
    return vector if is_zero and vector.shape == node.result.shape and never_negative(vector) else None


def _runs(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group adjacent entries of the same vector."""
    return [list(run) for _, run in itertools.groupby(entries, key=lambda entry: id(entry[0]))]


def _gather(b: Builder, entries: Sequence[Entry], like: Value) -> Value:
    """Return the vector of these entries of one vector; the indices have the dtype of `like`."""
    vector = entries[0][0]
    if entries == _whole(vector):
        return vector
    return b(ops.Gather, vector, np.asarray([i for _, i in entries], like.dtype.numpy), axis=0)


def _joined(b: Builder, parts: Sequence[Value]) -> Value:
    return concatenated(b, parts, 0)


@CONVERSIONS.on(ops.Gather, ops.Concatenate)
def convert_last(b: Builder, node: Node) -> Value | None:
    """Convert once, after a gather or a concatenation."""
    if _length(node.result) is None or _read(node.result) is None:
        return None
    parts = node.operands[:1] if node.op is ops.Gather else node.operands
    found = [n for v in parts if (n := made_by(v, ops.Convert)) is not None and _length(n.operand(0)) is not None]
    if len(found) < len(parts) or len({n.operand(0).dtype for n in found}) > 1:
        return None
    counted = Counter(v for v in parts if v is not None)
    if node.op is ops.Concatenate and any(b.graph.is_output(v) or n < len(v.uses) for v, n in counted.items()):
        return None
    sources = [n.operand(0) for n in found]
    return b(ops.Convert, b.remade(node, *sources, *node.operands[len(parts) :])[0], **found[0].attributes)


@CONVERSIONS.on(ops.Convert)
def wide_quotient(b: Builder, node: Node) -> Value | None:
    """Divide in int64 instead of int32, TFLite's only integer division."""
    inner = made_by(node.operand(0), ops.Div)
    if inner is None or node.attr("dtype") is not DType.INT64 or inner.result.dtype is not DType.INT32:
        return None
    operands = [v for operand in inner.operands if (v := _wide(operand)) is not None]
    if len(operands) < 2 or all(v.is_constant for v in operands) or not single_use(inner.result, b.graph):
        return None
    return b(ops.Div, *operands)


def _wide(value: Value | None) -> Value | None:
    """Return the int64 tensor from which `value` is converted, or the constant in int64."""
    if value is not None and value.data is not None:
        return constant(value.data.cast(DType.INT64))
    narrowed = made_by(value, ops.Convert)
    source = narrowed.operand(0) if narrowed is not None else None
    return source if source is not None and source.dtype is DType.INT64 and fits_int32(source) else None
