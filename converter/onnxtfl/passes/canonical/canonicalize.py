"""Canonicalization: one form for equivalent nodes; removal of nodes without effect.

::

    Transpose(Transpose(x, p), q)  ->  Transpose(x, p[q])       Reshape(Reshape(x, s), t)  ->  Reshape(x, t)
    Transpose that moves unit axes ->  Reshape                  Reshape(x, its own shape)  ->  x
    Convert(x, its own type)       ->  x                        BroadcastTo(x, its shape)  ->  x
    Add(x, 0)  Mul(x, 1)  Pow(x, 1) -> x                        Add(BroadcastTo(x), y)     ->  Add(x, y)
    Slice(x, everything)           ->  x                        Concatenate(x)             ->  x
    Pad(x, nothing)                ->  x                        Select(all true, x, y)     ->  x
    Pad(Pad(x, p), q)              ->  Pad(x, p + q)            Reverse(x) of single ones  ->  x
    Concatenate(Split(x), y)       ->  Concatenate(x, y)        Div(1, Sqrt(x))            ->  Rsqrt(x)
    Mul(Sign(x), Abs(x))           ->  x                        Relu(x), x >= 0        ->  x
    Reshape(Convert(constant), s)  ->  Convert(Reshape(constant, s))
    Transpose(BroadcastTo(x))      ->  BroadcastTo(Transpose(x))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import Shape, is_static
from onnxtfl.ir.facts import facts_of, fits_int32, never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import SMALL, made_by, repeated, single_use, splat_value, uniform_scalar
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.ops.contraction import DotRoles
from onnxtfl.ir.quantization import Quantization, dequantize, limits
from onnxtfl.ir.reshape import dim_vector, has_constant_target, reshape, reshaped_constant
from onnxtfl.ir.shapes import known_dims, normalize_axis, static_ints
from onnxtfl.ir.types import DType, TensorType, compatible, shape_of
from onnxtfl.rewriting.patterns import Patterns

MOVES = Patterns()
"""Rewrites of ops that only move or convert elements. Legal nodes stay legal, so they may run after legalization."""


@MOVES.on(ops.Transpose, quantized=True)
def transpose(b: Builder, node: Node) -> Value | None:
    """Merge with a preceding transpose; remove the identity; move unit axes by a Reshape."""
    operand, order = node.operand(0), tuple(node.attr("permutation"))
    if order == tuple(range(len(order))):
        return operand
    inner = made_by(operand, ops.Transpose, quantized=True)
    if inner is not None:
        before = inner.attr("permutation")
        return b(ops.Transpose, inner.operand(0), permutation=tuple(before[p] for p in order))
    shape = operand.tensor_type.shape
    moved = [p for p in order if shape is not None and shape[p] != 1]
    if shape is not None and moved == sorted(moved):
        after = tuple(shape[p] for p in order)
        fits = has_constant_target(after) and operand.tensor_type.reshaped(after) == node.result.type
        return reshape(b, operand, after) if fits else None
    return None


@MOVES.on(ops.Reshape, quantized=True)
def reshape_(b: Builder, node: Node) -> Value | None:
    """Remove a reshape to the operand's own shape; merge with a preceding reshape."""
    operand = node.operand(0)
    if _same_type(operand, node.result):
        return operand
    inner = made_by(operand, ops.Reshape, quantized=True)
    if inner is None or not isinstance(node.result.type, TensorType) or node.result.type.shape is None:
        return None
    if inner.operand(0).tensor_type.reshaped(node.result.type.shape) != node.result.type:
        return None
    if has_constant_target(node.result.type.shape):
        return reshape(b, inner.operand(0), node.result.type.shape)
    result = b(ops.Reshape, inner.operand(0), node.operand(1))
    result.type = node.result.type
    return result


@MOVES.on(ops.Reshape)
def reshape_weight(b: Builder, node: Node) -> Value | None:
    """Reshape(Convert(%constant))    ->    Convert(%reshaped constant), which kernels take for a constant."""
    inner, shape = made_by(node.operand(0), ops.Convert, quantized=True), node.result.tensor_type.shape
    if inner is None or not inner.operand(0).is_constant or shape is None or not is_static(shape):
        return None
    stored = reshaped_constant(inner.operand(0), shape)
    if stored is None:
        return None
    made = b(ops.Convert, stored, **inner.attributes)
    made.type = node.result.type
    return made


@MOVES.on(ops.Concatenate, quantized=True)
def split_parts(b: Builder, node: Node) -> Value | None:
    """Concatenate a value instead of all parts of its split along the same axis, which may be requantized alike."""
    joined = node.present_operands
    sources = [_before_requantization(v, b.graph) for v in joined]
    for i, source in enumerate(sources):
        split = made_by(source, ops.Split, quantized=True)
        run = slice(i, i + len(split.results)) if split is not None else slice(0)
        if split is None or sources[run] != split.results or not _is_along(split, node):
            continue
        whole = split.operand(0)
        joined[run] = [convert_quantization(b, whole, joined[i].tensor_type.quantization)]
        if len(joined) > 1:
            return b.remade(node, *joined)[0]
        return joined[0] if compatible(joined[0].type, node.result.type) else None
    return None


def _before_requantization(value: Value, graph: Graph) -> Value:
    """The operand of a requantization that nothing else reads; `value` itself if it is none."""
    convert = made_by(value, ops.Convert, quantized=True)
    found = value if convert is None or not single_use(value, graph) else convert.operand(0)
    return found if found.is_quantized and value.is_quantized and found.dtype is value.dtype else value


def _is_along(split: Node, node: Node) -> bool:
    """Whether `split` divides its operand along the axis of a concatenation, into parts stored like it."""
    whole, rank = split.operand(0).tensor_type, split.operand(0).tensor_type.rank
    if rank is None or split.attr("axis") % rank != node.attr("axis") % rank:
        return False
    return all(r.tensor_type.quantization == whole.quantization for r in split.results)


@MOVES.on(ops.Convert, quantized=True)
def requantize(b: Builder, node: Node) -> Value | None:
    """Remove a quantization of dequantized values with the same parameters."""
    inner = made_by(node.operand(0), ops.Convert, quantized=True)
    if inner is None or not node.result.is_quantized or inner.result.is_quantized or not inner.result.dtype.is_float:
        return None
    return inner.operand(0) if inner.operand(0).type == node.result.type else None


@MOVES.on(ops.Convert, quantized=True)
def convert(b: Builder, node: Node) -> Value | None:
    """Remove a conversion to the operand's own type, and one back to it after a lossless one.

    Integers are not rounded; the integer that a NaN, or a float beyond int32, would become is not defined.
    """
    operand, wanted = node.operand(0), node.result.tensor_type
    if operand.dtype is wanted.dtype and operand.tensor_type.quantization == wanted.quantization:
        return operand
    inner = made_by(operand, ops.Convert)
    if inner is not None and inner.operand(0).dtype is wanted.dtype and (_keeps_values(inner) or _fits(inner)):
        return inner.operand(0) if wanted.quantization is None else None
    return None


def _fits(node: Node) -> bool:
    """Whether a Convert has integral values, which its integer type represents."""
    if not node.result.dtype.is_integer or node.result.is_quantized or node.operand(0).is_quantized:
        return False
    known, (least, most) = facts_of(node.operand(0)), limits(node.result.dtype)
    is_wide = node.operand(0).dtype.is_float and node.result.dtype.is_signed and node.result.dtype.bits >= 32
    return known.integral and (is_wide or (least <= known.low and known.high <= most))


@MOVES.on(ops.Reverse, ops.Slice, quantized=True)
def reversed_parts(b: Builder, node: Node) -> Value | None:
    """Concatenate single positions in the reverse order, in place of reversing them, as in unrolled layers::

    Reverse(Concatenate(%a, %b, %c))    ->    Concatenate(%c, %b, %a)
    """
    joined = made_by(node.operand(0), ops.Concatenate, quantized=True)
    if joined is None or not single_use(joined.result, b.graph) or node.result.type != joined.result.type:
        return None
    axis, parts = normalize_axis(joined.attr("axis"), joined.result.rank), joined.present_operands
    if _reversed_axes(node) != [axis] or any(v.shape[axis] != 1 for v in parts):
        return None
    return b.remade(joined, *reversed(parts))[0]


@MOVES.on(ops.Slice, quantized=True)
def position_before_reversal(b: Builder, node: Node) -> Value | None:
    """Read one position of what is reversed from the other end: Slice(Reverse(%x)) of row 0 is that of the last row."""
    turned = made_by(node.operand(0), ops.Reverse, ops.Slice, quantized=True)
    bounds = [static_ints(v) for v in node.operands[1:]]
    if turned is None or turned.result.type != turned.operand(0).type or None in bounds:
        return None
    axes, (starts, limits, strides) = _reversed_axes(turned), (list(v) for v in bounds if v is not None)
    if not axes or any(node.result.shape[axis] != 1 or not isinstance(turned.result.shape[axis], int) for axis in axes):
        return None
    for axis in axes:
        places = range(turned.result.size(axis))[::-1]
        (place,) = places[starts[axis] : limits[axis] : strides[axis]]
        starts[axis], limits[axis], strides[axis] = place, place + 1, 1
    numbers = [np.asarray(v, node.operand(1).dtype.numpy) for v in (starts, limits, strides)]
    return b.remade(node, turned.operand(0), *numbers)[0]


def _reversed_axes(node: Node) -> list[int] | None:
    """The axes along which a Reverse, or a Slice of all positions, goes backwards; None if that is not known."""
    if node.op is ops.Reverse:
        return list(node.attr("dimensions"))
    strides = static_ints(node.operand(3))
    return None if strides is None or {*strides} - {1, -1} else [a for a, n in enumerate(strides) if n == -1]


@MOVES.on(ops.Reverse, quantized=True)
def reverse(b: Builder, node: Node) -> Value | None:
    """Reverse along the axes of more than one element only."""
    x, axes = node.operand(0), tuple(node.attr("dimensions"))
    kept = tuple(axis for axis in axes if x.tensor_type.shape is None or x.shape[axis] != 1)
    if not kept:
        return x if x.type == node.result.type else None
    return b.remade(node, x, dimensions=kept)[0] if kept != axes else None


@MOVES.on(ops.Pad, quantized=True)
def pads(b: Builder, node: Node) -> Value | None:
    """Pad(Pad(%x, p), q)    ->    Pad(%x, p + q), with the same constant; neither crops."""
    first = made_by(node.operand(0), ops.Pad, quantized=True)
    if first is None or not single_use(first.result, b.graph):
        return None
    amounts = [static_ints(n.operand(1)) for n in (first, node)]
    is_growing = all(a is not None and min(a, default=0) >= 0 for a in amounts)
    fills = {_fill(n) for n in (first, node)}
    types = {v.tensor_type.quantization for v in (first.operand(0), first.result, node.result)}
    if not is_growing or None in fills or len(fills) > 1 or len(types) > 1:
        return None
    total = np.sum([a for a in amounts if a is not None], axis=0, dtype=np.int64).reshape(-1, 2)
    return b.remade(node, first.operand(0), total, *node.operands[2:])[0]


def _fill(node: Node) -> float | None:
    """The constant that a Pad adds; None if it adds others or that is not known."""
    value = node.operands[2] if len(node.operands) > 2 else None
    if node.attr("mode") != "constant":
        return None
    return 0.0 if value is None else splat_value(value)


CANONICAL = Patterns.of(MOVES)


@CANONICAL.on(ops.Reverse, ops.Slice, quantized=True)
def reversal_before_transpose(b: Builder, node: Node) -> Value | None:
    """Reverse(Transpose(%x))    ->    Transpose(Reverse(%x)), which is known to be made of parts, for example."""
    moved, axes = made_by(node.operand(0), ops.Transpose, quantized=True), _reversed_axes(node)
    if moved is None or not axes or node.result.type != moved.result.type or not single_use(moved.result, b.graph):
        return None
    order = moved.attr("permutation")
    turned = b(ops.Reverse, moved.operand(0), dimensions=tuple(order[axis] for axis in axes))
    turned.type = moved.operand(0).type
    return b.remade(moved, turned)[0]


@CANONICAL.on(ops.BitcastConvert)
def bitcast(b: Builder, node: Node) -> Value | None:
    """Remove a reinterpretation as the operand's own type."""
    return node.operand(0) if node.operand(0).type == node.result.type else None


def _keeps_values(node: Node) -> bool:
    """Whether a conversion is lossless: to a wider type of the same kind, or of values known to fit."""
    before, after = node.operand(0).dtype, node.result.dtype
    same_kind = (before.is_float and after.is_float) or (before.is_integer and after.is_integer)
    signs = before.is_signed == after.is_signed or (after.is_signed and after.bits > before.bits)
    if before is DType.INT64 and after is DType.INT32:
        return fits_int32(node.operand(0))
    return same_kind and after.bits >= before.bits and signs and before.is_float == after.is_float


@CANONICAL.on(ops.Transpose, quantized=True)
def broadcast_later(b: Builder, node: Node) -> Value | None:
    """Move fewer elements, so that ops after it, which broadcast by themselves, need no broadcast."""
    wide, order = made_by(node.operand(0), ops.BroadcastTo, quantized=True), node.attr("permutation")
    if wide is None or not single_use(node.operand(0), b.graph) or not node.result.is_static:
        return None
    x, full = wide.operand(0), node.result.shape
    if not x.is_static or (x.is_quantized and x.rank < len(full)):
        return None
    narrow = reshape(b, x, (1,) * (len(full) - x.rank) + x.shape)
    return b(ops.BroadcastTo, b(ops.Transpose, narrow, permutation=order), dim_vector(b, full, x))


@CANONICAL.on(ops.BroadcastTo, quantized=True)
def broadcast(b: Builder, node: Node) -> Value | None:
    """Remove a broadcast to the operand's own shape; one that only adds axes of size 1 is a reshape."""
    x, full = node.operand(0), node.result.tensor_type.shape
    if _same_type(x, node.result):
        return x
    if full is None or x.tensor_type.shape is None or x.is_quantized:
        return None
    repeats_none = (1,) * (len(full) - x.rank) + x.shape == full
    return reshape(b, x, full) if repeats_none and has_constant_target(full) else None


def _identity_element(element: float, places: tuple[int, ...]) -> Callable[[Builder, Node], Value | None]:
    """Return a rewrite that removes a binary op with its identity element at one of `places`.

    The rounding of a quantized result stays.
    """

    def rewrite(b: Builder, node: Node) -> Value | None:
        for place in places:
            other = node.operand(1 - place)
            if not _is_all(node.operand(place), element):
                continue
            quantization = node.result.tensor_type.quantization
            if _same_type(other, node.result):
                return other
            if other.is_quantized and quantization and other.tensor_type.stored_as(quantization) == node.result.type:
                return convert_quantization(b, other, quantization)
        return None

    return rewrite


def _is_all(value: Value, element: float) -> bool:
    """Whether each element of a constant, or of a quantized product with zeros, is `element`."""
    quantization = value.tensor_type.quantization
    if quantization is None:
        return splat_value(value) == element
    if value.data is None:
        product = made_by(value, ops.Mul, quantized=True) if element == 0.0 else None
        factors = product.operands if product is not None else ()
        stored = all(v is not None and v.is_quantized for v in factors) and _per_tensor(value) is not None
        return stored and any(v is not None and v.is_constant and _is_all(v, 0.0) for v in factors)
    if not 0 < value.data.size <= SMALL:
        return False
    return bool(np.all(dequantize(value.stored(), quantization) == element))


CANONICAL.on(ops.Add, quantized=True)(_identity_element(0.0, (0, 1)))
CANONICAL.on(ops.Sub, quantized=True)(_identity_element(0.0, (1,)))
CANONICAL.on(ops.Mul, quantized=True)(_identity_element(1.0, (0, 1)))
CANONICAL.on(ops.Div, quantized=True)(_identity_element(1.0, (1,)))
CANONICAL.on(ops.Pow, quantized=True)(_identity_element(1.0, (1,)))


def _per_tensor(value: Value) -> Quantization | None:
    quantization = value.tensor_type.quantization
    return quantization if quantization is not None and quantization.per_tensor else None


@CANONICAL.on(ops.DotGeneral)
def empty_sums(b: Builder, node: Node) -> Value | None:
    """Replace contractions over an empty axis by zeros: TFLite's kernels refuse empty operands (LiteRT 2.3)."""
    lhs, rhs = node.operand(0), node.operand(1)
    if lhs.tensor_type.shape is None or rhs.tensor_type.shape is None or node.result.tensor_type.shape is None:
        return None
    if 0 not in [lhs.shape[i] for i in DotRoles.of(node).lhs_contract]:
        return None
    zero = constant(np.zeros((), lhs.dtype.numpy))
    return b(ops.BroadcastTo, zero, dim_vector(b, node.result.shape, lhs, rhs))


@CANONICAL.on(ops.Conv)
@CANONICAL.on(ops.ConvTranspose)
def sums_over_no_features(b: Builder, node: Node) -> Value | None:
    """Replace a convolution of zero input features by its bias: TFLite's kernels refuse it (LiteRT 2.3)."""
    x, bias, shape = node.operand(0), node.optional(2), node.result.tensor_type.shape
    if x.tensor_type.shape is None or shape is None or x.shape[node.attr("input_feature_dimension")] != 0:
        return None
    sums = b(ops.BroadcastTo, constant(np.zeros((), x.dtype.numpy)), dim_vector(b, shape, x, node.operand(1)))
    if bias is None:
        return sums
    sizes = [-1 if i == node.attr("output_feature_dimension") else 1 for i in range(len(shape))]
    return b(ops.Add, sums, b(ops.Reshape, bias, sizes))


@CANONICAL.on(ops.Pow)
def power(b: Builder, node: Node) -> Value | None:
    """Replace powers with small constant exponents by products and roots, which every delegate accepts."""
    x, is_float = Term(b, node.operand(0)), node.operand(0).dtype.is_float
    match uniform_scalar(x.value, node.operand(1)):
        case 2:
            return (x * x).value
        case 3:
            return (x * x * x).value
        case 0.5 if is_float:
            return x.sqrt().value
        case -0.5 if is_float:
            return x.rsqrt().value
        case -1 if is_float:
            return (1 / x).value
    return None


@CANONICAL.on(ops.Relu)
def relu(b: Builder, node: Node) -> Value | None:
    """Replace Relu(%x) by %x, if it is never negative."""
    return node.operand(0) if never_negative(node.operand(0)) else None


@CANONICAL.on(ops.Mul)
def sign_and_magnitude(b: Builder, node: Node) -> Value | None:
    """Replace Mul(Sign(%x), Abs(%x)) by %x, as in exported Lp pools."""
    one, other = (node.operand(i).producer for i in (0, 1))
    if (
        one is None
        or other is None
        or {one.op, other.op} != {ops.Sign, ops.Abs}
        or one.operand(0) is not other.operand(0)
    ):
        return None
    return one.operand(0) if one.operand(0).type == node.result.type else None


@CANONICAL.on(ops.Real)
@CANONICAL.on(ops.Imag)
def part_of_complex(b: Builder, node: Node) -> Value | None:
    """Replace Real(Complex(%x, %y)) by %x, and Imag of it by %y."""
    inner = made_by(node.operand(0), ops.Complex)
    part = None if inner is None else inner.operand(0 if node.op is ops.Real else 1)
    return part if part is not None and part.type == node.result.type else None


@CANONICAL.on(ops.Div)
def inverse_root(b: Builder, node: Node) -> Value | None:
    """1 / sqrt(x) -> Rsqrt(x), unless quantized: the integer kernel of RSQRT fails for 0."""
    root = made_by(node.operand(1), ops.Sqrt)
    if root is None or uniform_scalar(node.operand(1), node.operand(0)) != 1 or not single_use(root.result, b.graph):
        return None
    x = root.operand(0)
    uses = {user.op for user, _ in node.result.uses}
    if made_by(x, ops.DequantizeLinear) is not None or ops.QuantizeLinear in uses:
        return None
    return b(ops.Rsqrt, x)


@CANONICAL.on(ops.Slice, quantized=True)
def slice_(b: Builder, node: Node) -> Value | None:
    """Remove a slice of the whole operand."""
    strides = static_ints(node.optional(3)) if node.optional(3) is not None else [1]
    starts = static_ints(node.operand(1))
    if starts is None or strides is None or any(starts) or any(s != 1 for s in strides):
        return None
    return node.operand(0) if _same_type(node.operand(0), node.result) else None


@CANONICAL.on(ops.Concatenate, quantized=True)
def concatenate(b: Builder, node: Node) -> Value | None:
    """Remove a concatenation of one tensor, and the empty tensors among the operands of others."""
    operands = [v for v in node.present_operands if v.tensor_type.shape is not None]
    if len(operands) != len(node.operands):
        return None
    axis = node.attr("axis")
    kept = [v for v in operands if v.shape[axis] != 0] or operands[:1]
    if len(kept) == 1:
        return kept[0] if compatible(kept[0].type, node.result.type) else None
    return b.remade(node, *kept)[0] if len(kept) < len(operands) else None


@CANONICAL.on(ops.Split, quantized=True)
def split(b: Builder, node: Node) -> Sequence[Value] | None:
    """Remove empty parts, which TFLite Micro's kernel refuses."""
    x, sizes = node.operand(0), static_ints(node.optional(1))
    if not sizes or all(sizes) or not any(sizes) or not all(r.is_static for r in node.results):
        return None
    kept = [size for size in sizes if size]
    parts = [x] if len(kept) == 1 else b.many(ops.Split, x, kept, axis=node.attr("axis"))
    filled = iter(parts)
    values = [next(filled) if size else _empty(r) for size, r in zip(sizes, node.results, strict=True)]
    return values if all(compatible(v.type, r.type) for v, r in zip(values, node.results, strict=True)) else None


def _empty(like: Value) -> Value:
    type_ = like.tensor_type
    return constant(ArrayData(np.empty(type_.shape or (), type_.storage.numpy), type_.storage), type_=type_)


@CANONICAL.on(ops.Pad, quantized=True)
def pad(b: Builder, node: Node) -> Value | None:
    """Remove a pad whose amounts are all 0."""
    amounts = known_dims(node.operand(1))
    nothing = amounts is not None and not any(amounts)
    return node.operand(0) if nothing and compatible(node.operand(0).type, node.result.type) else None


@CANONICAL.on(ops.Select, quantized=True)
def select(b: Builder, node: Node) -> Value | None:
    """Replace a Select with a constant condition by the chosen operand."""
    condition = splat_value(node.operand(0))
    if condition is None:
        return None
    chosen = node.operand(1 if condition else 2)
    return chosen if _same_type(chosen, node.result) else None


@CANONICAL.on(Elementwise, quantized=True)
def drop_broadcasts(b: Builder, node: Node) -> Value | None:
    """Remove the repetition of an operand of an elementwise op if it and the others spread to the full shape."""
    full = shape_of(node.result.type)
    operands = list(node.operands)
    for i, value in enumerate(operands):
        inner = repeated(value)
        if value is None or inner is None or full is None or (i == 0 and node.op is ops.PRelu):
            continue
        others = [v for j, v in enumerate(operands) if j != i and v is not None]
        if _spread_to(full, inner, value, others):
            operands[i] = inner
    return None if operands == node.operands else b.remade(node, *operands)[0]


def _spread_to(full: Shape, inner: Value, wide: Value, others: Sequence[Value]) -> bool:
    """Whether operands broadcast to `full` with `inner` in place of `wide`, whatever sizes there are at run time."""
    shapes = [v.tensor_type.shape for v in (inner, wide, *others)]
    if any(shape is None for shape in shapes) or max(v.rank for v in (inner, *others)) != len(full):
        return False
    own, repeated_, *rest = ((*(1,) * (len(full) - len(shape or ())), *(shape or ())) for shape in shapes)
    sizes = zip(full, own, repeated_, zip(*rest, strict=True) if rest else ((),) * len(full), strict=True)
    return all(a == b or size in given for size, a, b, given in sizes)


def _same_type(a: Value, b: Value) -> bool:
    """Whether both have the same tensor type, of known rank."""
    return isinstance(a.type, TensorType) and a.type.shape is not None and a.type == b.type
