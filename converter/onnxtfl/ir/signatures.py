"""The inputs and outputs of a model as texts and sizes."""

from __future__ import annotations

from collections.abc import Iterable

from onnxtfl.ir.dims import with_texts
from onnxtfl.ir.graph import Value
from onnxtfl.ir.shown_sizes import dim_in_shape
from onnxtfl.ir.types import TensorType

Description = tuple[str, str, tuple[int | str, ...]]
"""Name, dtype and shape of an input or output."""


def describe_value(value: Value) -> Description:
    """Return name, dtype and shape of `value`; dynamic sizes as strings."""
    type_, name = value.type, value.name or ""
    if isinstance(type_, TensorType):
        return name, type_.storage.value, with_texts(type_.shape or (), dim_in_shape)
    return name, str(type_), ()


def of_unknown_rank(values: Iterable[Value]) -> list[str]:
    """The names of those tensors whose rank is not known."""
    return [v.name or "" for v in values if isinstance(v.type, TensorType) and v.type.shape is None]
