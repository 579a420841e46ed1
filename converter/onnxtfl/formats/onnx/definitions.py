"""ONNX's definitions of ops: since-versions by opset, numbers of operands and results, kinds of attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from onnx import AttributeProto, NodeProto, OperatorSetIdProto, defs

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.attributes import NAMES, attribute_kind
from onnxtfl.formats.onnx.names import name_of

_ONNX_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training")
_LATEST = (1 << 31) - 1
ROUNDED = frozenset({("com.microsoft", "onnx.DynamicQuantizeLSTM")})
"""Domain and name of ops of float tensors for which ONNX Runtime quantizes activations at run time."""


def normal_domain(domain: str | bytes) -> str:
    """`domain`, "" for ONNX's default domain, which has two names."""
    return "" if domain == "ai.onnx" else name_of(domain)


@functools.cache
def since_version(op: str, opset: int, domain: str) -> int:
    """Return the version of the newest definition of `op` up to `opset`; `opset` if ONNX does not define it."""
    try:
        return int(defs.get_schema(op, min(opset, _LATEST), domain).since_version)
    except defs.SchemaError:
        return opset


def opset_versions(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Opset by domain, the last one of a domain with several, as for ONNX Runtime (core/graph/model.cc).

    Raises InvalidModelError for a version below 1.
    """
    versions = {normal_domain(entry.domain): int(entry.version) for entry in imports}
    for domain, version in versions.items():
        if version < 1:
            raise InvalidModelError(f"invalid opset version {version} of domain {domain or 'ai.onnx'!r}")
    return versions


def model_opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """`opset_versions` of a model. A model that imports other domains only has the newest opset of the default domain,
    as in ONNX Runtime (core/graph/model.cc).
    """
    versions = opset_versions(imports)
    return {"": defs.onnx_opset_version()} | versions if versions else versions


def imported_since(imports: Mapping[str, int], op: str, domain: str, node: str) -> int:
    """The since-version of `op`: the newest if its domain is another one of ONNX and not imported, as in ONNX Runtime.

    Raises InvalidModelError if ONNX's own domain is not imported.
    """
    opset = imports.get(domain)
    if opset is None:
        if not domain:
            raise InvalidModelError("no opset of domain 'ai.onnx' is imported", node=node, op=op)
        return since_version(op, _LATEST, domain) if domain in _ONNX_DOMAINS else 1
    return since_version(op, opset, domain)


@functools.cache
def schema(op: str, version: int, domain: str) -> Any:
    """The OpSchema of an op; None if ONNX does not define it."""
    try:
        return defs.get_schema(op, min(version, _LATEST), domain)
    except defs.SchemaError:
        return None


@dataclass(frozen=True, slots=True)
class Signature:
    """Numbers of operands and results, the operands that must be present, kinds of attributes, and required ones."""

    min_operands: int
    required_operands: tuple[int, ...]
    max_operands: int
    max_results: int
    kinds: dict[str, int]
    required: frozenset[str]


_LISTS = frozenset({"axes", "dilations", "kernel_shape", "output_padding", "output_shape", "pads", "perm", "strides"})
"""Attributes that are lists of integers in all ops."""


@functools.cache
def signature(op: str, version: int, domain: str) -> Signature | None:
    """The signature of an op; None if ONNX does not define it."""
    known = schema(op, version, domain)
    if known is None:
        return None
    attributes = dict(known.attributes)
    kinds = {name: int(attribute.type.value) for name, attribute in attributes.items()}
    required = frozenset(name for name, attribute in attributes.items() if attribute.required)
    needed = tuple(i for i, formal in enumerate(known.inputs) if formal.option.name == "Single")
    return Signature(known.min_input, needed, known.max_input, known.max_output, kinds, required)


def check_signature(proto: NodeProto, version: int, domain: str, name: str) -> None:
    """Raise InvalidModelError if the node `name` violates the signature of its op's version.

    Attributes that the op does not define are ignored.
    """
    op = str(proto.op_type)
    known = signature(op, version, domain)
    violation = _other_violation(proto) if known is None else _violation(proto, known)
    if violation is not None:
        raise InvalidModelError(violation, node=name, op=op, version=version, code="E-FILE-009")


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
        if defined not in (None, kind) and not attribute.ref_attr_name and not _is_type_name(proto, attribute):
            return f"the attribute {attribute.name!r} is of type {NAMES.get(kind, kind)}, not {NAMES[defined]}"
    return None


def _other_violation(proto: NodeProto) -> str | None:
    """The error in a node of an op that ONNX does not define; "" if there is none."""
    for attribute in proto.attribute if proto.domain == "com.microsoft" else ():
        kind = attribute_kind(attribute)
        if attribute.name in _LISTS and kind != AttributeProto.INTS and not attribute.ref_attr_name:
            return (
                f"the attribute {attribute.name!r} is of type {NAMES.get(kind, kind)}, not {NAMES[AttributeProto.INTS]}"
            )
    return None


def _is_type_name(proto: NodeProto, attribute: AttributeProto) -> bool:
    """Whether `attribute` is the type of a Cast as a name, as in version 1 and in early files of version 6."""
    is_name = attribute_kind(attribute) == AttributeProto.STRING
    return bool(is_name and proto.op_type == "Cast" and attribute.name == "to")


def implied_domain(imports: Mapping[str, int], op: str) -> str:
    """The domain of an op whose node names none: the only imported domain that has the op, if the default one lacks it.

    The op tests of some releases of ONNX are such files.
    """
    if (opset := imports.get("")) is not None and schema(op, opset, "") is not None:
        return ""
    found = [domain for domain, version in imports.items() if domain and schema(op, version, domain) is not None]
    return found[0] if len(found) == 1 else ""
