"""StableHLO ops in .tflite files against JAX, where it is installed: in ONNX Runtime, and folded by `evaluate`.

TFLite has no op for map and select_and_scatter; the neutral ops are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from tests.unit.test_stablehlo import (
    CONVOLUTIONS,
    EDGES,
    PRODUCTS,
    check,
    compare_options,
    convolve_options,
    dot_options,
    ends,
    jax_comparator,
    region,
    sample,
)

lax = pytest.importorskip("jax.lax")
jax = pytest.importorskip("jax")

REAL = np.float32(EDGES)
UNARY = {
    "ABS": lax.abs,
    "CBRT": lax.cbrt,
    "COSINE": lax.cos,
    "EXPONENTIAL": lax.exp,
    "FLOOR": lax.floor,
    "LOG": lax.log,
    "LOGISTIC": lax.logistic,
    "NEGATE": lax.neg,
    "RSQRT": lax.rsqrt,
    "TANH": lax.tanh,
}
BINARY = {
    "ADD": lax.add,
    "SUBTRACT": lax.sub,
    "MULTIPLY": lax.mul,
    "DIVIDE": lax.div,
    "REMAINDER": lax.rem,
    "MAXIMUM": lax.max,
    "MINIMUM": lax.min,
}
BITS = {"AND": lax.bitwise_and, "OR": lax.bitwise_or, "SHIFT_LEFT": lax.shift_left}


@pytest.mark.parametrize("op", UNARY)
def test_elements(op: str) -> None:
    x = REAL[np.abs(REAL) < 1e9] if op == "COSINE" else REAL
    check(op, [x], np.asarray(UNARY[op](x)), error=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("op", BINARY)
def test_pairs_of_elements(op: str, dtype: str) -> None:
    """The extremes; a divisor of 0 or -1 of integers, too."""
    x = REAL if dtype == "float32" else ends(dtype)
    lhs, rhs = (a.reshape(-1).copy() for a in np.meshgrid(x, x))
    if op == "REMAINDER" and dtype == "float32":  # the remainder of 1e30 by 1e-30 needs exact arithmetic
        lhs, rhs = sample("float32", 40), sample("float32", 40, seed=1)
    check(op, [lhs, rhs], np.asarray(BINARY[op](lhs, rhs)), error=1e-5)


@pytest.mark.parametrize("op", BITS)
def test_bits(op: str) -> None:
    lhs, rhs = sample("int32", 3, 4), sample("int32", 3, 4, seed=1)
    rhs = rhs % 40 if op == "SHIFT_LEFT" else rhs
    check(op, [lhs, rhs], np.asarray(BITS[op](lhs, rhs)))


def test_slices_and_gathers_of_moved_starts() -> None:
    x, update = sample("float32", 4, 5), sample("float32", 2, 2, seed=1)
    for start in ([1, 2], [9, 0]):  # JAX counts negative starts from the end, XLA clamps them
        at = [np.asarray(i, np.int32) for i in start]
        wanted: Any = lax.dynamic_slice(x, at, (2, 3))
        check("DYNAMIC_SLICE", [x, *at], np.asarray(wanted), slice_sizes=[2, 3])
        check("DYNAMIC_UPDATE_SLICE", [x, update, *at], np.asarray(lax.dynamic_update_slice(x, update, at)))


def test_clamps() -> None:
    low, high = np.float32(-1), np.float32(2)
    check("CLAMP", [low, REAL, high], np.asarray(lax.clamp(low, REAL, high)))


# --- contractions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("left", "right", "batch", "contract"), PRODUCTS)
def test_dot_general(left: Any, right: Any, batch: Any, contract: Any, dtype: str) -> None:
    x, y = sample(dtype, *left), sample(dtype, *right, seed=1)
    numbers = [tuple([pair[side] for pair in pairs] for side in (0, 1)) for pairs in (contract, batch)]
    wanted = lax.dot_general(x, y, tuple(numbers))
    check("DOT_GENERAL", [x, y], np.asarray(wanted), error=1e-5, **dot_options(batch, contract))


@pytest.mark.parametrize("groups", ["feature_group_count", "batch_group_count"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, groups: str) -> None:
    x, w = sample("float32", 2, 6 if groups.startswith("f") else 3, 7, 8), sample("float32", 4, 3, 3, 2, seed=1)
    o = convolve_options(x, {**CONVOLUTIONS[name], groups: 2})
    pads = list(zip(o["padding"][::2], o["padding"][1::2], strict=True))
    kernel = np.flip(w, [2 + i for i, mirrored in enumerate(o["window_reversal"]) if mirrored])
    names = ("window_strides", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    wanted = lax.conv_general_dilated(x, kernel, padding=pads, **{name: o[name] for name in names})
    check("CONVOLUTION", [x, w], np.asarray(wanted), error=1e-5, **o)


# --- regions ---------------------------------------------------------------------------------------------------------

BODIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda g, a, b: g("ADD", a, b), lax.add),
    "product": (lambda g, a, b: g("MULTIPLY", a, b), lax.mul),
    "greatest": (lambda g, a, b: g("MAXIMUM", a, b), lax.max),
    "least": (lambda g, a, b: g("MINIMUM", a, b), lax.min),
    "of absolute values": (
        lambda g, a, b: g("MAXIMUM", g("ABS", a), g("ABS", b)),
        lambda a, b: lax.max(lax.abs(a), lax.abs(b)),
    ),
}
"""A body as a subgraph, and in JAX."""


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", BODIES)
def test_reductions(name: str, dtype: str) -> None:
    ours, theirs = BODIES[name]
    x, start = sample(dtype, 2, 3, 4) % np.asarray(5, dtype), np.asarray(1, dtype)
    body = {"body_subgraph_index": lambda: region([dtype] * 2, ours)}
    for axes in ([1], [0, 2], [0, 1, 2]):
        wanted = lax.reduce(x, start, theirs, axes)
        check("REDUCE", [x, start], np.asarray(wanted), dimensions=axes, error=1e-5, **body)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", BODIES)
def test_reduced_windows(name: str, dtype: str) -> None:
    ours, theirs = BODIES[name]
    x = sample(dtype, 5, 6) % np.asarray(5, dtype)
    start = np.asarray({"sum": 0, "product": 1, "greatest": -99, "least": 99}.get(name, 0), dtype)
    body = {"body_subgraph_index": lambda: region([dtype] * 2, ours)}
    for strides, inside, between, pads in (
        ((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((2, 1), (1, 1), (1, 2), ((1, 0), (0, 2))),
        ((1, 3), (2, 1), (1, 1), ((0, 1), (1, 1))),
    ):
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")
        flat = [n for pair in pads for n in pair]
        options = dict(zip(names, ([2, 3], list(strides), list(inside), list(between), flat), strict=True))
        wanted = lax.reduce_window(x, start, theirs, (2, 3), strides, pads, inside, between)
        check("REDUCE_WINDOW", [x, start], np.asarray(wanted), error=1e-5, **options, **body)


SCATTERS = {"ADD": lax.scatter_add, "MULTIPLY": lax.scatter_mul, "MAXIMUM": lax.scatter_max, "MINIMUM": lax.scatter_min}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("op", SCATTERS)
def test_scattered_rows_and_windows(op: str, dtype: str) -> None:
    """Equal indices; blocks that overlap."""
    x = sample(dtype, 4, 5) % np.asarray(5, dtype)
    cases: list[tuple[Any, Any, Any, Any]] = [
        (np.int32([[1], [3], [1]]), (3, 5), ([1], [0]), ([0],)),
        (np.int32([[0, 1], [1, 2]]), (2, 2, 3), ([1, 2], []), ([0, 1],)),
    ]
    for indices, shape, (window, inserted), (places,) in cases:
        updates = sample(dtype, *shape, seed=1) % np.asarray(5, dtype)
        numbers = lax.ScatterDimensionNumbers(tuple(window), tuple(inserted), tuple(places))
        options = {"update_window_dims": window, "inserted_window_dims": inserted,
                   "scatter_dims_to_operand_dims": places, "index_vector_dim": 1}  # fmt: skip
        body = {"update_computation_subgraph_index": lambda: region([dtype] * 2, lambda g, a, b: g(op, a, b))}
        wanted = SCATTERS[op](x, indices, updates, numbers)
        check("SCATTER", [x, indices, updates], np.asarray(wanted), error=1e-5, **options, **body)


@pytest.mark.parametrize("axis", [0, 1])
def test_sorts(axis: int) -> None:
    """Zeros and NaN of both signs, by two keys."""
    random = np.random.default_rng(0)
    x = random.choice(np.float32(EDGES), (6, 7))
    n, payload = random.integers(0, 3, (6, 7), np.int32), np.arange(42, dtype=np.int32).reshape(6, 7)
    wanted = lax.sort((x, n, payload), dimension=axis, num_keys=2)
    compare = {"comparator_subgraph_index": lambda: region(["float32"] * 2 + ["int32"] * 4, jax_comparator)}
    check("SORT", [x, n, payload], *map(np.asarray, wanted), dimension=axis, is_stable=True, **compare)


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_loops(rounds: int) -> None:
    """A counter, its limit, and a product."""
    less = compare_options("LT", "SIGNED")
    regions = {
        "cond_subgraph_index": lambda: region(
            ["int32", "int32", "float32"], lambda g, i, n, x: g("COMPARE", i, n, dtype="bool", **less)
        ),
        "body_subgraph_index": lambda: region(
            ["int32", "int32", "float32"],
            lambda g, i, n, x: (g("ADD", i, np.int32(1)), n, g("MULTIPLY", x, np.float32(1.5))),
        ),
    }
    start = np.int32(0), np.int32(rounds), np.float32(2)
    wanted = lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], s[2] * 1.5), start)
    check("WHILE", list(start), *map(np.asarray, wanted), **regions)


# --- neutral ops without a TFLite op ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (0,), (2, 1, 3, 2)])
def test_a_map(shape: tuple[int, ...]) -> None:
    type_ = f"tensor<{'x'.join(map(str, shape))}xfloat32>"
    graph = parse_graph(f"""graph g(%x: {type_}, %y: {type_}) -> (%z) {{
      %z = Map(%x, %y) {{computation = graph c(%a: tensor<float32>, %b: tensor<float32>) -> (%e) {{
        %c = Mul(%a, %b)
        %d = Tanh(%c)
        %e = Max(%d, %b)
      }}}}
    }}""")
    x, y = sample("float32", *shape), sample("float32", *shape, seed=1)
    wanted = jax.vmap(lambda a, b: lax.max(lax.tanh(a * b), b))(x.reshape(-1), y.reshape(-1))
    np.testing.assert_allclose(run(graph, [x, y])[0], np.asarray(wanted).reshape(shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("window", "strides", "pads"), [((2, 3), (2, 3), (0, 0, 0, 0)), ((3, 3), (2, 2), (1, 1, 2, 1))]
)
def test_select_and_scatter_is_the_gradient_of_a_pool(window: Any, strides: Any, pads: Any) -> None:
    x = sample("float32", 6, 6)
    pairs = list(zip(pads[:2], pads[2:], strict=True))
    pool = lambda v: lax.reduce_window(v, -np.inf, lax.max, window, strides, pairs)  # noqa: E731
    pooled, backward = jax.vjp(pool, x)
    source = sample("float32", *pooled.shape, seed=1)
    sizes = "x".join(map(str, pooled.shape))
    graph = parse_graph(f"""graph g(%x: tensor<6x6xfloat32>, %s: tensor<{sizes}xfloat32>) -> (%y) {{
      %zero = constant tensor<float32> [0]
      %y = SelectAndScatter(%x, %s, %zero) {{select_type = "GE", computation = "ADD",
        window_dimensions = {list(window)}, window_strides = {list(strides)}, padding = {list(pads)}}}
    }}""")
    np.testing.assert_allclose(run(graph, [x, source])[0], np.asarray(backward(source)[0]), rtol=1e-6)
