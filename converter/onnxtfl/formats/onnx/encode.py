"""Types, tensors and attribute values of the graph as protobuf messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto, ValueInfoProto

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.onnx.attributes import FIELDS, ITEMS, LISTS
from onnxtfl.formats.onnx.definitions import schema
from onnxtfl.formats.onnx.message import Message
from onnxtfl.formats.onnx.tensors import DTYPES
from onnxtfl.ir.data import ArrayData, TensorData
from onnxtfl.ir.dims import Dim, dim_text
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType, MapsType, OptionalType, SequenceType, TensorType, Type

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
LONGEST_DIM = 80
"""The most characters of a symbolic size that is written as a formula; a longer one gets a name."""
_A = AttributeProto
_TYPES = (TensorType, SequenceType, OptionalType)


class ValueWriter:
    """Writes types and attributes; symbols have the names of the source file, unnamed dimensions are numbered."""

    def __init__(self, dim_names: Mapping[str, str]) -> None:
        self.dim_names = dim_names
        self._numbered: dict[str, str] = {}

    def value_info(self, name: str, type_: Type | None, documentation: Mapping[str, Any]) -> bytes:
        """A ValueInfoProto; `documentation`: further fields."""
        info = ValueInfoProto(name=name, **documentation)
        if type_ is not None:
            self.fill(info.type, type_, name)
        return bytes(info.SerializeToString())

    def fill(self, proto: TypeProto, type_: Type, where: str) -> None:
        """Set `proto` to `type_`. Raises UnsupportedError for types that ONNX lacks."""
        if isinstance(type_, TensorType):
            proto.tensor_type.elem_type = type_number(type_.storage, where)
            if type_.shape is not None:
                proto.tensor_type.shape.SetInParent()
            for dim in type_.shape or ():
                self._fill_dim(proto.tensor_type.shape.dim.add(), dim)
        elif isinstance(type_, MapsType):
            maps = proto.sequence_type.elem_type.map_type
            maps.key_type = type_number(type_.key, where)
            self.fill(
                maps.value_type,
                type_.element.with_shape(()) if isinstance(type_.element, TensorType) else type_.element,
                where,
            )
        elif isinstance(type_, SequenceType):
            self.fill(proto.sequence_type.elem_type, type_.element, where)
        elif isinstance(type_, OptionalType):
            self.fill(proto.optional_type.elem_type, type_.element, where)
        else:
            raise UnsupportedError("ONNX has no equivalent of this type", node=where, type_=type_, code="E-TYPE-002")

    def _fill_dim(self, proto: Any, dim: Dim) -> None:
        if isinstance(dim, int):
            proto.dim_value = dim
        else:
            formula = str(dim)
            if len(formula) > LONGEST_DIM:
                proto.dim_param = self._named(formula)
            else:
                proto.dim_param = self.dim_names.get(formula) or dim_text(dim, self._named)

    def _named(self, unnamed: object) -> str:
        return self._numbered.setdefault(str(unnamed), f"unk_{len(self._numbered)}")

    def attribute(self, op: tuple[str, int, str], name: str, value: Any, graph: Callable[[Graph], Message]) -> Message:
        """An AttributeProto; `graph` writes subgraphs. UnsupportedError for values without an attribute type.

        If a value fits several attribute types, it gets the one that ONNX defines.
        """
        kind = _defined_kind(op, name, value)
        proto, item_kind = AttributeProto(name=name, type=kind), ITEMS.get(kind, kind)
        items = value if kind in ITEMS else (value,)
        try:
            if item_kind in _PLAIN:
                plain = [_PLAIN[item_kind](item) for item in items]
                proto.MergeFrom(AttributeProto(**{FIELDS[kind]: plain if kind in ITEMS else plain[0]}))
            elif item_kind == _A.TYPE_PROTO:
                for item in items:
                    self.fill(proto.type_protos.add() if kind in ITEMS else proto.tp, item, name)
        except (TypeError, ValueError) as error:
            raise UnsupportedError(f"the attribute {name!r} cannot be {value!r}", op=op[0]) from error
        message = Message(proto.SerializeToString())
        for item in items if kind in _FIELD_NUMBERS else ():
            message.field(_FIELD_NUMBERS[kind], _nested(item_kind, item, graph))
        return message


def type_number(dtype: DType, where: str) -> int:
    """TensorProto.DataType of `dtype`. Raises UnsupportedError if the installed onnx has none."""
    if dtype not in NUMBERS:
        hint = "install a newer onnx"
        raise UnsupportedError(
            f"the installed onnx has no element type {dtype.value}", node=where, hint=hint, code="E-TYPE-002"
        )
    return int(NUMBERS[dtype])


def tensor_message(name: str, data: TensorData, external: Mapping[str, str] | None = None) -> Message:
    """A TensorProto with raw data, or with the entries `external` of external_data instead."""
    proto = TensorProto(dims=data.shape, data_type=type_number(data.dtype, name), name=name)
    if external is not None:
        proto.data_location = TensorProto.EXTERNAL
        for key, value in external.items():
            proto.external_data.add(key=key, value=value)
    elif data.dtype is DType.STRING:
        proto.string_data.extend(_encoded(text) for text in data.numpy().reshape(-1).tolist())
    message = Message(proto.SerializeToString())
    if external is None and data.dtype is not DType.STRING:
        message.data(TensorProto.RAW_DATA_FIELD_NUMBER, data)
    return message


def _sparse_message(data: TensorData) -> Message:
    flat = data.numpy().reshape(-1)
    places = np.flatnonzero(flat)
    dims = SparseTensorProto(dims=data.shape).SerializeToString()
    values = tensor_message("", ArrayData(flat[places], data.dtype))
    return Message().field(1, values).field(2, tensor_message("", ArrayData(places.astype(np.int64)))).raw(dims)


def _encoded(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _nested(kind: int, value: Any, graph: Callable[[Graph], Message]) -> Message:
    if kind == _A.GRAPH:
        return graph(value)
    data = value if isinstance(value, TensorData) else ArrayData(np.asarray(value))
    return _sparse_message(data) if kind == _A.SPARSE_TENSOR else tensor_message("", data)


_PLAIN: dict[int, Callable[[Any], Any]] = {_A.FLOAT: float, _A.INT: int, _A.STRING: _encoded}
_STREAMED = (_A.TENSOR, _A.GRAPH, _A.SPARSE_TENSOR, _A.TENSORS, _A.GRAPHS, _A.SPARSE_TENSORS)
_FIELD_NUMBERS = {kind: _A.DESCRIPTOR.fields_by_name[FIELDS[kind]].number for kind in _STREAMED}


def _defined_kind(op: tuple[str, int, str], name: str, value: Any) -> int:
    """The attribute type of `value`; if ONNX defines so, ints are floats, tensors are sparse, and () is any list."""
    kind, definition = _kind(value, op[0], name), schema(*op)
    if definition is None or name not in definition.attributes:
        return kind
    defined = int(definition.attributes[name].type.value)
    is_empty_list = kind == _A.INTS and len(value) == 0 and defined in ITEMS
    return defined if is_empty_list or (kind, defined) in _CONVERTIBLE else kind


_CONVERTIBLE = (
    (_A.INT, _A.FLOAT),
    (_A.INTS, _A.FLOATS),
    (_A.TENSOR, _A.SPARSE_TENSOR),
    (_A.TENSORS, _A.SPARSE_TENSORS),
)


def _kind(value: Any, op: str, name: str) -> int:
    """The attribute type of a Python value; an empty list counts as ints."""
    if isinstance(value, (tuple, list)):
        kinds = {_kind(v, op, name) for v in value} or {_A.INT}
        one = _A.FLOAT if kinds == {_A.INT, _A.FLOAT} else kinds.pop()
        return int(LISTS[one])
    for types, kind in _KINDS:
        if isinstance(value, types):
            return int(kind)
    raise UnsupportedError(f"the attribute {name!r} cannot be {value!r}", op=op)


_KINDS: tuple[tuple[Any, int], ...] = (
    ((int, np.integer), _A.INT),
    ((float, np.floating), _A.FLOAT),
    ((str, bytes), _A.STRING),
    ((TensorData, np.ndarray), _A.TENSOR),
    (Graph, _A.GRAPH),
    (_TYPES, _A.TYPE_PROTO),
)
