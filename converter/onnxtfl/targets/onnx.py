"""What an ONNX opset accepts, and where ONNX Runtime's CPU kernels have gaps.

An opset's rules come from ``onnx.defs``; the gaps are measured by ``tools/probe_onnxruntime.py`` and stored
in ``schemas/onnxruntime.toml``.
"""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import onnx.defs

from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType, OptionalType, SequenceType, TensorType, Type
from onnxtfl.rewriting.registry import Form, rules
from onnxtfl.targets.instance import BoundOp
from onnxtfl.targets.refusal import Refusal
from onnxtfl.targets.table import CostRow, Parameter
from onnxtfl.targets.target import Target, operands_of

_ONNX_NAMES = {"float": DType.FLOAT32, "double": DType.FLOAT64} | {d.value: d for d in DType}
_TYPE_NAMES = {dtype: name for name, dtype in _ONNX_NAMES.items() if name not in ("float32", "float64")}


class OnnxTarget(Target):
    """An opset of the default domain; with `runtime`, also what ONNX Runtime's CPU kernels run."""

    name = "onnx"
    channels_last = False
    shares_inputs = True

    def __init__(self, opset: int = 21, runtime: bool = True) -> None:
        super().__init__()
        self.opset, self.runtime = opset, runtime
        self.title = f"ONNX opset {opset}"

    def forms(self, node: Node) -> Sequence[Form]:
        """The ONNX forms that the rules offer for `node`."""
        return rules().onnx_forms(node, self.opset)

    def refusal_of(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        """What the op's schema at this opset says against `form`."""
        operands, attributes = operands_of(form), dict(form.attributes)
        captures = attributes.pop("captures", 0)  # values that ONNX's regions refer to by name, not as operands
        return self.refusal(form.op, operands[: len(operands) - captures], results, attributes, form.domain)

    def version_of(self, form: Form, results: Sequence[Value]) -> int:
        """The since-version of the op at this opset."""
        return self.op_version(form.op, form.domain)

    def bound(self, form: Form, results: Sequence[Value]) -> BoundOp | None:
        """`form` with its operands and results bound to the op's schema; None where the opset has no such op."""
        schema = _schema(form.op, self.opset, form.domain)
        if schema is None:
            return None
        parameters = _parameters(schema.inputs), _parameters(schema.outputs)
        main = schema.inputs[0].type_str if schema.inputs else ""
        return BoundOp(parameters, operands_of(form), results, form.attributes, main, matrix_rank=2)

    def costs(self, form: Form) -> Sequence[CostRow]:
        """What was measured with ONNX Runtime."""
        return () if form.domain else _costs(form.op)

    def refusal(
        self,
        op: str,
        operands: Sequence[Value | None],
        results: Sequence[Value],
        attributes: Mapping[str, Any],
        domain: str = "",
    ) -> Refusal | None:
        """Why this node may not be written; None where it may."""
        schema = _schema(op, self.opset, domain)
        if schema is None:
            return Refusal("op", f"opset {self.opset} has no {op}")
        if schema.deprecated:
            return Refusal("op", f"{op} is deprecated in opset {self.opset}")
        unknown = sorted(set(attributes) - set(schema.attributes))
        if unknown:
            return Refusal("other", f"{op}-{schema.since_version} has no attribute {unknown[0]}")
        if refusal := _wrong_count(schema, operands, results):
            return refusal
        gaps = _gaps(op, schema.since_version) if self.runtime and not domain else {}
        return _wrong_type(schema, operands, results, gaps)

    def op_version(self, op: str, domain: str = "") -> int:
        """The since-version of `op` at this opset; KeyError where it has none."""
        schema = _schema(op, self.opset, domain)
        if schema is None:
            raise KeyError(op)
        return int(schema.since_version)


@functools.cache
def _schema(op: str, opset: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=opset, domain=domain)
    except onnx.defs.SchemaError:
        return None


def _parameters(formals: Sequence[Any]) -> list[Parameter]:
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return [Parameter(f.name, f.type_str, variadic=f.option == variadic) for f in formals]


def _wrong_count(schema: Any, operands: Sequence[Value | None], results: Sequence[Value]) -> Refusal | None:
    name = f"{schema.name}-{schema.since_version}"
    if not schema.min_input <= len(operands) <= schema.max_input:
        return Refusal("other", f"{name} takes {schema.min_input} to {schema.max_input} operands, not {len(operands)}")
    if not schema.min_output <= len(results) <= schema.max_output:
        return Refusal("other", f"{name} gives {schema.min_output} to {schema.max_output} results, not {len(results)}")
    for index, value in enumerate(operands):
        formal = _formal(schema.inputs, index)
        if value is None and formal.option == onnx.defs.OpSchema.FormalParameterOption.Single:
            return Refusal("other", f"{name} needs {formal.name}", operands=(index,))
    return None


def _formal(formals: Sequence[Any], index: int) -> Any:
    return formals[min(index, len(formals) - 1)]


def _wrong_type(
    schema: Any, operands: Sequence[Value | None], results: Sequence[Value], gaps: Mapping[str, frozenset[str]]
) -> Refusal | None:
    variables: dict[str, tuple[list[int], list[int]]] = {}
    for side, (formals, values) in enumerate(((schema.inputs, operands), (schema.outputs, results))):
        for index, value in enumerate(values):
            if value is not None and value.type is not None:
                variables.setdefault(_formal(formals, index).type_str, ([], []))[side].append(index)
    for type_str, (taken, given) in variables.items():
        allowed = _allowed(schema, type_str) - gaps.get(type_str, frozenset())
        values = [*(operands[i] for i in taken), *(results[i] for i in given)]
        found = {name for v in values if v is not None and (name := type_name(v.type))}
        if found - allowed:
            if not allowed:
                return Refusal("op", f"ONNX Runtime has no kernel for {schema.name}-{schema.since_version}")
            dtypes = frozenset(d for name in allowed if (d := _dtype(name)) is not None)
            listed = " or ".join(sorted(d.value for d in dtypes)) or "no such type"
            what = f"{schema.name}-{schema.since_version} takes {listed} as {type_str}, not {min(found - allowed)}"
            return Refusal("dtype", what, dtypes, operands=tuple(taken), results=tuple(given))
    return None


def _allowed(schema: Any, type_str: str) -> frozenset[str]:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == type_str:
            return frozenset(constraint.allowed_type_strs)
    return frozenset({type_str})


def type_name(type_: Type | None) -> str:
    """A type as ONNX's schemas write it: "tensor(float)", "seq(tensor(int64))"; "" where there is no such type."""
    match type_:
        case TensorType():
            return f"tensor({_TYPE_NAMES[type_.dtype]})"
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
def _costs(op: str) -> tuple[CostRow, ...]:
    """The rows measured for `op`."""
    return tuple(map(CostRow.of, _table().get(op, {}).get("costs", {}).get("rows", ())))
