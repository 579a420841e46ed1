"""Registration: what two rules may not both claim, and which of several forms and decompositions comes first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import tensor
from onnxtfl.rewriting import registry
from onnxtfl.rewriting.registry import Form, RuleError, Rules
from onnxtfl.rules import row
from onnxtfl.targets.micro import MicroTarget
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
    found = {t.title: [d.__name__ for d in known(ops.Slice, *t.chain)] for t in (MicroTarget(), TfliteTarget())}
    assert found == {"TFLite Micro": ["micro", "tfl", "all"], "TFLite": ["tfl", "all"]}


def test_rules_with_conditions_come_first_and_decline_where_these_do_not_hold(tables: Rules) -> None:
    registry.decompose(ops.Slice)(named("plain"))
    for rank in (1, 2):
        registry.decompose(ops.Slice, when=lambda node, rank=rank: node.operand(0).rank == rank)(named(f"rank {rank}"))
    assert [d.__name__ for d in tables.decompositions(ops.Slice, "tfl")] == ["rank 1", "rank 2", "plain"]
    with pytest.raises(RuleError, match="decomposing Slice for any target"):
        registry.decompose(ops.Slice)(named("another"))


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
