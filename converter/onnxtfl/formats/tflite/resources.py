"""The variables and lookup tables of a .tflite file, with the constants that initialization subgraphs store.

Source: LiteRT kernels var_handle.cc (a variable is identified by container and shared name), hashtable.cc (a table by
its id) and call_once.cc (initialization subgraphs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from onnxtfl.formats.tflite.types import dtype_named
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.model import Resource


def resources_of(graphs: Iterable[Graph]) -> list[Resource]:
    """The resources of the nodes in `graphs` and their regions, without duplicates, in order."""
    found: dict[str, Resource] = {}
    for graph in graphs:
        for node in graph.walk():
            resource = _resource(node)
            if resource is not None:
                found.setdefault(resource.name, resource)
    for graph in graphs:
        for node in graph.walk():
            if node.op.name == "tfl.CALL_ONCE":
                _initialize(node, found)
    return list(found.values())


def resource_name(handle: Value | None) -> str | None:
    """The name of the resource of `handle`; None if it is not the result of VAR_HANDLE or HASHTABLE."""
    resource = _resource(handle.producer) if handle is not None and handle.producer is not None else None
    return resource.name if resource is not None else None


def _resource(node: Node) -> Resource | None:
    if node.op.name == "tfl.VAR_HANDLE":
        container, shared = (node.attributes.get(name) or "" for name in ("container", "shared_name"))
        return Resource("variable", f"{container}/{shared}" if container else shared)
    if node.op.name == "tfl.HASHTABLE":
        dtypes = tuple(dtype_named(node.attributes[name]) for name in ("key_dtype", "value_dtype"))
        return Resource("table", f"table_{node.attributes['table_id']}", dtypes)
    return None


def _initialize(call: Node, found: dict[str, Resource]) -> None:
    """Set the initial values of the resources to which the subgraphs of `call` store constants."""
    for node in (node for region in call.regions for node in region.walk()):
        if node.op.name in ("tfl.ASSIGN_VARIABLE", "tfl.HASHTABLE_IMPORT"):
            name, contents = resource_name(node.optional(0)), list(_constants(node.operands[1:]))
            if name in found and len(contents) == len(node.operands) - 1:
                found[name] = replace(found[name], initial=tuple(contents))


def _constants(values: Iterable[Value | None]) -> Iterator[TensorData]:
    return (value.data for value in values if value is not None and value.data is not None)
