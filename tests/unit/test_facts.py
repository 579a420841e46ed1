"""What is known of values before run time holds: whatever ops compute from random operands is inside of the facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir import facts, intervals, ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import parse_dim, symbol
from onnxtfl.ir.dtypes import dtype_of
from onnxtfl.ir.facts import facts_of, fits_int32, max_magnitude, never_negative
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.intervals import SIZES, Facts, of_array
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor
from tests.unit.op_samples import Known, samples

SAMPLES = 30
SPECIAL = {"f": [-np.inf, np.inf, np.nan, -0.0, 0.0, 1e30, -1.5, -1.0, 1.0], "i": [-1, 0, 1, None], "u": [0, 1, None]}
"""Elements that replace one of a sample; None: the least, or the greatest, of the type."""
NO_SIZES = {"Range", "Iota", "DynamicIota"}
"""Ops whose operands say how large the result is."""

NOT_DRAWN = {"Absent", "Tuple", "Shape", "RegexFullMatch", "StringConcat", "StringSplit"}
"""Ops whose operands are strings, or whose result is known as soon as it is built."""


def raised(array: Array, rng: np.random.Generator) -> Array:
    """A copy with a few special elements, all of them of one sign, or one special element everywhere."""
    choices = SPECIAL.get(array.dtype.kind)
    if choices is None or not array.size or array.dtype.itemsize < 2:
        return array
    result = np.array(array)
    kind = rng.integers(6)
    if kind < 2:
        return np.asarray((np.abs(result) + 1) * (-1) ** kind if result.dtype.kind != "u" else result, result.dtype)
    for _ in range(1 if kind == 2 else rng.integers(3)):
        chosen: Any = choices[rng.integers(len(choices))]
        if chosen is None:
            limits = np.iinfo(result.dtype)
            chosen = limits.max if rng.integers(2) else limits.min
        with np.errstate(all="ignore"):
            result[... if kind == 2 else tuple(rng.integers(n) for n in result.shape)] = chosen
    return result


def inside(known: Facts, array: Array) -> bool:
    if not array.size or array.dtype.kind not in "iubf":
        return True
    numbers = array[~np.isnan(array)] if array.dtype.kind == "f" else array
    if numbers.size < array.size and not known.nan:
        return False
    if known.integral and (numbers != np.floor(numbers)).any():
        return False
    return not numbers.size or (known.low <= numbers.min().item() and numbers.max().item() <= known.high)


def of_inputs(
    op: type[Op], operands: Sequence[Any], attributes: dict[str, Any]
) -> tuple[Node | None, dict[Value, Facts]]:
    """A node of inputs (None where its result is known at once), and what of these the sample shows."""
    graph = Graph()
    values: list[Value | None] = []
    given = dict[Value, Facts]()
    for x in operands:
        if x is None or isinstance(x, Known):
            values.append(None if x is None else constant(x.array))
            continue
        array = np.asarray(x)
        value = graph.add_input(TensorType(dtype_of(array.dtype), array.shape))
        given[value] = replace(of_array(array), sizes=False)
        values.append(value)
    return Builder(graph).many(op, *values, **attributes)[0].producer, given


@pytest.mark.parametrize("name", sorted(OPS))
def test_results_are_inside_of_the_facts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPS[name]
    if op.compute is Op.compute:
        pytest.skip("no evaluation")
    checked, own = 0, facts._own
    for number, (operands, attributes) in enumerate(samples(op, SAMPLES)):
        rng = np.random.default_rng(number)
        moved = slice(0, 0) if name in NO_SIZES else slice(0, 2) if op.commutative else slice(0, 1)
        for i in range(len(operands))[moved]:
            if isinstance(operands[i], np.ndarray):
                operands[i] = raised(operands[i], rng)
        try:
            node, given = of_inputs(op, operands, attributes)
            if node is None:  # folded at once
                continue
            results = evaluate_node(node, [x.array if isinstance(x, Known) else x for x in operands])
        except (OnnxtflError, ValueError, TypeError, NotImplementedError, OverflowError):
            continue  # operands that only this op's own draws could make
        monkeypatch.setattr(facts, "_own", lambda value, given=given: given.get(value) or own(value))
        for value, array in zip(node.results, results, strict=True):
            known = facts_of(value)
            assert inside(known, array), (known, of_array(array), operands, attributes)
            checked += 1
    assert checked or name in NOT_DRAWN, "no sample was evaluated"


_INTEGERS = {
    "truncated": (intervals.quotient, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "down": (partial(intervals.quotient, down=True), lambda a, b: a // b),
    "remainder": (intervals.remainder, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)),
    "modulus": (intervals.modulus, lambda a, b: a % b),
}


@pytest.mark.parametrize("name", _INTEGERS)
def test_divisions_of_all_small_intervals(name: str) -> None:
    facts_from, function = _INTEGERS[name]
    ranges = [(low, high) for low in range(-4, 5) for high in range(low, 5)]
    for (a, b), (c, d) in product(ranges, ranges):
        found = [function(x, y) for x in range(a, b + 1) for y in range(c, d + 1) if y]
        known = facts_from(Facts(a, b, False, True), Facts(c, d, False, True))
        assert not found or (known.low <= min(found) and max(found) <= known.high), ((a, b), (c, d), known)


@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.moves is not None))
def test_ops_that_move_elements_pass_on_what_is_known(name: str) -> None:
    op = OPS[name]
    for operands, attributes in samples(op, 4):
        graph = Graph()
        b = Builder(graph)
        moved = range(len(operands))[op.moves or slice(0)]
        values: list[Any] = []
        for i, x in enumerate(operands):
            array = x.array if isinstance(x, Known) else x
            if i in moved and array is not None:
                value = graph.add_input(tensor("float32", *np.shape(array)))
                values.append(b(ops.Clamp, value, *(b.scalar(v, value) for v in (0.0, 3.0))))
            else:
                values.append(None if i in moved or array is None else constant(array))
        if "value" in (o.name for o in op.operands):
            values[2] = None
        if not any(v is not None and not v.is_constant for v in values):
            continue
        for result in b.many(op, *values, **attributes):
            assert facts_of(result) == Facts(0.0, 3.0, True), (operands, attributes)


def test_integers_that_wrap_are_not_known() -> None:
    graph = Graph()
    b = Builder(graph)
    x = b(ops.Max, graph.add_input(tensor("int32", 4)), constant(np.asarray(0, np.int32)))
    assert never_negative(x) and not never_negative(b(ops.Add, x, x)) and not never_negative(b(ops.Mul, x, x))
    small = b(ops.Convert, graph.add_input(tensor("uint8", 4)), dtype=DType.INT32)
    assert facts_of(b(ops.Mul, small, small)) == Facts(0, 255**2, False, True)
    assert facts_of(b(ops.Convert, small, dtype=DType.INT8)) == Facts(-128, 127, False, True)
    least = constant(np.asarray([-(2**31)], np.int32))
    assert facts_of(b(ops.Abs, b(ops.Min, x, least))).low == -(2**31)


def test_a_negative_zero_may_divide() -> None:
    graph = Graph()
    b = Builder(graph)
    x = b(ops.Relu, graph.add_input(tensor("float32", 4)))
    assert facts_of(b(ops.Div, b.scalar(1.0, x), x)).low == -math.inf
    assert facts_of(b(ops.Div, x, b(ops.Add, x, b.scalar(1.0, x)))).low == 0


def test_sizes_of_axes_fit_int32() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, None))
    sizes = b(ops.Shape, x)
    assert fits_int32(sizes) and max_magnitude(b(ops.Mul, sizes, sizes)) == (2**31 - 1) ** 2
    assert fits_int32(b(ops.ArgMax, x, axis=0)) and fits_int32(b(ops.NonZero, x))
    assert not fits_int32(b(ops.Add, sizes, b.scalar(1, sizes)))


def test_a_size_fits_int32_whatever_it_is_computed_from() -> None:
    b = Builder(Graph())
    sizes = b(ops.Shape, b.graph.add_input(TensorType(DType.FLOAT32, (symbol("n") * 3, 4))))
    assert facts_of(sizes) == SIZES


def test_integers_computed_from_named_sizes_are_bounded() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, (symbol("n"), symbol("m"), 4)))
    sizes = b(ops.Shape, x)
    n, m, four = (b(ops.Gather, sizes, np.asarray(i), axis=0) for i in range(3))
    most = 2**31 - 1
    assert facts_of(n) == SIZES and facts_of(four) == Facts(4, 4, False, True) and facts_of(sizes) == SIZES
    half, product = b(ops.Div, n, b.scalar(2, n)), b(ops.Mul, n, m)
    assert facts_of(half).high == most // 2 and facts_of(product).high == most**2
    assert facts_of(b(ops.Sub, half, m)) == Facts(-most, most // 2, False, True)
    assert facts_of(b(ops.Div, product, four)) == Facts(0, most**2 // 4, False, True)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("n - 3*((n)//3)", 0, 2),
        ("3*((n + 2)//3) - n", 0, 2),
        ("-3*((-n)//3) - n + 1", 1, 3),
        ("4*((n)//2) - 2*n", -2, 0),
        ("2*((n)//3)", 0, 2 * (2**31 - 1) // 3),
    ],
)
def test_multiples_of_quotients_of_sizes(text: str, low: int, high: int) -> None:
    """The remainder is less than the divisor."""
    found = intervals.of_dim(parse_dim(text))
    assert found.low == low and found.high == high


def test_real_values_of_quantized_ones_are_within_what_is_stored() -> None:
    type_ = TensorType(DType.FLOAT32, (4,), Quantization("uint8", (0.5,), (0,)))
    x = Graph().add_input(type_)
    assert never_negative(x) and 127 < facts_of(x).high < 128 and not facts_of(x).nan
    signed = Graph().add_input(type_.stored_as(Quantization("int8", (0.5,), (0,))))
    assert not never_negative(signed)
    endless = Graph().add_input(type_.stored_as(Quantization("uint8", (math.inf,), (0,))))
    assert facts_of(endless) == Facts()


def test_what_is_defined_is_not_nan() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, (4,), Quantization("int8", (0.5,), (0,))))
    assert facts_of(b(ops.Log, x)).nan and not facts_of(b(ops.Log, b(ops.Relu, x))).nan
    assert facts_of(b(ops.Floor, x)).integral and not facts_of(b(ops.Exp, x)).nan
    assert facts_of(b(ops.Reshape, b(ops.Tanh, x), [2, 2])).high <= 1


def test_arithmetic_of_sizes_is_assumed_not_to_wrap_in_their_types() -> None:
    b = Builder(Graph())
    sizes = b(ops.Shape, b.graph.add_input(TensorType(DType.FLOAT32, None)), dtype=DType.INT32)
    product = b(ops.Mul, b(ops.Add, sizes, b.scalar(1, sizes)), sizes)
    assert never_negative(product)
    assert facts_of(b(ops.Convert, product, dtype=DType.UINT8)) == Facts(0, 255, False, True)
    assert facts_of(b(ops.Convert, product, dtype=DType.INT8)) == Facts(-128, 127, False, True)


def test_inserted_elements_count() -> None:
    b = Builder(Graph())
    x = b(ops.Clamp, b.graph.add_input(tensor("int32", 4)), *(constant(np.asarray(v, np.int32)) for v in (2, 5)))
    assert facts_of(b(ops.Pad, x, np.asarray([[1, 0]]), None)) == Facts(0, 5, False, True)
    assert facts_of(b(ops.Pad, x, np.asarray([[1, 0]]), np.asarray(9, np.int32))) == Facts(2, 9, False, True)
    assert facts_of(b(ops.Pad, x, np.asarray([[1, 0]]), None, mode="edge")) == Facts(2, 5, False, True)
    rows = b(ops.Reshape, x, [2, 2])
    assert facts_of(b(ops.Trilu, rows, None, upper=True)) == Facts(0, 5, False, True)
    assert facts_of(b(ops.Reduce, x, [0], kind="sum", keepdims=False)) == Facts(0, 20, False, True)


def test_rounding_to_steps_keeps_the_sign() -> None:
    b = Builder(Graph())
    x = b.graph.add_input(TensorType(DType.FLOAT32, (4,), Quantization("int8", (0.5,), (3,))))
    y = b(ops.Relu, x)
    y.type = x.type
    assert facts_of(y) == replace(facts_of(x), low=0.0)
    z = b(ops.Sqrt, x)
    z.type = x.type
    assert not never_negative(z), "what NaN becomes depends on the runtime"
