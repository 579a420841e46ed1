"""The kinds of attributes (AttributeProto.AttributeType): their fields in AttributeProto, lists and their items."""

from __future__ import annotations

from onnx import AttributeProto

_A = AttributeProto
FIELDS: dict[int, str] = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
LISTS: dict[int, int] = {
    _A.FLOAT: _A.FLOATS,
    _A.INT: _A.INTS,
    _A.STRING: _A.STRINGS,
    _A.TENSOR: _A.TENSORS,
    _A.GRAPH: _A.GRAPHS,
    _A.SPARSE_TENSOR: _A.SPARSE_TENSORS,
    _A.TYPE_PROTO: _A.TYPE_PROTOS,
}
"""Kind of an item -> kind of its list."""
KINDS: dict[int, str] = {
    _A.FLOAT: "a float",
    _A.INT: "an int",
    _A.STRING: "a string",
    _A.TENSOR: "a tensor",
    _A.GRAPH: "a graph",
    _A.SPARSE_TENSOR: "a sparse tensor",
    _A.TYPE_PROTO: "a type",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse tensors",
    _A.TYPE_PROTOS: "types",
}
"""Kinds as error messages print them."""
ITEMS: dict[int, int] = {many: one for one, many in LISTS.items()}
"""Kind of a list -> kind of its items."""


def attribute_kind(attribute: AttributeProto) -> int:
    """The kind of `attribute`; in old files without one, that of the field that is set, 0 where none is."""
    if attribute.type:
        return int(attribute.type)
    for kind, name in FIELDS.items():
        if len(getattr(attribute, name)) > 0 if kind in ITEMS else attribute.HasField(name):
            return kind
    return 0
