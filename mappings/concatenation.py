"""Concatenation along an axis, old or new."""

from __future__ import annotations

from onnxtfl.rules import *

decompose(ops.Concatenate, "tfl", "elements")(moved_as_signed)


# --- Concatenate -----------------------------------------------------------------------------------------------------


@upgrade("Concat", since=(1,))
def _concat_1(b: Builder, node: Node) -> None:
    node.attributes.setdefault("axis", 1)


@lift_onnx("Concat", since=(4, 11, 13))
def _concat(b: Builder, node: Node) -> Value:
    parts = [v for v in node.operands if v is not None]
    return parts[0] if len(parts) == 1 else b(ops.Concatenate, *parts, axis=_axis(node, parts[0]))


def _axis(node: Node, x: Value) -> int:
    axis: int = node.attributes["axis"]
    return axis if x.tensor_type.rank is None else normalize_axis(axis, x.tensor_type.rank)


@lower_tfl(ops.Concatenate)
def _to_tfl_concatenation(node: Node) -> Form:
    axis = node.attr("axis")
    return Form("CONCATENATION", tuple(node.operands), {"axis": axis, "fused_activation_function": "NONE"})


@decompose(ops.Concatenate, "tfl", "axes")
def _concatenate_fewer_axes(b: Builder, node: Node) -> Value | None:
    """The axes before and behind the one that grows merged."""
    parts = [v for v in node.operands if v is not None]
    if any(v.tensor_type.shape is None for v in parts) or parts[0].rank < 4:
        return None
    rank, axis = parts[0].rank, normalize_axis(node.attr("axis"), parts[0].rank)
    groups = merge_whole([i != axis for i in range(rank)])
    if len(groups) == rank:
        return None
    merged = [reshape(b, v, merged_shape(v.shape, groups)) for v in parts]
    return reshape(b, b(ops.Concatenate, *merged, axis=min(axis, 1)), node.result.shape, *parts)


@lower_onnx(ops.Concatenate)
def _to_onnx_concat(node: Node, opset: int) -> Form:
    return Form("Concat", tuple(node.operands), {"axis": node.attr("axis")})


@lift_tfl("CONCATENATION")
def _from_tfl_concatenation(b: Builder, node: Node) -> Value:
    parts = [v for v in node.operands if v is not None]
    axis = node.attr("axis", 0)
    joined = b(ops.Concatenate, *parts, axis=axis % parts[0].rank if axis < 0 else axis)
    return activated(b, joined, node)


@lift_tfl("PACK")
def _pack(b: Builder, node: Node) -> Value:
    parts = [v for v in node.operands if v is not None]
    axis = normalize_axis(node.attr("axis", 0), parts[0].rank + 1)
    return b(ops.Concatenate, *(unsqueezed(b, v, [axis]) for v in parts), axis=axis)
