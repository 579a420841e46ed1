"""Dynamic quantization as TFLite's hybrid kernels compute it: float activations, int8 weights.

::

    %q, %s, %z = DynamicQuantizeLinear(%x)
    %p = MatMulInteger(%q, %w, %z, %wz)                ->      %y = DotGeneral(%x, %w: int8 weights)
    %y = Mul(Convert(%p), Mul(%s, %ws))

The kernels round the activations to 8 bits per row, so that the results differ by this rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType
from onnxtfl.ir.whole_rows import are_whole_rows, summed_axes
from onnxtfl.passes.quantize.integers import shifted
from onnxtfl.passes.quantize.weights import SIGNED, centered, is_eight_bit
from onnxtfl.rewriting.patterns import Patterns

TOLERANCE = 0.05
"""Tolerance for kernels that quantize activations, relative to an output's largest element."""

REAL = Patterns()


def multiply_real(graph: Graph) -> None:
    """Replace integer products of dynamically quantized activations by products of the float activations."""
    REAL.apply(graph)


def remark_dynamic_products(graph: Graph) -> None:
    """Add a remark with its name to each product that `multiply_real` would change."""
    for node in graph.nodes:
        if node.op is ops.Mul and (found := _integer_product(node)) is not None:
            node.remarks += (Remark("dynamic", found.product.op.name, node.result.name or ""),)


def use_hybrid_weights(graph: Graph, *, exactly: bool = False) -> bool:
    """Store constant 8-bit weights of products and convolutions of float activations as int8; return whether there are
    any.

    `exactly`: only those of activations that the kernels do not round.
    """
    changed = False
    for node in list(graph.nodes):
        multiplies = issubclass(node.op, ops.DotGeneral | ops.Conv) and node.graph is graph
        if multiplies and (not exactly or _reads_whole_rows(node)):
            changed |= _read_stored(graph, node)
    return changed


def _reads_whole_rows(node: Node) -> bool:
    """Whether the kernel of a product does not round its activations."""
    axes = summed_axes(node)
    return axes is not None and are_whole_rows(node.operand(0), axis=axes[0])


@dataclass(frozen=True, slots=True)
class _IntegerProduct:
    """A `product` of the quantized tensor `x`, its weights with zero point, scale and axis of scales."""

    product: Node
    x: Value
    stored: Value
    zero_point: Value | None
    scale: Value
    axis: int


@REAL.on(ops.Mul)
def product_of_integers(b: Builder, node: Node) -> Value | None:
    """(xq - xz) @ (wq - wz) * (xs * ws)    ->    x @ (wq - wz) * ws"""
    found = _integer_product(node)
    if found is None:
        return None
    zero_point = None if found.zero_point is None else _flat(b, found.zero_point)
    weights = b(ops.DequantizeLinear, found.stored, _flat(b, found.scale), zero_point, axis=found.axis)
    return b(found.product.op, found.x, weights, **found.product.attributes)


def _integer_product(node: Node) -> _IntegerProduct | None:
    """Return the integer product of dynamically quantized activations that the Mul `node` scales, else None."""
    for product, factors in (node.operands, node.operands[::-1]):
        found = _scaled_product(product, factors) if product is not None and factors is not None else None
        if found is not None:
            return found
    return None


def _scaled_product(product: Value, factors: Value) -> _IntegerProduct | None:
    convert, scales = made_by(product, ops.Convert), made_by(factors, ops.Mul)
    node = made_by(convert.operand(0), ops.DotGeneral, ops.Conv) if convert is not None else None
    if node is None or scales is None or node.optional(2) is not None:
        return None
    x, w = (shifted(node.operand(i)) for i in (0, 1))
    source = made_by(x[0], ops.QuantizeLinear) if x is not None else None
    if source is None or x is None or w is None or not w[0].is_constant or x[1] is not source.optional(2):
        return None
    scale = _other(scales.operands, source.operand(1))
    axis = _output_axis(node)
    if scale is None or axis is None or (not scale.is_single and not _is_by_output(scale, node, axis)):
        return None
    return _IntegerProduct(node, source.operand(0), w[0], w[1], scale, axis)


def _other(pair: Sequence[Value | None], known: Value) -> Value | None:
    """The operand of a product that is not `known`."""
    first, second = pair
    return second if first is known else first if second is known else None


def _output_axis(node: Node) -> int | None:
    """Return the axis of the weights for the last axis, or the feature axis, of the result."""
    if node.op is ops.Conv:
        return int(node.attr("kernel_output_feature_dimension"))
    free = ops.DotRoles.of(node).rhs_free
    return free[-1] if len(free) == 1 and not node.attr("output_permutation") else None


def _is_by_output(scale: Value, node: Node, axis: int) -> bool:
    """Whether there is one scale per output feature, the last axis of a product."""
    return node.op is not ops.Conv and scale.tensor_type.shape == (node.operand(1).shape[axis],)


def _flat(b: Builder, parameter: Value) -> Value:
    """Return a single parameter as a scalar."""
    return b(ops.Reshape, parameter, []) if parameter.is_single and parameter.rank else parameter


@REAL.on(ops.DequantizeLinear)
def rounding_of_activations(b: Builder, node: Node) -> Value | None:
    """DequantizeLinear(QuantizeLinear(x, s, z), s, z)    ->    x, if s is computed from x"""
    source, scale = made_by(node.operand(0), ops.QuantizeLinear), node.operand(1)
    if source is None or scale.is_constant or source.operand(1) is not scale:
        return None
    return source.operand(0) if source.optional(2) is node.optional(2) else None


def _read_stored(graph: Graph, node: Node) -> bool:
    """Let `node` read stored weights; return whether it has any."""
    x, convert = node.operand(0), made_by(node.operand(1), ops.Convert, quantized=True)
    if x.is_quantized or x.dtype is not DType.FLOAT32 or x.is_constant or node.result.is_quantized or convert is None:
        return False
    stored = convert.operand(0)
    weights = centered(stored, SIGNED) if is_eight_bit(stored) else None
    if weights is None or weights.tensor_type.quantization is None:
        return False
    quantization = weights.tensor_type.quantization
    if node.op is ops.Conv:
        _read_filter(node, weights, quantization)
    elif quantization.per_tensor:
        node.set_operand(1, weights)
    elif quantization.axis == _output_axis(node):
        _scale_afterwards(graph, node, weights, quantization)
    return True


def _read_filter(node: Node, weights: Value, quantization: Quantization) -> None:
    """Repeat the scales of weights per output feature, as kernels with groups require.

    Not for groups of several features with equal scales: kernels treat these like a single scale.
    Source: LiteRT kernels/conv.cc (is_hybrid_per_channel).
    """
    axis = _output_axis(node)
    in_group = weights.shape[int(node.attr("kernel_input_feature_dimension"))]
    if len(set(quantization.scales)) == 1 and node.attr("feature_group_count") != 1 and in_group != 1:
        return
    if quantization.per_tensor:
        node.set_operand(1, _by_feature(weights, quantization, axis))
    elif quantization.axis == axis:
        node.set_operand(1, weights)


def _by_feature(weights: Value, quantization: Quantization, axis: int | None) -> Value:
    """Return the weights with their single (constant) scale repeated for each output feature."""
    data = weights.data
    if data is None or axis is None:
        return weights
    count = int(data.shape[axis])
    repeated = Quantization(quantization.storage, (quantization.scales[0],) * count, (0,) * count, axis)
    return constant(data, type_=weights.tensor_type.stored_as(repeated))


def _scale_afterwards(graph: Graph, node: Node, weights: Value, quantization: Quantization) -> None:
    """Use weights of scale 1, and multiply the result by the scales per output feature."""
    b = Builder(graph, node, maker="hybrid")
    unit = Quantization(quantization.storage, (1.0,), (0,))
    plain = constant(weights.data, type_=weights.tensor_type.stored_as(unit)) if weights.data is not None else weights
    scales = constant(np.asarray(quantization.scales, np.float32))
    product = b(ops.Mul, b(ops.DotGeneral, node.operand(0), plain, **node.attributes), scales)
    bias = node.optional(2)
    graph.replace(node, [product if bias is None else b(ops.Add, product, bias)])
