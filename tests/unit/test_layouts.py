"""What kernels prefer: the op in that axis order means the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.op import Op
from onnxtfl.targets.layouts import alternatives, preferred
from tests.unit.permuting import built, check_same_meaning
from tests.unit.test_permuted import CASES

CHANNELS_FIRST_AND_LAST = (False, True)
PREFERRING = {ops.Conv, ops.ConvTranspose, ops.MaxPool, ops.AveragePool, ops.Resize, ops.DepthToSpace, ops.SpaceToDepth}


def test_ops_with_a_preference() -> None:
    having = {op for op, operands, attributes in CASES if preferred(built(op, operands, attributes), True)}
    assert having == PREFERRING


@pytest.mark.parametrize("channels_last", CHANNELS_FIRST_AND_LAST)
@pytest.mark.parametrize(("op", "operands", "attributes"), [c for c in CASES if c[0] in PREFERRING])
def test_preferred_orders_mean_the_same(
    op: type[Op], operands: list[Any], attributes: Mapping[str, Any], channels_last: bool
) -> None:
    change = preferred(built(op, operands, attributes), channels_last)
    assert change is not None
    check_same_meaning(op, operands, attributes, change)


@pytest.mark.parametrize(("op", "operands", "attributes"), [c for c in CASES if c[0] is ops.DotGeneral])
def test_alternatives_mean_the_same(op: type[Op], operands: list[Any], attributes: Mapping[str, Any]) -> None:
    for change in alternatives(built(op, operands, attributes)):
        check_same_meaning(op, operands, attributes, change)


def test_batched_matmuls_have_every_alternative() -> None:
    (case,) = (c for c in CASES if c[0] is ops.DotGeneral and c[2].get("lhs_batching_dimensions") == (0, 1))
    assert len(list(alternatives(built(*case)))) == 16
