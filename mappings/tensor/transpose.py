"""Transpose, with axes merged for kernels with a limit on the rank."""

from __future__ import annotations

from onnxtfl.build.rows import Entries, row
from onnxtfl.build.runtime_axes import transposed_by
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape, transpose_and_merge
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, lift_onnx, lift_tfl

row(ops.Transpose, onnx="Transpose", attributes={"permutation": "perm"}, lifts=False)
row(ops.Transpose, tfl="TRANSPOSE", attributes={"permutation": Entries("a permutation")}, lifts=False)
row(ops.Transpose, tfl="STABLEHLO_TRANSPOSE", attributes="permutation", lowers=False)


@lift_onnx("Transpose", since=(1, 13, 21, 23, 24, 25))
def _transpose(b: Builder, node: Node) -> Value:
    x, permutation = node.operand(0), node.attributes.get("perm")
    return b(ops.Transpose, x, permutation=tuple(reversed(range(x.rank)) if permutation is None else permutation))


@lift_tfl("TRANSPOSE")
def _from_tfl_transpose(b: Builder, node: Node) -> Value:
    if node.operand(1).dtype is not DType.INT32:
        raise UnsupportedError("TFLite's kernel reads the permutation as int32", type_=node.operand(1).type)
    return transposed_by(b, node.operand(0), node.operand(1))


_MOST_TURNED, _MOST_PARTS = 1 << 16, 64
"""The largest product of all axes but two that an NPU transposes, and the most parts that larger ones are cut into."""


@decompose(ops.Transpose, "ethos-u", when=lambda node: node.operand(0).is_static)
def _transposed_parts(b: Builder, node: Node) -> Value | None:
    """Transpose parts along a first axis that stays."""
    x, axes = node.operand(0), tuple(node.attr("permutation"))
    if axes[0] != 0 or x.rank != 4:
        return None
    inner = sorted(x.size(axis) for axis in range(1, 4))
    size = min(x.size(0), _MOST_TURNED // inner[-1])
    if inner[-1] * inner[-2] > _MOST_TURNED or not x.size(0) // _MOST_PARTS < size < x.size(0):
        return None
    parts = [slice_axes(b, x, {0: slice(start, start + size)}) for start in range(0, x.size(0), size)]
    return b(ops.Concatenate, *(b(ops.Transpose, part, permutation=axes) for part in parts), axis=0)


@decompose(ops.Transpose, "ethos-u", "axes")
@decompose(ops.Transpose, "tfl", "axes")
def _transpose_fewer_axes(b: Builder, node: Node) -> Value | None:
    """Merge axes that stay adjacent; if there are none, first move two together that end up adjacent."""
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
    moved = b(ops.Transpose, transpose_and_merge(b, x, sources), permutation=tuple(sources.index(g) for g in together))
    return reshape(b, moved, node.result.shape, x)


def _transpose_in_two(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """Move the second axis of the result after the first one, then both as one axis."""
    order = [a for a in range(len(axes)) if a != axes[1]]
    order.insert(order.index(axes[0]) + 1, axes[1])
    near = b(ops.Transpose, x, permutation=tuple(order))
    return b(ops.Transpose, near, permutation=tuple(order.index(a) for a in axes))
