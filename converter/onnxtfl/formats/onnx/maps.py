"""Map inputs of ONNX models, which TFLite lacks: the vectors computed from them become inputs.

========  =====================================================================================
ONNX      DictVectorizer 1, CastMap 1: the only ops with a map operand
========  =====================================================================================
"""

from __future__ import annotations

from typing import Any

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.onnx.names import display_name, text_of
from onnxtfl.formats.onnx.tensors import element_type
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.types import DType, TensorType

_ML = "ai.onnx.ml"
_CASTS = {"TO_FLOAT": DType.FLOAT32, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}
_SHOWN = 8


@dataclass(frozen=True)
class Vector:
    """The tensor `name` that an op computes from a map; `columns` describes its elements."""

    name: str
    type: TensorType
    columns: str


def vectors_of(graph: GraphProto) -> dict[str, list[Vector]]:
    """Return the vectors for each map input of `graph`. UnsupportedError if another op reads a map."""
    maps = {info.name: info for info in graph.input if info.type.HasField("map_type")}
    found: dict[str, list[Vector]] = {name: [] for name in maps}
    if not maps:
        return found
    for node in graph.node:
        for name in node.input:
            if name in maps:
                found[name].append(_vector(node, maps[name]))
    return found


def _vector(node: NodeProto, given: ValueInfoProto) -> Vector:
    where = f"input {given.name!r}"
    if node.domain != _ML or node.op_type not in _MAKERS or len(node.output) != 1:
        raise UnsupportedError(f"{where} is a map, read by {node.op_type}", code="E-TYPE-002",
                               hint="cut the model after it (`inputs`)")  # fmt: skip
    of = element_type(given.type.map_type.value_type.tensor_type.elem_type, where)
    try:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        type_, columns = _MAKERS[node.op_type](attributes, of)
    except (TypeError, ValueError) as error:
        message = f"an attribute has another type than {node.op_type} declares"
        raise InvalidModelError(message, node=display_name(node), op=node.op_type, code="E-FILE-009") from error
    name = node.output[0]
    return Vector(name, type_, f"the map {given.name!r} is read as the tensor {name!r}: {columns}")


def _by_vocabulary(attributes: dict[str, Any], of: DType) -> tuple[TensorType, str]:
    """DictVectorizer: the values of the keys of a list."""
    keys = [text_of(key) for key in attributes.get("string_vocabulary", ())] or [
        str(key) for key in attributes.get("int64_vocabulary", ())
    ]
    if not keys:
        raise InvalidModelError("a DictVectorizer without a vocabulary", code="E-FILE-009")
    shown = ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
    missing = "an empty string" if of is DType.STRING else "0"
    return TensorType(of, (1, len(keys))), f"its columns are the keys {shown}, {missing} where one is missing"


def _by_order(attributes: dict[str, Any], _: DType) -> tuple[TensorType, str]:
    """CastMap: the values sorted by key, or those of the keys from 0 on."""
    kind, form = (text_of(attributes.get(n, d)) for n, d in (("cast_to", "TO_FLOAT"), ("map_form", "DENSE")))
    if kind not in _CASTS or form not in ("DENSE", "SPARSE"):
        raise InvalidModelError(f"a CastMap with cast_to {kind!r} and map_form {form!r}", code="E-FILE-009")
    if form == "DENSE":
        return TensorType(_CASTS[kind], (1, fresh_symbol())), "its columns are the values, sorted by key"
    count = int(attributes.get("max_map", 1))
    missing = "'0.f'" if kind == "TO_STRING" else "0"
    return TensorType(
        _CASTS[kind], (1, count)
    ), f"its columns are the keys 0 to {count - 1}, {missing} for a missing one"


_MAKERS = {"DictVectorizer": _by_vocabulary, "CastMap": _by_order}
