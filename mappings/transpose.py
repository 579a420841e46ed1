"""Transpose, with axes merged where kernels take few."""

from __future__ import annotations

from onnxtfl.rules import *

decompose(ops.Transpose, "tfl", "elements")(moved_as_signed)


# --- Transpose -------------------------------------------------------------------------------------------------------


@lift_onnx("Transpose", since=(1, 13, 21, 23, 24, 25))
def _transpose(b: Builder, node: Node) -> Value:
    x, permutation = node.operand(0), node.attributes.get("perm")
    if permutation is None:
        if x.tensor_type.shape is None:
            raise UnsupportedError("the axes of a tensor of unknown rank cannot be reversed", hint="give --input-shape")
        permutation = tuple(reversed(range(x.rank)))
    return b(ops.Transpose, x, permutation=tuple(permutation))


@lift_tfl("TRANSPOSE")
def _from_tfl_transpose(b: Builder, node: Node) -> Value:
    x, permutation = node.operand(0), static_ints(node.operand(1))
    if permutation is None:
        raise UnsupportedError("a permutation known only at run time")
    return b(ops.Transpose, x, permutation=normalize_axes(permutation, len(permutation)))


@lower_tfl(ops.Transpose)
def _to_tfl_transpose(node: Node) -> Form:
    return Form("TRANSPOSE", (node.operand(0), int32(node.attr("permutation"))))


@decompose(ops.Transpose, "tfl", "axes")
def _transpose_fewer_axes(b: Builder, node: Node) -> Value | None:
    """Axes that stay together merged; where that is not enough, two that end up together are brought so first."""
    x, axes = node.operand(0), tuple(node.attr("permutation"))
    if x.tensor_type.shape is None:
        return None
    together: list[list[int]] = []
    for axis in axes:
        if together and together[-1][-1] + 1 == axis:
            together[-1].append(axis)
        else:
            together.append([axis])
    if len(together) == len(axes):
        return _transpose_in_two(b, x, axes) if len(axes) > 4 else None
    sources = sorted(together)
    merged = reshape(b, x, merged_shape(x.shape, sources))
    moved = b(ops.Transpose, merged, permutation=tuple(sources.index(g) for g in together))
    return reshape(b, moved, node.result.shape, x)


def _transpose_in_two(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """The axis that comes second in the end moved behind the one that comes first; then these are one."""
    order = [a for a in range(len(axes)) if a != axes[1]]
    order.insert(order.index(axes[0]) + 1, axes[1])
    near = b(ops.Transpose, x, permutation=tuple(order))
    return b(ops.Transpose, near, permutation=tuple(order.index(a) for a in axes))


@lower_onnx(ops.Transpose)
def _to_onnx_transpose(node: Node, opset: int) -> Form:
    return Form("Transpose", (node.operand(0),), {"perm": tuple(node.attr("permutation"))})
