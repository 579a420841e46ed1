"""Weights with a scale for each block of a row, in the form that hybrid kernels read (:mod:`ir.block_weights`).

::

    %w = DequantizeLinear(%q, %s, %z) {axis = 1, block_size = 32}
    %y = DotGeneral(%x, %w)                    ->    %p = DotGeneral(%x, %q': int4, a scale for each block)
                                                     %b = Reduce(Reshape(%x, [.., blocks, 32]), -1) {kind = "sum"}
                                                     %y = Add(%p, DotGeneral(%b, %offsets))

The second product is left out if no block has an offset: it has one for a negative scale or for a zero point other
than mid-range. Weights of 8 bits become two products, of their high and their low 4 bits; those with blocks of 16, for
which there is no fast kernel, two of blocks of 32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.block_weights import (
    LARGEST_HALF,
    LEAST_HALF,
    AlternateData,
    HalfScales,
    HalvesData,
    NibbleData,
    OffsetData,
    offsets,
    points,
)
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.constant_facts import known_fact
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantization import Quantization, StoredNumbers, Zeros
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.patterns import erase_dead
from onnxtfl.targets import Target

_STRIP = 1 << 22
"""The scales that are read at a time."""
_FEW = 64
"""The rows that usually tell what holds for all."""
_HALF = 16
"""The elements of the blocks of which two become one."""


def use_block_weights(graph: Graph, target: Target) -> None:
    """Multiply by weights with scales of blocks where hybrid kernels of the target read them."""
    for node in list(graph.nodes):
        found = weights_of(node) if node.op is ops.DotGeneral else None
        if found is not None and _is_accepted(node, found, target) and (made := _made(graph, node, found)) is not None:
            producer = node.operand(1).producer
            graph.replace(node, [made])
            erase_dead(graph, [] if producer is None else [producer])


@dataclass(frozen=True)
class Weights:
    """Integers [rows, columns], scales and zero points [rows, blocks] of the constant operand of a product.

    `used`: the columns that the other operand has elements for.
    """

    stored: TensorData
    scales: TensorData
    zeros: TensorData | None
    block: int
    used: int

    def planes(self, factor: float) -> list[Value]:
        """The constants of quantized types whose sum the weights are, times a factor, but for their offsets."""
        halves: Sequence[int | None] = (
            (0, 1) if self.block == _HALF and self.stored.shape[1] % (2 * _HALF) == 0 else (None,)
        )
        return [self._plane(number, half, factor) for number in self.nibbles for half in halves]

    @property
    def nibbles(self) -> range:
        """The places of the 4 bits of an integer, the lowest first."""
        return range(max(1, self.stored.dtype.bits // 4))

    def _plane(self, number: int, half: int | None, factor: float) -> Value:
        whole, scales, block = NibbleData(self.stored, self.scales, number), self.scales, self.block
        data: TensorData = whole
        if half is not None:
            data, scales, block = HalvesData(whole, half), AlternateData(scales, half), 2 * _HALF
        stored = StoredNumbers(HalfScales(scales, factor * 16**number))
        quantization = Quantization(DType.INT4.value, stored, Zeros(len(stored)), 1, block)
        return constant(data, type_=TensorType(DType.FLOAT32, data.shape, quantization))


def weights_of(node: Node) -> Weights | None:
    """The weights of a product of real rows; None if these are no blocks of entire rows."""
    x, roles, whole = node.operand(0), ops.DotRoles.of(node), _whole(node.operand(1))
    turned = made_by(whole, ops.Transpose)
    axes = tuple(range(whole.rank)) if turned is None else turned.attr("permutation")
    if x.dtype is not DType.FLOAT32 or x.is_constant or node.attr("output_permutation"):
        return None
    if roles.lhs_batch or roles.lhs_contract != (x.rank - 1,):
        return None
    if whole.shape[roles.rhs_free[0]] != node.operand(1).shape[roles.rhs_free[0]]:
        return None
    contracted = [axes[a] for a in roles.rhs_contract]
    used = node.operand(1).size(roles.rhs_contract[0])
    return blocks_of(whole if turned is None else turned.operand(0), contracted, used)


def blocks_of(real: Value, along: Sequence[int], used: int) -> Weights | None:
    """The rows of a dequantized constant matrix whose blocks are along the only axis in `along`; None for others."""
    linear = made_by(real, ops.DequantizeLinear)
    if linear is None or not linear.attr("block_size") or real.dtype is not DType.FLOAT32:
        return None
    stored, scales, zeros = (None if v is None else v.data for v in (*linear.operands, None)[:3])
    has_zeros = linear.optional(2) is None or zeros is not None
    if stored is None or scales is None or not has_zeros or len(stored.shape) != 2:
        return None
    axis, block = linear.attr("axis") % 2, int(linear.attr("block_size"))
    if [*along] != [axis] or stored.shape[axis] % block or not stored.dtype.is_integer or stored.dtype.bits > 8:
        return None
    order = (1 - axis, axis)
    ordered = (None if data is None else data.transpose(order) for data in (stored, scales, zeros))
    integers, factors, points = ordered
    assert integers is not None and factors is not None
    return Weights(integers, factors, points, block, used)


def _whole(value: Value) -> Value:
    """The value of which `value` has the first elements along each axis: the last block of a row may be longer."""
    part = made_by(value, ops.Slice)
    starts, steps = (None, None) if part is None else (static_ints(part.operand(1)), static_ints(part.operand(3)))
    if part is None or starts is None or steps is None or any(starts) or set(steps) != {1}:
        return value
    return part.operand(0)


def _is_accepted(node: Node, weights: Weights, target: Target) -> bool:
    operand = weights.planes(1.0)[0]
    x = node.operand(0).tensor_type
    rows = Value(x.with_shape((*(x.shape or ())[:-1], weights.stored.shape[1])))
    product = Node(ops.DotGeneral, [rows, operand], _rows_by_rows(rows))
    product.add_result(node.result.type)
    accepted = target.accepted(product) is not None
    product.detach()
    return accepted


def _rows_by_rows(x: Value) -> dict[str, tuple[int, ...]]:
    return {"lhs_contracting_dimensions": (x.rank - 1,), "rhs_contracting_dimensions": (1,)}


@dataclass(frozen=True)
class Scales:
    """The least and the largest absolute value of scales, and whether a block has an offset.

    `are_rounded`: whether some of the first scales are no float16.
    """

    least: float
    largest: float
    has_offsets: bool
    are_rounded: bool

    def factor(self, most: int) -> float:
        """A power of 2 that brings the scales, and `most` times them, into the range of normal float16."""
        if self.least >= LEAST_HALF and self.largest * most <= LARGEST_HALF:
            return 1.0
        return float(2.0 ** (math.log2(LARGEST_HALF) - math.ceil(math.log2(self.largest * most))))


def scales_of(weights: Weights) -> Scales:
    """What all scales and zero points are; each signature of a decoder has the same ones."""
    read = [None if data is None else (data.key, data.shape) for data in (weights.scales, weights.zeros)]
    return known_fact(("scales", weights.stored.dtype, *read), functools.partial(_read_scales, weights))


def _read_scales(weights: Weights) -> Scales:
    rows, columns = weights.scales.shape
    step, ends, has_offsets = max(1, _STRIP // max(columns, 1)), [], False
    for start in range(0, rows, step):
        scales = weights.scales.slab(0, start, min(start + step, rows))
        zeros = points(weights.zeros, 0, start, min(start + step, rows))
        limits = scales.min(), scales.max()
        signs = np.asarray(limits) if isinstance(zeros, int) else scales  # an offset depends on nothing else
        sizes = limits if limits[0] > 0 else ((found := np.abs(scales)).min(), found.max())
        ends += [float(size) for size in sizes]
        has_offsets = has_offsets or bool(offsets(weights.stored.dtype, signs, zeros).any())
    return Scales(min(ends), max(ends), has_offsets, _are_rounded(weights.scales.slab(0, 0, min(rows, _FEW))))


def _are_rounded(scales: Array) -> bool:
    mantissas = np.frexp(scales.astype(np.float32))[0]
    return bool((mantissas.astype(np.float16) != mantissas).any())


def _made(graph: Graph, node: Node, weights: Weights) -> Value | None:
    """The product; None if a scale is not finite, or all are 0."""
    scales, b = scales_of(weights), Builder(graph, node, maker="block weights")
    if not 0 < scales.largest < math.inf:
        return None
    x, factor = _padded(b, node.operand(0), weights), scales.factor(16 ** weights.nibbles[-1])
    products = [b(ops.DotGeneral, x, plane, **_rows_by_rows(x)) for plane in weights.planes(factor)]
    if scales.are_rounded:
        node.remarks += (Remark("rounded", node.op.name, node.result.name or ""),)
    if scales.has_offsets:
        terms = constant(OffsetData(weights.stored.dtype, weights.scales, weights.zeros, factor))
        products.append(b(ops.DotGeneral, _sums(b, x, weights), terms, **_rows_by_rows(x)))
    total = sum_of(b, products)
    return total if factor == 1 else b(ops.Mul, total, b.scalar(1 / factor, total))


def sum_of(b: Builder, values: Sequence[Value]) -> Value:
    """The sum of values of the same shape."""
    return functools.reduce(lambda total, value: b(ops.Add, total, value), values)


def _padded(b: Builder, x: Value, weights: Weights) -> Value:
    """Rows with zeros for the rest of the last block."""
    more = weights.stored.shape[1] - weights.used
    return b(ops.Pad, x, np.asarray([[0, 0]] * (x.rank - 1) + [[0, more]])) if more else x


def _sums(b: Builder, x: Value, weights: Weights) -> Value:
    """The sums of the blocks of a row."""
    blocks = reshape(b, x, [*x.shape[:-1], weights.scales.shape[1], weights.block], x)
    return b(ops.Reduce, blocks, [blocks.rank - 1], kind="sum", keepdims=False)
