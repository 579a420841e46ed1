"""The ops of the family arithmetic: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import parse_dim, symbol
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, tensor
from onnxtfl.passes.canonical.canonicalize import MOVES
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.merge_equal import merge_equal
from onnxtfl.rewriting.legalize import legalize
from tests.unit.lifting import INTEGERS, TFLITE, check_legalized, integers, lifted_onnx, lifted_tfl, onnx_target
from tests.unit.onnx_nodes import converted_node
from tests.unit.permuting import check_permuted

_ARITHMETIC = (ops.Add, ops.Sub, ops.Mul, ops.Max, ops.Min)


_QUOTIENTS = (ops.Div, ops.FloorDiv, ops.Rem, ops.FloorMod)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [*_ARITHMETIC, *_QUOTIENTS], ids=lambda op: op.name)
def test_integers_are_exact(op: type[Op], dtype: str) -> None:
    lhs, rhs = integers(dtype), integers(dtype, 1)
    if op in _QUOTIENTS:
        rhs = np.where(rhs == 0, 1, rhs).astype(dtype)
    check_legalized(op, [lhs, rhs])
    check_legalized(op, [lhs[:6].reshape(2, 3), rhs[:3]])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("exponents", [*INTEGERS, "float32"])
def test_powers(dtype: str, exponents: str) -> None:
    base = (integers(dtype) % 7).astype(dtype)
    powers = np.random.default_rng(4).integers(0, 12 if exponents != "float32" else 3, len(base)).astype(exponents)
    check_legalized(ops.Pow, [base, powers])


@pytest.mark.parametrize(
    ("power", "ops_written"),
    [(4.0, {"MUL"}), ([[11.0]], {"POW"}), ([11.0], {"MUL"}), (65.0, {"POW"}), (1.5, {"POW"})],
)
def test_powers_of_floats_by_a_whole_number_are_products(power: object, ops_written: set[str]) -> None:
    """One with more axes than the base adds axes."""
    exponent = np.asarray(power, np.float32)
    shape = (1, 3) if exponent.ndim == 2 else (3,)
    conversion = converted_node("Pow", [("x", TensorProto.FLOAT, (3,))], (TensorProto.FLOAT, shape), {"e": exponent})
    assert set(conversion.report.ops_after) == ops_written


def test_negative_powers_of_integers_are_cut_off() -> None:
    base, exponents = np.asarray([-1, 1, 2, -2, 0, -1]), np.asarray([-3, -3, -1, -2, 5, 1001])
    graph = Graph()
    values = [graph.add_input(tensor("int64", 6)) for _ in range(2)]
    graph.outputs = [Builder(graph)(ops.Pow, *values)]
    legalize(graph, TFLITE)
    (found,) = run(graph, [base, exponents])
    assert found.tolist() == [-1, 1, 0, 0, 0, -1]


_FLOATS = (
    np.asarray([5, -5, 5.5, -5.5, 0, -0.0, 1e10, -1e-10, 3, 7, np.inf, 3, 1e30], np.float32),
    np.asarray([3, 3, -3, -3, 2, 2, 3, 1e10, np.inf, -np.inf, 2, 0, 1e-5], np.float32),
)


@pytest.mark.parametrize("op", [*_ARITHMETIC, *_QUOTIENTS, ops.Pow, ops.Atan2, ops.SquaredDifference])
def test_floats(op: type[Op]) -> None:
    check_legalized(op, _FLOATS)
    check_legalized(op, [_FLOATS[0][:12].reshape(4, 3), _FLOATS[1][:3]])
    if op is not ops.Atan2:
        check_legalized(op, _FLOATS, target=onnx_target(13))


def test_atan2_in_onnx() -> None:
    angles = np.linspace(-3.1, 3.1, 41).astype(np.float32)
    check_legalized(ops.Atan2, [np.sin(angles), np.cos(angles)], target=onnx_target(17))
    check_legalized(ops.Atan2, [np.zeros(1, np.float32), np.zeros(1, np.float32)], target=onnx_target(17))


@pytest.mark.parametrize("op", _QUOTIENTS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_in_onnx(op: type[Op], dtype: str) -> None:
    x, y = integers(dtype), integers(dtype, 1)
    y = np.where(y == 0, 1, y).astype(dtype)
    check_legalized(op, [x, y], target=onnx_target(18))


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


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("op", [*_ARITHMETIC, *_QUOTIENTS], ids=lambda op: op.name)
def test_known_values_are_what_the_op_computes(op: type[Op], dtype: str) -> None:
    """Division of negative numbers, and wrap-around."""
    lhs, rhs = integers(dtype)[:200], integers(dtype, 1)[:200]
    rhs = np.where(rhs == 0, 3, rhs).astype(dtype)
    folded = Builder(Graph())(op, lhs, rhs)
    with np.errstate(all="ignore"):
        assert folded.numpy().tolist() == np.asarray(op.evaluate({}, lhs, rhs)).tolist()


def test_minus_seven_by_two() -> None:
    b = Builder(Graph())
    lhs, rhs = np.asarray([-7, 7, -7, 7]), np.asarray([2, -2, -2, 2])
    assert b(ops.Div, lhs, rhs).numpy().tolist() == [-3, -3, 3, 3]
    assert b(ops.Rem, lhs, rhs).numpy().tolist() == [-1, 1, -1, 1]


@pytest.mark.parametrize("by_size", [False, True])
def test_sizes_are_divided_in_int32(by_size: bool) -> None:
    """One DIV each, however long the chain: also of quotients whose expressions are too large to be known."""
    graph = Graph()
    b = Builder(graph)
    n, m = (graph.add_input(tensor("float32", size)) for size in ("n", "m"))
    size, other = b(ops.Shape, n), b(ops.Shape, m) if by_size else np.asarray([3])
    for _ in range(600):
        size = b(ops.Div, size, other)
    graph.outputs = [size]
    legalize(graph, TFLITE)
    for simplify in (merge_equal, MOVES.apply, remove_dead):
        simplify(graph)
    counted = Counter(node.op.name for node in graph.nodes)
    assert counted == {"Div": 600, "Shape": 1 + by_size, "Convert": 2 + by_size}


@pytest.mark.parametrize(("more", "divisor"), [(1, 2), (2, 3), (7, 8), (9, 4), (-3, 2)])
def test_a_quotient_rounded_up_is_computed_in_int32(more: int, divisor: int) -> None:
    """n + 1 does not fit int32 for the largest size; n - 3 may be negative."""
    graph = Graph()
    b = Builder(graph)
    size = b(ops.Add, b(ops.Shape, graph.add_input(tensor("float32", "n"))), np.asarray([more]))
    graph.outputs = [b(ops.FloorDiv, size, np.asarray([divisor]))]
    legalize(graph, TFLITE)
    for simplify in (merge_equal, MOVES.apply, remove_dead):
        simplify(graph)
    assert sum(node.op not in (ops.Shape, ops.Convert) for node in graph.nodes) <= 5
    sums = [node for node in graph.nodes if node.op is not ops.Convert and node.result.dtype is DType.INT64]
    assert len(sums) <= 1 + (more < 0)
    for n in (0, 1, 2, 5, 8, 23):
        assert run(graph, [np.zeros(n, np.float32)])[0].tolist() == [(n + more) // divisor]


@pytest.mark.parametrize("divisor", [3, -7, 1, 1000003, (1 << 53) - 1])
def test_int64_by_an_odd_constant_needs_no_floats(divisor: int) -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("int64", 8))
    graph.outputs = [b(ops.Div, x, np.asarray(divisor))]
    legalize(graph, TFLITE)
    assert ops.Convert not in [node.op for node in graph.nodes]
    given = np.asarray([0, 1, -1, 7, -20, (1 << 62) + 5, -(1 << 63), (1 << 63) - 1])
    wanted = [abs(n) // abs(divisor) * (1 if (n < 0) == (divisor < 0) else -1) for n in given.tolist()]
    assert run(graph, [given])[0].tolist() == wanted


def test_the_lowest_int32_divided_by_minus_one() -> None:
    """The quotient does not fit int32, so that it is computed in int64."""
    graph = Graph()
    b = Builder(graph)
    x, y = (b(ops.Convert, graph.add_input(tensor("int32", 3)), dtype=DType.INT64) for _ in range(2))
    graph.outputs = [b(ops.Div, x, y)]
    legalize(graph, TFLITE)
    low = -(2**31)
    arrays = [np.asarray([low, low, 7], np.int32), np.asarray([-1, 2, -2], np.int32)]
    assert run(graph, arrays)[0].tolist() == [-low, low // 2, -3]


def test_the_quotient_of_a_size_that_may_be_negative_is_unknown() -> None:
    """(n - 1) / 2 rounded toward zero is not (n - 1) // 2 where n is 0."""
    b = Builder(Graph())
    n = b(ops.Gather, b(ops.Shape, b.graph.add_input(tensor("float32", "n", 8))), np.asarray(0), axis=0)
    less = b(ops.Sub, n, np.asarray(1))
    assert b(ops.Div, less, np.asarray(2)).known is None and b(ops.Rem, less, np.asarray(2)).known is None
    expected = {
        "(n)//2": b(ops.Div, n, np.asarray(2)),
        "-((n)//2)": b(ops.Div, n, np.asarray(-2)),
        "n - 2*((n)//2)": b(ops.Rem, n, np.asarray(2)),
        "(n - 1)//2": b(ops.FloorDiv, less, np.asarray(2)),
        "2*n - 2": b(ops.Div, b(ops.Mul, less, np.asarray(4)), np.asarray(2)),
    }
    for text, value in expected.items():
        assert value.known is not None and value.known.item() == parse_dim(text)


def test_symbols_that_would_wrap_around_are_unknown() -> None:
    b = Builder(Graph())
    sizes = b(ops.Shape, b.graph.add_input(tensor("float32", "n", 8)))
    assert b(ops.Convert, sizes, dtype=DType.INT8).known is None
    assert b(ops.Sub, b(ops.Convert, sizes, dtype=DType.UINT64), np.asarray(1, np.uint64)).known is None
    narrow = b(ops.Convert, b(ops.Mul, sizes, np.asarray(1 << 30)), dtype=DType.INT32)
    assert narrow.known is not None and narrow.known.tolist()[1] == 0
    assert b(ops.Mul, sizes, np.asarray(1 << 40)).known is not None


def test_misfits_are_refused() -> None:
    b = Builder(Graph())
    x, y = b.graph.add_input(tensor("float32", 2)), b.graph.add_input(tensor("int32", 2))
    for operands, attributes in [((x, y), {}), ((x, b.graph.add_input(tensor("float32", 3))), {})]:
        with pytest.raises(InvalidModelError):
            b(ops.Add, *operands, **attributes)


def test_permuted_axes() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype(np.float32)
    for index in (0, 1, -1):
        assert check_permuted(ops.Add, [x, y], {}, index, (0, 2, 1))
    assert not check_permuted(ops.Add, [x, y[0]], {}, 0, (0, 2, 1))


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
    found = lifted_onnx("Add", version, [x, y], broadcast=1, **attributes)
    np.testing.assert_array_equal(found, x + y.reshape(reshaped))


@pytest.mark.parametrize("version", [1, 6])
def test_old_attributes(version: int) -> None:
    x = np.linspace(-9, 9, 24).reshape(2, 3, 4).astype(np.float32)
    np.testing.assert_array_equal(lifted_onnx("Clip", version, [x], min=-1.0, max=2.5), np.clip(x, -1, 2.5))
    np.testing.assert_array_equal(lifted_onnx("Clip", version, [x], min=0.0), np.maximum(x, 0))
    np.testing.assert_array_equal(lifted_onnx("Sum", version, [x, x, x]), x * 3)
    np.testing.assert_array_equal(lifted_onnx("Max", version, [x, -x]), abs(x))


X = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [
        ("NONE", X + X),
        ("RELU", np.maximum(X + X, 0)),
        ("RELU6", np.clip(X + X, 0, 6)),
        ("RELU_N1_TO_1", np.clip(X + X, -1, 1)),
        ("TANH", X + X),
        ("SIGN_BIT", X + X),
    ],
)
def test_kernels_apply_fused_activations_that_are_ranges(activation: str, wanted: Array) -> None:
    np.testing.assert_allclose(lifted_tfl("ADD", X, X, fused_activation_function=activation), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "others", "wanted"),
    [
        ("SQUARED_DIFFERENCE", [np.ones_like(X)], (X - 1) ** 2),
        ("ADD_N", [np.ones_like(X)], X + 1),
        ("FLOOR_MOD", [X], X - X),
    ],
)
def test_plain_tfl_ops(op: str, others: list[Array], wanted: Array) -> None:
    np.testing.assert_allclose(lifted_tfl(op, X, *others), wanted, rtol=1e-6)


INT64 = TensorProto.INT64


def test_more_open_axes_may_broadcast_than_the_kernel_accepts() -> None:
    inputs = [("a", INT64, ["A", "B", "C", 2, "D"]), ("b", INT64, [1, "B", 1, 2, "D"])]
    assert converted_node("Mul", inputs, (INT64, None))
