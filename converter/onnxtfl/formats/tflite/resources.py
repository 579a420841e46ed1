"""The names of variables and lookup tables.

Source: LiteRT kernels var_handle.cc (a variable is identified by container and shared name) and hashtable.cc (a table
by its id).
"""

from __future__ import annotations

from onnxtfl.ir.graph import Value


def resource_name(handle: Value) -> str | None:
    """The name of the resource of `handle`; None if it is not the result of VAR_HANDLE or HASHTABLE."""
    node = handle.producer
    if node is not None and node.op.name == "tfl.VAR_HANDLE":
        container, shared = (node.attributes.get(name) or "" for name in ("container", "shared_name"))
        return f"{container}/{shared}" if container else shared
    if node is not None and node.op.name == "tfl.HASHTABLE":
        return f"table_{node.attributes['table_id']}"
    return None
