"""The graphs in attributes of a node: whether they match its operands, and the common types of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.dims import Dim, fresh_symbol
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType, Type


def type_of(value: Value | None) -> Type | None:
    """Return the type of `value`; None if it is absent."""
    return None if value is None else value.type


def region_of(node: Node, name: str, given: Sequence[Any]) -> Graph:
    """Return the graph in attribute `name`. ValueError if its inputs do not match `given`."""
    region = node.attr(name)
    if not isinstance(region, Graph):
        raise ValueError(f"{name} is not a graph")
    if region.states:
        raise ValueError(f"{name} keeps a state")
    if len(region.inputs) != len(given) or any(v is None for v in given):
        raise ValueError(f"{name} takes {len(region.inputs)} values, not {len(given)}")
    for inside, outside in zip(region.inputs, given, strict=True):
        if _element(inside.type) != _element(outside.type):
            raise TypeError(f"{name} takes {inside.type}, not {outside.type}")
    return region


def _element(type_: Type | None) -> object:
    return (type_.dtype, type_.quantization) if isinstance(type_, TensorType) else type_


def joined_type(a: Type | None, b: Type | None) -> Type:
    """Return the common type of both. TypeError if there is none."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and _element(a) == _element(b):
        return a.with_shape(_joined_shape(a.shape, b.shape))
    if a is None or b is None or a != b:
        raise TypeError(f"{a} in one region and {b} in the other")
    return a


def _joined_shape(a: Dims | None, b: Dims | None) -> Dims | None:
    if a is None or b is None or len(a) != len(b):
        return None
    dims: list[Dim] = [x if x == y else fresh_symbol() for x, y in zip(a, b, strict=True)]
    return tuple(dims)
