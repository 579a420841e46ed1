"""What ONNX defines of an op's form: how many operands and results it has, and the kinds of its attributes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onnx import NodeProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.attributes import KINDS, attribute_kind
from onnxtfl.formats.onnx.encode import schema


@dataclass(frozen=True, slots=True)
class Signature:
    """The least and most operands, which of them may not be absent, the most results, attributes with their kinds, and
    those that have to be given.
    """

    least: int
    needed: tuple[int, ...]
    most: int
    results: int
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


def check_form(proto: NodeProto, version: int, domain: str, name: str) -> None:
    """InvalidModelError where the node `name` has not the form that its op's version has.

    Attributes that the op does not know are let be: they cannot mean anything.
    """
    op = str(proto.op_type)
    known = signature(op, version, domain)
    wrong = None if known is None else _misfit(proto, known)
    if wrong is not None:
        raise InvalidModelError(wrong, node=name, op=op, version=version)


def _misfit(proto: NodeProto, known: Signature) -> str | None:
    given = max((i for i, n in enumerate(proto.input, 1) if n), default=0)
    if not known.least <= len(proto.input) or given > known.most:
        wanted = f"{known.least}" if known.least == known.most else f"{known.least} to {known.most}"
        return f"{len(proto.input)} operands where it has {wanted}"
    if absent := [i for i in known.needed if i < len(proto.input) and not proto.input[i]]:
        return f"operand {absent[0]} is absent"
    if max((i for i, n in enumerate(proto.output, 1) if n), default=0) > known.results:
        return f"{len(proto.output)} results where it has at most {known.results}"
    missing = known.required - {attribute.name for attribute in proto.attribute}
    if missing:
        return f"the attribute {min(missing)!r} is missing"
    for attribute in proto.attribute:
        kind, wants = attribute_kind(attribute), known.kinds.get(attribute.name)
        if wants is not None and kind != wants and not attribute.ref_attr_name:
            return f"the attribute {attribute.name!r} is {KINDS.get(kind, kind)}, not {KINDS.get(wants, wants)}"
    return None
