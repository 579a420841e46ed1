"""Shape arithmetic: gathers from, and concatenations of, short vectors of sizes in their shortest form.

::

    Gather(Gather(v, [0, 2, 3]), [1])               ->  Gather(v, [2])
    Gather(Concatenate(a, b), [2]), 2 entries in a  ->  Gather(b, [0])
    Concatenate(Gather(v, [2]), Gather(v, [3]))     ->  Gather(v, [2, 3])
    Gather(Convert(v), [2])                         ->  Convert(Gather(v, [2]))
    Concatenate(Convert(a), Convert(b))             ->  Convert(Concatenate(a, b))
    Reshape(Gather(v, 2)) [1]                       ->  Gather(v, [2])
    Gather(v, [0, 1, 2]), 3 entries in v            ->  v
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.patterns import Patterns

SHAPE_ARITHMETIC = Patterns()
CONVERSIONS = Patterns()
"""Conversions moved after gathers and concatenations. Not for TFLite: int64 in the chain prevents delegation."""
LONGEST = 16
"""The most entries of a vector that is simplified."""
Gathered = tuple[Value, list[int]]
"""A vector and the entries gathered from it."""


def _length(value: Value | None) -> int | None:
    """The number of entries of a short vector of integers; None for other values."""
    type_ = value.type if value is not None else None
    if not isinstance(type_, TensorType) or type_.shape is None or len(type_.shape) != 1 or not type_.dtype.is_integer:
        return None
    (size,) = type_.shape
    return size if isinstance(size, int) and size <= LONGEST else None


def _gathered(value: Value | None, rank: int = 1) -> Gathered | None:
    """The vector and the nonnegative entry numbers of the Gather (indices of rank `rank`) that makes `value`."""
    node = made_by(value, ops.Gather)
    size = _length(node.operand(0)) if node is not None else None
    if node is None or size is None or node.attr("batch_dims") or node.operand(1).data is None:
        return None
    indices = node.operand(1).numpy()
    if indices.ndim != rank or indices.size > LONGEST:
        return None
    return node.operand(0), [normalize_axis(int(i), size) for i in indices.reshape(-1)]


def _gather(b: Builder, vector: Value, entries: Sequence[int], like: Value) -> Value:
    """Return the vector of these entries; the indices have the element type of `like`."""
    if list(entries) == list(range(_length(vector) or -1)):
        return vector
    return b(ops.Gather, vector, np.asarray(entries, like.dtype.numpy), axis=0)


@SHAPE_ARITHMETIC.on(ops.Gather)
def gather(b: Builder, node: Node) -> Value | None:
    """Gather from the vectors that the operand itself was gathered or concatenated from."""
    found = _gathered(node.result)
    if found is None:
        return None
    vector, entries = found
    if entries == list(range(_length(vector) or -1)):
        return vector
    inner = _gathered(vector)
    if inner is not None:
        return _gather(b, inner[0], [inner[1][e] for e in entries], node.operand(1))
    parts = made_by(vector, ops.Concatenate)
    return _gathered_from_parts(b, parts, entries, node.operand(1)) if parts is not None else None


@CONVERSIONS.on(ops.Gather)
def gather_before_conversion(b: Builder, node: Node) -> Value | None:
    """Gather first, so that fewer elements are converted."""
    found = _gathered(node.result)
    converted = made_by(found[0], ops.Convert) if found is not None else None
    if found is None or converted is None or _length(converted.operand(0)) is None:
        return None
    return b(ops.Convert, _gather(b, converted.operand(0), found[1], node.operand(1)), **converted.attributes)


def _gathered_from_parts(b: Builder, joined: Node, entries: Sequence[int], like: Value) -> Value | None:
    """Gather runs of entries from each part; None where that needs more ops than before."""
    sizes = [_length(v) for v in joined.operands]
    parts = [v for v in joined.operands if v is not None]
    if None in sizes or len(parts) < len(sizes):
        return None
    places = [(part, i) for part, size in zip(parts, sizes, strict=True) for i in range(size or 0)]
    runs: list[Gathered] = []
    for part, i in (places[e] for e in entries):
        if runs and runs[-1][0] is part:
            runs[-1][1].append(i)
        else:
            runs.append((part, [i]))
    if not runs or len(runs) > len(parts):
        return None
    picked = [_gather(b, part, chosen, like) for part, chosen in runs]
    return picked[0] if len(picked) == 1 else b(ops.Concatenate, *picked, axis=0)


@SHAPE_ARITHMETIC.on(ops.Concatenate)
def concatenate(b: Builder, node: Node) -> Value | None:
    """Flatten nested concatenations; merge adjacent gathers from one vector."""
    parts = [v for v in node.operands if v is not None]
    if _length(node.result) is None or len(parts) < 2:
        return None
    return _flattened(b, parts) or _gathered_together(b, parts)


@CONVERSIONS.on(ops.Concatenate)
def concatenate_before_conversion(b: Builder, node: Node) -> Value | None:
    """Convert once, after the concatenation."""
    parts = [v for v in node.operands if v is not None]
    if _length(node.result) is None or len(parts) < 2:
        return None
    nodes = [made_by(v, ops.Convert) for v in parts]
    sources = {n.operand(0).dtype for n in nodes if n is not None}
    if None in nodes or len(sources) != 1 or any(_length(n.operand(0)) is None for n in nodes if n is not None):
        return None
    if not all(single_use(v, b.graph) or parts.count(v) == len(v.uses) for v in parts):
        return None
    found = [n for n in nodes if n is not None]
    return b(ops.Convert, b(ops.Concatenate, *(n.operand(0) for n in found), axis=0), **found[0].attributes)


def _flattened(b: Builder, parts: Sequence[Value]) -> Value | None:
    inner = [made_by(v, ops.Concatenate) if single_use(v, b.graph) else None for v in parts]
    if not any(inner):
        return None
    flat = [v for part, n in zip(parts, inner, strict=True) for v in (n.operands if n is not None else [part])]
    return b(ops.Concatenate, *flat, axis=0)


def _gathered_together(b: Builder, parts: Sequence[Value]) -> Value | None:
    """Merge adjacent operands that are gathered from one vector."""
    merged: list[Value] = []
    changed = False
    for part in parts:
        mine, last = _gathered(part), _gathered(merged[-1]) if merged else None
        if mine is not None and last is not None and mine[0] is last[0]:
            node = part.producer
            assert node is not None
            merged[-1] = _gather(b, mine[0], [*last[1], *mine[1]], node.operand(1))
            changed = True
        else:
            merged.append(part)
    if not changed:
        return None
    return merged[0] if len(merged) == 1 else b(ops.Concatenate, *merged, axis=0)


@SHAPE_ARITHMETIC.on(ops.Reshape)
def entry_as_vector(b: Builder, node: Node) -> Value | None:
    """Gather a vector of one entry instead of reshaping a gathered scalar."""
    if _length(node.result) != 1:
        return None
    found = _gathered(node.operand(0), rank=0)
    inner = made_by(node.operand(0), ops.Gather)
    return _gather(b, found[0], found[1], inner.operand(1)) if found is not None and inner is not None else None
