"""Dead code elimination: nodes on which no output depends."""

from __future__ import annotations

from onnxtfl.ir.graph import Graph, Value
from onnxtfl.rewriting.patterns import erase_dead


def remove_dead(graph: Graph) -> None:
    """Remove pure nodes whose results are not used."""
    erase_dead(graph, graph.nodes)


def remove_unreached(graph: Graph, stops: set[Value]) -> None:
    """Remove all nodes, also impure ones, on which no output depends except through `stops`.

    Nodes without results, and their dependencies, stay for their side effects.
    """
    needed = {node for node in graph.nodes if not node.results}
    work = [v for v in graph.output_set() if v not in stops]
    work += [v for node in needed for v in node.present_operands if v not in stops]
    while work:
        producer = work.pop().producer
        if producer is not None and producer not in needed:
            needed.add(producer)
            work.extend(v for v in producer.present_operands if v not in stops)
    node = graph.last
    while node is not None:
        previous = node.previous
        if node not in needed and not any(r.uses for r in node.results):
            graph.remove(node)
        node = previous
