"""Arithmetic, logic, bits and comparisons: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, tensor
from onnxtfl.pipeline import Options, inspect
from onnxtfl.rewriting.legalize import legalize
from tests.conformance.cases import Case
from tests.unit.lifting import TFLITE, cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel
from tests.unit.tiny_models import onnx_model

_FAMILY = """
Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max
Mean Min Mod Mul Or Pow PRelu Sub Sum Where Xor
"""
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_ARITHMETIC = (ops.Add, ops.Sub, ops.Mul, ops.Max, ops.Min)
_QUOTIENTS = (ops.Div, ops.FloorDiv, ops.Rem, ops.FloorMod)
_BITS = (ops.And, ops.Or, ops.Xor)
_SHIFTS = (ops.ShiftLeft, ops.ShiftRightLogical, ops.ShiftRightArithmetic)


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    check_lifted(case)


def numbers(dtype: str, seed: int = 0) -> Array:
    """Integers over the whole range, its ends, and small ones."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(seed)
    wide = rng.integers(limits.min, limits.max, 200, dtype=dtype, endpoint=True)
    small = rng.integers(max(limits.min, -50), 50, 200).astype(dtype)
    ends = np.asarray([limits.min, limits.max, 0, 1, 2, limits.max - 1, limits.max // 2], dtype)
    return rng.permutation(np.concatenate([wide, ends, small]))


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("op", [*_ARITHMETIC, *_QUOTIENTS, *_BITS], ids=lambda op: op.name)
def test_integers_are_exact(op: type[Op], dtype: str) -> None:
    lhs, rhs = numbers(dtype), numbers(dtype, 1)
    if op in _QUOTIENTS:
        rhs = np.where(rhs == 0, 1, rhs).astype(dtype)
    check_legalized(op, [lhs, rhs])
    check_legalized(op, [lhs[:6].reshape(2, 3), rhs[:3]])


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_comparisons_of_integers(direction: str, dtype: str) -> None:
    lhs, rhs = numbers(dtype), numbers(dtype, 1)
    for other in (lhs, rhs):
        check_legalized(ops.Compare, [lhs, other], attributes={"comparison_direction": direction})


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("op", _SHIFTS, ids=lambda op: op.name)
def test_shifts_move_every_bit_out(op: type[Op], dtype: str) -> None:
    x, rng = numbers(dtype), np.random.default_rng(2)
    amounts = rng.integers(0, np.dtype(dtype).itemsize * 8, len(x)).astype(dtype)
    check_legalized(op, [x, amounts])
    check_legalized(op, [x, constant(np.asarray(3, dtype))])
    check_legalized(op, [x, np.where(rng.random(len(x)) < 0.3, numbers(dtype, 3), amounts).astype(dtype)])


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("op", [ops.Abs, ops.Neg, ops.Sign, ops.Not, ops.Relu, ops.PopulationCount])
def test_unary_ops_of_integers(op: type[Op], dtype: str) -> None:
    check_legalized(op, [numbers(dtype)])


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("exponents", [*_INTEGERS, "float32"])
def test_powers(dtype: str, exponents: str) -> None:
    base = (numbers(dtype) % 7).astype(dtype)
    powers = np.random.default_rng(4).integers(0, 12 if exponents != "float32" else 3, len(base)).astype(exponents)
    check_legalized(ops.Pow, [base, powers])


def test_negative_powers_of_integers_are_cut_off() -> None:
    base, exponents = np.asarray([-1, 1, 2, -2, 0, -1]), np.asarray([-3, -3, -1, -2, 5, 1001])
    graph = Graph()
    values = [graph.add_input(tensor("int64", 6)) for _ in range(2)]
    graph.outputs = [Builder(graph)(ops.Pow, *values)]
    legalize(graph, TFLITE)
    (found,) = run(graph, [base, exponents])
    assert found.tolist() == [-1, 1, 0, 0, 0, -1]


@pytest.mark.parametrize("before", [*_INTEGERS, "bool", "float32"])
@pytest.mark.parametrize("after", [*_INTEGERS, "bool", "float32"])
def test_conversions(before: str, after: str) -> None:
    if before == "bool":
        x: Array = np.asarray([True, False])
    elif before == "float32":
        x = np.asarray([0, 1, 1.5, 100.7, *([] if after.startswith("u") else [-1.5, -100.2])], np.float32)
    else:
        x = numbers(before)
    check_legalized(ops.Convert, [x], attributes={"dtype": DType(after)})


def test_large_floats_become_uint64() -> None:
    x = np.asarray([0, 1, 1.8e19, 9.3e18, 4e18], np.float32)
    check_legalized(ops.Convert, [x], attributes={"dtype": DType.UINT64})


_FLOATS = (
    np.asarray([5, -5, 5.5, -5.5, 0, -0.0, 1e10, -1e-10, 3, 7, np.inf, 3, 1e30], np.float32),
    np.asarray([3, 3, -3, -3, 2, 2, 3, 1e10, np.inf, -np.inf, 2, 0, 1e-5], np.float32),
)


@pytest.mark.parametrize("op", [*_ARITHMETIC, *_QUOTIENTS, ops.Pow, ops.Atan2, ops.SquaredDifference, ops.PRelu])
def test_floats(op: type[Op]) -> None:
    check_legalized(op, _FLOATS)
    check_legalized(op, [_FLOATS[0][:12].reshape(4, 3), _FLOATS[1][:3]])
    if op is not ops.Atan2:
        check_legalized(op, _FLOATS, target=onnx_target(13))


def test_atan2_in_onnx() -> None:
    angles = np.linspace(-3.1, 3.1, 41).astype(np.float32)
    check_legalized(ops.Atan2, [np.sin(angles), np.cos(angles)], target=onnx_target(17))
    check_legalized(ops.Atan2, [np.zeros(1, np.float32), np.zeros(1, np.float32)], target=onnx_target(17))


@pytest.mark.parametrize("op", [*_QUOTIENTS, *_SHIFTS, ops.Xor, ops.And, ops.Not], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_in_onnx(op: type[Op], dtype: str) -> None:
    x, y = numbers(dtype), numbers(dtype, 1)
    y = np.where(y == 0, 1, y).astype(dtype) if op in _QUOTIENTS else y
    check_legalized(op, [x] if op is ops.Not else [x, y], target=onnx_target(18))


@pytest.mark.parametrize(("low", "high"), [(0.0, None), (0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (-2.0, 3.0), (3.0, -2.0)])
def test_clamps(low: float, high: float | None) -> None:
    x = np.linspace(-9, 9, 37).astype(np.float32)
    bounds = [None if v is None else constant(np.asarray(v, np.float32)) for v in (low, high)]
    check_legalized(ops.Clamp, [x, *bounds])
    check_legalized(ops.Clamp, [x.astype(np.int32), *(v and constant(v.numpy().astype(np.int32)) for v in bounds)])
    check_legalized(ops.Clamp, [x, np.full(37, low, np.float32), None], target=onnx_target(13))


def test_sizes_are_followed() -> None:
    graph = Graph()
    b = Builder(graph)
    sizes = b(ops.Shape, graph.add_input(tensor("float32", "n", 8)))
    n = b(ops.Gather, sizes, np.asarray(0), axis=0)
    half = b(ops.Div, b(ops.Mul, n, np.asarray(4)), np.asarray(2))
    assert half.known is not None and half.known.item() == symbol("n") * 2
    more = b(ops.Compare, b(ops.Add, n, np.asarray(1)), n, comparison_direction="GT")
    assert more.is_constant and more.numpy()
    chosen = b(ops.Select, more, half, n)
    assert chosen.known is not None and chosen.known.item() == symbol("n") * 2
    assert not b(ops.Compare, n, np.asarray(3), comparison_direction="GT").is_constant


def test_misfits_are_refused() -> None:
    b = Builder(Graph())
    x, y = b.graph.add_input(tensor("float32", 2)), b.graph.add_input(tensor("int32", 2))
    for operands, attributes in [((x, y), {}), ((x, b.graph.add_input(tensor("float32", 3))), {})]:
        with pytest.raises(InvalidModelError):
            b(ops.Add, *operands, **attributes)
    with pytest.raises(InvalidModelError):
        b(ops.Compare, x, x, comparison_direction="==")


def test_relabeling() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype(np.float32)
    for index in (0, 1, -1):
        assert check_relabel(ops.Add, [x, y], {}, index, (0, 2, 1))
    assert check_relabel(ops.Select, [x > 0, x, np.asarray(1, np.float32)], {}, 1, (2, 0, 1))
    assert not check_relabel(ops.Add, [x, y[0]], {}, 0, (0, 2, 1))


def lifted(op: str, since: int, arrays: list[Array], **attributes: Any) -> Array:
    """What one node of an old opset gives."""
    names = [f"x{i}" for i in range(len(arrays))]
    types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    node = helper.make_node(op, names, ["y"], **attributes)
    inputs = [(name, type_, a.shape) for name, type_, a in zip(names, types, arrays, strict=True)]
    model = onnx_model([node], inputs, [("y", TensorProto.UNDEFINED, None)], opset=since)  # type: ignore[list-item]
    model.graph.output[0].ClearField("type")
    (result,) = run(inspect(model.SerializeToString(), "lifted", Options()), arrays)
    return result


@pytest.mark.parametrize(
    ("shape", "attributes", "reshaped"),
    [
        ((3, 4), {"axis": 1}, (1, 3, 4, 1)),
        ((2,), {"axis": 0}, (2, 1, 1, 1)),
        ((4, 5), {}, (4, 5)),
        ((1, 1), {}, (1, 1)),
    ],
)
@pytest.mark.parametrize("version", [1, 6])
def test_old_broadcasting(
    version: int, shape: tuple[int, ...], attributes: dict[str, int], reshaped: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    found = lifted("Add", version, [x, y], broadcast=1, **attributes)
    np.testing.assert_array_equal(found, x + y.reshape(reshaped))
    bools = lifted("And", 1, [x > 0, y > 0], broadcast=1, **attributes)
    np.testing.assert_array_equal(bools, (x > 0) & (y > 0).reshape(reshaped))


@pytest.mark.parametrize("version", [1, 6])
def test_old_attributes(version: int) -> None:
    x = np.linspace(-9, 9, 24).reshape(2, 3, 4).astype(np.float32)
    np.testing.assert_array_equal(lifted("Clip", version, [x], min=-1.0, max=2.5), np.clip(x, -1, 2.5))
    np.testing.assert_array_equal(lifted("Clip", version, [x], min=0.0), np.maximum(x, 0))
    slope = np.asarray([1, 2, 3], np.float32)
    np.testing.assert_array_equal(lifted("PRelu", version, [x, slope]), np.where(x < 0, x * slope[:, None], x))
    np.testing.assert_array_equal(lifted("Sum", version, [x, x, x]), x * 3)
    np.testing.assert_array_equal(lifted("Max", version, [x, -x]), abs(x))
    np.testing.assert_array_equal(lifted("Dropout", version, [x], is_test=1), x)


def test_cast_by_name() -> None:
    x = np.asarray([1.5, -2.5], np.float32)
    found = lifted("Cast", 1, [x], to="INT32")
    assert found.dtype == np.int32 and found.tolist() == [1, -2]
