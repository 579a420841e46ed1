"""The signatures of ONNX ops: number of operands and results, kinds of attributes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onnx import NodeProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.attributes import NAMES, attribute_kind
from onnxtfl.formats.onnx.encode import schema


@dataclass(frozen=True, slots=True)
class Signature:
    """Numbers of operands and results, the operands that must be present, kinds of attributes, and required ones."""

    min_operands: int
    required_operands: tuple[int, ...]
    max_operands: int
    max_results: int
    kinds: dict[str, int]
    required: frozenset[str]


@functools.cache
def signature(op: str, version: int, domain: str) -> Signature | None:
    """The signature of an op; None where ONNX does not define it."""
    known = schema(op, version, domain)
    if known is None:
        return None
    attributes = dict(known.attributes)
    kinds = {name: int(attribute.type.value) for name, attribute in attributes.items()}
    required = frozenset(name for name, attribute in attributes.items() if attribute.required)
    needed = tuple(i for i, formal in enumerate(known.inputs) if formal.option.name == "Single")
    return Signature(known.min_input, needed, known.max_input, known.max_output, kinds, required)


def check_signature(proto: NodeProto, version: int, domain: str, name: str) -> None:
    """Raise InvalidModelError where the node `name` violates the signature of its op's version.

    Attributes that the op does not define are ignored.
    """
    op = str(proto.op_type)
    known = signature(op, version, domain)
    violation = None if known is None else _violation(proto, known)
    if violation is not None:
        raise InvalidModelError(violation, node=name, op=op, version=version)


def _violation(proto: NodeProto, known: Signature) -> str | None:
    present = max((i for i, n in enumerate(proto.input, 1) if n), default=0)
    if not known.min_operands <= len(proto.input) or present > known.max_operands:
        least, most = known.min_operands, known.max_operands
        return f"{len(proto.input)} operands, the op has {least if least == most else f'{least} to {most}'}"
    if absent := [i for i in known.required_operands if i < len(proto.input) and not proto.input[i]]:
        return f"operand {absent[0]} is absent"
    if max((i for i, n in enumerate(proto.output, 1) if n), default=0) > known.max_results:
        return f"{len(proto.output)} results, the op has at most {known.max_results}"
    missing = known.required - {attribute.name for attribute in proto.attribute}
    if missing:
        return f"the attribute {min(missing)!r} is missing"
    for attribute in proto.attribute:
        kind, defined = attribute_kind(attribute), known.kinds.get(attribute.name)
        if defined is not None and kind != defined and not attribute.ref_attr_name:
            return f"the attribute {attribute.name!r} is of type {NAMES.get(kind, kind)}, not {NAMES[defined]}"
    return None
