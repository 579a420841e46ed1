"""Collection of all unsupported ops of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import OnnxtflError, UnsupportedError
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.rewriting.lift import Expand, has_conversion, lift_where_possible, op_name

NO_CONVERSION = ("E-OP-002", "E-OP-003")
"""The codes of errors that do not depend on operands."""
MANY = 4
"""The most node names per op in a message."""


@dataclass(frozen=True)
class UnsupportedOp:
    """An op that cannot be converted: name with domain, version, names of nodes, and reason.

    ``version``: the since-version (ONNX) or op version (TFLite), None where the reason concerns no op of the file.
    """

    op: str
    version: int | None
    nodes: tuple[str, ...]
    reason: str
    code: str

    def __str__(self) -> str:
        version = "" if self.version is None else f"-{self.version}"
        return f"{self.op}{version} ({count_and_names(self.nodes)}): {self.reason}"


def count_and_names(nodes: Iterable[str]) -> str:
    """Return the number of nodes and the names of the first ones."""
    names = list(nodes)
    shown = ", ".join(map(repr, names[:MANY])) + (", ..." if len(names) > MANY else "")
    return shown if len(names) == 1 else f"{len(names)} nodes: {shown}"


@contextmanager
def naming_all(graph: Graph, is_defined: Callable[[Node], bool]) -> Iterator[None]:
    """Extend an error about an op without a conversion to all such ops in `graph`."""
    try:
        yield
    except UnsupportedError as error:
        if error.code in NO_CONVERSION:
            _name_all(error, graph, is_defined)
        raise


def _name_all(error: UnsupportedError, graph: Graph, is_defined: Callable[[Node], bool]) -> None:
    found: dict[str, list[str]] = {}
    for node in graph.walk():
        if node.op.dialect != "neutral" and not has_conversion(node, is_defined):
            found.setdefault(f"{op_name(node)}-{node.op.version}", []).append(node.shown_name)
    if sum(map(len, found.values())) > 1:
        listed = "; ".join(f"{op} ({count_and_names(names)})" for op, names in found.items())
        error.message = f"there is no conversion for {listed}"
        error.node = error.op = error.version = error.type_ = None
        error.args = (error.message,)


def unsupported_ops(graph: Graph, expand: Expand) -> list[UnsupportedOp]:
    """Lift `graph` as far as possible; return the failures by op and reason, the most frequent first.

    Nodes that fail only because their operands have no types are omitted.
    """
    found: dict[tuple[str, int | None, str, str], list[str]] = {}

    def failed(node: Node, error: Exception) -> None:
        if not isinstance(error, OnnxtflError):
            error = UnsupportedError(str(error), node=node.shown_name, op=op_name(node))
        if error.code not in NO_CONVERSION and any(v is not None and v.type is None for v in node.operands):
            return
        names = found.setdefault((error.op or op_name(node), error.version, error.message, error.code), [])
        name = error.node or node.shown_name
        if name not in names:
            names.append(name)

    lift_where_possible(graph, expand, failed=failed)
    rows = [UnsupportedOp(op, version, tuple(names), why, code) for (op, version, why, code), names in found.items()]
    return sorted(rows, key=lambda row: -len(row.nodes))
