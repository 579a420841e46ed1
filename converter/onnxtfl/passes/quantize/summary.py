"""Reports which ops of a converted model use integer kernels, which compute in float and why, and requantizations.

In TFLite, an op uses integer kernels if its tensors are quantized; in ONNX, also between DequantizeLinear and
QuantizeLinear (perhaps with a clamp), which runtimes fuse to integer kernels. Such clamps, and ops that only move
elements, cast, quantize or dequantize, are not counted unless they are quantized only in the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from onnxtfl.errors import short
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantized import is_real, quantization_of
from onnxtfl.ir.summary import FloatOp, QuantizationSummary
from onnxtfl.ir.types import TensorType
from onnxtfl.targets.target import Target, as_form

Kind = Literal["integer", "hybrid", "float"]


def summary(graph: Graph, names: Mapping[Value, str], target: Target) -> QuantizationSummary | None:
    """Return the summary of quantization in a converted `graph`; None if no tensor is quantized.

    `names`: the written name of each value; `target`: the target of the graph's ops.
    """
    nodes = list(graph.walk())
    dynamic = {remark for node in nodes for remark in node.remarks if remark.kind == "dynamic"}
    if not dynamic and not any(
        _island(node) or any(map(quantization_of, (*node.operands, *node.results))) for node in nodes
    ):
        return None
    counts: dict[Kind, Counter[str]] = {"integer": Counter(), "hybrid": Counter(), "float": Counter()}
    floats = []
    for node in nodes:
        kind = _kind(node)
        if kind is not None:
            counts[kind][node.op.name_in_file] += 1
        if kind == "float":
            floats.append(_float_op(node, names))
    said = [(r, node) for node in nodes for r in node.remarks]
    biases = {(_where(node, names), r.text): None for r, node in said if r.kind == "bias"}
    kernels = {(r, node.sources): (_where(node, names), f"{r.op}: {r.text}") for r, node in said if r.kind == "kernel"}
    changed = {entry: None for node in nodes if (entry := _requantized(node, names)) is not None}
    integer, hybrid = (dict(counts[kind].most_common()) for kind in ("integer", "hybrid"))
    coarse = _coarse(nodes, target)
    found = (tuple(floats), tuple(biases), tuple(changed))
    faults = Counter(
        f"{node.op.name_in_file}: {fault}" for node in nodes if (fault := target.unmeasured_fault(as_form(node)))
    )
    return QuantizationSummary(
        integer,
        hybrid,
        *found,
        coarse_ops=coarse,
        kernels=tuple(kernels.values()),
        faults=dict(faults),
        dynamic_ops=len(dynamic),
        rounded_scales=len({r for r, _ in said if r.kind == "rounded"}),
    )


def _coarse(nodes: Sequence[Node], target: Target) -> dict[str, int]:
    """Return the ops that may deviate by more than a step, and the number of steps."""
    found: dict[str, int] = {}
    for node in nodes:
        steps = target.steps_off(as_form(node), node.results) if any(r.is_quantized for r in node.results) else 0
        if steps > 1:
            found[node.op.name_in_file] = max(steps, found.get(node.op.name_in_file, 0))
    return found


def _kind(node: Node) -> Kind | None:
    """Return how `node` computes; None for ops that are not counted."""
    meaning = node.lowered_from
    if meaning is None or meaning in (ops.Convert, ops.Shape) or node.regions or _is_fused_clamp(node):
        return None
    operands = [v for v in node.present_operands if not v.is_constant]
    real = any(is_real(v.type) and not _is_dequantized(v) for v in operands)
    real |= any(is_real(v.type) and not _is_quantized_next(v) for v in node.results)
    quantized = any(map(_as_quantized, node.operands)) or any(map(_as_quantized, node.results))
    if meaning.moves is not None:
        return "float" if real and _island(node) is not None else None
    if real:
        return "hybrid" if any(quantization_of(v) for v in node.operands) else "float"
    return "integer" if quantized else None


def _as_quantized(value: Value | None) -> bool:
    """Whether this is a quantized tensor, or one between Q and DQ ops."""
    return value is not None and (value.is_quantized or _is_dequantized(value) or _is_quantized_next(value))


def _is_dequantized(value: Value) -> bool:
    """Whether ONNX's DequantizeLinear produces `value`."""
    node = value.producer
    return node is not None and node.op.dialect == "onnx" and _converts(node) and node.operand(0).is_quantized


def _is_quantized_next(value: Value) -> bool:
    """Whether only ONNX's QuantizeLinear reads `value`."""
    node = value.producer
    if node is None or node.op.dialect != "onnx" or node.graph is None or not value.uses or node.graph.is_output(value):
        return False
    return all(_is_fused_clamp(u) or _quantizes(u) for u in value.users())


def _is_fused_clamp(node: Node) -> bool:
    """Whether `node` is a clamp whose result only ONNX's QuantizeLinear reads."""
    clamps = node.lowered_from is not None and node.lowered_from.clamps is not None
    return node.op.dialect == "onnx" and clamps and _is_quantized_next(node.results[0])


def _quantizes(node: Node) -> bool:
    return node.op.dialect == "onnx" and _converts(node) and node.results[0].is_quantized


def _converts(node: Node) -> bool:
    return node.lowered_from is ops.Convert


def _island(node: Node) -> Remark | None:
    """Return the last remark that this op is quantized in the source."""
    return next((r for r in reversed(node.remarks) if r.kind == "island"), None)


def _float_op(node: Node, names: Mapping[Value, str]) -> FloatOp:
    remark = _island(node) or next((r for r in node.remarks if r.kind in ("faster", "float")), None)
    reason = "it is float in the source" if remark is None else remark.text
    meaning = node.lowered_from.name if node.lowered_from is not None else ""
    source_op = meaning if remark is None else remark.op
    island = remark is not None and remark.kind == "island"
    faster = remark is not None and remark.kind == "faster"
    return FloatOp(node.op.name_in_file, _where(node, names), node.sources, source_op, island, reason, faster)


def _requantized(node: Node, names: Mapping[Value, str]) -> tuple[str, str] | None:
    """Return the tensor that `node` requantizes, unless the source does."""
    if not _converts(node) or "requantize" not in node.made_by or not isinstance(node.results[0].type, TensorType):
        return None
    source, result = node.operand(0), node.results[0]
    before, after = quantization_of(source), quantization_of(result)
    if before is None or after is None:
        return None
    named = sorted((v for v in (source, result) if v in names), key=lambda v: not v.origins)
    return names[named[0]] if named else "", short(f"{before} became {after}")


def _where(node: Node, names: Mapping[Value, str]) -> str:
    return next((names[r] for r in node.results if r in names), "")
