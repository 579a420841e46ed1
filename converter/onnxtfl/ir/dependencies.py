"""The values and nodes that given values depend on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from onnxtfl.ir.graph import Graph, Node, Value


def needed_values(roots: Iterable[Value | None], carried: Mapping[Value, Value] | None = None) -> set[Value]:
    """Return `roots` and all values that they depend on.

    `carried`: inputs that have the value of an output of the previous iteration or invocation.
    """
    carried = carried or {}
    needed: set[Value] = set()
    work = list(roots)
    while work:
        value = work.pop()
        if value is not None and value not in needed:
            needed.add(value)
            work.append(carried.get(value))
            work.extend(value.producer.operands if value.producer is not None else ())
    return needed


def needed_inputs(graph: Graph, roots: Sequence[Value]) -> list[int]:
    """Return the indices of the inputs of `graph` that `roots` depend on."""
    needed = needed_values(roots)
    return [i for i, value in enumerate(graph.inputs) if value in needed]


def needed_nodes(roots: Iterable[Value | None], among: Container[Node]) -> set[Node]:
    """Return the nodes that `roots` depend on through nodes of `among`, which contains them."""
    needed: set[Node] = set()
    work = list(roots)
    while work:
        value = work.pop()
        node = None if value is None else value.producer
        if node is not None and node in among and node not in needed:
            needed.add(node)
            work.extend(node.operands)
    return needed
