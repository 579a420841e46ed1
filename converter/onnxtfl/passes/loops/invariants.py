"""Loop-invariant code motion: values that depend on no loop-carried value are computed before the loop.

::

    While(i, x): i + 1, x; y = Transpose(x)   ->   y = Transpose(x); While(i, y): i + 1, y

Ops that may fail, or whose results are larger than their operands, stay: the loop may have zero iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.rewriting.patterns import Patterns

LOOP_INVARIANTS = Patterns()


@LOOP_INVARIANTS.on(ops.While, quantized=True)
def before_while(b: Builder, node: Node) -> Sequence[Value] | None:
    """Move nodes of a While that read only values that no iteration changes."""
    cond, body = node.attr("cond"), node.attr("body")
    same = {v: node.operand(i) for i, v in enumerate(body.inputs) if body.outputs[i] is v}
    moved = list(_moved(body, same))
    if not moved:
        return None
    taken = _before(b, body, same, moved)
    body.outputs = [*body.outputs, *(inner for inner, _ in taken)]
    for inner, _ in taken:
        cond.add_input(inner.type)
    made = b.many(ops.While, *node.operands, *(outer for _, outer in taken), **node.attributes)
    return made[: len(node.results)]


@LOOP_INVARIANTS.on(ops.Scan, quantized=True)
def before_scan(b: Builder, node: Node) -> Sequence[Value] | None:
    """Move nodes of a Scan that read only captured values."""
    parts = ScanParts.of(node)
    inside = parts.body.inputs[len(parts.body.inputs) - len(parts.captures) :]
    same = dict(zip(inside, parts.captures, strict=True))
    moved = list(_moved(parts.body, same))
    if not moved:
        return None
    taken = _before(b, parts.body, same, moved)
    return b.many(ops.Scan, *node.operands, *(outer for _, outer in taken), **node.attributes)


def _moved(body: Graph, same: Mapping[Value, Value]) -> Iterator[Node]:
    """Return the movable nodes of `body`: they read only constants, `same` values and each other's results."""
    known = set(same)
    for node in body.nodes:
        read = node.present_operands
        if not _is_movable(node) or not known.intersection(read) or not all(v.is_constant or v in known for v in read):
            continue
        known.update(node.results)
        yield node


def _is_movable(node: Node) -> bool:
    if node.regions or not node.is_pure or len(node.results) != 1:
        return False
    if issubclass(node.op, Elementwise) and node.op is not ops.Convert:  # integer division by 0 fails
        result = node.result
        return result.tensor_type.dtype.is_float and all(v is None or v.rank <= result.rank for v in node.operands)
    return node.op is ops.Convert or node.op.keeps_all == "permuted" or node.op.multiplies == "matrices"


def _before(b: Builder, body: Graph, same: Mapping[Value, Value], moved: Sequence[Node]) -> list[tuple[Value, Value]]:
    """Create the nodes `moved` before the loop; return the new inputs of `body`, and the values that they capture."""
    outside, inside = dict(same), set(moved)
    taken = []
    for node in moved:
        (value,) = b.remade(node, *(v if v is None else outside.get(v, v) for v in node.operands))
        outside[node.result] = value
        if any(user not in inside for user in node.result.users()) or body.is_output(node.result):
            taken.append((node.result, value))
    pairs = []
    for old, value in taken:
        new = body.add_input(old.type)
        body.substitute(old, new)
        pairs.append((new, value))
    for node in reversed(moved):
        body.remove(node)
    return pairs
