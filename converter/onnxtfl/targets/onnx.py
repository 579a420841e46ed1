"""What an ONNX opset accepts, and where ONNX Runtime's CPU kernels have gaps.

An opset's rules come from ``onnx.defs``; the gaps are measured by ``tools/probe_onnxruntime.py`` and stored
in ``schemas/onnxruntime.toml``.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import onnx.defs

from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import quantization_of, touches_quantized
from onnxtfl.ir.source_names import source_name
from onnxtfl.ir.types import DType, OptionalType, SequenceType, TensorType, Type
from onnxtfl.rewriting.registry import Form, quantized_rules, rules_for
from onnxtfl.rewriting.target import Refusal
from onnxtfl.targets.instance import BoundOp
from onnxtfl.targets.table import Costs, Parameter, costs_of
from onnxtfl.targets.target import Target, operands_of

_ON_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear", "Identity", "If", "Loop", "Scan"})
"""The ops on integer tensors that ops on quantized values become."""
_OF_RUNTIME = frozenset({("com.microsoft", "QuantizeLinear"), ("com.microsoft", "DequantizeLinear")})
"""Ops of the domain com.microsoft, for types that the ONNX ops of that name have since opset 21."""
_MOVES = frozenset(
    {"Concat", "Expand", "Gather", "GatherElements", "GatherND", "MaxPool", "Reshape", "ReverseSequence"}
    | {"ScatterND", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"}
)
"""Ops that copy stored elements, if operands and results have the same scale and zero point."""
_ONNX_NAMES = {"float": DType.FLOAT32, "double": DType.FLOAT64} | {d.value: d for d in DType}
_TYPE_NAMES = {dtype: name for name, dtype in _ONNX_NAMES.items() if name not in ("float32", "float64")}


DEFAULT_OPSET = 21
"""The opset by default."""
_MEASURED = (26, (1, 31))
"""The newest opset in ``schemas/onnxruntime.toml``, and the release of ONNX Runtime that was measured."""


class OnnxTarget(Target):
    """An opset of the default domain; with `runtime`, limited to what ONNX Runtime's CPU kernels run.

    `opset` None: the default, unless `raise_opset` finds ops that only a newer opset has; `raised` names them.

    `integer_ops`: ops on quantized types are written as ops with explicit parameters (QLinearConv, ...), also those of
    ONNX Runtime's domain, else as ops on real values between DequantizeLinear and QuantizeLinear.
    """

    name = "onnx"
    chain = ("onnx",)
    channels_last = False
    shares_inputs = True

    def __init__(self, opset: int | None = None, runtime: bool = True, integer_ops: bool = False) -> None:
        super().__init__()
        self.opset, self.runtime, self.has_integer_ops = opset or DEFAULT_OPSET, runtime, integer_ops
        self.may_raise, self.raised = opset is None, ""
        self.title = f"ONNX opset {self.opset}"

    def raise_opset(self, graph: Graph) -> None:
        """Choose the lowest opset with ops for all nodes of `graph`, if the user named none and ONNX Runtime has it."""
        for node in graph.nodes if self.may_raise else ():
            needed = _lowest_opset(node)
            if needed > self.opset and (_newest_opset() >= needed or not self.runtime):
                self.opset, self.title = needed, f"ONNX opset {needed}"
                self.raised = f"{needed}, which {source_name(node)!r} needs (by default it is {DEFAULT_OPSET})"

    def advice(self, node: Node) -> str | None:
        needed = _lowest_opset(node)
        return f"ask for opset {needed} or a newer one" if needed > self.opset else None

    def forms(self, node: Node) -> Sequence[Form]:
        forms = rules_for(node.op).onnx_forms(node, self.opset)
        stored = self.has_integer_ops and touches_quantized(node)
        return [*quantized_rules().quantized_forms(node, self.opset), *forms] if stored else forms

    def may_compute_on_integers(self, node: Node) -> bool:
        found = [quantization_of(v) for v in node.results]
        return self.has_integer_ops and all(q is not None and q.storage in ("int8", "uint8") for q in found)

    def operand_name(self, node: Node, index: int) -> str | None:
        """The name in the op's schema; None for ops without one."""
        schema = _schema(node.op.name.removeprefix("onnx."), node.op.version, node.op.domain)
        inputs = schema.inputs if schema is not None else ()
        return inputs[index].name if index < len(inputs) else None

    def bound(self, form: Form, results: Sequence[Value]) -> BoundOp | None:
        schema = _schema(form.op, self.opset, form.domain)
        return None if schema is None else _bound(schema, operands_of(form), results, form.attributes)

    def costs(self, form: Form) -> Costs:
        return {} if form.domain else _costs(form.op)

    def refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        if form.own_version is not None:
            return None
        op, operands, attributes = form.op, operands_of(form), dict(form.attributes)
        captures = attributes.pop("captures", 0)  # values that ONNX's regions refer to by name, not as operands
        operands = operands[: len(operands) - captures]
        explicit = self.has_integer_ops and (form.domain, op) in quantized_rules().quantized_ops
        of_runtime = self.runtime and (form.domain, op) in _OF_RUNTIME
        schema = _schema(op, 21, "") if of_runtime else _schema(op, self.opset, form.domain)
        if schema is None and explicit:
            return None
        if schema is None:
            return Refusal("op", f"opset {self.opset} has no {op}")
        if schema.deprecated:
            return Refusal("op", f"{op} is deprecated in opset {self.opset}")
        unknown = sorted(set(attributes) - set(schema.attributes))
        if unknown:
            return Refusal("other", f"{op}-{schema.since_version} has no attribute {unknown[0]}")
        if refusal := _wrong_count(schema, operands, results):
            return refusal
        allowed = (
            op in _ON_QUANTIZED or explicit or (self.has_integer_ops and op in _MOVES and _is_same(operands, results))
        )
        if not allowed and any(v is not None and v.is_quantized for v in (*operands, *results)):
            return Refusal("quantization", f"{form.op} accepts no quantized operands")
        gaps = _gaps(op, schema.since_version) if self.runtime and not form.domain else {}
        unknown_types = _NOT_IN_RUNTIME if self.runtime else frozenset[str]()
        return _wrong_type(schema, _bound(schema, operands, results, attributes), gaps, unknown_types)

    def op_version(self, form: Form, results: Sequence[Value]) -> int:
        if form.own_version is not None:
            return form.own_version
        schema = _schema(form.op, self.opset, form.domain)
        return 1 if schema is None else int(schema.since_version)


def _lowest_opset(node: Node) -> int:
    """The lowest opset with ops for `node`, as far as rules say; 0 if all have them."""
    rule = rules_for(node.op).opsets.get(node.op)
    return 0 if rule is None else rule(node)


def _is_same(operands: Sequence[Value | None], results: Sequence[Value]) -> bool:
    """Whether all floats among the values have the same scale and zero point, per tensor."""
    values = [v for v in (*operands, *results) if v is not None and isinstance(v.type, TensorType) and v.dtype.is_float]
    found = {quantization_of(v) for v in values}
    return len(found) == 1 and all(q is not None and q.per_tensor for q in found)


@functools.cache
def _newest_opset() -> int:
    """The newest opset that the installed ONNX Runtime runs, as far as it was measured; 0 if none is installed."""
    try:
        numbers = importlib.metadata.version("onnxruntime").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return 0
    newest, release = _MEASURED
    return newest if tuple(int(n) for n in numbers if n.isdigit()) >= release else 0


@functools.cache
def _schema(op: str, opset: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=opset, domain=domain)
    except onnx.defs.SchemaError:
        return None


def _bound(
    schema: Any, operands: Sequence[Value | None], results: Sequence[Value], attributes: Mapping[str, Any]
) -> BoundOp:
    parameters = _parameters(schema.inputs), _parameters(schema.outputs)
    main = schema.inputs[0].type_str if schema.inputs else ""
    return BoundOp(parameters, operands, results, attributes, main, matrix_rank=2)


def _parameters(formals: Sequence[Any]) -> list[Parameter]:
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return [Parameter(f.name, f.type_str, variadic=f.option == variadic) for f in formals]


def _wrong_count(schema: Any, operands: Sequence[Value | None], results: Sequence[Value]) -> Refusal | None:
    name = f"{schema.name}-{schema.since_version}"
    counts = (
        ("operands", len(operands), schema.min_input, schema.max_input),
        ("results", len(results), schema.min_output, schema.max_output),
    )
    for what, count, least, most in counts:
        if not least <= count <= most:
            return Refusal("other", f"{name} has {least} to {most} {what}, not {count}")
    for index, value in enumerate(operands):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if value is None and formal.option == onnx.defs.OpSchema.FormalParameterOption.Single:
            return Refusal("other", f"{name} needs {formal.name}")
    return None


_NOT_IN_RUNTIME = frozenset({"tensor(complex64)", "tensor(complex128)"})
"""Element types with which ONNX Runtime loads no model."""


def _wrong_type(
    schema: Any, op: BoundOp, gaps: Mapping[str, frozenset[str]], unknown: frozenset[str]
) -> Refusal | None:
    for type_str, values in op.variables.items():
        allowed = _allowed(schema, type_str) - gaps.get(type_str, frozenset()) - unknown
        found = {name for v in values if (name := type_name(v.type))}
        if found - allowed:
            if not allowed:
                return Refusal("op", f"ONNX Runtime has no kernel for {schema.name}-{schema.since_version}")
            dtypes = frozenset(d for name in allowed if (d := _dtype(name)) is not None)
            listed = " or ".join(sorted(d.value for d in dtypes)) or "no such type"
            what = f"{schema.name}-{schema.since_version} accepts {listed} as {type_str}, not {min(found - allowed)}"
            refused = frozenset(d for name in found - allowed if (d := _dtype(name)) is not None)
            return Refusal("dtype", what, dtypes, found=refused)
    return None


def _allowed(schema: Any, type_str: str) -> frozenset[str]:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == type_str:
            return frozenset(constraint.allowed_type_strs)
    return frozenset({type_str})


def type_name(type_: Type | None) -> str:
    """A type in the notation of ONNX's schemas: "tensor(float)", "seq(tensor(int64))"; "" for other types."""
    match type_:
        case TensorType():
            return f"tensor({_TYPE_NAMES[type_.storage]})"
        case SequenceType():
            return f"seq({type_name(type_.element)})"
        case OptionalType():
            return f"optional({type_name(type_.element)})"
    return ""


def _dtype(name: str) -> DType | None:
    return _ONNX_NAMES.get(name.removeprefix("tensor(").removesuffix(")"))


@functools.cache
def _table() -> Mapping[str, Any]:
    file = importlib.resources.files("onnxtfl.schemas").joinpath("onnxruntime.toml")
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@functools.cache
def _gaps(op: str, version: int) -> Mapping[str, frozenset[str]]:
    """Type variable -> types for which ONNX Runtime has no CPU kernel at this since-version."""
    entry = _table().get(op, {}).get(str(version), {})
    return {variable: frozenset(f"tensor({n})" for n in names.split()) for variable, names in entry.items()}


@functools.cache
def _costs(op: str) -> Costs:
    """The rows measured for `op`, on one kind of machine."""
    return costs_of(_table().get(op, {}).get("costs", {}))
