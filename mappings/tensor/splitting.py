"""Split, Unstack and their TFLite ops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxtfl.build.operands import to_operand
from onnxtfl.build.rows import row
from onnxtfl.build.runtime_axes import MiddleAxis, one_axis
from onnxtfl.build.sizes import INT32_MAX, clamp_to_int32, int32_operands, narrow_constant, sizes_as_int64
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PartData
from onnxtfl.ir.dims import Dim, ceildiv, is_static, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import single_use
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, reshape, spread
from onnxtfl.ir.shapes import known_dims, normalize_axis, static_ints
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, upgrade

# --- Split -----------------------------------------------------------------------------------------------------------


def _has_sizes(node: Node) -> bool:
    return node.optional(1) is not None


row(ops.Split, onnx="Split", attributes="axis", integers=(1,), when=_has_sizes, lifts=False)
decompose(ops.Split, "tfl", "operands")(int32_operands(1))


@upgrade("Split", since=(1, 2, 11))
def _split_to_operand(b: Builder, node: Node) -> None:
    """Sizes are an attribute; version 1 may have them as an operand of the tensor's dtype."""
    if "split" in node.attributes:
        del node.operands[1:]
        to_operand("split")(b, node)
    elif node.optional(1) is not None:
        node.set_operand(1, sizes_as_int64(b, node.operand(1)))


@lift_onnx("Split", since=(13, 18))
def _split(b: Builder, node: Node) -> Sequence[Value]:
    """Split by the operand of sizes, else into equal parts, the last of which may be smaller (since version 18)."""
    x, sizes = node.operand(0), node.optional(1)
    axis, count = node.attr("axis", 0), _count(node, "num_outputs")
    if x.tensor_type.rank is not None:
        axis = normalize_axis(axis, x.tensor_type.rank)
    if sizes is not None:
        if "num_outputs" in node.attributes:
            raise ValueError("both the sizes and num_outputs are given")
        if sizes.is_static and product(sizes.shape) != len(node.results):
            raise ValueError(f"{product(sizes.shape)} sizes for {len(node.results)} results")
        if known_dims(sizes) is None:
            sizes = b(ops.Reshape, sizes, [len(node.results)])
        return b.many(ops.Split, x, sizes, axis=axis)
    if x.tensor_type.shape is None or not node.attr("num_outputs"):
        return b.many(ops.Split, x, axis=axis, count=count)
    return _split_unevenly(b, x, axis, count)


def _count(node: Node, name: str) -> int:
    """Return the number of results; ValueError if the attribute differs."""
    count = node.attr(name) or len(node.results)
    if count != len(node.results):
        raise ValueError(f"{len(node.results)} results for {name}={count}")
    return len(node.results)


def _split_unevenly(b: Builder, x: Value, axis: int, count: int) -> Sequence[Value]:
    total = x.shape[axis]
    part = ceildiv(total, count)
    if part * count == total:
        return b.many(ops.Split, x, axis=axis, count=count)
    sizes: list[Dim] = [part] * (count - 1) + [total - part * (count - 1)]
    return b.many(ops.Split, x, dim_vector(b, sizes, x), axis=axis)


@lower_tfl(ops.Split)
def _to_tfl_split(node: Node) -> Form:
    sizes, axis, count = node.optional(1), clamp_to_int32([node.attr("axis")]), len(node.results)
    known = static_ints(sizes)
    if sizes is None or (known is not None and len(set(known)) == 1 and known[0]):
        return Form("SPLIT", (axis.reshape(()), node.operand(0)), {"num_splits": count})
    return Form("SPLIT_V", (node.operand(0), narrow_constant(sizes), axis.reshape(())), {"num_splits": count})


def _parts(node: Node) -> tuple[int, list[Dim]]:
    """Return the axis, and the boundaries of the parts."""
    axis = normalize_axis(node.attr("axis"), node.operand(0).rank)
    return axis, list(itertools.accumulate((part.shape[axis] for part in node.results), initial=0))


def _may_be_sliced(node: Node) -> bool:
    """Whether the sizes of the parts are known or can be computed from those of the operand."""
    if node.operand(0).tensor_type.shape is None:
        return False
    return node.optional(1) is None or known_dims(node.operand(1)) is not None or is_static(_parts(node)[1])


@decompose(ops.Split, when=_may_be_sliced)
def _split_by_slicing(b: Builder, node: Node) -> Sequence[Value]:
    """Return one Slice per part, which supports more element types."""
    x, (axis, ends) = node.operand(0), _parts(node)
    starts = [spread(b, dim_vector(b, [end], x), [axis], x.rank, 0) for end in ends[:-1]]
    stops = [spread(b, dim_vector(b, [end], x), [axis], x.rank, INT32_MAX) for end in ends[1:]]
    return [b(ops.Slice, x, start, stop, [1] * x.rank) for start, stop in zip(starts, stops, strict=True)]


MOST_SLICES = 64
"""The most parts that are slices for the sake of the delegate: each is an op of the file."""


def _has_few_parts(node: Node) -> bool:
    return len(node.results) <= MOST_SLICES and is_static(_parts(node)[1])


decompose(ops.Split, "xnnpack", when=_has_few_parts, benefit=-1)(_split_by_slicing)

MOST_PRODUCTS = 4
"""The most parts of a product that are separate products: each reads the other operand."""


@decompose(ops.Split, "xnnpack")
def _split_product(b: Builder, node: Node) -> Sequence[Value] | None:
    """Multiply by the parts of a constant matrix instead: XNNPACK has no SPLIT_V, and unused parts are not computed.

    ::

        %p = DotGeneral(%x, %w)               %a = DotGeneral(%x, %w[:96])
        %a, %b = Split(%p, [96, 24])    ->    %b = DotGeneral(%x, %w[96:])
    """
    made, (axis, ends) = node.operand(0).producer, _parts(node)
    if made is None or not issubclass(made.op, ops.DotGeneral) or not single_use(node.operand(0), b.graph):
        return None
    x, (weight, *bias), roles = made.operand(0), made.operands[1:], ops.DotRoles.of(made)
    is_last = axis == node.operand(0).rank - 1 and len(roles.rhs_free) == 1 and not made.attr("output_permutation")
    if not is_last or roles.rhs_batch or not is_static(ends) or len(node.results) > MOST_PRODUCTS:
        return None
    if not all(map(_is_real_constant, (weight, *bias))) or any(v is not None and v.rank > 1 for v in bias):
        return None
    places = [(weight, roles.rhs_free[0]), *((v, 0) for v in bias)]
    return [
        b(made.op, x, *(_rows(v, at, start, end) for v, at in places if v is not None), **made.attributes)
        for start, end in itertools.pairwise(ends)
    ]


def _is_real_constant(value: Value | None) -> bool:
    return value is not None and value.data is not None and is_real(value.type)


def _rows(value: Value, axis: int, start: int, stop: int) -> Value:
    """A part of a constant along an axis."""
    assert value.data is not None
    return constant(PartData(value.data, start, stop, axis))


@lower_onnx(ops.Split)
def _to_onnx_equal_split(node: Node, opset: int) -> Form | None:
    count = {"num_outputs": len(node.results)} if opset >= 18 else {}
    return None if node.optional(1) else Form("Split", (node.operand(0),), {"axis": node.attr("axis"), **count})


@lift_tfl("SPLIT")
def _from_tfl_split(b: Builder, node: Node) -> Sequence[Value]:
    x, axis, count = node.operand(1), one_axis(node.operand(0), node.operand(1)), _count(node, "num_splits")
    if count == 1:
        return [x]
    if axis is not None:
        return b.many(ops.Split, x, axis=axis, count=count)
    middle = MiddleAxis.of(b, x, node.operand(0))
    size = b(ops.Div, middle.size, [count])
    parts = b.many(ops.Split, middle.folded, b(ops.BroadcastTo, size, [count]), axis=1)
    return middle.unfolded(parts, [size] * count)


@lift_tfl("SPLIT_V")
def _from_tfl_split_v(b: Builder, node: Node) -> Sequence[Value]:
    x, sizes, axis = node.operand(0), node.operand(1), one_axis(node.operand(2), node.operand(0))
    if sizes.is_static and product(sizes.shape) != len(node.results):
        raise ValueError(f"{product(sizes.shape)} sizes for {len(node.results)} results")
    if axis is not None:
        return b.many(ops.Split, x, _sizes(b, sizes, x.shape[axis], x), axis=axis)
    middle = MiddleAxis.of(b, x, node.operand(2))
    sizes = _sizes(b, sizes, middle.folded.shape[1], middle.folded)
    parts = b.many(ops.Split, middle.folded, sizes, axis=1)
    return middle.unfolded(parts, [b(ops.Gather, sizes, [i], axis=0) for i in range(len(parts))])


def _sizes(b: Builder, sizes: Value, total: Dim, x: Value) -> Value:
    """Return the sizes of the parts of an axis of size `total` of `x`; -1 is the rest."""
    known = static_ints(sizes)
    if known is None:
        given = Term(b, as_int64(b, sizes))
        others = given.reduce("sum") + 1
        return given.equals(-1).choose(Term(b, dim_value(b, total, x)) - others, given).value
    rest = total - sum(k for k in known if k != -1)
    return dim_vector(b, [rest if k == -1 else k for k in known], x)


@lift_tfl("UNPACK")
def _unpack(b: Builder, node: Node) -> Sequence[Value]:
    x, count = node.operand(0), _count(node, "num")
    axis = normalize_axis(node.attr("axis", 0), x.rank)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    parts = [x] if count == 1 else b.many(ops.Split, x, axis=axis, count=count)
    return [reshape(b, part, shape) for part in parts]
