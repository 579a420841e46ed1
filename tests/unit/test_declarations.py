"""Declarations are strict: an attribute that is unknown or of another kind is an error. Rules leave no litter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, tensor
from onnxtfl.ir.verify import VerifyError, verify
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.rewriting.registry import Decomposition, all_rules
from onnxtfl.targets.tflite import TfliteTarget


def made(op: type[Op], **attributes: Any) -> Graph:
    graph = Graph()
    x = graph.add_input(tensor("float32", 2, 3), "x")
    graph.outputs = [Builder(graph)(op, x, **attributes)]
    return graph


def test_equal_nodes_are_inferred_once_and_others_separately() -> None:
    first = made(ops.Softmax, axis=1).outputs[0].producer
    assert first is not None
    first.attributes["axis"] = 0
    again = made(ops.Softmax, axis=1).outputs[0].producer
    assert again is not None and again.attributes == {"axis": 1}
    with pytest.raises(InvalidModelError, match="axis is True, not an axis"):
        made(ops.Softmax, axis=True)
    with pytest.raises(InvalidModelError, match="axis 2"):
        made(ops.Softmax, axis=2)


@pytest.mark.parametrize(
    ("op", "attributes", "said"),
    [
        (ops.Softmax, {"axsi": 1}, "there is no attribute axsi"),
        (ops.Softmax, {"axis": "1"}, "axis is '1', not an axis"),
        (ops.Softmax, {"axis": True}, "axis is True, not an axis"),
        (ops.Reduce, {"kind": "sum", "keep_dims": False}, "there is no attribute keep_dims"),
        (ops.Reduce, {"kind": "median"}, "kind is 'median', not one of sum, prod"),
        (ops.Reduce, {}, "the attribute kind is missing"),
        (ops.Reduce, {"kind": "sum", "keepdims": 1}, "keepdims is 1, not True or False"),
        (ops.Transpose, {"permutation": "10"}, "permutation is '10', not several values"),
        (ops.Convert, {"dtype": "int8"}, "dtype is 'int8', not an element type"),
        (ops.LeakyRelu, {"alpha": "0.1"}, "alpha is '0.1', not a number"),
        (ops.Gelu, {"approximate": "tan"}, "approximate is 'tan', not one of none, tanh"),
    ],
)
def test_attributes_that_are_not_declared_so(op: type[Op], attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidModelError, match=said):
        made(op, **attributes)


@pytest.mark.parametrize("attributes", [{"axsi": 1}, {"axis": 1.5}])
def test_the_verifier_finds_them_too(attributes: dict[str, Any]) -> None:
    graph = made(ops.Softmax, axis=1)
    (node,) = graph.nodes
    node.attributes = attributes
    with pytest.raises(VerifyError, match=r"attribute axsi|axis is 1\.5"):
        verify(graph)


def test_numbers_become_those_of_python() -> None:
    (node,) = made(ops.Transpose, permutation=np.asarray([1, 0])).nodes
    assert node.attributes == {"permutation": (1, 0)} and type(node.attributes["permutation"][0]) is int
    (node,) = made(ops.LeakyRelu, alpha=np.float32(0.5)).nodes
    assert type(node.attributes["alpha"]) is float


def litter(b: Builder, node: Node) -> Value | None:
    """A rule that builds, and declines."""
    for _ in range(5):
        b(ops.Ceil, node.operand(0))
    return None


def test_a_pattern_that_declines_leaves_the_graph_as_it_was() -> None:
    graph, patterns = made(ops.Softmax, axis=0), Patterns()
    patterns.on(ops.Softmax)(litter)
    assert not patterns.apply(graph)
    assert [node.op for node in graph.nodes] == [ops.Softmax]


def test_a_decomposition_that_declines_leaves_the_graph_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, tried = made(ops.Mish), list[Node]()

    def rule(b: Builder, node: Node) -> Value | None:
        tried.append(node)
        return litter(b, node)

    monkeypatch.setitem(all_rules().decompose, ops.Mish, {("elements", "tfl"): [Decomposition(rule)]})
    legalize(graph, TfliteTarget())
    assert tried and ops.Ceil not in {node.op for node in graph.nodes}


def test_a_rule_that_raises_leaves_the_graph_as_it_was() -> None:
    graph = made(ops.Softmax, axis=0)
    (node,) = graph.nodes

    def rule(b: Builder, node: Node) -> Value:
        litter(b, node)
        raise RuntimeError("a fault of the rule")

    with pytest.raises(RuntimeError):
        Builder(graph, node).tried(rule, node)
    assert [n.op for n in graph.nodes] == [ops.Softmax]


def test_an_element_type_is_kept() -> None:
    (node,) = made(ops.Convert, dtype=DType.INT8).nodes
    assert node.attr("dtype") is DType.INT8
