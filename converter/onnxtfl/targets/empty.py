"""Which open sizes of a graph of tfl ops may not be 0, since a kernel then ends the process or computes other values.

[OP.empty] of ``schemas/tflite_ops.toml`` has what was measured. Where a kernel refuses such a run, the runtime says so
itself: these sizes are not reported. Sizes that are 0 in the file are not looked at: legalization replaces their ops.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.dims import Dim, SymDim, is_nonnegative, symbols
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.symbols import Unknown
from onnxtfl.ir.types import TensorType
from onnxtfl.targets.table import failures_at_zero

_FAILURES = {"abort": "ends the process", "wrong": "computes other values"}
"""By verdict, what is reported; from bad to better."""
_SHOWN = 4
"""Most sizes that are named."""
_COMPUTED = "each size computed at run time"


def assume_elements(graph: Graph) -> None:
    """Record the sizes that have to be at least 1 for a correct result, and the ops that need it, in one line."""
    found = [(node, name, verdict) for node in graph.walk() for name, verdict in _failures(node)]
    refused = {name for _, name, verdict in found if verdict == "refused"} - {_COMPUTED}
    reported = [(node, name, verdict) for node, name, verdict in found if name not in refused and verdict in _FAILURES]
    if not reported:
        return
    names = sorted(dict.fromkeys(name for _, name, _ in reported), key=lambda name: name == _COMPUTED)
    shown = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1} more"]
    ops = {
        known: dict.fromkeys(_name(node) for node, _, verdict in reported if verdict == known) for known in _FAILURES
    }
    why = ", ".join(f"{' or '.join(ops[verdict])} {what}" for verdict, what in _FAILURES.items() if ops[verdict])
    assume(f"{', '.join(shown)} {'is' if len(names) == 1 else 'are'} at least 1: of no elements, {why}")


def _name(node: Node) -> str:
    return node.op.name.partition(".")[2]


def _failures(node: Node) -> Iterator[tuple[str, str]]:
    """The texts of the sizes of the first operand that may be 0, where the kernel fails then, with the verdict."""
    known, value = failures_at_zero(_name(node)), node.operands[0] if node.operands else None
    if not known or value is None or not isinstance(value.type, TensorType):
        return
    shape = value.type.shape or ()
    results = [result.type.shape or () for result in node.results if isinstance(result.type, TensorType)]
    kept = {symbol for sizes in results for d in sizes for symbol in symbols(d)}
    for axis, dim in enumerate(shape):
        if isinstance(dim, int) or is_nonnegative(dim - 1):
            continue
        place = "last" if axis == len(shape) - 1 else "inner" if axis else "first"
        verdict = known.get(place if kept & set(symbols(dim)) else "filled")
        if verdict is not None:
            yield from ((factor, verdict) for factor in _factors(dim))


def _factors(dim: Dim) -> Iterator[str]:
    """The texts of the factors of which one is 0 where `dim` is."""
    assert isinstance(dim, SymDim)
    if len(dim.terms) > 1:
        yield _text(dim)
        return
    for atom, _ in dim.terms[0][0]:
        yield _text(SymDim(((((atom, 1),), 1),)))


def _text(dim: SymDim) -> str:
    """A size in the names of the model."""
    return _COMPUTED if any(isinstance(symbol, Unknown) for symbol in symbols(dim)) else str(dim)
