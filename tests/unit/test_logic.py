"""The ops of the family logic: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.op import Op
from tests.unit.lifting import INTEGERS, check_legalized, integers, lifted_onnx, lifted_tfl, onnx_target
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert

_BITS = (ops.And, ops.Or, ops.Xor)


_SHIFTS = (ops.ShiftLeft, ops.ShiftRightLogical, ops.ShiftRightArithmetic)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", _BITS, ids=lambda op: op.name)
def test_integers_are_exact(op: type[Op], dtype: str) -> None:
    lhs, rhs = integers(dtype), integers(dtype, 1)
    check_legalized(op, [lhs, rhs])
    check_legalized(op, [lhs[:6].reshape(2, 3), rhs[:3]])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", _SHIFTS, ids=lambda op: op.name)
def test_shifts_move_every_bit_out(op: type[Op], dtype: str) -> None:
    x, rng = integers(dtype), np.random.default_rng(2)
    amounts = rng.integers(0, np.dtype(dtype).itemsize * 8, len(x)).astype(dtype)
    check_legalized(op, [x, amounts])
    check_legalized(op, [x, constant(np.asarray(3, dtype))])
    check_legalized(op, [x, np.where(rng.random(len(x)) < 0.3, integers(dtype, 3), amounts).astype(dtype)])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [ops.Not, ops.PopulationCount])
def test_unary_ops_of_integers(op: type[Op], dtype: str) -> None:
    check_legalized(op, [integers(dtype)])


@pytest.mark.parametrize("op", [*_SHIFTS, ops.Xor, ops.And, ops.Not], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_in_onnx(op: type[Op], dtype: str) -> None:
    x, y = integers(dtype), integers(dtype, 1)
    check_legalized(op, [x] if op is ops.Not else [x, y], target=onnx_target(18))


def test_old_broadcasting() -> None:
    x, y = np.random.default_rng(0).integers(0, 2, (2, 2, 3)).astype(bool)
    found = lifted_onnx("And", 1, [x, y[0]], broadcast=1, axis=1)
    np.testing.assert_array_equal(found, x & y[0])


def test_shift_amounts_are_brought_into_the_range() -> None:
    x, amounts = np.asarray([-8, 8, 1 << 30], np.int32), np.asarray([40, -3, 2], np.int32)
    np.testing.assert_array_equal(lifted_tfl("RIGHT_SHIFT", x, amounts), [-1, 8, 1 << 28])


@pytest.mark.parametrize("op", ["SELECT", "SELECT_V2"])
def test_a_choice_of_single_elements_has_the_declared_rank(op: str) -> None:
    def build(g: TfliteGraph) -> Any:
        return g.op(op, [g.given(True, "bool"), g.constant([3], "int32"), g.constant([4], "int32")])

    assert_same_as_litert(build)


def test_conditions_of_sizes_are_known() -> None:
    """A size that a few constant bools choose, as in the function body of ONNX's Attention."""
    b = Builder(Graph())
    no, yes = constant(np.array([False])), constant(np.array([True]))
    chosen = b(ops.Select, b(ops.And, b(ops.Not, no), yes), np.array([2]), np.array([1]))
    assert chosen.is_constant and chosen.numpy().tolist() == [2]
