"""Where and SELECT.

ONNX          Where 9 16
TFLite        SELECT, SELECT_V2
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.build.runs import MOST_RUNS, joined, run_of
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import broadcast, reshape, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, decompose_late, lift_tfl

MOST_STORED = 1 << 15
"""The most elements of a constant that is sliced in place of a SELECT."""

row(ops.Select, onnx="Where", since=(9, 16))


row(ops.Select, tfl="SELECT_V2", lifts=False)
row(ops.Select, tfl="STABLEHLO_SELECT", lowers=False)


@lift_tfl("SELECT", "SELECT_V2")
def _select(b: Builder, node: Node) -> Value:
    """SELECT with a condition of rank 1 selects along the first axis.

    If all operands have one element, the result has the declared rank (LiteRT kernels/select.cc).
    """
    condition, on_true, on_false = operands = [node.operand(i) for i in range(3)]
    if node.op.name == "tfl.SELECT" and condition.tensor_type.rank == 1 and (on_true.tensor_type.rank or 0) > 1:
        condition = unsqueezed(b, condition, range(1, on_true.rank))
    chosen = b(ops.Select, condition, on_true, on_false)
    single = all(v.is_static and product(v.shape) == 1 for v in (*operands, node.result))
    return reshape(b, chosen, node.result.shape) if single else chosen


def _broadcasts(node: Node) -> bool:
    return len({v.tensor_type.shape for v in node.present_operands}) > 1 and node.result.is_static


@decompose(ops.Select, "gpu", order="operands", when=_broadcasts)
def _select_of_equal_shapes(b: Builder, node: Node) -> Value:
    """Broadcast operands before; constants of one element lose their axes."""
    made = []
    for value in (node.operand(i) for i in range(3)):
        is_flat = value.is_constant and product(value.shape) == 1
        made.append(reshape(b, value, ()) if is_flat else broadcast(b, value, node.result.shape))
    return b(ops.Select, *made)


def _has_a_constant_condition(node: Node) -> bool:
    return node.operand(0).data is not None and node.result.is_static and node.result.dtype.is_float


@decompose_late(ops.Select, "xnnpack", when=_has_a_constant_condition)
def _select_by_runs(b: Builder, node: Node) -> Value | None:
    """Join slices of the operands where a constant condition changes seldom along an axis: XNNPACK has no SELECT."""
    condition, sizes = node.operand(0), known_sizes(node.result.shape)
    shape = condition.shape
    varying = [axis for axis, size in enumerate((1,) * (len(sizes) - len(shape)) + shape) if size != 1]
    if not varying or varying != [*range(varying[0], varying[-1] + 1)]:
        return None
    first, end = varying[0], varying[-1] + 1
    merged = [math.prod(part) for part in (sizes[:first], sizes[first:end], sizes[end:])]
    flags = condition.numpy().reshape(-1)
    ends = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), flags.size]
    sides = [_merged(b, node.operand(i), sizes, merged) for i in (1, 2)]
    if flags.size != merged[1] or len(ends) - 1 > MOST_RUNS or any(side is None for side in sides):
        return None
    parts = [run_of(b, v, 1, *run) for run in itertools.pairwise(ends) if (v := sides[0 if flags[run[0]] else 1])]
    return reshape(b, joined(b, parts, 1), sizes)


def _merged(b: Builder, value: Value, sizes: Sequence[int], merged: Sequence[int]) -> Value | None:
    """`value`, or a small constant that is broadcast, with the axes `merged`; None for others."""
    if list(value.shape) == list(sizes):
        return reshape(b, value, merged)
    if value.data is None or math.prod(sizes) > MOST_STORED:
        return None
    return constant(np.broadcast_to(value.numpy(), sizes).reshape(merged).copy())


@formula(ops.Select, "onnx")
def _select_of_uint64(condition: Term, on_true: Term, on_false: Term) -> Term | None:
    """ONNX Runtime has a kernel for signed integers only."""
    if on_true.dtype is not DType.UINT64:
        return None
    return condition.choose(on_true.to(DType.INT64), on_false.to(DType.INT64)).to(DType.UINT64)
