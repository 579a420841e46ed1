"""The dynamic sizes of a TFLite graph that must not be 0, since a kernel would end the process or return wrong results.

[OP.empty] of ``schemas/tflite_ops.toml`` has the measurements. If a kernel refuses such a run, the runtime reports it:
these sizes are not reported here. Sizes that are 0 in the file are ignored: legalization replaces their ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.dims import Dim, SymDim, is_nonnegative, symbols
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.shown_sizes import COMPUTED, may_be_fed, shown_dim
from onnxtfl.ir.types import TensorType, shape_of
from onnxtfl.targets.table import failures_at_zero

Failure = tuple[Node, Dim, str]
"""An op, a size whose value 0 makes its kernel fail, and the verdict."""
_FAILURES = {"abort": "ends the process", "wrong": "returns wrong results"}
"""The reported text of each verdict, the worst first."""
_SHOWN = 4
"""The most sizes that a line names."""
_COMPUTED = "each size computed at run time"


def assume_elements(graph: Graph) -> None:
    """Record the sizes that have to be at least 1 for a correct result, and the ops for which they have to be: one line
    for sizes that a user may feed as 0, and one for the others.
    """
    found = [(node, dim, verdict) for node in graph.walk() for dim, verdict in _failures(node)]
    refused = {dim for _, dim, verdict in found if verdict == "refused" and shown_dim(dim) != COMPUTED}
    reported = [(node, dim, verdict) for node, dim, verdict in found if dim not in refused and verdict in _FAILURES]
    for is_fed in (True, False):
        _assume([entry for entry in reported if may_be_fed(entry[1], 0) is is_fed], is_minor=not is_fed)


def _assume(failures: Sequence[Failure], is_minor: bool) -> None:
    """Record the sizes of these failures in one line."""
    if not failures:
        return
    texts = dict.fromkeys(_COMPUTED if (text := shown_dim(dim)) == COMPUTED else text for _, dim, _ in failures)
    names = sorted(texts, key=lambda name: name == _COMPUTED)
    shown = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1} more"]
    named = [(node.op.name_in_file, verdict) for node, _, verdict in failures]
    ops = {known: dict.fromkeys(name for name, verdict in named if verdict == known) for known in _FAILURES}
    why = ", ".join(f"{' or '.join(ops[verdict])} {what}" for verdict, what in _FAILURES.items() if ops[verdict])
    verb = "is" if len(names) == 1 else "are"
    assume(f"{', '.join(shown)} {verb} at least 1: on empty tensors, {why}", is_minor=is_minor)


def _failures(node: Node) -> Iterator[tuple[Dim, str]]:
    """The sizes of the first operand that may be 0 and then make the kernel fail, with the verdict."""
    known, value = failures_at_zero(node.op.name_in_file), node.operands[0] if node.operands else None
    if not known or value is None or not isinstance(value.type, TensorType):
        return
    shape = value.type.shape or ()
    kept = {symbol for result in node.results for d in shape_of(result.type) or () for symbol in symbols(d)}
    for axis, dim in enumerate(shape):
        if dim == 0 or is_nonnegative(dim - 1):
            continue
        place = "last" if axis == len(shape) - 1 else "inner" if axis else "first"
        verdict = known.get(place if kept & set(symbols(dim)) else "filled")
        if verdict is not None:
            yield from ((factor, verdict) for factor in _factors(dim))


def _factors(dim: Dim) -> Iterator[Dim]:
    """The factors of `dim`: it is 0 if one of them is."""
    assert isinstance(dim, SymDim)
    if len(dim.terms) > 1:
        yield dim
        return
    for atom, _ in dim.terms[0][0]:
        yield SymDim(((((atom, 1),), 1),))
