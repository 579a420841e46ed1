"""Reads QuantizeLinear and DequantizeLinear with constant parameters as quantized types.

::

    %q = QuantizeLinear(%x, 0.5, 3)                 %q = Convert(%x) : float32 as int8 0.5:3
    %y = DequantizeLinear(%q, 0.5, 3)       ->      %y = Convert(%q) : float32

An integer tensor becomes quantized if all its readers dequantize it with the same parameters, and it is a constant, an
input, or the result of a QuantizeLinear with these parameters. A DequantizeLinear after an op that moves or
selects elements (Reshape, Concatenate, MaxPool) is moved before it, a clamp of integers before their QuantizeLinear.
Integers that are computed from constants are folded first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.packed import is_packed
from onnxtfl.ir.quantization import Quantization, dequantize, limits, shifted_to_int8
from onnxtfl.ir.quantized import selected_operands
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.kernels.resize_bilinear import fits_fixed_point
from onnxtfl.passes.canonical.fold import fold_node
from onnxtfl.passes.quantize.biases import dequantized_source
from onnxtfl.passes.quantize.extremes import ORDINARY, Extremes, extremes
from onnxtfl.passes.quantize.fuse import clamp_bounds
from onnxtfl.passes.quantize.wide import as_int16, round_in_float, store_as_int16
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets import Target

INTEGER_KINDS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32})
HOIST = Patterns()
_WIDE = (DType.INT16, DType.UINT16)
_WITHIN = ("nearest", "linear")
"""Interpolations whose results are between elements of the operand, so that they are in range."""
_NEARLY_HALF = 0.499
"""In steps: round(x - 0.499) is floor(x), also for an integral x with a small error."""
MOST_SCALES = 1 << 18
"""The most scales in a type; more (blocks of a large language model) stay operands, which are read lazily."""


def read_quantized_types(graph: Graph, target: Target, *, is_region: bool = False) -> None:
    """Give quantized types to integer tensors that are only read by DequantizeLinear.

    Tensors other than constants need quantize and dequantize kernels of `target`; else the ops stay, and become
    arithmetic on the stored integers. So do inputs and outputs of a region, whose types are those of the node's
    operands and results.
    """
    if all(node.op not in (ops.QuantizeLinear, ops.DequantizeLinear) for node in graph.nodes):
        return
    for node in graph.nodes:
        if any(isinstance(r.type, TensorType) and r.type.dtype in INTEGER_KINDS for r in node.results):
            values = fold_node(node)
            if values is not None:
                graph.replace(node, values)
    HOIST.apply(graph)
    kinds = _Kinds(target, frozenset([*graph.inputs, *graph.outputs] if is_region else []))
    for node in list(graph.nodes):
        if node.op is ops.QuantizeLinear:
            _widen(graph, node, kinds)
    made = [node for node in graph.nodes if node.op is ops.QuantizeLinear] if target.name == "tfl" else []
    known = extremes(graph) if made else {}
    for node in made:
        _without_kernels(graph, node, kinds, known)
    for node in list(graph.nodes):
        if node.graph is not graph:
            continue
        if node.op is ops.DequantizeLinear:
            _dequantize(graph, node, kinds)
        elif node.op is ops.QuantizeLinear:
            _quantize(graph, node, kinds)
        elif node.only_moves_first:
            _move_constant(graph, node)


def _move_constant(graph: Graph, node: Node) -> None:
    """Move the integers of a constant, so that products read a constant that is only dequantized.

    ::

        Transpose(Convert(%w))    ->    Convert(Transpose(%w))        folded when simplified
    """
    stored = dequantized_source(node.operand(0))
    quantization = stored.tensor_type.quantization if stored is not None and stored.is_constant else None
    if stored is None or quantization is None or quantization.block is not None or quantization.dtype.bits > 16:
        return
    b = Builder(graph, node, maker="quantized types")
    made = b.many(node.op, stored, *node.operands[1:], **node.attributes)
    if all(v.is_quantized for v in made):
        graph.replace(node, [b(ops.Convert, v, dtype=v.dtype) for v in made])
    else:
        b.undo()


def _widen(graph: Graph, node: Node, kinds: _Kinds) -> None:
    """Quantize to 8 bits (clamped) instead of fewer bits, for kernels with 8 bits only.

    ::

        QuantizeLinear(%x) : int4 0.5:0    ->    QuantizeLinear(Min(Max(%x, -4), 3.5)) : int8 0.5:0
    """
    quantization, result = parameters_of(node), node.result
    if quantization is None or quantization.dtype.bits >= 8 or graph.is_output(result) or quantization.block:
        return
    if kinds.converts(node.operand(0).tensor_type.stored_as(quantization)):
        return
    if not all(_dequantizes(user, quantization) for user in result.users()):
        return
    b, dtype = Builder(graph, node, maker="quantized types"), DType.INT8 if result.dtype.is_signed else DType.UINT8
    low, high = (constant(bound) for bound in quantization.bounds_along(node.operand(0).rank))
    x = b(ops.Min, b(ops.Max, node.operand(0), low), high)
    zero = constant(np.asarray(quantization.zero_points, dtype.numpy).reshape(node.operand(1).shape))
    made = b(ops.QuantizeLinear, x, node.operand(1), zero, **{**node.attributes, "dtype": dtype})
    for user in result.users():
        at = Builder(graph, user, maker="quantized types")
        graph.replace(user, [at(ops.DequantizeLinear, made, node.operand(1), zero, **user.attributes)])
    graph.remove(node)


def _without_kernels(graph: Graph, node: Node, kinds: _Kinds, known: Mapping[Value, Extremes]) -> None:
    """Store uint16 as int16; if that has a zero point, which no kernel supports, compute in float."""
    quantization, x = parameters_of(node), node.operand(0)
    if quantization is None or quantization.dtype not in _WIDE or quantization.block or node.result in kinds.fixed:
        return
    if graph.is_output(node.result) or not all(_dequantizes(user, quantization) for user in node.result.users()):
        return
    if kinds.converts(x.tensor_type.stored_as(quantization)):
        return
    stored = as_int16(quantization)
    if stored is not quantization and kinds.converts(x.tensor_type.stored_as(stored)):
        store_as_int16(graph, node, stored)
    elif x.tensor_type.rank is not None:
        round_in_float(graph, node, quantization, kinds.target.title, nan=known.get(x, ORDINARY).nan)


class _Kinds:
    """The quantized types that the kernels of a target convert. `fixed`: values that keep their types."""

    def __init__(self, target: Target, fixed: frozenset[Value]) -> None:
        self.target, self.fixed = target, fixed
        self.known: dict[TensorType, bool] = {}

    def converts(self, type_: TensorType) -> bool:
        """Whether there are kernels to quantize to and dequantize from `type_`, as it is stored, or need be none."""
        if self.target.is_real:
            return True
        if type_ not in self.known:
            stored, quantization = type_, type_.quantization
            if quantization is not None and quantization.storage == "uint8" and not self.target.has_uint8_kernels:
                stored = type_.stored_as(shifted_to_int8(quantization))
            self.known[type_] = all(self._accepts(pair) for pair in ((type_.stored_as(None), stored), (stored, None)))
        return self.known[type_]

    def _accepts(self, pair: tuple[TensorType, TensorType | None]) -> bool:
        source, result = pair
        node = Node(ops.Convert, [Value(source)], {"dtype": source.dtype})
        node.add_result(result or source.stored_as(None))
        accepted = self.target.accepted(node) is not None
        node.detach()
        return accepted


@HOIST.on(ops.DequantizeLinear)
def before_move(b: Builder, node: Node) -> Value | None:
    """Dequantize before an op that moves elements or selects maxima (quantization is monotonic)."""
    maker, quantization = made_by(node.operand(0)), parameters_of(node)
    if maker is None or quantization is None or not quantization.per_tensor or maker.regions:
        return None
    moved = selected_operands(maker)
    if moved is None or maker.op is ops.Convert:
        return None
    operands = list(maker.operands)
    for i in range(len(operands))[moved]:
        operands[i] = b(ops.DequantizeLinear, operands[i], *node.operands[1:], **node.attributes)
    if maker.op is ops.Pad and maker.attr("mode") == "constant":
        value = maker.optional(2)
        if value is not None and not value.is_constant:
            return None
        stored = np.zeros((), np.int64) if value is None else value.stored()
        operands[2:] = [constant(dequantize(stored, quantization).reshape(()))]
    return b.many(maker.op, *operands, **maker.attributes)[node.operand(0).index]


@HOIST.on(ops.DequantizeLinear)
def before_clamp(b: Builder, node: Node) -> Value | None:
    """Clamp before the quantization, as for integers of fewer bits that are stored in 8.

    ::

        DequantizeLinear(Clamp(QuantizeLinear(%x), 0, 15))
          ->
        DequantizeLinear(QuantizeLinear(Clamp(%x, 0, 7.5)))        with scale 0.5
    """
    clamp, quantization = made_by(node.operand(0), ops.Clamp), parameters_of(node)
    source = made_by(clamp.operand(0), ops.QuantizeLinear) if clamp is not None else None
    bounds = clamp_bounds(clamp) if clamp is not None else None
    if source is None or bounds is None or quantization is None or not quantization.per_tensor:
        return None
    if parameters_of(source) != quantization:
        return None
    low, high = dequantize(np.clip(bounds, *limits(quantization.dtype)), quantization)
    x = b(ops.Clamp, source.operand(0), low, high)
    stored = b(ops.QuantizeLinear, x, *source.operands[1:], **source.attributes)
    stored.origins = node.operand(0).origins
    return b(ops.DequantizeLinear, stored, *node.operands[1:], **node.attributes)


@HOIST.on(ops.DequantizeLinear)
def before_resize(b: Builder, node: Node) -> Value | None:
    """Dequantize before an interpolation of stored integers, and quantize its result to the same steps.

    ::

        DequantizeLinear(Resize(%q))    ->    DequantizeLinear(QuantizeLinear(Resize(DequantizeLinear(%q))))

    ONNX does not define the rounding: results differ by less than a step. ONNX Runtime truncates. Integer kernels
    round; if their coordinates are too coarse, floats are rounded down (int8, truncated towards 0, is unchanged).
    Source: ONNX Resize-19, ONNX Runtime's upsample.cc.
    """
    maker, quantization = made_by(node.operand(0), ops.Resize), parameters_of(node)
    if maker is None or quantization is None or not quantization.per_tensor or quantization.dtype.bits > 16:
        return None
    if maker.attr("mode") not in _WITHIN or maker.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    real = b(ops.DequantizeLinear, maker.operand(0), *node.operands[1:], **node.attributes)
    resized = b(ops.Resize, real, *maker.operands[1:], **maker.attributes)
    if maker.attr("mode") == "linear" and not _fits_fixed_point(maker):
        if quantization.dtype.is_signed:
            return None
        resized = b(ops.Sub, resized, np.asarray(_NEARLY_HALF * quantization.scales[0], np.float32))
    stored = b(ops.QuantizeLinear, resized, *node.operands[1:], **_to_stored(node))
    stored.origins = node.operand(0).origins
    return b(ops.DequantizeLinear, stored, *node.operands[1:], **node.attributes)


def _fits_fixed_point(resize: Node) -> bool:
    """Whether the fixed-point coordinates of integer kernels are accurate for all axes."""
    sampling, scales = Sampling.of(attributes_of(resize)), resize.optional(2)
    if scales is not None and not scales.is_constant:
        return False
    factors = [None] * len(resize.attr("dims")) if scales is None else scales.numpy().tolist()
    axes = [(resize.operand(0).shape[d], resize.result.shape[d]) for d in resize.attr("dims")]
    return all(fits_fixed_point(sampling, *axis, factor) for axis, factor in zip(axes, factors, strict=True))


def _to_stored(node: Node) -> dict[str, Any]:
    """Return the attributes of the QuantizeLinear that inverts a DequantizeLinear."""
    return {"axis": node.attr("axis"), "dtype": node.operand(0).dtype}


def parameters_of(node: Node) -> Quantization | None:
    """Return the parameters of a QuantizeLinear or DequantizeLinear; None if not constant or not integer."""
    stored = node.operand(0) if node.op is ops.DequantizeLinear else node.result
    scale, zero = node.operand(1), node.optional(2)
    real = node.result if node.op is ops.DequantizeLinear else node.operand(0)
    if stored.dtype not in INTEGER_KINDS or real.dtype is not DType.FLOAT32 or scale.dtype is not DType.FLOAT32:
        return None
    if not scale.is_constant or (zero is not None and not zero.is_constant):
        return None
    if scale.data is not None and scale.data.size > MOST_SCALES:
        return None
    scales = scale.numpy().reshape(-1)
    zeros = np.zeros(scales.shape, np.int64) if zero is None else zero.numpy().reshape(-1).astype(np.int64)
    if zeros.size != scales.size or not np.all(np.isfinite(scales)) or not np.all(scales > 0):
        return None
    block = node.attr("block_size") or None
    axis = None if scale.is_single and not block else node.attr("axis")
    if axis is not None:
        rank = stored.tensor_type.rank
        if rank is None:
            return None
        axis %= rank
    quantization = Quantization(stored.dtype.value, tuple(map(float, scales)), tuple(map(int, zeros)), axis, block)
    return quantization if quantization.fits(stored.tensor_type.shape) else None


def _dequantize(graph: Graph, node: Node, kinds: _Kinds) -> None:
    quantization = parameters_of(node)
    if quantization is None:
        _widen_constants(node)
        return
    source = _quantized(graph, node, quantization, kinds)
    if source is not None:
        b = Builder(graph, node, maker="quantized types")
        graph.replace(node, [b(ops.Convert, source, dtype=DType.FLOAT32)])


def _widen_constants(node: Node) -> None:
    """Store small constants of fewer than 8 bits in 8 bits if arithmetic reads them: no kernel casts them.

    Large ones stay packed, and are unpacked by arithmetic.
    """
    for i, value in enumerate(node.operands):
        if value is not None and value.data is not None and value.dtype.is_integer and value.dtype.bits < 8:
            if is_packed(value):
                continue
            dtype = DType.INT8 if value.dtype.is_signed else DType.UINT8
            node.set_operand(i, constant(value.data.cast(dtype)))


def _quantized(graph: Graph, node: Node, quantization: Quantization, kinds: _Kinds) -> Value | None:
    """Return the operand of `node` with a quantized type; None if it is used otherwise, or no kernel converts it.

    Other dequantizations of the same value are replaced.
    """
    stored = node.operand(0)
    type_ = TensorType(DType.FLOAT32, stored.tensor_type.shape, quantization)
    converts = kinds.converts(type_)
    if stored.data is not None and (converts or quantization.dtype not in _WIDE):
        return constant(stored.data, type_=type_)
    if not converts or stored in kinds.fixed:
        return None
    if stored in graph.inputs:
        if not all(_dequantizes(user, quantization) for user in stored.users()) or graph.is_output(stored):
            return None
        others = [user for user in stored.users() if user is not node]
        stored.type = type_
        for user in others:
            b = Builder(graph, user, maker="quantized types")
            graph.replace(user, [b(ops.Convert, stored, dtype=DType.FLOAT32)])
        return stored
    maker = stored.producer
    if maker is None or maker.op is not ops.QuantizeLinear or parameters_of(maker) != quantization:
        return None
    b = Builder(graph, maker, maker="quantized types")
    return convert_quantization(b, maker.operand(0), quantization)


def _quantize(graph: Graph, node: Node, kinds: _Kinds) -> None:
    """Replace a QuantizeLinear whose result is an output, or is only dequantized."""
    quantization = parameters_of(node)
    if quantization is None or node.result in kinds.fixed:
        return
    if not kinds.converts(node.operand(0).tensor_type.stored_as(quantization)):
        return
    if all(_dequantizes(user, quantization) for user in node.result.users()):
        b = Builder(graph, node, maker="quantized types")
        made = convert_quantization(b, node.operand(0), quantization)
        for user in node.result.users():
            at = Builder(graph, user, maker="quantized types")
            graph.replace(user, [at(ops.Convert, made, dtype=DType.FLOAT32)])
        graph.substitute(node.result, made, retyped=True)
        graph.remove(node)


def _dequantizes(node: Node, quantization: Quantization) -> bool:
    return node.op is ops.DequantizeLinear and parameters_of(node) == quantization
