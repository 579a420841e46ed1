"""Which of several nodes a difference is of."""

import itertools
from dataclasses import dataclass, field

from onnxtfl.checking.localize.culprit import leading_to_right


@dataclass(eq=False)
class _Value:
    readers: list = field(default_factory=list)
    reads: int = 0

    @property
    def uses(self) -> list:
        self.reads += 1
        return self.readers


@dataclass(eq=False)
class _Node:
    results: list


def _joined_twice(count: int) -> list:
    """Nodes of which each reads the result of the one before twice, so that there are 2 ** count paths."""
    nodes = [_Node([_Value()]) for _ in range(count)]
    for before, after in itertools.pairwise(nodes):
        before.results[0].readers += [(after, 0), (after, 1)]
    return nodes


def test_each_node_is_visited_once_however_many_paths_there_are() -> None:
    nodes = _joined_twice(16)
    assert leading_to_right(dict.fromkeys(nodes, False)) == set()
    assert [node.results[0].reads for node in nodes] == [1] * 16


def test_nodes_before_a_right_result_lead_to_it_and_those_after_do_not() -> None:
    nodes = _joined_twice(4)
    assert leading_to_right({node: node is nodes[2] for node in nodes}) == {nodes[0], nodes[1]}
