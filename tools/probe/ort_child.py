"""Find element types for which an op has no CPU kernel in ONNX Runtime, by loading one-node models without shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

_DEFAULTS = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(string)", "seq(tensor(float))")
_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation")
_VALUES: Mapping[Any, Any] = {
    onnx.AttributeProto.INT: 1,
    onnx.AttributeProto.INTS: [1],
    onnx.AttributeProto.FLOAT: 1.0,
    onnx.AttributeProto.FLOATS: [1.0],
    onnx.AttributeProto.STRING: "",
    onnx.AttributeProto.STRINGS: ["a"],
}


def gaps(job: tuple[str, int]) -> dict[str, list[str]]:
    """The tensor types without a kernel, by type variable; `job`: (op name, since-version).

    Ops that need subgraphs or tensor attributes are not tried, and have none.
    """
    name, version = job
    schema = onnx.defs.get_schema(name, max_inclusive_version=version, domain="")
    found: dict[str, list[str]] = {}
    for constraint in schema.type_constraints:
        variable = constraint.type_param_str
        allowed = sorted(t for t in constraint.allowed_type_strs if t.startswith("tensor(") and "complex" not in t)
        missing = [t for t in allowed if all(_lacks_kernel(schema, version, c) for c in _choices(schema, variable, t))]
        if missing:
            found[variable] = missing
    return found


def _choices(schema: Any, variable: str, type_: str) -> Iterator[dict[str, str]]:
    """Type assignments to try with `type_`: other variables default, all `type_`, or one of them changed."""
    yield {variable: type_}
    others = [c for c in schema.type_constraints if c.type_param_str != variable]
    yield {variable: type_, **{c.type_param_str: type_ for c in others if type_ in c.allowed_type_strs}}
    for other in others:
        for alternative in sorted(t for t in other.allowed_type_strs if t.startswith("tensor(")):
            yield {variable: type_, other.type_param_str: alternative}


def _lacks_kernel(schema: Any, version: int, chosen: Mapping[str, str]) -> bool:
    """Whether ORT refuses the op, both with and without optional operands (ops with a function body are expanded)."""
    return any(_is_refused(_model(schema, version, chosen, optional)) for optional in (False, True))


def _is_refused(model: onnx.ModelProto) -> bool:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return any(text in f"{type(error).__name__} {error}" for text in _NO_KERNEL)
    return False


def _model(schema: Any, version: int, chosen: Mapping[str, str], with_optional: bool) -> onnx.ModelProto:
    types = {c.type_param_str: chosen.get(c.type_param_str) or _default(c) for c in schema.type_constraints}
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    operands = [p for p in schema.inputs if with_optional or p.option != optional]
    results = [p for p in schema.outputs if p.option != optional]
    inputs = [
        helper.make_value_info(f"x{i}", _proto(types.get(p.type_str, p.type_str))) for i, p in enumerate(operands)
    ]
    outputs = [
        helper.make_value_info(f"y{i}", _proto(types.get(p.type_str, p.type_str))) for i, p in enumerate(results)
    ]
    attributes = {a.name: _value(a, types) for a in schema.attributes.values() if a.required or a.name == "to"}
    node = helper.make_node(schema.name, [v.name for v in inputs], [v.name for v in outputs], **attributes)
    graph = helper.make_graph([node], "probe", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def _default(constraint: Any) -> str:
    allowed = set(constraint.allowed_type_strs)
    return next((t for t in _DEFAULTS if t in allowed), min(allowed))


def _value(attribute: Any, types: Mapping[str, str]) -> Any:
    if attribute.name == "to":
        return _proto(types["T2"]).tensor_type.elem_type
    return _VALUES[attribute.type]


def _proto(text: str) -> onnx.TypeProto:
    if text.startswith("seq("):
        return helper.make_sequence_type_proto(_proto(text[4:-1]))
    if text.startswith("optional("):
        return helper.make_optional_type_proto(_proto(text[9:-1]))
    name = {"float": "FLOAT", "double": "DOUBLE"}.get(text[7:-1], text[7:-1].upper())
    return helper.make_tensor_type_proto(getattr(onnx.TensorProto, name), None)
