"""Reshape, Squeeze, Unsqueeze, Flatten and com.microsoft ExpandDims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.operands import to_operand
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.runtime_axes import squeeze_axes, unsqueezed_at
from onnxtfl.build.sizes import clamp_to_int32, int32_operands, may_hold_zeros, narrow_constant, vector_length
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, is_nonnegative, is_static, may_be_one, product, substitute, symbols
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.reshape import dim_vector, reshape, reshape_inferred
from onnxtfl.ir.shapes import distinct_axes, known_dims, static_ints
from onnxtfl.ir.shown_sizes import shown_dim, shown_shape
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType, TensorType, rank_of
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, upgrade

# --- Reshape ---------------------------------------------------------------------------------------------------------


upgrade("Reshape", since=(1,))(to_operand("shape", default=()))
upgrade("Squeeze", since=(1, 11))(to_operand("axes"))
upgrade("Unsqueeze", since=(1, 11))(to_operand("axes"))


@lift_onnx("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25))
def _reshape(b: Builder, node: Node) -> Value:
    """A 0 copies the operand's size (unless allowzero), -1 is the remaining size."""
    x, shape = node.operand(0), node.operand(1)
    copies = not node.attr("allowzero", 0)
    dims = known_dims(shape)
    if dims is None or may_hold_zeros(shape):
        return b(ops.Reshape, x, _with_copied_sizes(b, x, shape) if copies else shape)
    if copies and -1 in dims:
        _assume_not_0(x, dims)
    if copies and 0 in dims:
        dims = [x.shape[i] if d == 0 else d for i, d in enumerate(dims)]
    return reshape_inferred(b, x, dims, shape)


def _assume_not_0(x: Value, dims: Sequence[Dim]) -> None:
    """Record the assumption that computed sizes are not 0: ONNX Runtime would copy the size of `x` instead."""
    own = x.tensor_type.shape or ()
    for dim, copied in zip(dims, own, strict=False):
        both = all(substitute(copied, {symbol: 0}) == 0 for symbol in symbols(dim))
        if not both and not is_nonnegative(dim - 1):
            text = "ONNX Runtime replaces a computed size of 0 by the operand's size"
            assume(f"{shown_dim(dim)}, a size computed for a Reshape, is at least 1: {text}", is_minor=True)


def _with_copied_sizes(b: Builder, x: Value, shape: Value) -> Value:
    """Replace zeros in the vector by the operand's sizes."""
    if x.tensor_type.shape is not None and is_static(shape.tensor_type.shape):
        rank = vector_length(shape)
        own = dim_vector(b, [*x.shape, *(1,) * rank][:rank], x)
    else:
        padded = b(ops.Concatenate, b(ops.Shape, x), [1] * 8, axis=0)
        own = b(ops.Slice, padded, [0], b(ops.Shape, shape), [1])
    is_zero = b(ops.Compare, shape, b.scalar(0, shape), comparison_direction="EQ")
    return b(ops.Select, is_zero, own, shape)


@lift_onnx("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25))
def _flatten(b: Builder, node: Node) -> Value:
    x, axis = node.operand(0), node.attr("axis", 1)
    if axis == 0 and x.tensor_type.shape is None:
        return b(ops.Reshape, x, [1, -1])
    if not -x.rank <= axis <= x.rank:
        raise ValueError(f"axis {axis} is outside of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return reshape(b, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@lift_onnx("Squeeze", since=(13, 21, 23, 24, 25))
def _squeeze(b: Builder, node: Node) -> Value:
    """Without `axes`, or with an empty list, remove all unit axes (measured in ONNX Runtime)."""
    x, axes = node.operand(0), node.optional(1)
    if axes is None or axes.tensor_type.shape == (0,):
        return _without_unit_axes(b, node)
    return squeeze_axes(b, x, axes)


def _without_unit_axes(b: Builder, node: Node) -> Value:
    """Remove axes of size 1, also dynamic ones.

    Dynamic sizes computed in the model are assumed to be larger than 1 unless the file declares a rank. Sizes of inputs
    are compared with 1 at run time: the result has the declared rank, else a dynamic rank.
    """
    x, declared = node.operand(0), node.results[0].type
    kept = [d for d in x.shape if d != 1]
    doubtful = [d for d in kept if may_be_one(d)]
    rank = rank_of(declared)
    if rank is not None and not len(kept) - len(doubtful) <= rank <= len(kept):
        rank = None  # ONNX Runtime accepts that
    if not doubtful or rank == len(kept):
        return reshape(b, x, kept)
    if rank is None and not any(_is_of_input(d, b.graph) for d in doubtful):
        text = f"no other size of {shown_shape(x.shape)} is 1 at Squeeze {shown_name(node)}"
        assume(text, is_minor=True)
        return reshape(b, x, kept)
    sizes = dim_vector(b, kept, x)
    larger = b(ops.Compare, sizes, b.scalar(1, sizes), comparison_direction="NE")
    places = b(ops.Reshape, b(ops.NonZero, larger), [-1 if rank is None else rank])
    return b(ops.Reshape, x, b(ops.Gather, sizes, places, axis=0))


def _is_of_input(dim: Dim, graph: Graph) -> bool:
    """Whether `dim` depends on a dynamic size of an input."""
    shapes = [v.type.shape or () for v in graph.inputs if isinstance(v.type, TensorType)]
    of_inputs = {symbol for shape in shapes for size in shape for symbol in symbols(size)}
    return any(isinstance(symbol, str) or symbol in of_inputs for symbol in symbols(dim))


@lift_onnx("Unsqueeze", since=(13, 21, 23, 24, 25))
def _unsqueeze(b: Builder, node: Node) -> Value:
    return unsqueezed_at(b, node.operand(0), node.operand(1))


@lift_onnx("ExpandDims", since=(1,), domain=MICROSOFT)
@lift_tfl("EXPAND_DIMS")
def _expand_dims(b: Builder, node: Node) -> Value:
    """Insert one axis, given as a scalar or a vector of one element."""
    return unsqueezed_at(b, node.operand(0), reshape(b, node.operand(1), (1,)))


@lower_tfl(ops.Reshape)
def _to_tfl_reshape(node: Node) -> Form:
    is_static = node.result.is_static
    target = clamp_to_int32(node.result.shape) if is_static else narrow_constant(node.operand(1))
    return Form("RESHAPE", (node.operand(0), target))


@lower_onnx(ops.Reshape)
def _to_onnx_reshape(node: Node, opset: int) -> Form:
    target = node.operand(1)
    if target.is_constant:
        numbers = np.asarray(target.numpy(), np.int64)
        zero = bool((numbers == 0).any())
        if zero and opset < 14:
            return Form("Reshape", (node.operand(0), _without_zeros(node)))
        return Form("Reshape", (node.operand(0), numbers), {"allowzero": 1} if zero else {})
    zeros = _may_copy_wrongly(node.operand(0), known_dims(target))
    return Form("Reshape", (node.operand(0), target), {"allowzero": 1} if zeros and opset >= 14 else {})


def _may_copy_wrongly(x: Value, dims: Sequence[Dim] | None) -> bool:
    """Whether one of `dims` may be 0 at run time, so that ONNX would copy a different size of `x`."""
    own = x.tensor_type.shape or ()
    same = [i < len(own) and d == own[i] for i, d in enumerate(dims or ())]
    return dims is None or not all(s or (differ(d, 0)) for s, d in zip(same, dims, strict=True))


def _without_zeros(node: Node) -> Array:
    """Avoid sizes of 0, which before opset 14 can only be copied or result from -1."""
    numbers = np.asarray(node.operand(1).numpy(), np.int64)
    shape = node.operand(0).shape
    copied = [i < len(shape) and n == 0 and shape[i] == 0 for i, n in enumerate(numbers)]
    return np.asarray([-1 if n == 0 and not c else n for n, c in zip(numbers, copied, strict=True)], np.int64)


decompose(ops.Reshape, "tfl")(int32_operands(1))


@lift_tfl("RESHAPE")
def _from_tfl_reshape(b: Builder, node: Node) -> Value:
    """RESHAPE to the sizes in an int32 vector, else in the options, where [0] means a scalar (reshape.cc)."""
    x, shape = node.operand(0), node.optional(1)
    wanted = [int(d) for d in node.attr("new_shape", ()) or ()]
    if shape is None or shape.rank != 1 or shape.dtype is not DType.INT32:
        return reshape_inferred(b, x, [] if wanted == [0] else wanted)
    dims = static_ints(shape)
    if dims is None:
        return b(ops.Reshape, x, shape)
    if not dims and wanted and (x.tensor_type.shape is None or not may_be_one(product(x.shape))):
        # an empty shape operand besides options: kernels that accept it return a scalar
        return reshape_inferred(b, x, wanted)
    return reshape_inferred(b, x, dims, shape)


@lift_tfl("STABLEHLO_RESHAPE")
def _stablehlo_reshape(b: Builder, node: Node) -> Value:
    """Reshape to the shape of the result."""
    return reshape(b, node.operand(0), node.result.shape)


@lift_tfl("SQUEEZE")
def _from_tfl_squeeze(b: Builder, node: Node) -> Value:
    x, axes = node.operand(0), tuple(node.attr("squeeze_dims", ()) or ())
    if not axes:
        return _without_unit_axes(b, node)
    gone = distinct_axes(axes, x.rank)
    return reshape(b, x, [d for i, d in enumerate(x.shape) if i not in gone])
