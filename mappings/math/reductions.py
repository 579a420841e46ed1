"""Reductions over axes, ArgMax and ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnxtfl.mappings.math.reductions_by_halving import by_halving

from onnxtfl.build.operands import moved_last, to_operand
from onnxtfl.build.rows import Entries, ResultType, Spelled, row
from onnxtfl.build.runtime_axes import MiddleAxis, one_axis
from onnxtfl.build.sizes import clamp_to_int32, int32_operands, slice_axes, with_dtype
from onnxtfl.build.stablehlo import body_as_it_is, int_list
from onnxtfl.build.uint64 import on_signed
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import NEUTRAL, joining, reduced_by_graph
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import is_static, known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import broadcast, dim_value, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import distinct_axes, normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.kernels.reduce_prod import by_steps
from onnxtfl.rewriting.registry import (
    Condition,
    DecomposeRule,
    Form,
    decompose,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    regions_of,
    upgrade,
)


@lower_onnx(ops.Reduce)
def _global_pool(node: Node, opset: int) -> Form | None:
    """Reduce all axes after batch and features, and keep them as unit axes."""
    axes, rank = ops.reduced_axes(node), node.operand(0).tensor_type.rank or 0
    name = {"mean": "GlobalAveragePool", "max": "GlobalMaxPool"}.get(node.attr("kind"))
    whole = axes is not None and rank > 2 and set(axes) == set(range(2, rank)) and node.attr("keepdims")
    whole = whole and not _is_mean_over_empty_axes(node)
    return Form(name, (node.operand(0),)) if name and whole and node.operand(0).dtype.is_float else None


# Kind, ONNX's op, its since-versions with the axes as an attribute, and as an operand; TFLite's op.
_OLD, _NEW = (1, 11, 13), (18,)
_KINDS = (
    ("sum", "ReduceSum", (1, 11), (13,), "SUM"),
    ("prod", "ReduceProd", _OLD, _NEW, "REDUCE_PROD"),
    ("mean", "ReduceMean", _OLD, _NEW, "MEAN"),
    ("max", "ReduceMax", (1, 11, 12, 13), (18, 20), "REDUCE_MAX"),
    ("min", "ReduceMin", (1, 11, 12, 13), (18, 20), "REDUCE_MIN"),
)
_FUNCTIONS = (
    ("l1", "ReduceL1", _NEW),
    ("l2", "ReduceL2", _NEW),
    ("sum_square", "ReduceSumSquare", _NEW),
    ("log_sum", "ReduceLogSum", (18, 28)),
    ("log_sum_exp", "ReduceLogSumExp", (18, 28)),
)
_TFL = {kind: tfl for kind, *_, tfl in _KINDS} | {"any": "REDUCE_ANY", "all": "REDUCE_ALL"}
_BY_TFL = {tfl: kind for kind, tfl in _TFL.items()}


# --- ONNX -------------------------------------------------------------------------------------------------------------


def _axes(b: Builder, node: Node) -> Value | None:
    """Return the axes operand of the neutral op: absent for all axes, empty for none."""
    axes, keeps = node.optional(1), bool(node.attributes.get("noop_with_empty_axes", 0))
    if axes is not None and (axes.tensor_type.rank or 0) > 1:
        raise ValueError(f"axes of shape {list(axes.shape)}, not a vector")
    if axes is not None and axes.tensor_type.shape != (0,):
        return axes if keeps else _all_if_empty(b, axes, node.operand(0).tensor_type.rank)
    return constant(np.zeros(0, np.int64)) if keeps else None


def _all_if_empty(b: Builder, axes: Value, rank: int | None) -> Value:
    """Return the axes; all axes if their dynamic number is 0."""
    shape = axes.tensor_type.shape
    if rank is None or shape is None or is_static(shape):
        return axes
    is_empty = Term(b, b(ops.Shape, axes)).equals(0).to(DType.INT64)
    every = b(ops.Slice, constant(np.arange(rank)), [0], (is_empty * rank).value, [1])
    return b(ops.Concatenate, axes, every, axis=0)


def _lift_kind(b: Builder, node: Node, kind: str, op: type[Op] = ops.Reduce) -> Value:
    x, axes = node.operand(0), _axes(b, node)
    if x.dtype is DType.BOOL:
        kind = {"max": "any", "min": "all"}[kind]
    if op is ops.Reduce and axes is not None and axes.shape == (0,):
        return x
    if kind == "mean" and _has_empty_axis(x, range(x.rank) if axes is None else static_ints(axes) or ()):
        kind = "sum"  # the mean of an empty tensor is 0 in ONNX Runtime
    return b(op, x, axes, kind=kind, keepdims=bool(node.attributes.get("keepdims", 1)))


def _has_empty_axis(x: Value, axes: Sequence[int]) -> bool:
    """Whether one of `axes` has size 0."""
    return any(x.shape[a] == 0 for a in axes)


for _kind, _onnx, _before, _since, _tfl in _KINDS:
    upgrade(_onnx, since=_before)(to_operand("axes"))
    lift_onnx(_onnx, since=_since)(partial(_lift_kind, kind=_kind))
for _kind, _onnx, _since in _FUNCTIONS:
    upgrade(_onnx, since=_OLD)(to_operand("axes"))
    lift_onnx(_onnx, since=_since)(partial(_lift_kind, kind=_kind, op=ops.FunctionReduce))
_ARG_NAMES: Mapping[str, str | Spelled] = {
    "axis": "axis",
    "keepdims": Spelled("keepdims", default=1),
    "select_last_index": Spelled("select_last_index", default=0),
}
_ARG_OPTIONS = {"axis": Entries("the axis", single=True), "dtype": ResultType("output_type")}


def _is_plain(node: Node) -> bool:
    return not node.attr("keepdims") and not node.attr("select_last_index")


for _op, _onnx, _tfl in ((ops.ArgMax, "ArgMax", "ARG_MAX"), (ops.ArgMin, "ArgMin", "ARG_MIN")):
    row(_op, onnx=_onnx, since=(1, 11, 12, 13), attributes=_ARG_NAMES, fixed={"dtype": DType.INT64}, axes=("axis",))
    row(_op, tfl=_tfl, attributes=_ARG_OPTIONS, when=_is_plain, lifts=False)


# --- TFLite -----------------------------------------------------------------------------------------------------------


@lift_tfl(*_BY_TFL)
def _reduce_tfl(b: Builder, node: Node) -> Value:
    """Source: LiteRT kernels/reduce.cc.

    Without axes, the operand is returned. A scalar is one axis, duplicates count once; axes of a scalar are ignored.
    """
    x, kind, axes = node.operand(0), _BY_TFL[node.op.name_in_file], node.operand(1)
    if x.dtype is DType.BOOL:
        kind = {"max": "any", "min": "all", "prod": "all"}.get(kind, kind)
    if axes.tensor_type.rank == 0:
        axes = reshape(b, axes, [1])
    known = static_ints(axes)
    if known is not None and x.tensor_type.shape is not None:
        distinct = distinct_axes(known, x.rank) if x.rank else ()
        if kind == "prod" and (stepwise := by_steps(b, node, distinct)) is not None:
            return stepwise
        axes = constant(np.asarray(distinct, np.int32))
    elif x.tensor_type.shape and not (is_static(x.shape) and 0 not in x.shape):
        axes = (Term(b, axes) % x.rank).value  # ONNX Runtime 1.31 reduces no negative axes of an empty operand
    return b(ops.Reduce, x, axes, kind=kind, keepdims=bool(node.attr("keep_dims", False)))


regions_of("tfl.STABLEHLO_REDUCE")(body_as_it_is)


@lift_tfl("STABLEHLO_REDUCE")
def _stablehlo_reduce(b: Builder, node: Node) -> list[Value]:
    """Reduce several operands by one body: by Reduce if it joins each result by one op, else by pairs of elements."""
    count, axes, body = len(node.operands) // 2, int_list(node, "dimensions"), node.attr("body_subgraph_index")
    operands, starts = ([node.operand(i + j) for i in range(count)] for j in (0, count))
    starts = [reshape(b, start, ()) for start in starts]
    kinds = [_joined_by(body, i, count) for i in range(count)]
    if all(kinds):
        return [_reduced_from(b, *row_, axes) for row_ in zip(operands, starts, kinds, strict=True)]
    return reduced_by_graph(b, operands, starts, body, axes)


def _joined_by(body: Graph, index: int, count: int) -> str:
    """The kind of Reduce that result `index` of a body with `count` results is; "" if there is none."""
    join, pair = body.outputs[index].producer, {body.inputs[index], body.inputs[index + count]}
    if join is None or set(join.operands) != pair:
        return ""
    of_bools, dtype = join.op in (ops.And, ops.Or), body.inputs[index].dtype
    return "" if of_bools is not (dtype is DType.BOOL) or dtype.is_complex else join.op.reduction


def _reduced_from(b: Builder, x: Value, start: Value, kind: str, axes: Sequence[int]) -> Value:
    """Reduce along `axes`, then join with `start`, unless that is the neutral element."""
    if 0 in (x.shape[a] for a in axes):
        return broadcast(b, start, [d for a, d in enumerate(x.shape) if a not in axes], x)
    total = b(ops.Reduce, x, axes, kind=kind, keepdims=False)
    known = start.numpy() if start.data is not None else None
    if known is not None and bool(known == NEUTRAL[kind](known.dtype)):
        return total
    return b(joining(kind), total, start)


@lift_tfl("ARG_MAX", "ARG_MIN")
def _arg_tfl(b: Builder, node: Node) -> Value:
    x, op = node.operand(0), ops.ArgMax if node.op.name == "tfl.ARG_MAX" else ops.ArgMin
    dtype = DType[str(node.attr("output_type"))]  # not the declared dtype of the result (arg_min_max.cc)
    axis = one_axis(node.operand(1), x)
    if axis is not None:
        return b(op, x, axis=axis, keepdims=False, dtype=dtype)
    middle = MiddleAxis.of(b, x, node.operand(1))
    return middle.without(b(op, middle.folded, axis=1, keepdims=False, dtype=dtype))


@lower_tfl(ops.Reduce)
def _reduce_form(node: Node) -> Form | None:
    axes = ops.reduced_axes(node)
    if axes is None:
        vector = node.optional(1)
        if vector is None or vector.dtype is not DType.INT32 or _lacks_neutral(node):
            return None
        operand: Value | Array = vector
    elif not axes or _has_empty_axis(node.operand(0), axes) or _is_long_sum(node, axes):
        return None
    else:
        operand = clamp_to_int32(axes)
    return Form(_TFL[node.attr("kind")], (node.operand(0), operand), {"keep_dims": node.attr("keepdims")})


def _is_mean_over_empty_axes(node: Node) -> bool:
    """Whether this is a mean over empty axes of floats: NaN, but 0 in ONNX Runtime."""
    axes, x = ops.reduced_axes(node), node.operand(0)
    return bool(axes and node.attr("kind") == "mean" and x.dtype.is_float and _has_empty_axis(x, axes))


def _lacks_neutral(node: Node) -> bool:
    """Whether dynamic axes may have size 0: kernels then return the lowest finite value, not -infinity."""
    return node.attr("kind") not in ("sum", "any", "all") and 0 in (node.operand(0).tensor_type.shape or ())


decompose(ops.Reduce, "tfl", "axes")(by_halving)

# --- decompositions ---------------------------------------------------------------------------------------------------


def _is_of_all_axes_of_an_unknown_number(node: Node) -> bool:
    return node.optional(1) is None and node.operand(0).tensor_type.shape is None and not node.attr("keepdims")


@decompose(ops.Reduce, when=_is_of_all_axes_of_an_unknown_number)
def _reduce_flattened(b: Builder, node: Node) -> Value:
    return b(ops.Reduce, b(ops.Reshape, node.operand(0), [-1]), [0], **node.attributes)


@decompose(ops.Reduce, when=lambda node: ops.reduced_axes(node) is None and _lacks_neutral(node))
def _sum_of_nothing(b: Builder, node: Node) -> Value:
    """Return the neutral element in the shape of the sum. (Adding infinity fails: builtin kernels saturate.)"""
    zeros = b(ops.Reduce, *node.operands, **{**node.attributes, "kind": "sum"})
    return b(ops.BroadcastTo, _neutral(node), b(ops.Shape, zeros))


@decompose(ops.Reduce, when=lambda node: ops.reduced_axes(node) == ())
def _reduce_no_axes(b: Builder, node: Node) -> Value:
    return b(ops.Copy, node.operand(0))


@decompose(ops.Reduce, when=lambda node: _has_empty_axis(node.operand(0), ops.reduced_axes(node) or ()))
def _reduce_nothing(b: Builder, node: Node) -> Value:
    """Return the neutral element for reductions over axes of size 0."""
    return broadcast(b, constant(_neutral(node)), node.result.shape, node.operand(0))


@decompose(ops.Reduce, "tfl", when=lambda node: _is_long_sum(node, ops.reduced_axes(node) or ()), benefit=1)
def _along_one_axis_after_the_other(b: Builder, node: Node) -> Value:
    """Reduce axis by axis: the error is that of short sums (1e-7), in the same time."""
    x = node.operand(0)
    for axis in ops.reduced_axes(node) or ():
        x = b(ops.Reduce, x, [axis], kind=node.attr("kind"), keepdims=True)
    return x if node.attr("keepdims") else reshape(b, x, node.result.shape, x)


def _last_run(axes: Sequence[int]) -> tuple[int, int]:
    """Return first and last of the contiguous axes that end with the last reduced axis."""
    end = start = max(axes)
    while start - 1 in axes:
        start -= 1
    return start, end


@decompose(ops.Reduce, "ethos-u", when=lambda node: node.attr("kind") == "mean" and bool(ops.reduced_axes(node)))
def _mean_of_the_middle(b: Builder, node: Node) -> Value | None:
    """A mean over contiguous axes as that of the middle axis of three, or the last of two: NPUs have no batches."""
    x, axes = node.operand(0), [a for a in ops.reduced_axes(node) or () if node.operand(0).shape[a] != 1]
    if not x.is_static or not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    first, end = axes[0], axes[-1] + 1
    lead, reduced, trailing = (product(x.shape[part]) for part in (slice(first), slice(first, end), slice(end, None)))
    merged = [lead, reduced] if trailing == 1 else [lead, reduced, trailing]
    if x.rank == len(merged):
        return None
    made = b(ops.Reduce, reshape(b, x, merged), [1], kind="mean", keepdims=False)
    return reshape(b, made, node.result.shape)


def _is_of_many_axes(node: Node) -> bool:
    """Whether groups of axes may be reduced one after another (a mean of integers would be rounded each time)."""
    x, axes = node.operand(0), ops.reduced_axes(node)
    if not axes or x.rank <= 4 or x.is_quantized or _has_empty_axis(x, axes):
        return False
    return node.attr("kind") != "mean" or x.dtype.is_float or _last_run(axes)[0] == min(axes)


@decompose(ops.Reduce, "tfl", when=_is_of_many_axes)
def _over_adjacent_axes(b: Builder, node: Node) -> Value:
    """Reduce each group of contiguous axes as the middle axis of three, the last group first."""
    x, axes, kind = node.operand(0), ops.reduced_axes(node) or (), node.attr("kind")
    start, end = _last_run(axes)
    rest = [a for a in axes if a < start]
    lead, trailing = x.shape[:start], x.shape[end + 1 :]
    three = reshape(b, x, (product(lead), product(x.shape[start : end + 1]), product(trailing)))
    part = reshape(b, b(ops.Reduce, three, [1], kind=kind, keepdims=False), (*lead, *trailing), x)
    part = b(ops.Reduce, part, rest, kind=kind, keepdims=False) if rest else part
    return reshape(b, part, node.result.shape, x)


LONG = 1 << 14
"""Length from which a kernel's sequential float sum is inexact: a relative error of 1e-5 for a mean of deviations,
visible in networks with many normalizations of images.
"""


def _is_long_sum(node: Node, axes: Sequence[int]) -> bool:
    """Whether this is a long sum of floats along several axes."""
    sizes = [size for axis in axes if (size := node.operand(0).shape[axis]) != 1]
    adds = node.attr("kind") in ("sum", "mean") and node.operand(0).dtype.is_float and not node.operand(0).is_quantized
    return adds and len(sizes) > 1 and math.prod(known_sizes(sizes)) >= LONG


def _neutral(node: Node) -> Array:
    """The neutral element of a reduction; of a mean NaN for floats, else 0."""
    dtype, kind = node.result.dtype, node.attr("kind")
    mean = math.nan if dtype.is_float else 0
    return np.asarray(mean if kind == "mean" else NEUTRAL[kind](np.dtype(dtype.numpy))).astype(dtype.numpy)


decompose(ops.Reduce, "tfl", "operands")(int32_operands(1))


def _arg_rule(when: Condition, benefit: int = 0) -> Callable[[DecomposeRule], DecomposeRule]:
    """Register a decomposition of ArgMax and ArgMin."""

    def register(rule: DecomposeRule) -> DecomposeRule:
        for op in (ops.ArgMax, ops.ArgMin):
            decompose(op, "tfl", when=when, benefit=benefit)(rule)
        return rule

    return register


def _has_kernel(node: Node) -> bool:
    """Whether there is a kernel for these elements and result types."""
    return node.operand(0).dtype in (DType.INT32, DType.FLOAT32)


def _arg(b: Builder, node: Node, x: Value, **changes: Any) -> Value:
    """Return the op on another operand, with changed attributes."""
    axis = normalize_axis(node.attr("axis"), node.operand(0).rank)
    return b(node.op, x, **{**node.attributes, "axis": axis, **changes})


@_arg_rule(when=lambda node: bool(node.attr("keepdims")), benefit=4)
def _arg_with_its_axis(b: Builder, node: Node) -> Value:
    """%y = Unsqueeze(ArgMax(%x) without keepdims)."""
    flat = _arg(b, node, node.operand(0), keepdims=False)
    return unsqueezed(b, flat, [normalize_axis(node.attr("axis"), node.operand(0).rank)])


@_arg_rule(when=lambda node: bool(node.attr("select_last_index")), benefit=3)
def _arg_from_the_end(b: Builder, node: Node) -> Value:
    """%y = size - 1 - ArgMax(Reverse(%x))."""
    x, axis = node.operand(0), normalize_axis(node.attr("axis"), node.operand(0).rank)
    first = _arg(b, node, b(ops.Reverse, x, dimensions=(axis,)), select_last_index=False)
    last = reshape(b, dim_value(b, x.shape[axis], x), [])
    return (Term(b, last).to(first.dtype) - 1 - Term(b, first)).value


@_arg_rule(when=lambda node: node.operand(0).dtype is DType.BOOL, benefit=2)
def _arg_of_bools(b: Builder, node: Node) -> Value:
    return _arg(b, node, b(ops.Convert, node.operand(0), dtype=DType.INT8))


@_arg_rule(when=lambda node: _has_kernel(node) and node.attr("dtype") is DType.INT64, benefit=1)
def _arg_in_int32(b: Builder, node: Node) -> Value:
    """%y = Convert(ArgMax(%x) : int32)."""
    return b(ops.Convert, _arg(b, node, node.operand(0), dtype=DType.INT32), dtype=DType.INT64)


@_arg_rule(when=lambda node: _is_plain(node) and node.operand(0).dtype not in (DType.FLOAT32, DType.BOOL))
def _arg_by_the_extreme(b: Builder, node: Node) -> Value:
    """%y = ArgMax(%x == Reduce(%x)), compared in int32, or for int32 in float32."""
    return _first_extreme(b, node, DType.FLOAT32 if _has_kernel(node) else DType.INT32)


def _is_real_and_plain(node: Node) -> bool:
    return node.operand(0).dtype is DType.FLOAT32 and not node.operand(0).is_quantized and _is_plain(node)


@decompose(ops.ArgMax, "ethos-u", when=_is_real_and_plain)
def _arg_in_int8(b: Builder, node: Node) -> Value:
    """%y = ArgMax(%x == Reduce(%x)), compared in int8: Vela fails on models with a float ARG_MAX."""
    return _first_extreme(b, node, DType.INT8)


def _first_extreme(b: Builder, node: Node, dtype: DType) -> Value:
    """Return the index of the first element equal to the extreme; `dtype`: that of the compared bools."""
    x, axis = node.operand(0), normalize_axis(node.attr("axis"), node.operand(0).rank)
    kind = "max" if node.op is ops.ArgMax else "min"
    extreme = Term(b, b(ops.Reduce, x, [axis], kind=kind, keepdims=True))
    is_extreme = Term(b, x).equals(extreme).to(dtype)
    return is_extreme.apply(ops.ArgMax, axis=axis, keepdims=False, dtype=node.attr("dtype")).value


def _is_float_mean(node: Node) -> bool:
    axes = ops.reduced_axes(node)
    x = node.operand(0)
    known = axes is not None and x.is_static and 0 not in x.shape and not x.is_quantized
    return node.attr("kind") == "mean" and known and node.result.dtype.is_float


@decompose(ops.Reduce, "gpu", when=_is_float_mean)
def _mean_by_sum(b: Builder, node: Node) -> Value:
    """The sum of x / number of elements: the accelerator does not compute the mean of a layer normalization as an
    output, and sum / number may leave the range of float16.
    """
    x, axes = node.operand(0), ops.reduced_axes(node) or ()
    part = Term(b, x) * (1 / math.prod(int(x.shape[axis]) for axis in axes))
    return part.reduce("sum", axes, keepdims=node.attr("keepdims")).value


_LONG_IN_FLOAT16 = 1 << 12
"""Length from which a sum in float16 may leave its range, and elements vanish beside it: `limits` of MEAN and SUM."""


def _is_long_in_float16(node: Node) -> bool:
    x, axes = node.operand(0), ops.reduced_axes(node)
    adds = node.attr("kind") in ("sum", "mean") and x.dtype.is_float and not x.is_quantized
    is_known = bool(adds and axes and x.is_static)
    return is_known and math.prod(int(x.shape[a]) for a in axes or ()) >= _LONG_IN_FLOAT16


@decompose(ops.Reduce, "gpu", order="axes", when=_is_long_in_float16)
def _in_steps(b: Builder, node: Node) -> Value:
    """Reduce axis by axis, and a long one in blocks."""
    x, axes, kind = Term(b, node.operand(0)), ops.reduced_axes(node) or (), node.attr("kind")
    for axis in sorted(axes, key=lambda a: int(x.value.shape[a])):
        x = _in_blocks(x, axis, kind)
    return reshape(b, x.value, node.result.shape)


def _in_blocks(x: Term, axis: int, kind: str) -> Term:
    """Reduce `axis` to size 1: blocks of about the root of its size, then their results, then what is left."""
    shape, size = x.value.shape, int(x.value.shape[axis])
    if size < _LONG_IN_FLOAT16:
        return x.reduce(kind, [axis])
    length = next((n for n in range(math.isqrt(size), math.isqrt(size) // 2, -1) if size % n == 0), math.isqrt(size))
    whole = size // length * length
    first = slice_axes(x.b, x.value, {axis: slice(0, whole)})
    blocks = Term(x.b, reshape(x.b, first, (*shape[:axis], whole // length, length, *shape[axis + 1 :])))
    found = _in_blocks(Term(x.b, blocks.reduce(kind, [axis + 1], keepdims=False).value), axis, kind)
    if whole == size:
        return found
    other = Term(x.b, slice_axes(x.b, x.value, {axis: slice(whole, size)})).reduce(kind, [axis])
    return found * (whole / size) + other * (1 - whole / size) if kind == "mean" else found + other


def _has_one_of_few_axes(node: Node) -> bool:
    axes = node.optional(1)
    return axes is not None and static_ints(axes) is None and axes.tensor_type.shape == (1,)


@decompose(ops.FunctionReduce, "gpu", order="axes", when=_has_one_of_few_axes)
@decompose(ops.Reduce, "gpu", order="axes", when=_has_one_of_few_axes)
def _chosen_axis(b: Builder, node: Node) -> Value | None:
    """Reduce along each axis for which the result has its shape, and select by a computed axis."""
    fits = ops.possible_axes(node)
    if not fits:
        return None
    x, axis = node.operand(0), Term(b, reshape(b, node.operand(1), [])) % node.operand(0).rank
    first, *others = (Term(b, b(node.op, x, list(axes), **node.attributes)) for axes in fits)
    for axes, other in zip(fits[1:], others, strict=True):
        first = axis.equals(axes[0]).choose(other, first)
    return first.value


def _is_of_columns(node: Node) -> bool:
    return node.operand(0).rank == 3 and normalize_axis(node.attr("axis"), 3) == 1


@decompose(ops.ArgMax, "gpu", when=lambda node: not _is_of_columns(node) and node.operand(0).is_static)
def _arg_of_columns(b: Builder, node: Node) -> Value:
    """Find the maxima along the middle axis of three: along others, the accelerator returns other indices."""
    x, axis = node.operand(0), normalize_axis(node.attr("axis"), node.operand(0).rank)
    last = transposed(b, x, moved_last(axis, x.rank))
    columns = reshape(b, last, (product(last.shape[:-1]), x.shape[axis], 1))
    return reshape(b, b(ops.ArgMax, columns, **{**node.attributes, "axis": 1}), node.result.shape)


@decompose(ops.ArgMin, "gpu", when=lambda node: node.operand(0).dtype is DType.FLOAT32)
def _arg_of_the_opposite(b: Builder, node: Node) -> Value:
    return b(ops.ArgMax, b(ops.Neg, node.operand(0)), **node.attributes)


# --- back to ONNX -----------------------------------------------------------------------------------------------------

_ONNX = {kind: (onnx, since[0]) for kind, onnx, *_, since, _ in _KINDS} | {k: (name, 18) for k, name, _ in _FUNCTIONS}


@lower_onnx(ops.Reduce)
@lower_onnx(ops.FunctionReduce)
def _reduce_onnx(node: Node, opset: int) -> Form | None:
    kind, axes = node.attr("kind"), node.optional(1)
    numbers = ops.reduced_axes(node) if axes is not None else ()
    if kind not in _ONNX or (axes is not None and numbers == ()) or _is_mean_over_empty_axes(node):
        return None
    if kind == "log_sum_exp" and node.result.dtype.is_integer:  # ONNX Runtime truncates each exponential
        return None
    name, operand_since = _ONNX[kind]
    attributes = {"keepdims": int(node.attr("keepdims"))}
    if axes is None:
        return Form(name, (node.operand(0),), attributes)
    if opset >= operand_since:
        operand = axes if numbers is None else np.asarray(numbers, np.int64)
        return Form(name, (node.operand(0), operand), attributes) if numbers or axes.dtype is DType.INT64 else None
    return Form(name, (node.operand(0),), {**attributes, "axes": numbers}) if numbers else None


@decompose(ops.Reduce, "onnx", "operands")
def _mean_of_trailing_axes(b: Builder, node: Node) -> Value | None:
    """Return a quantized mean over the last axes in the form of QLinearGlobalAveragePool."""
    axes, x = ops.reduced_axes(node), node.operand(0)
    if not x.is_quantized or node.attr("kind") != "mean" or not node.attr("keepdims") or not axes or x.rank < 3:
        return None
    others = [a for a in range(x.rank) if a not in axes]
    if len(others) != 2 or set(axes) == set(range(2, x.rank)):
        return None
    order = (*others, *sorted(axes))
    mean = b(ops.Reduce, transposed(b, x, order), list(range(2, x.rank)), kind="mean", keepdims=True)
    return transposed(b, mean, inverse(order))


@decompose(ops.Reduce, "onnx", "elements")
def _reduce_bools(b: Builder, node: Node) -> Value | list[Value] | None:
    """Reduce bools as integers, whose sum and product are also correct for empty axes; axes are int64."""
    x, axes = Term(b, node.operand(0)), node.optional(1)
    if axes is not None and axes.dtype is not DType.INT64 and not axes.is_constant:
        return b(ops.Reduce, x.value, Term(b, axes).to(DType.INT64).value, **node.attributes)
    if x.dtype is not DType.BOOL:
        return None
    kind = {"any": "sum", "all": "prod"}[node.attr("kind")]
    number = b(ops.Reduce, x.to(DType.INT32).value, axes, **{**node.attributes, "kind": kind})
    return b(ops.Convert, number, dtype=DType.BOOL)


decompose(ops.Reduce, "onnx")(on_signed)
for _op in (ops.ArgMax, ops.ArgMin):
    decompose(_op, "onnx", when=lambda node: node.operand(0).dtype is DType.UINT64, benefit=1)(on_signed)
    decompose(_op, "onnx")(partial(with_dtype, dtype=DType.INT64))
