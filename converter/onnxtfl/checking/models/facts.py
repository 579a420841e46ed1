"""Facts from a neutral graph about allowed differences of outputs and about inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxtfl.inputs.ranges import Range, input_ranges, scalar
from onnxtfl.inputs.sizes import ShapeFacts, shape_facts
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.op import Effect, attributes_of
from onnxtfl.ir.quantized import quantization_of, touches_quantized
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.types.float16 import computes_in_float16

QUANTIZING = frozenset({ops.QuantizeLinear, ops.DequantizeLinear})
SIGMOID_ERROR = 2.0**-24
"""ONNX Runtime computes a Sigmoid as 0.5 + p(x) / q(x): small values have an error of half an ulp of 0.5."""


@dataclass(frozen=True)
class Selection:
    """An output of positions along ``axis`` of the tensor named ``data``."""

    data: str
    axis: int


@dataclass(frozen=True)
class Facts:
    """``ranges``: values of inputs, by name. ``drawn``: outputs that depend on random numbers.

    ``steps``: the scale of outputs that are dequantized tensors, whose values are multiples of it. ``selections``:
    outputs that are positions (ArgMax, TopK), which may differ if two elements are nearly equal. ``sigmoids``: tensors
    that are Sigmoids, or elements and means of such. ``quantized``: whether the model quantizes or dequantizes tensors.
    ``shapes``: constraints on the sizes of the inputs, from the shapes inside. ``logits``: for outputs that are a
    Sigmoid, its operand. ``halves``: whether the model computes in float16 or bfloat16. ``float16``: whether one of its
    ops does more with float16 than move or convert it. ``rounds``: whether it rounds real values, also with scales that
    are computed. ``unsorted``: whether it has an op that need not sort its results. ``dropped``: whether ONNX Runtime's
    graph optimizations drop a Relu in it. ``selects``: whether an op selects by its values
    (:attr:`onnxtfl.ir.declaration.Declaration.discrete`).
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    drawn: frozenset[str] = frozenset()
    steps: Mapping[str, float] = field(default_factory=dict)
    selections: Mapping[str, Selection] = field(default_factory=dict)
    quantized: bool = False
    sigmoids: frozenset[str] = frozenset()
    shapes: ShapeFacts = field(default_factory=ShapeFacts)
    logits: Mapping[str, str] = field(default_factory=dict)
    halves: bool = False
    float16: bool = False
    rounds: bool = False
    unsorted: bool = False
    dropped: bool = False
    selects: bool = False


def analyze(graph: Graph) -> Facts:
    """Return the facts about the inputs and outputs of a neutral graph."""
    drawn = _drawn(graph)
    steps, selections = {}, {}
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if (step := _step(value)) is not None:
            steps[name] = step
        if (selection := _selection(value)) is not None:
            selections[name] = selection
    outputs = list(zip(graph.output_names, graph.outputs, strict=True))
    return Facts(
        input_ranges(graph),
        frozenset(name for name, value in outputs if value in drawn),
        steps,
        selections,
        any(node.op in QUANTIZING or _reads_steps(node) for node in graph.walk()),
        _sigmoids(graph),
        shape_facts(graph),
        {name: logits for name, value in outputs if (logits := _logits(value)) is not None},
        _computes_in_halves(graph),
        any(map(computes_in_float16, graph.walk())),
        any(map(_rounds, graph.walk())),
        any(node.op is ops.TopK and not node.attr("sorted") for node in graph.walk()),
        any(map(_drops_relu, graph.walk())),
        any(node.op.discrete for node in graph.walk()),
    )


def _computes_in_halves(graph: Graph) -> bool:
    """Whether a result in `graph` is float16 or bfloat16; constants that are stored so do not count."""
    types = (result.type for node in graph.walk() for result in node.results)
    return any(isinstance(type_, TensorType) and type_.dtype in (DType.FLOAT16, DType.BFLOAT16) for type_ in types)


def _reads_steps(node: Node) -> bool:
    """Whether a node has quantized operands or results, other than constants of integral values."""
    values = [v for v in (*node.operands, *node.results) if quantization_of(v) is not None]
    return touches_quantized(node) and not (values and all(map(_is_whole, values)))


def _is_whole(value: Value | None) -> bool:
    """Whether a value is a constant stored in steps of 1."""
    quantization = quantization_of(value)
    return value is not None and value.is_constant and quantization is not None and set(quantization.scales) == {1.0}


def _rounds(node: Node) -> bool:
    """Whether a node rounds real values (quantization to integers of given steps excluded)."""
    if node.op is ops.QuantizeLinear:
        return not node.operand(1).is_constant or bool(node.attr("dtype").is_float)
    return node.op is ops.RoundNearestEven and not node.operand(0).is_constant


def _drops_relu(node: Node) -> bool:
    """Whether this quantizes the result of a Relu to a type with negative values and zero point 0.

    Source: ONNX Runtime 1.32, core/optimizer/relu_quant_fusion.cc, which knows int8, uint8, int16 and uint16 only.
    """
    if node.op is not ops.QuantizeLinear or made_by(node.operand(0), ops.Relu) is None:
        return False
    dtype: DType = node.attr("dtype")
    return dtype.is_float or (dtype.is_signed and dtype.bits < 8)


def _drawn(graph: Graph) -> set[Value]:
    """Return the values that depend on random ops."""
    drawn: set[Value] = set()
    for node in graph.nodes:
        if node.op.effect_of(node) is Effect.RANDOM or any(value in drawn for value in node.operands):
            drawn.update(node.results)
    return drawn


def _step(value: Value) -> float | None:
    """Return the scale of a value that is a (possibly moved) dequantized tensor; None for other values."""
    while quantization_of(value) is None and (node := value.producer) is not None:
        source = node.optional(0)
        if node.op is ops.DequantizeLinear:
            return scalar(node.operands[1])
        quantization = quantization_of(source)
        if quantization is not None and (node.op is ops.Convert or _is_unknown_unary(node)):
            return quantization.scales[0] if quantization.per_tensor else None
        if node.op.keeps_all is None or source is None:
            return None
        value = source
    return None


def _sigmoids(graph: Graph) -> frozenset[str]:
    """The names of tensors that are Sigmoids, or elements and means of such: each has the error of a Sigmoid."""
    found: set[Value] = set()
    for node in graph.walk():
        keeps_errors = node.op.moves or node.op.positions is not None or node.op.picks(attributes_of(node))
        if node.op is ops.Sigmoid or (keeps_errors and any(value in found for value in node.operands)):
            found.update(node.results)
    outputs = {name for name, value in zip(graph.output_names, graph.outputs, strict=True) if value in found}
    return frozenset(outputs | {value.name for value in found if value.name is not None})


def _logits(value: Value) -> str | None:
    """Return the name of the operand of the Sigmoid that computes `value` (perhaps moved), else None."""
    node = value.producer
    while node is not None and node.op.keeps_all is not None:
        node = node.operand(0).producer
    return node.operand(0).name if node is not None and node.op is ops.Sigmoid else None


def _is_unknown_unary(node: Node) -> bool:
    """Whether this op, which could not be lifted, has one operand (assumed to be dequantized)."""
    return node.op.dialect != "neutral" and len(node.operands) == 1


def _selection(value: Value) -> Selection | None:
    """Return the selection that computes the positions in `value` (perhaps reshaped or converted), else None."""
    node = value.producer
    while node is not None and (node.op.keeps_all == "in order" or node.op is ops.Convert):
        value = node.operand(0)
        node = value.producer
    if node is None or node.op.positions != value.index:
        return None
    data, axis = node.operand(0), node.attr("axis")
    return None if data.name is None else Selection(data.name, axis % (data.tensor_type.rank or 1))
