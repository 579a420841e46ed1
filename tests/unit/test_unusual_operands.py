"""Large floats, infinities and NaN: what LiteRT's kernels compute is as the table of kernels says, and documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnxtfl.schemas import sections
from tools.probe.costs.machines import own_kind
from tools.probe.measure import Measurer
from tools.probe.runtime import Runtime
from tools.probe.unusual import unusual_cases_of, unusual_rows

from onnxtfl.targets import table

pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")

TROUBLESHOOTING = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
DEVIATING = [op for op in table.op_names() if sections.section(f"{op}.unusual")]
CORRECT = ["EXP", "TANH", "SOFTMAX", "ADD", "SUM", "REDUCE_PROD", "MEAN"]


@pytest.mark.parametrize("op", [*DEVIATING, *CORRECT])
def test_the_table_says_which_operands_a_kernel_computes_wrongly(op: str, probed: Runtime) -> None:
    found = Measurer({"litert": probed}).measure(unusual_cases_of(op))
    assert len(found) >= 1
    stated = sections.section(f"{op}.unusual").get("rows", ())
    expected = [f'{{ operands = "{row["operands"]}", kernels = "{row["kernels"]}" }}' for row in stated]
    if is_as_measured():
        assert unusual_rows(found) == expected
    else:  # other kernels, some of which are right
        assert set(unusual_rows(found)) <= set(expected)


def is_as_measured() -> bool:
    """Whether this machine is of the kind on which the table was measured."""
    return Path("/proc/cpuinfo").exists() and own_kind() == "avx512"


@pytest.mark.parametrize("op", DEVIATING)
def test_the_documentation_names_the_op(op: str) -> None:
    assert op in TROUBLESHOOTING.read_text(encoding="utf-8")


def test_sin_and_cos_of_xnnpack_are_in_the_table() -> None:
    for op in ("SIN", "COS"):
        (row,) = sections.section(f"{op}.unusual")["rows"]
        assert row == {"operands": "up to 1e8", "kernels": "litert xnnpack"}
