"""The names by which users know nodes, for messages and the report."""

from __future__ import annotations

from onnxtfl.ir.graph import Node


def source_name(node: Node) -> str | None:
    """Return the name of the source node or tensor of `node` for messages, else None."""
    if node.name:
        return node.name
    result = node.results[0] if node.results else None
    seen: set[Node] = set()
    while result is not None:
        if result.origin or result.name:
            return result.name or (result.origin.tensor if result.origin else None)
        user = next(iter(result.users()), None)
        if user is None or user in seen or not user.results:
            return None
        seen.add(user)
        result = user.results[0]
    return None


def shown_name(node: Node) -> str:
    """The name in quotes; that of the op if neither node nor results have one."""
    return repr(source_name(node) or node.op.name)
