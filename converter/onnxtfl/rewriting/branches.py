"""Branches that cannot run: their ops, or those after them, do not accept the sizes of their operands.

A model for audio of 8 and 16 kHz has a branch for each: the frames of one do not fit the other, which ONNX Runtime
never computes, while TFLite prepares both for the sizes of each run. Where the ops after a branch fail::

    y = If(size == 1) then Squeeze(x) else x    ->    y = Squeeze(x)
    z = Transpose(y, order of 2 axes)                 z = Transpose(y, order of 2 axes)

PyTorch's exporter writes such an If for `squeeze(dim)` of a dynamic size, although the model fails if that is not 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.registry import Inlined

BRANCHES = ("then_branch", "else_branch")
_TRYING: ContextVar[bool] = ContextVar("trying", default=False)
"""Whether a copy is being lifted. No further branch is tried in it, so that the time stays linear."""


def only_valid(node: Node, branches: Sequence[Inlined], lift: Callable[[Graph], None]) -> Inlined | None:
    """Lift the `branches` of `node`, of which one runs, and return the one that is valid if the others are not.

    Raises the InvalidModelError of the first if no branch is valid.
    """
    valid, errors = list[Inlined](), list[InvalidModelError]()
    for branch in branches:
        try:
            lift(branch.region)
            valid.append(branch)
        except InvalidModelError as error:
            errors.append(error)
    if not errors:
        return None
    if not valid:
        raise errors[0]
    for branch in branches:
        if branch is not valid[0]:
            _discard(branch.region)
    if not _TRYING.get():
        place = ("first", "second")[branches.index(valid[0])]
        assume(f"{node.shown_name} runs its {place} branch: for the other one, {errors[0].message}")
    return valid[0]


def take_valid_branch(graph: Graph, node: Node, lift: Callable[[Graph], None]) -> None:
    """Replace `node`, if it is an If of unknown ranks, by the branch without which the rest of `graph` is invalid.

    `lift` lifts all nodes of a graph, with InvalidModelError for an op that does not accept its operands. If the rest
    is valid with both branches, or with none, `node` stays.
    """
    if node.op is not ops.If or _TRYING.get() or not _ranks_differ(node):
        return
    valid = [name for name in BRANCHES if _is_valid(graph, node, name, lift)]
    if len(valid) == 1:
        _take(graph, node, valid[0])


def _ranks_differ(node: Node) -> bool:
    """Whether the branches return tensors of different known ranks."""
    pairs = zip(*(node.attr(name).outputs for name in BRANCHES), strict=True)
    types = [(a.type, b.type) for a, b in pairs if isinstance(a.type, TensorType) and isinstance(b.type, TensorType)]
    return any(None is not a.rank != b.rank is not None for a, b in types)


def _take(graph: Graph, node: Node, name: str) -> None:
    graph.replace(node, copy_region(Builder(graph, node), node.attr(name), node.operands[1:]), retyped=True)


def _is_valid(graph: Graph, node: Node, name: str, lift: Callable[[Graph], None]) -> bool:
    """Whether the rest of `graph` can be lifted if branch `name` replaces `node`, tried on a copy."""
    trial = clone(graph)
    place = list(graph.nodes).index(node)
    _take(trial, list(trial.nodes)[place], name)
    token = _TRYING.set(True)
    try:
        lift(trial)
    except InvalidModelError:
        return False
    except OnnxtflError:
        return True
    finally:
        _TRYING.reset(token)
        _discard(trial)
    return True


def _discard(graph: Graph) -> None:
    """Remove the uses of shared constants by nodes of `graph`."""
    for node in graph.walk():
        for i in range(len(node.operands)):
            node.set_operand(i, None)
