"""StableHLO ops in .tflite files, which no runtime has a kernel for, against NumPy: in ONNX Runtime, and folded."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType, dtype_of
from tests.harness.litert import run_onnx

INF, NAN = np.inf, np.nan
FLOATS = ["float32", "float16", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 0, 3), (2, 3, 1, 2)]


def model(op: str, inputs: Sequence[Array], wanted: Sequence[Array], folded: bool = False, **options: Any) -> bytes:
    """A .tflite file of one op with the types of `inputs` and `wanted`; `folded`: the operands are constants."""
    graph = Graph()
    operands: list[Any] = list(inputs)
    if not folded:
        operands = [graph.add_input(TensorType(dtype_of(a.dtype), a.shape), f"in{i}") for i, a in enumerate(inputs)]
    types = [TensorType(dtype_of(a.dtype), a.shape) for a in wanted]
    graph.outputs = Builder(graph).foreign("tfl", f"STABLEHLO_{op}", operands, types, 1, **options)
    for i, value in enumerate(graph.outputs):
        value.name = f"out{i}"
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue()


def converted(data: bytes, **options: Any) -> bytes:
    made = onnxtfl.tflite_to_onnx(data, check=False, **options).data
    assert made is not None
    return made


def region(inputs: Sequence[str], build: Callable[..., Any]) -> Graph:
    """A subgraph with scalar inputs of these element types, whose outputs `build` returns; it adds ops by name."""
    graph = Graph()
    values = [graph.add_input(TensorType(dtype_of(np.dtype(d)), ()), f"arg{i}") for i, d in enumerate(inputs)]

    def op(name: str, *operands: Any, dtype: str | None = None, **options: Any) -> Any:
        type_ = TensorType(operands[0].dtype if dtype is None else dtype_of(np.dtype(dtype)), ())
        return Builder(graph).foreign("tfl", f"STABLEHLO_{name}", list(operands), [type_], 1, **options)[0]

    outputs = build(op, *values)
    graph.outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    return graph


def check(op: str, inputs: Sequence[Any], *wanted: Any, error: float = 2e-6, **options: Any) -> None:
    """Convert, run in ONNX Runtime with inputs and with constants, and compare types and elements."""
    arrays, expected = [np.asarray(a) for a in inputs], [np.asarray(a) for a in wanted]
    feed = {f"in{i}": a for i, a in enumerate(arrays)}
    for folded in (False, True):
        data = converted(model(op, arrays, expected, folded, **fresh(options)))
        results = list(run_onnx(data, {} if folded else feed).values())
        assert len(results) == len(expected)
        for found, array in zip(results, expected, strict=True):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            if array.dtype.kind == "f":
                error = max(error, 2 * float(np.finfo(array.dtype).eps))
                np.testing.assert_allclose(found, array, rtol=error, atol=error if error >= 1e-5 else 1e-12)
            else:
                np.testing.assert_array_equal(found, array)


def fresh(options: dict[str, Any]) -> dict[str, Any]:
    """The options with new graphs of those that are functions."""
    return {name: value() if callable(value) else value for name, value in options.items()}


def sample(dtype: str, *shape: int, seed: int = 0, low: float = -3, high: float = 3) -> Array:
    """Random elements; integers from the whole range."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return random.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    return np.asarray(random.uniform(low, high, shape)).astype(kind)


def ends(dtype: str) -> Array:
    """The extreme and the small integers of a type."""
    info = np.iinfo(dtype)
    found = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, info.max // 2]
    return np.asarray([*found, *([-1, -2, -3, -7] if info.min else [])], dtype)


# --- elementwise -----------------------------------------------------------------------------------------------------

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 27.0, -8.0, 1e-30, -1e30, INF, -INF, NAN]


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "ABS": np.abs,
    "CBRT": np.cbrt,
    "COSINE": lambda x: np.cos(np.clip(x, -1e4, 1e4)),
    "EXPONENTIAL": np.exp,
    "FLOOR": np.floor,
    "LOG": np.log,
    "LOGISTIC": logistic,
    "NEGATE": np.negative,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "TANH": np.tanh,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_of_floats(op: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        x = np.asarray(EDGES).astype(dtype)
        x = x[np.abs(x) < 1e4] if op == "COSINE" else x
        wanted = FUNCTIONS[op](x.astype(np.float64)).astype(dtype)
        error = 2e-5 if op == "LOGISTIC" else 2e-6
        check(op, [x], wanted, error=2e-3 if dtype == "float16" else error)


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_any_shape(op: str, shape: tuple[int, ...]) -> None:
    x = sample("float32", *shape, low=0.1)
    check(op, [x], FUNCTIONS[op](x).astype(np.float32))


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_of_bfloat16_load(op: str) -> None:
    x = sample("float32", 5, low=0.1).astype(ml_dtypes.bfloat16)
    assert converted(model(op, [x], [x]))


@pytest.mark.parametrize("op", ["SUBTRACT", "DIVIDE", "REMAINDER", "POWER", "CLAMP"])
def test_arithmetic_of_bfloat16_loads(op: str) -> None:
    x = sample("float32", 5, low=0.1).astype(ml_dtypes.bfloat16)
    assert converted(model(op, [x] * (3 if op == "CLAMP" else 2), [x]))


@pytest.mark.parametrize("dtype", SIGNED)
def test_functions_of_integers(dtype: str) -> None:
    x = ends(dtype)
    check("ABS", [x], np.abs(x))
    check("NEGATE", [x], np.negative(x))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_negated_unsigned_integers_wrap(dtype: str) -> None:
    check("NEGATE", [ends(dtype)], np.negative(ends(dtype)))


def as_pairs(x: Array) -> Array:
    """Complex elements as a trailing axis of two real ones, which ONNX models have."""
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


def complex_sum() -> Graph:
    return region(["complex64"] * 2, lambda g, a, b: g("ADD", a, b))


def test_complex_numbers() -> None:
    x = np.asarray([[3 + 4j, -1j, 1], [-2.5 + 1j, 0.5, 2 - 2j]], np.complex64)
    y, start = x[::-1] * np.complex64(1j), np.asarray(1j, np.complex64)
    places = [np.asarray(i, np.int32) for i in (1, 0)]
    cases: list[tuple[str, list[Array], Array, dict[str, Any]]] = [
        ("ABS", [x], np.abs(x), {}),
        ("NEGATE", [x], -x, {}),
        ("SUBTRACT", [x, y], x - y, {}),
        ("DIVIDE", [x, y], x / y, {}),
        ("SELECT", [np.asarray(True), x, y], x, {}),
        ("CONVERT", [x], x.real.copy(), {}),
        ("CONVERT", [x.real.copy()], x.real.astype(np.complex64), {}),
        ("RESHAPE", [x], x.reshape(3, 2), {}),
        ("TRANSPOSE", [x], x.T, {"permutation": [1, 0]}),
        ("CONCATENATE", [x, y], np.concatenate([x, y]), {}),
        ("BROADCAST_IN_DIM", [x[0]], np.stack([x[0], x[0]]), {"broadcast_dimensions": [1]}),
        ("IOTA", [], np.arange(3).astype(np.complex64), {"iota_dimension": 0}),
        ("DYNAMIC_SLICE", [x, *places], x[1:, :2], {"slice_sizes": [1, 2]}),
        ("DYNAMIC_UPDATE_SLICE", [x, x[:1], *places], np.stack([x[0], x[0]]), {}),
        ("DOT_GENERAL", [x, y], x @ y.T, dot_options([], [(1, 1)])),
        ("REDUCE", [x, start], x.sum(1) + start, {"dimensions": [1], "body_subgraph_index": complex_sum}),
    ]
    for op, inputs, wanted, options in cases:
        data = converted(model(op, inputs, [wanted], **fresh(options)))
        found = run_onnx(data, {f"in{i}": as_pairs(a) for i, a in enumerate(inputs)})["out0"]
        np.testing.assert_allclose(found, as_pairs(wanted), rtol=1e-5, atol=1e-6)
    with pytest.raises(onnxtfl.UnsupportedError, match="cannot be complex64"):
        converted(model("TANH", [x], [x]))


def grid(dtype: str) -> tuple[Array, Array]:
    """All pairs of the extreme integers of a type."""
    x, y = np.meshgrid(ends(dtype), ends(dtype))
    return x.reshape(-1).copy(), y.reshape(-1).copy()


def divided(x: Array, y: Array) -> tuple[Array, Array]:
    """Quotient and remainder by Python's integers; a divisor of 0 as in XLA."""
    info = np.iinfo(x.dtype)
    quotients, remainders = [], []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        q = (-1 if info.min else info.max) if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        quotients.append(q if q <= info.max else info.min)
        remainders.append(a if b == 0 else a - q * b)
    return np.asarray(quotients, x.dtype), np.asarray(remainders, x.dtype)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_quotients_of_integers(dtype: str) -> None:
    x, y = grid(dtype)
    quotients, remainders = divided(x, y)
    check("DIVIDE", [x, y], quotients)
    check("REMAINDER", [x, y], remainders)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_differences_and_clamped_integers(dtype: str) -> None:
    x, y = grid(dtype)
    with np.errstate(over="ignore"):
        check("SUBTRACT", [x, y], x - y)
    low, high = np.asarray(2, dtype), np.asarray(100, dtype)
    check("CLAMP", [low, x, high], np.clip(x, low, high))
    check("CLAMP", [np.minimum(x, y), x[::-1].copy(), y], np.minimum(np.maximum(x[::-1], np.minimum(x, y)), y))


def powers(x: Array, y: Array) -> Array:
    """Powers by Python's integers modulo the size of the type."""
    bits = np.iinfo(x.dtype).bits
    found = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        value = pow(a, b, 1 << bits) if b >= 0 else (1 if a == 1 else (-1) ** (b % 2) if a == -1 else 0)
        found.append(value % (1 << bits))
    unsigned = np.asarray(found, f"uint{bits}")
    return unsigned.view(x.dtype)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_powers_of_integers(dtype: str) -> None:
    x, y = grid(dtype)
    kept = (np.abs(y.astype(np.float64)) < 64) | np.isin(x, np.asarray([0, 1, -1] if x.min() else [0, 1], x.dtype))
    check("POWER", [x[kept], y[kept]], powers(x[kept], y[kept]))
    check("POWER", [x[0], np.asarray(3, dtype)], powers(x[:1], np.asarray([3], dtype))[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_functions_of_floats(dtype: str) -> None:
    x, y = (
        a.reshape(-1).astype(dtype)
        for a in np.meshgrid([0, -0.0, 1, -1.5, 2, 7.25, INF, -INF, NAN], [0.5, -2, 3, INF, NAN])
    )
    wide = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        error = 2e-3 if dtype == "float16" else 2e-6
        check("SUBTRACT", [x, y], (wide[0] - wide[1]).astype(dtype), error=error)
        check("DIVIDE", [x, y], (wide[0] / wide[1]).astype(dtype), error=error)
        check("REMAINDER", [x, y], np.fmod(*wide).astype(dtype), error=error)
        check("POWER", [x, y], np.power(*wide).astype(dtype), error=error)


@pytest.mark.parametrize("shape", SHAPES)
def test_binary_functions_of_any_shape(shape: tuple[int, ...]) -> None:
    x, y = sample("float32", *shape), sample("float32", *shape, seed=1, low=0.5)
    check("SUBTRACT", [x, y], x - y)
    check("DIVIDE", [x, y], x / y)
    check("REMAINDER", [x, y], np.fmod(x, y))
    check("POWER", [np.abs(x), y], np.abs(x) ** y)
    n, m = sample("int32", *shape), sample("int32", *shape, seed=1)
    check("REMAINDER", [n, m], np.fmod(n, m))
    check("OR", [n, m], n | m)


@pytest.mark.parametrize("dtype", FLOATS)
def test_clamped_floats(dtype: str) -> None:
    x = np.asarray([-INF, -2, -0.5, 0.25, 3, INF, NAN], dtype)
    low, high = np.asarray(-1, dtype), np.asarray(2, dtype)
    check("CLAMP", [low, x, high], np.minimum(np.maximum(x, low), high))
    check("CLAMP", [high, x, low], np.minimum(np.maximum(x, high), low))
    lows, highs = np.asarray([-1, 0, 1, NAN, -INF, 0, 0], dtype), np.full(7, 1.5, dtype)
    check("CLAMP", [lows, x, highs], np.minimum(np.maximum(x, lows), highs))
    check("CLAMP", [low, np.asarray(9, dtype), high], high)


@pytest.mark.parametrize("dtype", ["bool", *SIGNED, *UNSIGNED])
def test_or(dtype: str) -> None:
    x, y = sample(dtype, 4, 5), sample(dtype, 4, 5, seed=1)
    check("OR", [x, y], x | y)
    check("OR", [x[0, 0], y[0, 0]], x[0, 0] | y[0, 0])
    check("OR", [x[:0], y[:0]], x[:0])


@pytest.mark.parametrize("dtype", ["bool", *FLOATS, *SIGNED, *UNSIGNED])
def test_selection(dtype: str) -> None:
    x, y = sample(dtype, 2, 3), sample(dtype, 2, 3, seed=1)
    pred = np.asarray([[True, False, True], [False, False, True]])
    check("SELECT", [pred, x, y], np.where(pred, x, y))
    check("SELECT", [np.asarray(True), x, y], x)
    check("SELECT", [np.asarray(False), x, y], y)
    check("SELECT", [np.asarray(False), x[0, 0], y[0, 0]], y[0, 0])
    check("SELECT", [pred[:0], x[:0], y[:0]], x[:0])


# --- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["bool", *FLOATS, *SIGNED, *UNSIGNED])
def test_conversions(after: str) -> None:
    floats = [0.0, -0.0, 0.9, -0.9, 1.5, 100.7] + ([] if after.startswith("u") else [-1.5, -100.7])
    for before in FLOATS:
        x = np.asarray(floats, before)
        check("CONVERT", [x], x != 0 if after == "bool" else x.astype(after))
    for before in (*SIGNED, *UNSIGNED):
        x = ends(before)
        with np.errstate(over="ignore"):
            check("CONVERT", [x], x != 0 if after == "bool" else x.astype(after))
    check("CONVERT", [np.asarray([[True], [False]])], np.asarray([[1], [0]]).astype(after))
    check("CONVERT", [np.zeros((2, 0), np.float32)], np.zeros((2, 0), after))
    check("CONVERT", [np.asarray(1.0, np.float32)], np.asarray(1, after))


def test_nan_and_infinity_are_true() -> None:
    check("CONVERT", [np.asarray([NAN, INF, 1e-45, 0], np.float32)], np.asarray([True, True, True, False]))


# --- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "bool"])
@pytest.mark.parametrize(
    ("before", "after"), [((2, 6), (3, 4)), ((1,), ()), ((), (1, 1)), ((0, 3), (2, 0)), ((8,), (2, 2, 2))]
)
def test_reshape(before: tuple[int, ...], after: tuple[int, ...], dtype: str) -> None:
    x = sample(dtype, *before)
    check("RESHAPE", [x], x.reshape(after))


@pytest.mark.parametrize("axes", [(), (0,), (1, 0), (2, 0, 1), (3, 1, 0, 2)])
def test_transpose(axes: tuple[int, ...]) -> None:
    x = sample("int32", *(2, 3, 4, 5)[: len(axes)])
    check("TRANSPOSE", [x], x.transpose(axes), permutation=list(axes))
    check("TRANSPOSE", [x[..., :0] if axes else x], (x[..., :0] if axes else x).transpose(axes), permutation=list(axes))


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_concatenate(dtype: str) -> None:
    x = sample(dtype, 2, 3, 2)
    check("CONCATENATE", [x, x[:1]], np.concatenate([x, x[:1]]), dimension=0)
    check("CONCATENATE", [x, x[:, :0], x[:, :1]], np.concatenate([x, x[:, :1]], 1), dimension=1)
    check("CONCATENATE", [x], x, dimension=2)


@pytest.mark.parametrize(
    ("before", "places", "after"),
    [
        ((), [], (2, 3)),
        ((), [], ()),
        ((3,), [1], (2, 3)),
        ((2,), [0], (2, 3)),
        ((1, 3), [0, 2], (4, 2, 3)),
        ((2, 3), [2, 0], (3, 4, 2)),
        ((1, 3), [1, 0], (3, 2)),
        ((1,), [0], (0,)),
        ((2, 1, 2), [0, 2, 3], (2, 2, 3, 2)),
    ],
)
def test_broadcast_in_dim(before: tuple[int, ...], places: list[int], after: tuple[int, ...]) -> None:
    x = sample("float32", *before)
    order = sorted(range(len(places)), key=places.__getitem__)
    spread = [before[places.index(i)] if i in places else 1 for i in range(len(after))]
    check(
        "BROADCAST_IN_DIM", [x], np.broadcast_to(x.transpose(order).reshape(spread), after), broadcast_dimensions=places
    )


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, *UNSIGNED])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 3), 0), ((2, 3), 1), ((2, 0, 3), 2), ((2, 3, 1, 4), 1)])
def test_iota(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    wanted = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    check("IOTA", [], wanted.astype(dtype), iota_dimension=axis)


# --- slices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "uint64"])
def test_slices(dtype: str) -> None:
    x = sample(dtype, 4, 5)
    for starts, limits, strides in (([1, 0], [3, 5], [1, 2]), ([0, 4], [4, 5], [3, 1]), ([2, 5], [2, 5], [1, 1])):
        part = x[tuple(map(slice, starts, limits, strides))]
        check("SLICE", [x], part, start_indices=starts, limit_indices=limits, strides=strides)
    check("SLICE", [x[0, 0]], x[0, 0], start_indices=[], limit_indices=[], strides=[])


@pytest.mark.parametrize("starts", [(0, 0), (1, 2), (-5, 9), (2, -1), (100, 100)])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_dynamic_slices_are_clamped(starts: tuple[int, int], dtype: str) -> None:
    x, update = sample("float32", 4, 5), sample("float32", 2, 3, seed=1)
    i, j = min(max(starts[0], 0), 2), min(max(starts[1], 0), 2)
    updated = x.copy()
    updated[i : i + 2, j : j + 3] = update
    scalars = [np.asarray(s, dtype) for s in starts]
    check("DYNAMIC_SLICE", [x, *scalars], x[i : i + 2, j : j + 3], slice_sizes=[2, 3])
    check("DYNAMIC_UPDATE_SLICE", [x, update, *scalars], updated)
    check("DYNAMIC_SLICE", [x, np.asarray(starts, dtype)], x[i : i + 2, j : j + 3], slice_sizes=[2, 3])


def test_dynamic_slices_of_unsigned_starts() -> None:
    x = sample("int32", 6)
    for dtype in UNSIGNED:
        start = np.asarray(np.iinfo(dtype).max, dtype)
        check("DYNAMIC_SLICE", [x, start], x[4:], slice_sizes=[2])
        check("DYNAMIC_UPDATE_SLICE", [x, x[:2].copy(), start], np.concatenate([x[:4], x[:2]]))


def test_dynamic_slices_of_scalars_and_empty_parts() -> None:
    x = np.asarray(3, np.int32)
    check("DYNAMIC_SLICE", [x], x, slice_sizes=[])
    check("DYNAMIC_UPDATE_SLICE", [x, x + 1], x + 1)
    row = sample("float32", 4)
    check("DYNAMIC_SLICE", [row, np.asarray(2, np.int32)], row[:0], slice_sizes=[0])
    check("DYNAMIC_UPDATE_SLICE", [row, row[:0], np.asarray(2, np.int32)], row)


# --- comparisons -----------------------------------------------------------------------------------------------------

DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def compare_options(direction: str, kind: str) -> dict[str, str]:
    return {
        "comparison_direction": f"STABLEHLO_COMPARISON_DIRECTION_{direction}",
        "compare_type": f"STABLEHLO_COMPARISON_TYPE_{kind}",
    }


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["bool", *FLOATS, *SIGNED, *UNSIGNED])
def test_comparisons(dtype: str, direction: str) -> None:
    if dtype == "bool":
        x, y = np.asarray([False, False, True, True]), np.asarray([False, True, False, True])
    elif dtype in FLOATS:
        x, y = (
            a.reshape(-1).astype(dtype) for a in np.meshgrid([0, -0.0, 1.5, INF, -INF, NAN], [0, -0.0, -1, INF, NAN])
        )
    else:
        x, y = grid(dtype)
    kind = "FLOAT" if dtype in FLOATS else "SIGNED" if dtype in SIGNED else "UNSIGNED"
    compare = DIRECTIONS[direction]
    check("COMPARE", [x, y], compare(x, y), **compare_options(direction, kind))
    check("COMPARE", [x[:0], y[:0]], x[:0] != 0, **compare_options(direction, "NOTYPE"))
    check("COMPARE", [x[1], y[1]], np.asarray(compare(x[1], y[1])), **compare_options(direction, kind))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_total_order_of_floats(dtype: str, direction: str) -> None:
    ordered = np.asarray([-NAN, -INF, -1e4, -1, -6e-8, -0.0, 0.0, 6e-8, 2, 1e4, INF, NAN], dtype)
    ordered[0] = np.copysign(ordered[0], -1)
    i, j = (a.reshape(-1) for a in np.meshgrid(np.arange(len(ordered)), np.arange(len(ordered))))
    wanted = DIRECTIONS[direction](i, j)
    check("COMPARE", [ordered[i], ordered[j]], wanted, **compare_options(direction, "FLOAT_TOTAL_ORDER"))


def test_complex_numbers_are_equal_in_both_parts() -> None:
    x, y = np.asarray([1 + 2j, 1 + 2j, 0, 3j], np.complex64), np.asarray([1 + 2j, 1 - 2j, 1, 3j], np.complex64)
    pairs = {f"in{i}": np.stack([a.real, a.imag], -1) for i, a in enumerate((x, y))}
    for direction, wanted in (("EQ", x == y), ("NE", x != y)):
        data = converted(model("COMPARE", [x, y], [wanted], **compare_options(direction, "FLOAT")))
        np.testing.assert_array_equal(run_onnx(data, pairs)["out0"], wanted)


# --- products --------------------------------------------------------------------------------------------------------


def dot(x: Array, y: Array, batch: Sequence[tuple[int, int]], contract: Sequence[tuple[int, int]]) -> Array:
    """DOT_GENERAL by NumPy's einsum."""
    letters = iter("abcdefghijkl")
    left, right = [""] * x.ndim, [""] * y.ndim
    for i, j in (*batch, *contract):
        left[i] = right[j] = next(letters)
    left = [c or next(letters) for c in left]
    right = [c or next(letters) for c in right]
    free = [c for c in left if c not in right] + [c for c in right if c not in left]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join([left[i] for i, _ in batch] + free)}", x, y)


def dot_options(batch: Sequence[tuple[int, int]], contract: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    named = (("batching", batch), ("contracting", contract))
    return {f"{s}_{k}_dimensions": [p[i] for p in pairs] for k, pairs in named for i, s in enumerate(("lhs", "rhs"))}


PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], list[tuple[int, int]]]] = [
    ((), (), [], []),
    ((3,), (3,), [], [(0, 0)]),
    ((2, 3), (4, 3), [], [(1, 1)]),
    ((2, 3), (4,), [], []),
    ((3, 2), (3, 4), [], [(0, 0)]),
    ((2, 3, 4), (4, 2, 5), [(0, 1)], [(2, 0)]),
    ((3, 2, 5, 4), (4, 5, 3, 2), [(1, 3), (0, 2)], [(3, 0), (2, 1)]),
    ((2, 3, 4), (4, 3), [], [(2, 0), (1, 1)]),
    ((2, 3), (2, 3), [(0, 0), (1, 1)], []),
    ((2, 0), (0, 3), [], [(1, 0)]),
    ((0, 2), (2, 3), [], [(1, 0)]),
]


@pytest.mark.parametrize(("left", "right", "batch", "contract"), PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_dot_general(left: Any, right: Any, batch: Any, contract: Any, dtype: str) -> None:
    x, y = sample(dtype, *left), sample(dtype, *right, seed=1)
    check("DOT_GENERAL", [x, y], dot(x, y, batch, contract), error=1e-5, **dot_options(batch, contract))


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, *UNSIGNED])
def test_dot_general_of_all_types(dtype: str) -> None:
    x, y = sample(dtype, 3, 4), sample(dtype, 4, 2, seed=1)
    wanted = np.matmul(x.astype("float64"), y.astype("float64")).astype(dtype) if dtype in FLOATS else x @ y
    options = dot_options([], [(1, 0)])
    check("DOT_GENERAL", [x, y], wanted, error=4e-3 if dtype == "float16" else 1e-5, **options)


def test_dot_general_with_a_wider_result() -> None:
    options = dot_options([], [(1, 0)])
    x, y = sample("int8", 3, 40), sample("int8", 40, 2, seed=1)
    check("DOT_GENERAL", [x, y], x.astype("int32") @ y.astype("int32"), **options)
    x, y = sample("float16", 3, 4), sample("float16", 4, 2, seed=1)
    check("DOT_GENERAL", [x, y], x.astype("float32") @ y.astype("float32"), **options, error=1e-5)
    p, q = sample("bool", 3, 4), sample("bool", 4, 2, seed=1)
    check("DOT_GENERAL", [p, q], p @ q, **options)


# --- convolutions ----------------------------------------------------------------------------------------------------


def padded(x: Array, low: Sequence[int], high: Sequence[int], dilation: Sequence[int]) -> Array:
    """Insert zeros between elements, then pad (negative: crop) the axes after the first two."""
    for i, (before, after, step) in enumerate(zip(low, high, dilation, strict=True), 2):
        n = x.shape[i]
        wide = np.zeros((*x.shape[:i], (n - 1) * step + 1, *x.shape[i + 1 :]), x.dtype)
        wide[(slice(None),) * i + (slice(None, None, step),)] = x
        size = wide.shape[i] + before + after
        places = np.arange(size) - before
        inside = (places >= 0) & (places < wide.shape[i])
        taken = np.take(wide, np.clip(places, 0, wide.shape[i] - 1), i)
        x = np.where(inside.reshape([-1 if a == i else 1 for a in range(x.ndim)]), taken, 0).astype(x.dtype)
    return x


def convolution(x: Array, w: Array, **o: Any) -> Array:
    """[n, c, ...] and [o, i, ...] as StableHLO defines it, position by position."""
    rank = x.ndim - 2
    x = padded(x, o["padding"][::2], o["padding"][1::2], o["lhs_dilation"])
    w = np.flip(w, [a + 2 for a in range(rank) if o["window_reversal"][a]])
    groups, parts = o["feature_group_count"], o["batch_group_count"]
    if parts > 1:
        pieces = zip(np.split(x, parts, 0), np.split(w, parts, 0), strict=True)
        return np.concatenate([_positions(a, k, o) for a, k in pieces], 1)
    pieces = zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([_positions(a, k, o) for a, k in pieces], 1)


def _positions(x: Array, w: Array, o: dict[str, Any]) -> Array:
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], o["rhs_dilation"], strict=True)]
    strides = o["window_strides"]
    counts = [max(0, (n - s) // t + 1) for n, s, t in zip(x.shape[2:], spans, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *counts), x.dtype)
    for at in np.ndindex(*counts):
        rows = zip(at, strides, spans, o["rhs_dilation"], strict=True)
        part = x[(slice(None), slice(None), *(slice(i * t, i * t + s, d) for i, t, s, d in rows))]
        axes = list(range(1, x.ndim))
        y[(slice(None), slice(None), *at)] = np.tensordot(part, w, (axes, axes))
    return y


def convolve_options(x: Array, given: dict[str, Any], orders: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
    """All attributes of a convolution whose input, kernel and output have their roles in `orders` (channels first)."""
    rank = x.ndim - 2
    ones, plain = [1] * rank, list(range(x.ndim))
    o = {"window_strides": ones, "padding": [0] * (2 * rank), "lhs_dilation": ones, "rhs_dilation": ones} | {
        "window_reversal": [False] * rank,
        "feature_group_count": 1,
        "batch_group_count": 1,
        **given,
    }
    inputs, kernels, outputs = orders or (plain, plain, plain)
    sides = {"input": inputs, "output": outputs}
    numbers: dict[str, Any] = {f"{s}_batch_dimension": list(a).index(0) for s, a in sides.items()}
    numbers |= {f"{s}_feature_dimension": list(a).index(1) for s, a in sides.items()}
    numbers |= {
        "kernel_output_feature_dimension": list(kernels).index(0),
        "kernel_input_feature_dimension": list(kernels).index(1),
    }
    spatial = {**sides, "kernel": kernels}
    numbers |= {f"{s}_spatial_dimensions": [list(a).index(i + 2) for i in range(rank)] for s, a in spatial.items()}
    return o | numbers


def convolve(x: Array, w: Array, orders: Sequence[Sequence[int]] = (), error: float = 1e-5, **given: Any) -> None:
    """Check a convolution by `convolution`."""
    options = convolve_options(x, given, orders or None)
    wanted = convolution(x, w, **options)
    inputs, kernels, outputs = orders or [list(range(x.ndim))] * 3
    check("CONVOLUTION", [x.transpose(inputs), w.transpose(kernels)], wanted.transpose(outputs), error=error, **options)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides": {"window_strides": [2, 3]},
    "padding": {"padding": [1, 2, 0, 3]},
    "cropped": {"padding": [-1, 2, 1, -2]},
    "all padding": {"padding": [-9, 12, 0, 0]},
    "transposed": {"lhs_dilation": [2, 3], "padding": [1, 1, 2, 2]},
    "dilated": {"rhs_dilation": [2, 1]},
    "reversed": {"window_reversal": [True, False]},
    "everything": {
        "window_strides": [2, 1],
        "padding": [2, -1, 3, 1],
        "lhs_dilation": [3, 2],
        "rhs_dilation": [1, 2],
        "window_reversal": [True, True],
    },
    "nothing left": {"padding": [-3, -3, 0, 0]},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_convolutions(name: str, dtype: str) -> None:
    x, w = sample(dtype, 2, 3, 7, 8), sample(dtype, 4, 3, 3, 2, seed=1)
    convolve(x, w, **CONVOLUTIONS[name])


@pytest.mark.parametrize(
    "orders",
    [([0, 2, 3, 1], [2, 3, 1, 0], [0, 2, 3, 1]), ([2, 3, 0, 1], [0, 2, 1, 3], [1, 0, 3, 2]), ([1, 3, 0, 2],) * 3],
)
def test_dimension_numbers(orders: Any) -> None:
    x, w = sample("float32", 2, 3, 7, 8), sample("float32", 4, 3, 3, 2, seed=1)
    convolve(x, w, orders, padding=[1, 0, 0, 2])
    convolve(sample("float32", 4, 3, 5, 6), w, orders, batch_group_count=2, window_strides=[2, 1])
    convolve(sample("float32", 2, 6, 5, 6), w, orders, feature_group_count=2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64"])
def test_convolutions_of_all_types_and_groups(dtype: str) -> None:
    x, w = sample(dtype, 2, 4, 5), sample(dtype, 6, 2, 3, seed=1)
    error = 2e-2 if dtype == "float16" else 1e-5
    convolve(x, w, feature_group_count=2, padding=[1, 1], error=error)
    convolve(sample(dtype, 4, 2, 5), w, batch_group_count=2, error=error)
    convolve(sample(dtype, 2, 4, 5), sample(dtype, 4, 1, 3, seed=2), feature_group_count=4, error=error)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_convolutions_of_other_ranks(dtype: str) -> None:
    convolve(sample(dtype, 2, 3), sample(dtype, 4, 3, seed=1))
    convolve(sample(dtype, 2, 3, 4, 5, 4), sample(dtype, 2, 3, 2, 2, 3, seed=1), padding=[0, 1, 1, 0, 0, 0])
    convolve(sample(dtype, 0, 3, 4), sample(dtype, 4, 3, 2, seed=1))
    convolve(sample(dtype, 2, 3, 2), sample(dtype, 4, 3, 5, seed=1))


def test_a_convolution_of_int8_with_a_result_of_int32() -> None:
    x, w = sample("int8", 1, 2, 5), sample("int8", 3, 2, 3, seed=1)
    o = {"window_strides": [1], "padding": [0, 0], "lhs_dilation": [1], "rhs_dilation": [1], "window_reversal": [False]}
    wanted = convolution(x.astype("int32"), w.astype("int32"), **o, feature_group_count=1, batch_group_count=1)
    numbers = {f"{s}_feature_dimension": 1 for s in ("input", "output")} | {"kernel_input_feature_dimension": 1}
    spatial = {f"{s}_spatial_dimensions": [2] for s in ("input", "kernel", "output")}
    groups = {"feature_group_count": 1, "batch_group_count": 1}
    check("CONVOLUTION", [x, w], wanted, **o, **numbers, **spatial, **groups)


# --- reductions ------------------------------------------------------------------------------------------------------

JOINS: dict[str, Callable[..., Any]] = {
    "ADD": np.add.reduce,
    "MULTIPLY": np.multiply.reduce,
    "MAXIMUM": np.maximum.reduce,
    "MINIMUM": np.minimum.reduce,
    "AND": np.bitwise_and.reduce,
    "OR": np.bitwise_or.reduce,
}


def reduce(x: Array, start: Array, op: str, axes: Sequence[int], **given: Any) -> None:
    """Check the reduction of one operand by one op."""
    wanted = JOINS[op](x, tuple(axes), dtype=x.dtype, initial=start.item())
    body = {"body_subgraph_index": lambda: region([x.dtype.name] * 2, lambda g, a, b: g(op, a, b))}
    check("REDUCE", [x, start], np.asarray(wanted), dimensions=list(axes), **body, **given)


JOINED = [
    *((op, dtype) for op in ("ADD", "MULTIPLY") for dtype in (*FLOATS, *SIGNED, *UNSIGNED)),
    *((op, dtype) for op in ("MAXIMUM", "MINIMUM") for dtype in ("bool", *FLOATS, *SIGNED, *UNSIGNED)),
    *((op, dtype) for op in ("AND", "OR") for dtype in ("bool", *SIGNED, *UNSIGNED)),
]


@pytest.mark.parametrize(("op", "dtype"), JOINED)
def test_reductions_by_one_op(op: str, dtype: str) -> None:
    x = sample(dtype, 2, 3, 4, low=0.5, high=1.5)
    if op in ("ADD", "MULTIPLY") and dtype not in FLOATS:
        x %= np.asarray(4, dtype)  # ONNX Runtime sums in double
    start = np.asarray(1, dtype)
    error = 1e-2 if dtype == "float16" else 1e-5
    reduce(x, start, op, [1], error=error)
    reduce(x, np.asarray(0, dtype), op, [0, 2], error=error)
    reduce(x[0, 0, 0], start, op, [])
    reduce(x[:0], start, op, [0])
    reduce(x, start, op, [])


def test_sums_and_products_of_bools_are_logic() -> None:
    x = np.asarray([[True, False, True], [False, False, False], [True, True, True]])
    for op, wanted in (("ADD", x.any(1)), ("MULTIPLY", x.all(1))):
        body = {"body_subgraph_index": lambda op=op: region(["bool"] * 2, lambda g, a, b: g(op, a, b))}
        check("REDUCE", [x, np.asarray(op == "MULTIPLY")], wanted, dimensions=[1], **body)


@pytest.mark.parametrize("op", ["MAXIMUM", "MINIMUM", "ADD"])
def test_reductions_keep_infinity(op: str) -> None:
    x = np.asarray([[1, -7, 2], [INF, 1, 0], [-INF, -3, -0.0], [-INF, -INF, -INF]], np.float32)
    for start in (-INF, INF, 0.0, -1e30):
        reduce(x, np.asarray(start, np.float32), op, [1])


def test_a_reduction_of_several_operands() -> None:
    x, n = sample("float32", 3, 5), sample("int8", 3, 5).astype("int32")
    body = {
        "body_subgraph_index": lambda: region(
            ["float32", "int32"] * 2, lambda g, a, m, b, n: (g("MAXIMUM", a, b), g("ADD", m, n))
        )
    }
    starts = [np.asarray(-INF, np.float32), np.asarray(7, np.int32)]
    check("REDUCE", [x, n, *starts], x.max(1), n.sum(1, dtype="int32") + np.int32(7), dimensions=[1], **body)


def largest_with_index(g: Any, a: Any, i: Any, b: Any, j: Any) -> Any:
    """The body of JAX's argmax: the greater value (NaN wins), of equal ones the smaller index."""
    nan = g("COMPARE", a, a, dtype="bool", **compare_options("NE", "FLOAT"))
    first = g("OR", g("COMPARE", a, b, dtype="bool", **compare_options("GT", "FLOAT")), nan)
    equal = g("COMPARE", a, b, dtype="bool", **compare_options("EQ", "FLOAT"))
    before = g("COMPARE", i, j, dtype="bool", **compare_options("LT", "SIGNED"))
    index = g("OR", first, g("AND", equal, before))
    return g("SELECT", first, a, b, dtype="float32"), g("SELECT", index, i, j, dtype="int32")


@pytest.mark.parametrize("shape", [(7,), (2, 8), (3, 1), (2, 3, 5), (1, 0)])
def test_argmax_as_a_reduction(shape: tuple[int, ...]) -> None:
    x = np.round(sample("float32", *shape))
    index = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy()
    body = {"body_subgraph_index": lambda: region(["float32", "int32"] * 2, largest_with_index)}
    starts = [np.asarray(-INF, np.float32), np.asarray(0, np.int32)]
    axis = len(shape) - 1
    wanted = (
        (x.max(axis), x.argmax(axis).astype(np.int32))
        if shape[-1]
        else (np.full(shape[:-1], -INF, np.float32), np.zeros(shape[:-1], np.int32))
    )
    check("REDUCE", [x, index, *starts], *wanted, dimensions=[axis], **body)


def test_a_reduction_keeps_the_order_of_elements() -> None:
    """The second of two: the last element along the axes."""
    x = sample("int32", 3, 5, 2)
    body = {"body_subgraph_index": lambda: region(["int32"] * 2, lambda g, a, b: g("SUBTRACT", b, g("SUBTRACT", a, a)))}
    check("REDUCE", [x, np.asarray(9, np.int32)], x[:, -1, -1], dimensions=[1, 2], **body)


def test_windows_of_several_operands() -> None:
    """The greater value of each pair and its index, strides of 2; one element of padding is the initial value."""
    x, index = np.round(sample("float32", 2, 5)), np.broadcast_to(np.arange(5, dtype=np.int32), (2, 5)).copy()
    body = {"body_subgraph_index": lambda: region(["float32", "int32"] * 2, largest_with_index)}
    sizes = {"window_dimensions": [1, 2], "window_strides": [1, 2], "padding": [0, 0, 1, 0]}
    starts = [np.asarray(-INF, np.float32), np.asarray(-1, np.int32)]
    padded = np.concatenate([np.full((2, 1), -INF, np.float32), x], 1).reshape(2, 3, 2)
    wanted = padded.max(2), padded.argmax(2).astype(np.int32) + np.arange(-1, 5, 2, dtype=np.int32)
    check("REDUCE_WINDOW", [x, index, *starts], *wanted, **sizes, **body)


SCATTERED: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": np.add,
    "SUBTRACT": np.subtract,
    "DIVIDE": np.divide,
    "MAXIMUM": np.maximum,
    "OR": np.bitwise_or,
}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("op", SCATTERED)
def test_scattered_windows(op: str, dtype: str) -> None:
    """Blocks of 2 x 3 at index vectors along axis 0 of the indices, two of which overlap."""
    if dtype == ("float32" if op == "OR" else "int32") and op in ("OR", "DIVIDE"):
        return
    x, updates = np.abs(sample(dtype, 4, 5)), np.abs(sample(dtype, 2, 3, 2, seed=1)) % 5 + np.asarray(1, dtype)
    starts = np.asarray([[0, 1], [2, 1]], np.int32)
    numbers = {"update_window_dims": [0, 1], "inserted_window_dims": [], "scatter_dims_to_operand_dims": [0, 1]}
    body = {"update_computation_subgraph_index": lambda: region([dtype] * 2, lambda g, a, b: g(op, a, b))}
    wanted = x.copy()
    for k in range(2):
        row, column = starts[:, k]
        block = wanted[row : row + 2, column : column + 3]
        block[:] = SCATTERED[op](block, updates[:, :, k])
    check("SCATTER", [x, starts, updates], wanted, **numbers, index_vector_dim=0, **body)


def test_a_body_by_pairs_needs_a_known_size() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(dtype_of(np.dtype("float32")), (symbol("n"), 3)), "in0")
    body = region(["float32"] * 2, lambda g, a, b: g("SUBTRACT", b, g("NEGATE", a)))
    types = [TensorType(x.dtype, (3,))]
    operands = [x, np.asarray(0, np.float32)]
    options = {"dimensions": [0], "body_subgraph_index": body}
    graph.outputs = Builder(graph).foreign("tfl", "STABLEHLO_REDUCE", operands, types, 1, **options)
    file = io.BytesIO()
    writer.write(Model(graph), file)
    with pytest.raises(onnxtfl.UnsupportedError, match=r"a reduction of .* elements by Neg, Sub"):
        converted(file.getvalue())
    array = sample("float32", 5, 3)
    data = converted(file.getvalue(), input_shapes={"in0": (5, 3)})
    np.testing.assert_allclose(*run_onnx(data, {"in0": array}).values(), array.sum(0), rtol=1e-5)


# --- sorting ---------------------------------------------------------------------------------------------------------


def ordering(direction: str, kind: str, key: int = 0) -> Callable[..., Any]:
    """A comparator of one key."""
    options = compare_options(direction, kind)
    return lambda g, *a: g("COMPARE", a[2 * key], a[2 * key + 1], dtype="bool", **options)


def sort(values: Sequence[Array], compare: Callable[..., Any], order: Array, axis: int) -> None:
    """Check a sort; `order`: the wanted positions along the axis."""
    dtypes = [v.dtype.name for v in values for _ in (0, 1)]
    options = {"comparator_subgraph_index": lambda: region(dtypes, compare), "is_stable": True}
    check("SORT", values, *(np.take_along_axis(v, order, axis) for v in values), dimension=axis, **options)


@pytest.mark.parametrize("dtype", ["bool", *FLOATS, *SIGNED, *UNSIGNED])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorts_by_one_key(dtype: str, axis: int) -> None:
    x = sample(dtype, 3, 6, 4)
    n = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    kind = "FLOAT" if dtype in FLOATS else "SIGNED" if dtype in SIGNED else "UNSIGNED"
    ascending = np.argsort(x, axis, kind="stable")
    size = x.shape[axis]
    descending = np.flip(size - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    sort([x, n], ordering("LT", kind), ascending, axis)
    sort([n, x], ordering("GT", kind, 1), descending, axis)


def test_sorts_of_vectors_and_of_nothing() -> None:
    x = np.asarray([2, 1, 2, 0, 1], np.int32)
    sort([x], ordering("LT", "SIGNED"), np.argsort(x, kind="stable"), 0)
    sort([x[:1]], ordering("LT", "SIGNED"), np.zeros(1, np.int64), 0)
    sort([x[:0]], ordering("LT", "SIGNED"), np.zeros(0, np.int64), 0)
    sort([np.zeros((0, 3), np.float32)], ordering("LT", "FLOAT"), np.zeros((0, 3), np.int64), 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sort_in_the_total_order(dtype: str) -> None:
    ordered = np.asarray([-NAN, -INF, -2, -0.0, 0.0, 1, INF, NAN], dtype)
    ordered[0] = np.copysign(ordered[0], -1)
    mixed = np.random.default_rng(0).permutation(8)
    x, n = ordered[mixed], np.arange(8, dtype=np.int32)
    sort([x, n], ordering("LT", "FLOAT_TOTAL_ORDER"), np.argsort(mixed), 0)
    sort([x, n], ordering("GT", "FLOAT_TOTAL_ORDER"), np.argsort(mixed)[::-1].copy(), 0)


def canonical(g: Any, x: Any) -> Any:
    """Zeros and NaN as JAX's comparators make them equal."""
    dtype = x.dtype.numpy
    zero, nan = np.asarray(0, dtype), np.asarray(NAN, dtype)
    is_zero = g("COMPARE", x, zero, dtype="bool", **compare_options("EQ", "FLOAT"))
    is_nan = g("COMPARE", x, x, dtype="bool", **compare_options("NE", "FLOAT"))
    return g("SELECT", is_nan, nan, g("SELECT", is_zero, zero, x, dtype=dtype.name), dtype=dtype.name)


def jax_comparator(g: Any, *values: Any) -> Any:
    """Lexicographic by two keys."""
    keys = [canonical(g, v) if v.dtype.is_float else v for v in values[:4]]
    kinds = ["FLOAT_TOTAL_ORDER" if v.dtype.is_float else "SIGNED" for v in (values[0], values[2])]
    last = g("COMPARE", keys[2], keys[3], dtype="bool", **compare_options("LT", kinds[1]))
    equal = g("COMPARE", keys[0], keys[1], dtype="bool", **compare_options("EQ", kinds[0]))
    first = g("COMPARE", keys[0], keys[1], dtype="bool", **compare_options("LT", kinds[0]))
    return g("OR", first, g("AND", equal, last))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sort_by_several_keys_as_jax_writes_it(dtype: str) -> None:
    x = np.random.default_rng(0).choice([0.0, -0.0, 1, -1, INF, -INF, NAN, -NAN], (3, 20)).astype(dtype)
    n = np.random.default_rng(1).integers(0, 3, (3, 20), dtype=np.int32)
    payload = np.arange(60, dtype=np.int64).reshape(3, 20)
    sort([x, n, payload], jax_comparator, np.lexsort((n, x), axis=1), 1)
    sort([n, x, payload], jax_comparator, np.lexsort((x, n), axis=1), 1)


def test_a_descending_sort_with_nan_first() -> None:
    x = np.asarray([1, NAN, 0.0, -0.0, INF, 1, -NAN, -INF], np.float32)
    n = np.arange(8, dtype=np.int32)
    order = np.asarray([1, 6, 4, 0, 5, 2, 3, 7])
    for direction, sides in (("GT", (0, 1)), ("LT", (1, 0))):
        options = compare_options(direction, "FLOAT_TOTAL_ORDER")

        def compare(g: Any, *a: Any, options: Any = options, sides: Any = sides) -> Any:
            keys = [canonical(g, a[side]) for side in sides]
            return g("COMPARE", *keys, dtype="bool", **options)

        sort([x, n], compare, order, 0)


def test_a_comparator_that_is_not_elementwise_is_an_error() -> None:
    def compare(g: Any, a: Any, b: Any) -> Any:
        return g("COMPARE", g("REDUCE", a, np.asarray(0, np.int32), dimensions=[], **body), b, dtype="bool", **less)

    body = {"body_subgraph_index": region(["int32"] * 2, lambda g, a, b: g("ADD", a, b))}
    less = compare_options("LT", "SIGNED")
    x = np.asarray([2, 1], np.int32)
    options = {"comparator_subgraph_index": region(["int32"] * 2, compare), "dimension": 0}
    with pytest.raises(onnxtfl.UnsupportedError, match="a comparator that is not elementwise: Reduce, Compare"):
        converted(model("SORT", [x], [x], **options))


def test_a_sort_by_a_function_of_the_key() -> None:
    """By absolute value; and a comparator without keys, by which all odd numbers come first."""
    x = np.asarray([[3, -1, 2, -3, 0, 1], [5, 4, -4, 4, -5, 0]], np.int32)

    def by_size(g: Any, a: Any, b: Any) -> Any:
        return g("COMPARE", g("ABS", a), g("ABS", b), dtype="bool", **compare_options("LT", "SIGNED"))

    def odd_first(g: Any, a: Any, b: Any) -> Any:
        one = np.asarray(1, np.int32)
        odd = [g("COMPARE", g("AND", v, one), one, dtype="bool", **compare_options("EQ", "SIGNED")) for v in (a, b)]
        return g("AND", odd[0], g("COMPARE", odd[0], odd[1], dtype="bool", **compare_options("NE", "UNSIGNED")))

    for axis in (0, 1):
        sort([x], by_size, np.argsort(np.abs(x), axis, kind="stable"), axis)
        sort([x], odd_first, np.argsort(x % 2 == 0, axis, kind="stable"), axis)


# --- custom calls -----------------------------------------------------------------------------------------------------


def custom_call(**options: Any) -> bytes:
    x = sample("float32", 2, 3)
    return model("CUSTOM_CALL", [x, x], [x, x[0].astype("int32")], **options)


def test_a_custom_call_is_a_custom_op() -> None:
    options = {"backend_config": "{a = 1}", "api_version": 2, "has_side_effect": True, "custom_attributes": b"\x01\x02"}
    data = converted(custom_call(call_target_name="my.call", **options), allow_custom=True)
    (node,) = onnx.load_model_from_string(data).graph.node
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.op_type, node.domain, len(node.input), len(node.output)) == ("my.call", "stablehlo.custom_call", 2, 2)
    payload = {"backend_config": b"{a = 1}", "api_version": 2, "has_side_effect": 1, "custom_attributes": b"\x01\x02"}
    assert found == payload


def test_a_custom_call_without_a_payload_comes_back_as_a_custom_op() -> None:
    data = converted(custom_call(call_target_name="my_call"), allow_custom=True)
    (node,) = onnx.load_model_from_string(data).graph.node
    assert (node.op_type, list(node.attribute)) == ("my_call", [])
    back = onnxtfl.onnx_to_tflite(data, allow_custom=True, check=False)
    assert back.report.ops_after == {"custom:stablehlo.custom_call::my_call": 1}


def test_a_custom_call_is_an_error_by_default() -> None:
    with pytest.raises(onnxtfl.UnsupportedError, match=r"which calls 'my_call'.*allow_custom") as error:
        converted(custom_call(call_target_name="my_call"))
    assert error.value.code == "E-OP-002"
    with pytest.raises(onnxtfl.InvalidModelError, match="call_target_name is empty"):
        converted(custom_call(), allow_custom=True)
    body = region(["float32"] * 2, lambda g, a, b: g("ADD", a, b))
    with pytest.raises(onnxtfl.UnsupportedError, match="the call of 'my_call' has subgraphs"):
        converted(custom_call(call_target_name="my_call", called_computations=(body,)), allow_custom=True)
