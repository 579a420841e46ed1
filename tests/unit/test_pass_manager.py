"""The pass manager: regions are visited in one place, passes state what they need, a fixed point is reached or told."""

import pytest

from onnxtfl.errors import InternalError
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import VerifyError
from onnxtfl.rewriting.pass_manager import EVERYWHERE, MAIN_ONLY, Group, Pass, PassManager

NESTED = """graph main(%c: tensor<bool>, %x: tensor<2xfloat32>) -> (%y) {
  %y = If(%c, %x) {else_branch = graph inner(%a: tensor<2xfloat32>) -> (%b) {
    %b = Neg(%a) : tensor<2xfloat32>
  }, then_branch = graph outer(%d: tensor<2xfloat32>, %p: tensor<bool>) -> (%e) {
    %e = Abs(%d) : tensor<2xfloat32>
  }} : tensor<2xfloat32>
}"""


def nested() -> Graph:
    return parse_graph(NESTED.replace(", %p: tensor<bool>", ""))


def test_regions_are_visited_after_the_graph_that_holds_them() -> None:
    seen: list[str] = []
    manager = PassManager(
        [Pass("look", lambda g: seen.append(g.name), EVERYWHERE), Pass("main only", lambda g: None, MAIN_ONLY)]
    )
    manager.run(nested())
    assert seen == ["main", "inner", "outer"]
    assert [(t.name, t.nodes) for t in manager.timings] == [("look", 3), ("main only", 3)]


def test_a_region_has_a_rewrite_of_its_own() -> None:
    seen: list[str] = []
    step = Pass("look", lambda g: seen.append(f"main {g.name}"), lambda g: seen.append(f"region {g.name}"))
    PassManager([step]).run(nested())
    assert seen == ["main main", "region inner", "region outer"]


def test_a_pass_is_not_entered_by_graphs_without_what_it_needs() -> None:
    seen: list[str] = []
    negates = lambda graph: any(node.op is ops.Neg for node in graph.nodes)  # noqa: E731
    PassManager([Pass("look", lambda g: seen.append(g.name), EVERYWHERE, when=negates)]).run(nested())
    assert seen == ["inner"]


def test_groups_run_until_nothing_changes() -> None:
    left = [3]

    def count_down(graph: Graph) -> bool:
        left[0] -= 1
        return left[0] > 0

    PassManager([Group("down", (Pass("count", count_down, EVERYWHERE),), rounds=5)]).run(Graph())
    assert left == [0]
    with pytest.raises(InternalError, match=r"internal error in forever: .*no fixed point within 4 iterations"):
        PassManager([Group("forever", (Pass("change", lambda g: True, EVERYWHERE),), rounds=4)]).run(Graph())


@pytest.mark.parametrize(("changed", "runs"), [(False, 1), (True, 2), (None, 2)])
def test_a_group_at_its_fixed_point_is_run_again_after_a_change_only(changed: bool | None, runs: int) -> None:
    seen: list[str] = []

    def look(graph: Graph) -> bool:
        seen.append(graph.name)
        return False

    settle = Group("settle", (Pass("look", look, EVERYWHERE),), rounds=2)
    manager = PassManager([settle, Pass("between", lambda g: changed, MAIN_ONLY), settle])
    manager.run(Graph())
    assert len(seen) == runs
    assert [timing.name for timing in manager.timings] == ["settle", "between", "settle"]


def test_a_group_is_run_again_on_a_graph_with_regions() -> None:
    seen: list[str] = []
    settle = Group("settle", (Pass("look", lambda g: bool(seen.append(g.name)), EVERYWHERE),), rounds=2)
    PassManager([settle, settle]).run(nested())
    assert seen == ["main", "inner", "outer"] * 2


def test_a_pass_whose_needs_are_not_met_is_not_built_in() -> None:
    lower = Pass("lower", lambda g: None, EVERYWHERE, needs=frozenset({"legal"}), breaks=frozenset({"neutral"}))
    with pytest.raises(InternalError, match=r"lower: .*the pass needs a graph that is legal"):
        PassManager([lower])
    legalize = Pass(
        "legalize", lambda g: None, EVERYWHERE, needs=frozenset({"neutral"}), establishes=frozenset({"legal"})
    )
    with pytest.raises(InternalError, match=r"legalize: .*neutral"):
        PassManager([legalize, lower, legalize], given=frozenset({"neutral"}))


def test_the_verifier_runs_after_each_pass() -> None:
    def breaks(graph: Graph) -> None:
        for node in graph.nodes:
            if node.op is ops.Neg:
                node.result.type = None

    PassManager([Pass("breaks", breaks, EVERYWHERE)]).run(nested())
    with pytest.raises(VerifyError, match="after breaks"):
        PassManager([Pass("breaks", breaks, EVERYWHERE)], check=True).run(nested())
    with pytest.raises(VerifyError, match="after breaks"):
        PassManager(
            [Group("all", (Pass("breaks", breaks, EVERYWHERE), Pass("later", lambda g: None, EVERYWHERE)))], check=True
        ).run(nested())
