"""Names of values in messages: text, uses, definitions, order. The protobuf classes return invalid UTF-8 as bytes."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from onnx import AttributeProto, GraphProto, NodeProto

from onnxtfl.errors import InvalidModelError


def name_of(content: str | bytes) -> str:
    """`content` as a name. Raises InvalidModelError if it is not UTF-8."""
    if isinstance(content, bytes):
        raise InvalidModelError(f"malformed: a name is not UTF-8: {content!r}", code="E-FILE-005")
    return content


def text_of(content: str | bytes) -> str:
    """`content` as text, bytes that are not UTF-8 as replacement characters."""
    return content.decode(errors="replace") if isinstance(content, bytes) else content


def decoded(content: bytes) -> str | bytes:
    """`content` as text where it is UTF-8, else unchanged."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def display_name(node: NodeProto) -> str:
    """The name of `node` in error messages: its own, else that of its first output, else its op type."""
    return text_of(node.name or next((name for name in node.output if name), "") or node.op_type)


_WITHOUT_GRAPHS = frozenset({AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.FLOATS, AttributeProto.INTS})
"""Frequent kinds of attributes without graphs."""


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graph attributes of `node`."""
    for attribute in node.attribute:
        if attribute.type in _WITHOUT_GRAPHS:
            continue
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """`nodes` and those of their subgraphs."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from all_nodes(graph.node)


def has_graphs(node: NodeProto) -> bool:
    """Whether `node` has graph attributes."""
    return any(True for _ in graphs_of(node))


def free_names(graph: GraphProto) -> dict[str, None]:
    """The names that `graph` uses and does not define, in order of use (a dict as an ordered set)."""
    defined = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {sparse.values.name for sparse in graph.sparse_initializer}
    defined |= {name for node in graph.node for name in node.output}
    used = dict.fromkeys(name for node in graph.node for name in needed_names(node))
    used |= dict.fromkeys(info.name for info in graph.output)
    return {name: None for name in used if name and name not in defined}


def derived_names(node: NodeProto) -> list[str]:
    """The names among the attributes of a Gradient: the independent values (xs, zs), then the dependent one (y)."""
    if node.op_type != "Gradient":
        return []
    found = {attribute.name: attribute for attribute in node.attribute}
    lists = [found[name].strings if name in found else () for name in ("xs", "zs")]
    last = [found["y"].s] if "y" in found else []
    return [name.decode(errors="replace") for name in (*lists[0], *lists[1], *last)]


def needed_names(node: NodeProto) -> Iterator[str]:
    """The names that `node` uses, free names of its subgraphs included; "" for an absent operand."""
    yield from node.input
    if node.attribute:
        yield from derived_names(node)
        for graph in graphs_of(node):
            yield from free_names(graph)


def topological_order(nodes: Sequence[NodeProto], known: Container[str] = ()) -> list[NodeProto]:
    """`nodes`, each after those whose results it uses, else in file order; InvalidModelError on a cycle.

    `known`: names of values that are defined before the nodes.
    """
    producers = {name: i for i, node in enumerate(nodes) for name in node.output if name and name not in known}
    if all(producers.get(name, -1) < i for i, node in enumerate(nodes) for name in needed_names(node)):
        return list(nodes)
    needs = [{producers[name] for name in needed_names(node) if name in producers} for node in nodes]
    return _sorted(nodes, needs)


def _sorted(nodes: Sequence[NodeProto], needs: Sequence[set[int]]) -> list[NodeProto]:
    """The next node is the first in file order among those whose operands are all computed."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        node = nodes[error.args[1][0]]
        raise InvalidModelError("the graph has a cycle", node=display_name(node), op=text_of(node.op_type)) from error
    order, ready = list[NodeProto](), list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        sorter.done(i)
        for user in sorter.get_ready():
            heapq.heappush(ready, user)
    return order
