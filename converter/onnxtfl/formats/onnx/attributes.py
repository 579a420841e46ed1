"""The kinds of attributes (AttributeProto.AttributeType): their fields in AttributeProto, lists and their items."""

from __future__ import annotations

from onnx import AttributeProto

_A = AttributeProto
_ITEM_FIELDS = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
}
NAMES: dict[int, str] = {kind: name.lower() for name, kind in _A.AttributeType.items() if kind}
"""Kinds as error messages print them."""
LISTS: dict[int, int] = {kind: _A.AttributeType.Value(f"{_A.AttributeType.Name(kind)}S") for kind in _ITEM_FIELDS}
"""Kind of an item -> kind of its list."""
ITEMS: dict[int, int] = {many: one for one, many in LISTS.items()}
"""Kind of a list -> kind of its items."""
FIELDS: dict[int, str] = _ITEM_FIELDS | {kind: NAMES[kind] for kind in ITEMS}


def attribute_kind(attribute: AttributeProto) -> int:
    """The kind of `attribute`; in old files without kinds, that of the field with a value, 0 if there is none."""
    if attribute.type:
        return int(attribute.type)
    for kind, name in FIELDS.items():
        if len(getattr(attribute, name)) > 0 if kind in ITEMS else attribute.HasField(name):
            return kind
    return 0
