"""Makes a random ONNX graph that fails smaller: nodes are removed, and their results become inputs."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from tests.fuzz.drawing import Input
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.soaking import Found


def smallest(g: Drawing, judge: Callable[[Drawing], Found]) -> Found:
    """The outcome, of the same kind, of a graph none of whose nodes can be removed."""
    found, k = judge(g), len(g.nodes)
    while k and len(g.nodes) > 1:
        k -= 1
        smaller = without(g, k)
        other = judge(smaller)
        if other.kind == found.kind:
            g, found, k = smaller, other, len(smaller.nodes)
    return found


def without(g: Drawing, k: int) -> Drawing:
    """The graph without a node."""
    other = copy(g)
    other.nodes = [node for i, node in enumerate(g.nodes) if i != k]
    arrays = [(name, g.array(name)) for name in g.nodes[k].output if name in set(other.used())]
    other.inputs = {**g.inputs, **{n: Input(str(a.dtype), a.shape, 0, 0, (a,)) for n, a in arrays}}
    return other
