"""Registration: what two rules may not both claim, and which of several forms and decompositions comes first."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import tensor
from onnxtfl.rewriting import registry
from onnxtfl.rewriting.registry import Form, RuleError, Rules
from onnxtfl.rules import row
from onnxtfl.targets.tflite import TfliteTarget


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Empty tables, for this test only."""
    empty = Rules()
    monkeypatch.setattr(registry, "_RULES", empty)
    return empty


def rule(b: Builder, node: Node) -> Value:
    return node.operand(0)


def upgrade_rule(b: Builder, node: Node) -> None:
    """Nothing to change."""


REGISTRATIONS: dict[str, Callable[[], object]] = {
    "lift_onnx": lambda: registry.lift_onnx("Add", since=(7, 13))(rule),
    "lift_tfl": lambda: registry.lift_tfl("ADD")(rule),
    "upgrade": lambda: registry.upgrade("Add", since=(1, 6))(upgrade_rule),
    "row": lambda: row(ops.Add, onnx="Add", since=(7,), tfl="ADD"),
    "decompose": lambda: registry.decompose(ops.Add, "tfl")(rule),
    "decompose_late": lambda: registry.decompose_late(ops.Add, "tfl", when=lambda node: True)(rule),
    "regions_of": lambda: registry.regions_of("onnx.If")(lambda node: None),
}


@pytest.mark.parametrize("name", REGISTRATIONS)
def test_a_second_rule_is_an_error(name: str) -> None:
    REGISTRATIONS[name]()
    with pytest.raises(RuleError, match="has two rules"):
        REGISTRATIONS[name]()


@pytest.mark.parametrize(("first", "second"), [("row", "lift_onnx"), ("row", "lift_tfl"), ("lift_tfl", "row")])
def test_a_row_is_a_lift_rule(first: str, second: str) -> None:
    REGISTRATIONS[first]()
    with pytest.raises(RuleError, match=r"lifting .*test_registration"):
        REGISTRATIONS[second]()


def test_a_version_is_lifted_or_upgraded() -> None:
    REGISTRATIONS["upgrade"]()
    REGISTRATIONS["lift_onnx"]()
    with pytest.raises(RuleError, match="lifting Add-6 has two rules"):
        registry.lift_onnx("Add", since=(6,))(rule)
    with pytest.raises(RuleError, match="lifting Add-13 has two rules"):
        registry.upgrade("Add", since=(13,))(upgrade_rule)


def test_a_row_for_writing_only_leaves_reading_to_another_rule(tables: Rules) -> None:
    row(ops.Relu6, tfl="RELU6", lifts=False)
    registry.lift_tfl("RELU6")(rule)
    assert tables.lift_tfl["RELU6"] is rule


def named(name: str) -> Callable[[Builder, Node], None]:
    def decomposition(b: Builder, node: Node) -> None:
        return None

    decomposition.__name__ = name
    return decomposition


def test_decompositions_come_in_their_order(tables: Rules) -> None:
    registry.decompose(ops.Slice)(named("formula"))
    registry.decompose(ops.Slice, "tfl", "axes")(named("axes"))
    registry.decompose(ops.Slice, "tfl")(named("tfl formula"))
    registry.decompose(ops.Slice, order="elements")(named("elements"))
    registry.decompose(ops.Slice, "onnx", "operands")(named("operands"))
    found = {t: [d.__name__ for d in tables.decompositions(ops.Slice, t)] for t in ("tfl", "onnx")}
    assert found == {"tfl": ["elements", "axes", "tfl formula", "formula"], "onnx": ["elements", "operands", "formula"]}


def test_a_target_has_the_rules_of_those_that_it_is_one_of(tables: Rules) -> None:
    registry.decompose(ops.Slice)(named("all"))
    registry.decompose(ops.Slice, "tfl")(named("tfl"))
    registry.decompose(ops.Slice, "micro")(named("micro"))
    known = tables.decompositions
    targets = [TfliteTarget(table=name) for name in ("micro", "tflite")]
    found = {t.title: [d.__name__ for d in known(ops.Slice, *t.chain)] for t in targets}
    assert found == {"TFLite Micro": ["micro", "tfl", "all"], "TFLite": ["tfl", "all"]}


def node_of(rank: int) -> Node:
    graph = Graph()
    made = Builder(graph)(ops.Abs, graph.add_input(tensor("float32", *[2] * rank))).producer
    assert made is not None
    return made


def of_rank(*ranks: int) -> Callable[[Node], bool]:
    return lambda node: node.operand(0).rank in ranks


def names_of(tables: Rules, node: Node) -> list[str]:
    return [d.__name__ for d in tables.decompositions_of(node, "tfl")]


def test_rules_are_for_the_nodes_for_which_their_condition_holds(tables: Rules) -> None:
    registry.decompose(ops.Abs)(named("plain"))
    for rank in (1, 2):
        registry.decompose(ops.Abs, when=of_rank(rank))(named(f"rank {rank}"))
    assert [names_of(tables, node_of(rank)) for rank in (1, 2, 3)] == [
        ["rank 1", "plain"],
        ["rank 2", "plain"],
        ["plain"],
    ]
    with pytest.raises(RuleError, match="decomposing Abs for any target"):
        registry.decompose(ops.Abs)(named("another"))


def test_a_higher_benefit_comes_first_whatever_the_order_of_registration(tables: Rules) -> None:
    found = {"plain, better": None, "low": of_rank(1, 2), "high": of_rank(2)}
    benefits = {"plain, better": 3, "low": 1, "high": 2}
    for names in itertools.permutations(found):
        tables.decompose.clear()
        for name in names:
            registry.decompose(ops.Abs, when=found[name], benefit=benefits[name])(named(name))
        assert names_of(tables, node_of(2)) == ["plain, better", "high", "low"]


def test_two_rules_of_one_benefit_that_both_hold_are_an_error(tables: Rules) -> None:
    registry.decompose(ops.Abs, when=of_rank(1, 2))(named("first"))
    registry.decompose(ops.Abs, when=of_rank(2, 3))(named("second"))
    assert [names_of(tables, node_of(rank)) for rank in (1, 3)] == [["first"], ["second"]]
    with pytest.raises(RuleError, match="Abs has two rules of one benefit"):
        names_of(tables, node_of(2))


def test_a_rule_for_a_target_that_is_none_is_an_error() -> None:
    with pytest.raises(RuleError, match=r"unknown target 'mirco', known: .*micro, onnx, tfl"):
        registry.decompose(ops.Abs, "mirco")(rule)
    with pytest.raises(RuleError, match="unknown target 'mirco'"):
        registry.decompose_late(ops.Abs, "mirco", when=of_rank(1))(rule)


def test_a_derived_op_expands_last(tables: Rules) -> None:
    registry.decompose(ops.Squeeze)(named("first"))
    assert [d.__name__ for d in tables.decompositions(ops.Squeeze, "tfl")] == ["first", "expand"]


def test_forms_come_by_rank_and_name(tables: Rules) -> None:
    for name, rank in (("B", 0), ("D", 0), ("A", 1)):
        registry.lower_tfl(ops.Abs, rank)(lambda node, name=name: Form(name, tuple(node.operands)))
        registry.lower_onnx(ops.Abs, rank)(lambda node, opset, name=name: Form(name, tuple(node.operands)))
    registry.lower_tfl(ops.Abs)(lambda node: None)
    graph = Graph()
    node = Builder(graph)(ops.Abs, graph.add_input(tensor("float32", 2))).producer
    assert node is not None
    assert [form.op for form in tables.tfl_forms(node)] == ["B", "D", "A"]
    assert [form.op for form in tables.onnx_forms(node, 21)] == ["B", "D", "A"]
