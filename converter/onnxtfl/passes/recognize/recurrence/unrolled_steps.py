"""Replacement of unrolled steps by layers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dependencies import needed_nodes
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.passes.recognize.recurrence.chains import PRODUCTS, Chain, chains_of, single_steps, sources_of
from onnxtfl.passes.recognize.recurrence.polynomials import UnfitError
from onnxtfl.passes.recognize.recurrence.reroll import Rolled, rerolled
from onnxtfl.rewriting.patterns import erase_dead


def recognize_steps(graph: Graph) -> bool:
    """Replace the steps of recurrent layers by the layers, single steps last; return whether there were any."""
    changed, sources = False, sources_of(graph)
    for chains in (chains_of, functools.partial(single_steps, sources=sources)):
        for node in [n for n in graph.nodes if n.op in (ops.Split, *PRODUCTS)]:
            if node.graph is graph:
                found = (rolled for chain in chains(node) for rolled in rerolled(graph, chain))
                changed |= any(_is_written(graph, rolled) for rolled in found)
    return changed


def _is_written(graph: Graph, rolled: Rolled) -> bool:
    """Write the layer unless the steps have other users; return whether it was written."""
    chain, finals, collecting = rolled.chain, rolled.finals, rolled.collecting
    joined = [v for node in collecting for v in node.present_operands]
    inside, outside = needed_nodes([*finals, *joined], chain.nodes), graph.output_set()
    kept = {r for node in inside for r in node.results if r not in finals}
    if any(touches_quantized(node) for node in (*inside, *collecting)):
        return False
    if any(r in outside or any(u not in inside and u not in collecting for u in r.users()) for r in kept):
        return False
    sources = [rolled.steps.sequence, *rolled.layer.values, *(v for v in rolled.initial if v is not None)]
    before = _place(chain, sources, inside)
    if before is None:
        return False
    b = Builder(graph, before, cause=chain.start, maker="recurrent layers")
    try:
        output, *states = rolled.layer.write(b, rolled.steps, rolled.initial)
    except UnfitError:
        b.undo()
        return False
    for made in b.created:
        made.add_history(*inside)
    for value, role in finals.items():
        graph.substitute(value, reshape(b, states[role], value.shape, states[role], value))
    for node, time_first in collecting.items():
        steps = replace(rolled.steps, time_first=time_first)
        graph.replace(node, [steps.as_written(b, output, node.result)])
    erase_dead(graph, [v.producer for v in (*finals, *joined) if v.producer is not None])
    return True


def _place(chain: Chain, sources: Sequence[Value], inside: set[Node]) -> Node | None:
    """Return the first node after all producers of `sources`; None if one of them depends on the steps."""
    waiting = {node for v in sources if (node := v.producer) is not None}
    place: Node | None = chain.start
    node, seen, left = place, set[Node](), len(inside)
    while node is not None and left:
        left -= node in inside
        seen.add(node)
        place = node.next if node in waiting else place
        node = node.next
    return None if inside & needed_nodes(sources, seen) else place
