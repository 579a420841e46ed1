"""Copies of branch outputs that kernels compute while they are prepared; tfl to tfl.

::

    then_branch:  %p = tfl.RESHAPE(%constant) -> (%p)     ->     %p = tfl.RESHAPE(%constant) %q = tfl.SLICE(%p) -> (%q)

Some LiteRT kernels compute constant results in Prepare, and own that memory. IF lets the outputs of its branches write
to the memory of its results, so that the second invocation frees memory that the branch does not own, and crashes
(measured on LiteRT 2.3, builtin kernels).
Source: SetTensorToPersistentRo in reshape.cc, shape.cc, ...; Eval_static in if.cc.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.tflite import TfliteTarget

_ALL = np.iinfo(np.int32).max
"""A slice limit beyond every axis."""


def copy_prepared(region: Graph, target: TfliteTarget) -> None:
    """Copy each output of `region` that may be computed in Prepare."""
    builder, prepared = Builder(region, maker="memory"), _prepared(region)
    for i, value in enumerate(region.outputs):
        if value in prepared:
            builder.cause = value.producer
            region.outputs[i] = _copied(builder, value)
    if builder.created:
        legalize(region, target, late=True)
        lower(region, target)


def _prepared(region: Graph) -> set[Value]:
    """Return the results of nodes that depend only on constants and shapes."""
    prepared = set[Value]()
    for node in region.nodes:
        given = node.present_operands
        if node.lowered_from is ops.Shape or all(v.is_constant or v in prepared for v in given):
            prepared.update(() if node.regions else node.results)
    return prepared


def _copied(b: Builder, value: Value) -> Value:
    """Return a slice of the whole tensor, which has its own memory.

    Integer vectors get a second axis: their slices would be STRIDED_SLICE, which is also computed in Prepare.
    """
    value.known = None  # known elements would make the copy a constant
    added = [1] * (2 - value.rank if value.dtype.is_integer else 1 - value.rank)
    rows = reshape(b, value, [*added, *value.shape]) if added else value
    rank = rows.rank
    copy = b(ops.Slice, rows, [0] * rank, [_ALL] * rank, [1] * rank)
    copy.type = rows.type
    result = reshape(b, copy, value.shape) if added else copy
    result.type, result.origins = value.type, value.origins
    return result
