"""Concatenation along an existing or a new axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxtfl.build.rows import Spelled, row
from onnxtfl.build.runs import MOST_JOINED
from onnxtfl.build.sizes import merge_whole
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import estimated_size
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape, stacked_along, transpose_and_merge
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.rewriting.registry import decompose, lift_tfl, upgrade

row(ops.Concatenate, onnx="Concat", since=(4, 11, 13), attributes="axis", axes=("axis",))
row(ops.Concatenate, tfl="CONCATENATION", attributes="axis", lifts=False)


@lift_tfl("CONCATENATION")
def _concatenation(b: Builder, node: Node) -> Value:
    """LiteRT's kernel refuses a fused activation (kernels/concatenation.cc), XNNPACK ignores it."""
    if (name := node.attr("fused_activation_function", "NONE")) != "NONE":
        hint = "make the activation a separate op"
        raise UnsupportedError(f"the fused activation {name}, which kernels refuse or ignore", hint=hint)
    parts = [node.operand(i) for i in range(len(node.operands))]
    return b(ops.Concatenate, *parts, axis=normalize_axis(node.attr("axis", 0), parts[0].rank))


row(ops.Concatenate, tfl="STABLEHLO_CONCATENATE", tfl_options={"axis": Spelled("dimension", default=0)}, lowers=False)


@upgrade("Concat", since=(1,))
def _concat_1(b: Builder, node: Node) -> None:
    node.attributes.setdefault("axis", 1)


@decompose(ops.Concatenate, "tfl", "axes")
def _concatenate_fewer_axes(b: Builder, node: Node) -> Value | None:
    """Merge the axes before and those after the concatenated one."""
    parts = node.present_operands
    if any(v.tensor_type.shape is None for v in parts) or parts[0].rank < 4:
        return None
    rank, axis = parts[0].rank, normalize_axis(node.attr("axis"), parts[0].rank)
    groups = merge_whole([i != axis for i in range(rank)])
    if len(groups) == rank:
        return None
    joined = b(ops.Concatenate, *(transpose_and_merge(b, v, groups) for v in parts), axis=min(axis, 1))
    return reshape(b, joined, node.result.shape, *parts)


@decompose(ops.Concatenate, "tfl")
def _concatenate_halves(b: Builder, node: Node) -> Value | None:
    """Concatenate each half of the operands first, for kernels with a limit on operands."""
    half = len(node.operands) // 2
    if half < 2:
        return None
    parts = (b(ops.Concatenate, *found, **node.attributes) for found in (node.operands[:half], node.operands[half:]))
    return b(ops.Concatenate, *parts, **node.attributes)


@decompose(ops.Concatenate, "xnnpack", when=lambda node: len(node.operands) > MOST_JOINED)
def _concatenate_groups(b: Builder, node: Node) -> Value:
    """Concatenate groups of operands first, since XNNPACK takes few at a time: one group of the smallest neighbors, if
    that is enough, else as many as there are operands in each, of many operands in groups of groups.
    """
    return _in_groups(b, node, node.operands)


def _in_groups(b: Builder, node: Node, parts: Sequence[Value | None]) -> Value:
    """The concatenation of some operands of `node`."""
    extra = len(parts) - MOST_JOINED
    if extra <= 0:
        return b(ops.Concatenate, *parts, **node.attributes)
    if extra < MOST_JOINED:
        first = min(range(MOST_JOINED), key=lambda i: sum(map(_elements, parts[i : i + extra + 1])))
        joined = b(ops.Concatenate, *parts[first : first + extra + 1], **node.attributes)
        return b(ops.Concatenate, *parts[:first], joined, *parts[first + extra + 1 :], **node.attributes)
    count = max(math.isqrt(len(parts) - 1) + 1, -(-len(parts) // MOST_JOINED))
    groups = [parts[i : i + count] for i in range(0, len(parts), count)]
    joined_groups = [_in_groups(b, node, group) if len(group) > 1 else group[0] for group in groups]
    return b(ops.Concatenate, *joined_groups, **node.attributes)


def _elements(value: Value | None) -> int:
    """The estimated number of elements."""
    return 0 if value is None else math.prod(map(estimated_size, value.tensor_type.shape or ()))


@lift_tfl("PACK")
def _pack(b: Builder, node: Node) -> Value:
    parts = [node.operand(i) for i in range(len(node.operands))]
    axis = normalize_axis(node.attr("axis", 0), parts[0].rank + 1)
    return stacked_along(b, parts, axis)
