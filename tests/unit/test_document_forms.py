"""Statements in the form of the document that mean more than one of our ops: against formulas, and in both runtimes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import document, ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.text import TextError, parse_graph, print_graph
from onnxtfl.ir.types import tensor
from onnxtfl.ir.verify import verify
from tests.unit.lifting import floats
from tests.unit.neutral_models import run_in_both
from tests.unit.op_samples import samples
from tests.unit.test_decompositions import built

F = "float32"
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "UPDATE": lambda a, x: x,
    "ADD": operator.add,
    "SUB": operator.sub,
    "MUL": operator.mul,
    "DIV": lambda a, x: a / x if isinstance(a, np.floating) else np.trunc(a / x).astype(a.dtype),
    "MIN": min,
    "MAX": max,
    "AND": lambda a, x: a & x if not isinstance(a, np.floating) else type(a)(bool(a) and bool(x)),
    "OR": lambda a, x: a | x if not isinstance(a, np.floating) else type(a)(bool(a) or bool(x)),
    "XOR": lambda a, x: a ^ x if not isinstance(a, np.floating) else type(a)(bool(a) != bool(x)),
    "L2": lambda a, x: np.hypot(a, x).astype(a.dtype),
    "COUNT": lambda a, x: type(a)(a + 1),
}
"""The computations that do not depend on positions."""


def graph_of(inputs: dict[str, Array | str], outputs: str, statements: str) -> Graph:
    """The graph of statements over inputs, each an array or the text of its type."""
    given = ", ".join(f"%{n}: {x if isinstance(x, str) else type_of(x)}" for n, x in inputs.items())
    return parse_graph(f"graph main({given}) -> ({outputs}) {{\n{statements}\n}}")


def type_of(x: Array) -> str:
    return f"tensor<{''.join(f'{d}x' for d in x.shape)}{x.dtype}>"


def results(statements: str, *outputs: str, both: bool = True, **inputs: Array) -> list[Array]:
    """The outputs by evaluation, which both runtimes compute too."""
    graph = graph_of(inputs, ", ".join(f"%{name}" for name in outputs), statements)
    verify(graph)
    wanted = run(graph, list(inputs.values()))
    for found in run_in_both(graph, list(inputs.values())) if both else ():
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return wanted


def operand(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.6
    return rng.integers(1, 6, shape).astype(dtype) if dtype != F else np.round(rng.normal(size=shape) * 4) / 2 + 0.25


def folded(name: str, start: Any, elements: Array) -> Any:
    """A fold, one element after the other; ARGMIN and ARGMAX are positions of the elements."""
    if name.startswith("ARG"):
        return (np.argmax if name == "ARGMAX" else np.argmin)(elements)
    if name == "L2":  # integers are truncated at the end
        return np.asarray(np.sqrt(np.float64(start) ** 2 + (elements.astype(np.float64) ** 2).sum())).astype(
            elements.dtype
        )
    with np.errstate(over="ignore"):
        return functools.reduce(FOLDS[name], elements, start)


@pytest.mark.parametrize("dtype", [F, "int32", "uint8"])
@pytest.mark.parametrize("name", [*FOLDS, "ARGMIN", "ARGMAX"])
def test_a_reduction_is_a_fold_from_the_initial_value(name: str, dtype: str) -> None:
    x, start = operand(dtype, 2, 3, 2).astype(dtype), operand(dtype, 1, seed=5).astype(dtype)[0]
    statement = f'%y = Reduce(%x, %s) {{dimensions = [0, -1], computation = "{name}"}}'
    (found,) = results(statement, "y", x=x, s=np.asarray(start))
    wanted = [folded(name, start, x[:, i].reshape(-1)) for i in range(3)]
    np.testing.assert_allclose(found, np.asarray(wanted).astype(dtype), rtol=1e-5)


@pytest.mark.parametrize("name", ["AND", "OR", "XOR", "UPDATE"])
def test_a_reduction_of_bools(name: str) -> None:
    x = operand("bool", 4, 5)
    statement = f'%y = Reduce(%x, %s) {{dimensions = [1], computation = "{name}"}}'
    (found,) = results(statement, "y", x=x, s=np.asarray(True))
    np.testing.assert_array_equal(found, [folded(name, np.bool_(True), row) for row in x])


@pytest.mark.parametrize("name", ["MAX", "MIN"])
def test_a_reduction_of_several_inputs_selects_at_the_extreme_of_the_first(name: str) -> None:
    x, places, start = np.round(floats(3, 5) * 2), np.arange(15, dtype=np.int32).reshape(3, 5), np.float32(1.0)
    statement = f'%v, %p = Reduce(%x, %i, %s, %n) {{dimensions = [1], computation = "{name}"}}'
    values, found = results(statement, "v", "p", x=x, i=places, s=np.asarray(start), n=np.asarray(-1, np.int32))
    for row in range(3):
        best = x[row].argmax() if name == "MAX" else x[row].argmin()
        is_beyond = x[row, best] > start if name == "MAX" else x[row, best] < start
        assert (values[row], found[row]) == ((x[row, best], places[row, best]) if is_beyond else (start, -1))


REGION = """%v, %p = {op}(%x, %i, %s, %n) {{{where}, computation =
  graph c(%a: tensor<float32>, %b: tensor<int32>, %c: tensor<float32>, %d: tensor<int32>) -> (%e, %f) {{
    %g = Compare(%a, %c) {{comparison_direction = "GE"}}
    %e = Select(%g, %a, %c)
    %f = Select(%g, %b, %d)
  }}}}"""


def test_a_reduction_by_a_graph() -> None:
    x, places = np.round(floats(3, 5) * 2), np.arange(15, dtype=np.int32).reshape(3, 5)
    inputs = {"x": x, "i": places, "s": np.asarray(-9, np.float32), "n": np.asarray(-1, np.int32)}
    values, found = results(REGION.format(op="Reduce", where="dimensions = [1]"), "v", "p", **inputs)
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(found, np.take_along_axis(places, x.argmax(1)[:, None], 1)[:, 0])
    where = "window_dimensions = [1, 2], window_strides = [1, 3]"
    values, found = results(REGION.format(op="ReduceWindow", where=where), "v", "p", **inputs)
    np.testing.assert_array_equal(values, np.maximum(x[:, :-1], x[:, 1:])[:, ::3])
    assert [p % 5 // 3 for p in found.reshape(-1)] == [0, 1] * 3 or found.shape == (3, 2)


@pytest.mark.parametrize("dtype", [F, "int32"])
@pytest.mark.parametrize("name", [*FOLDS, "ARGMIN", "ARGMAX"])
def test_a_window_is_a_fold(name: str, dtype: str) -> None:
    """Windows of 2 x 2, strides 1 x 2, one row of padding with the initial value."""
    x, start = operand(dtype, 3, 4).astype(dtype), operand(dtype, 1, seed=7).astype(dtype)[0]
    window = "window_dimensions = [2, 2], window_strides = [1, 2], padding = [1, 0, 0, 0]"
    statement = f'%y = ReduceWindow(%x, %s) {{computation = "{name}", {window}}}'
    (found,) = results(statement, "y", x=x, s=np.asarray(start))
    padded = np.concatenate([np.full((1, 4), start), x]).astype(dtype)
    for i, j in np.ndindex(3, 2):
        wanted = np.asarray(folded(name, start, padded[i : i + 2, 2 * j : 2 * j + 2].reshape(-1)))
        np.testing.assert_allclose(found[i, j], wanted.astype(dtype), rtol=1e-5)


NUMBERS = (
    "index_vector_dim = 1, update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
)


def scattered(name: str, x: Array, rows: Array, updates: Array) -> Array:
    """The rows of a matrix folded with updates, one after the other."""
    result = x.copy()
    if not name.startswith("ARG"):
        for row, update in zip(rows, updates, strict=True):
            for j in range(x.shape[1]):
                result[row, j] = FOLDS[name](result[row, j], update[j])
        return result
    better = operator.gt if name == "ARGMAX" else operator.lt
    place = np.zeros_like(x)
    for number, (row, update) in enumerate(zip(rows, updates, strict=True), 1):
        for j in range(x.shape[1]):
            if better(update[j], result[row, j]):
                result[row, j], place[row, j] = update[j], number
    return place


@pytest.mark.parametrize("dtype", [F, "int32"])
@pytest.mark.parametrize("name", [*FOLDS, "ARGMIN", "ARGMAX"])
def test_updates_are_folded_at_their_positions(name: str, dtype: str) -> None:
    """Two updates at row 2; row 1 has none."""
    x, rows = operand(dtype, 4, 2).astype(dtype), np.asarray([2, 0, 2, 3])
    updates = operand(dtype, 4, 2, seed=3).astype(dtype)
    statement = f'%y = ScatterND(%x, %i, %u) {{computation = "{name}", {NUMBERS}}}'
    (found,) = results(statement, "y", x=x, i=rows[:, None], u=updates)
    np.testing.assert_allclose(found, scattered(name, x, rows, updates), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "dtype"), [("XOR", "uint64"), ("AND", "int8"), ("L2", "float16"), ("ARGMIN", "int64")]
)
def test_folds_of_other_types(name: str, dtype: str) -> None:
    x, updates = (operand("int32", 3, 2, seed=i).astype(dtype) for i in (0, 3))
    inputs = {"x": x, "i": np.asarray([[1], [0], [1]]), "u": updates, "s": np.ones((), dtype)}
    statements = f"""%y = ScatterND(%x, %i, %u) {{computation = "{name}", {NUMBERS}}}
    %z = Reduce(%x, %s) {{dimensions = [1], computation = "{name}"}}"""
    y, z = results(statements, "y", "z", **inputs)
    np.testing.assert_allclose(y, scattered(name, x, np.asarray([1, 0, 1]), updates), rtol=1e-3)
    np.testing.assert_allclose(z, [folded(name, inputs["s"][()], row) for row in x], rtol=1e-3)


def test_scattered_windows_that_are_a_part_of_an_axis() -> None:
    """Blocks of 2 x 2 at (row, column), which the index vectors have in reverse order, transposed in the updates."""
    x, starts, updates = floats(4, 5), np.asarray([[2, 1], [0, 2]]), floats(2, 2, 2, seed=2)
    numbers = "index_vector_dim = 0, update_window_dims = [0, 1], inserted_window_dims = []"
    statement = f'%y = ScatterND(%x, %i, %u) {{computation = "ADD", {numbers}, scatter_dims_to_operand_dims = [1, 0]}}'
    (found,) = results(statement, "y", x=x, i=starts, u=updates)
    wanted = x.copy()
    for k in range(2):
        column, row = starts[:, k]
        wanted[row : row + 2, column : column + 2] += updates[:, :, k]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_gathered_windows_are_clamped_and_laid_out() -> None:
    x, starts = floats(3, 4, 5), np.asarray([[0, 2, 9], [1, 0, 2]])
    numbers = "index_vector_dim = 0, start_index_map = [2, 0], collapsed_slice_dims = [0], offset_dims = [0, 2]"
    statement = f"%y = Gather(%x, %i) {{{numbers}, slice_sizes = [1, 4, 2], indices_are_sorted = false}}"
    (found,) = results(statement, "y", x=x, i=starts)
    assert found.shape == (4, 3, 2)
    for k in range(3):
        first = min(starts[0, k], 3)
        np.testing.assert_array_equal(found[:, k], x[starts[1, k], :, first : first + 2])


@pytest.mark.parametrize(("offsets", "order"), [((0, 3), (0, 1, 2, 3)), ((1, 2), (1, 0, 3, 2))])
def test_whole_slices_of_an_axis(offsets: tuple[int, int], order: tuple[int, ...]) -> None:
    x, rows = floats(3, 4, 5), np.asarray([[0, 9], [2, 1]])
    numbers = f"start_index_map = [1], collapsed_slice_dims = [1], offset_dims = {list(offsets)}"
    statement = f"%y = Gather(%x, %i) {{index_vector_dim = 2, {numbers}, slice_sizes = [3, 1, 5]}}"
    assert "GatherND" not in print_graph(graph_of({"x": x, "i": rows}, "%y", statement))
    (found,) = results(statement, "y", x=x, i=rows)
    np.testing.assert_array_equal(found, np.take(x, np.minimum(rows, 3), 1).transpose(order))


def test_batching_dims() -> None:
    """Each row of the operand has its own indices, the rows are the last axis of these, after that of the vectors."""
    x, picked = floats(3, 5), np.asarray([[4, 0, 2], [1, 1, 3]])
    vectors = picked[None]
    numbers = "start_index_map = [1], collapsed_slice_dims = [1], offset_dims = [], slice_sizes = [1, 1]"
    batching = "operand_batching_dims = [0], start_indices_batching_dims = [2]"
    (found,) = results(f"%y = Gather(%x, %i) {{index_vector_dim = 0, {numbers}, {batching}}}", "y", x=x, i=vectors)
    np.testing.assert_array_equal(found, np.take_along_axis(x, picked.T, 1).T)
    numbers = "update_window_dims = [], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]"
    batching = "input_batching_dims = [0], scatter_indices_batching_dims = [2]"
    statement = f'%y = ScatterND(%x, %i, %u) {{computation = "MUL", index_vector_dim = 0, {numbers}, {batching}}}'
    updates = floats(2, 3, seed=4)
    (found,) = results(statement, "y", x=x, i=vectors, u=updates)
    wanted = x.copy()
    for k, row in np.ndindex(2, 3):
        wanted[row, picked[k, row]] *= updates[k, row]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


CONV = ", ".join(f"{side}_spatial_dimensions = [2]" for side in ("input", "kernel", "output"))


def convolved(x: Array, w: Array) -> Array:
    """The cross-correlation of [n, c, t] and [o, c, k]."""
    count = x.shape[2] - w.shape[2] + 1
    taps = np.stack([x[:, :, i : i + w.shape[2]] for i in range(count)], 2)
    return np.einsum("nctk,ock->not", taps, w)


def test_a_convolution_of_a_dilated_operand_in_groups_of_the_batch() -> None:
    x, w, bias = floats(4, 3, 5), floats(6, 3, 2, seed=1), floats(6, seed=2)
    attributes = f"{CONV}, padding = [1, -2], lhs_dilation = [3], batch_group_count = 2"
    (found,) = results(f"%y = ConvBias(%x, %w, %b) {{{attributes}}}", "y", x=x, w=w, b=bias)
    dilated = np.zeros((4, 3, 14), np.float32)
    dilated[:, :, 1::3] = x
    parts = [convolved(dilated[2 * g : 2 * g + 2, :, :-2], w[3 * g : 3 * g + 3]) for g in range(2)]
    np.testing.assert_allclose(found, np.concatenate(parts, 1) + bias[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding(mode: str, is_open: bool, size: int) -> None:
    """Of 2 positions, with one more element of padding at the end (UPPER) or the beginning, also of dynamic sizes."""
    x, w = floats(1, 1, size), floats(1, 1, 4, seed=1)
    attributes = f'{CONV}, window_strides = [2], auto_pad = "{mode}"'
    pool = f'{{dims = [2], kernel_shape = [4], strides = [2], auto_pad = "{mode}"}}'
    statements = f"%y = Conv(%x, %w) {{{attributes}}}\n%m = MaxPool(%x) {pool}\n%a = AveragePool(%x) {pool}"
    given = {"x": f"tensor<1x1x{'[n]' if is_open else size}xfloat32>", "w": w}
    graph = graph_of(given, "%y, %m, %a", statements)
    total = (math.ceil(size / 2) - 1) * 2 + 4 - size
    low = total // 2 if mode == "SAME_UPPER" else total - total // 2
    padded = np.pad(x, [(0, 0), (0, 0), (low, total - low)], constant_values=np.nan)
    windows = [padded[:, :, i : i + 4] for i in range(0, size, 2)]
    wanted = [f(windows, axis=3).transpose(1, 2, 0) for f in (np.nanmax, np.nanmean)]
    wanted.insert(0, convolved(np.nan_to_num(padded), w)[:, :, ::2])
    for found in (run(graph, [x, w]), *run_in_both(graph, [x, w])):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_ceil_mode_adds_a_position_that_is_not_counted() -> None:
    x = floats(1, 1, 7) + 3
    attributes = "dims = [2], kernel_shape = [3], strides = [2], padding = [1, 0], ceil_mode = true"
    (found,) = results(f"%y = AveragePool(%x) {{{attributes}, count_include_pad = true}}", "y", x=x)
    padded = np.concatenate([[0.0], x[0, 0]])
    np.testing.assert_allclose(found[0, 0], [padded[i : i + 3].mean() for i in (0, 2, 4, 6)], rtol=1e-6)


def test_a_position_of_ceil_mode_does_not_begin_in_the_padding() -> None:
    x = floats(1, 1, 5)
    attributes = "dims = [2], kernel_shape = [2], strides = [3], padding = [0, 1], ceil_mode = true"
    (found,) = results(f"%y = MaxPool(%x) {{{attributes}}}", "y", x=x)
    np.testing.assert_array_equal(found[0, 0], [x[0, 0, :2].max(), x[0, 0, 3:].max()])
    graph = graph_of({"x": "tensor<1x1x[n]xfloat32>"}, "%y", f"%y = MaxPool(%x) {{{attributes}}}")
    for size in (5, 6, 7):
        x = floats(1, 1, size)
        wanted = [x[0, 0, i : i + 2].max() for i in range(0, size, 3)]
        np.testing.assert_array_equal(run(graph, [x])[0][0, 0], wanted)


def test_same_padding_of_a_reduction_over_a_dynamic_size() -> None:
    attributes = 'computation = "MAX", window_dimensions = [3], window_strides = [2], auto_pad = "SAME_UPPER"'
    graph = graph_of({"x": "tensor<[n]xfloat32>"}, "%y", f"%y = ReduceWindow(%x) {{{attributes}}}")
    for size in (5, 6):
        x, start = floats(size), size % 2
        wanted = [x[max(i - start, 0) : i - start + 3].max() for i in range(0, size, 2)]
        np.testing.assert_array_equal(run(graph, [x])[0], wanted)


def test_indices_of_a_pool_by_column() -> None:
    x = floats(1, 1, 3, 4)
    statement = "%y, %i = MaxPool(%x) {kernel_shape = [3, 4], return_indices = true, storage_order = 1}"
    _, index = results(statement, "y", "i", x=x)
    assert index.item() == x[0, 0].T.argmax()


def test_softmax_with_a_least_denominator() -> None:
    x = floats(2, 3) - 4
    for logarithmic in ("false", "true"):
        statement = f"%y = Softmax(%x) {{axis = 1, epsilon = 0.5, logarithmic = {logarithmic}}}"
        (found,) = results(statement, "y", x=x)
        wanted = np.exp(x) / np.maximum(np.exp(x).sum(1, keepdims=True), 0.5)
        np.testing.assert_allclose(found, np.log(wanted) if logarithmic == "true" else wanted, rtol=1e-5)


def test_layer_norm_returns_its_statistics() -> None:
    x = floats(2, 3, 4)
    inputs = {"x": x, "s": floats(3, 4, seed=1), "b": floats(3, 4, seed=2)}
    y, mean, rstd = results("%y, %m, %r = LayerNorm(%x, %s, %b) {axis = 1, epsilon = 0.1}", "y", "m", "r", **inputs)
    assert mean.shape == rstd.shape == (2, 1, 1)
    np.testing.assert_allclose(mean, x.mean((1, 2), keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rstd, (x.var((1, 2), keepdims=True) + 0.1) ** -0.5, rtol=1e-5)
    np.testing.assert_allclose(y, (x - mean) * rstd * inputs["s"] + inputs["b"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["PAD_REFLECT", "PAD_SYMMETRIC", "PAD_EDGE"])
@pytest.mark.parametrize("corners", ["false", "true"])
def test_a_grid_beyond_the_map(mode: str, corners: str) -> None:
    x, places = floats(1, 1, 1, 4), np.linspace(-2, 2, 9).astype(np.float32)
    grid = np.stack([places, np.zeros_like(places)], -1).reshape(1, 1, 9, 2)
    statement = f'%y = GridSample(%x, %g) {{mode = "NEAREST", padding_mode = "{mode}", align_corners = {corners}}}'
    (found,) = results(statement, "y", x=x, g=grid)
    at = (places + 1) / 2 * 3 if corners == "true" else ((places + 1) * 4 - 1) / 2
    padded = np.pad(
        x[0, 0, 0], 6, mode={"PAD_REFLECT": "reflect", "PAD_SYMMETRIC": "symmetric", "PAD_EDGE": "edge"}[mode]
    )
    np.testing.assert_array_equal(found[0, 0, 0], padded[np.rint(at).astype(int) + 6])


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_a_resize_over_all_axes(dtype: str) -> None:
    x = operand(dtype, 2, 3).astype(dtype)
    for given in ("_, %f", "_, _, %n"):
        statement = f'%y = Resize(%x, {given}) {{mode = "NEAREST", coordinate_transformation_mode = "ASYMMETRIC"}}'
        constants = "%f = constant tensor<2xfloat32> [1, 2]\n%n = constant tensor<2xint64> [2, 6]\n"
        (found,) = results(constants + statement, "y", x=x)
        np.testing.assert_array_equal(found, np.repeat(x, 2, 1))


def test_padding_between_elements_comes_first() -> None:
    x = floats(3)
    statement = "%y = Pad(%x, %v) {edge_padding_low = [1], edge_padding_high = [-2], interior_padding = [1]}"
    (found,) = results(statement, "y", x=x, v=np.asarray(9, np.float32))
    np.testing.assert_array_equal(found, np.asarray([9, x[0], 9, x[1]], np.float32))


def test_broadcast_dimensions_place_the_axes_of_the_lower_rank() -> None:
    x, y = floats(2, 3, 4), floats(2, 3, seed=1)
    (found,) = results("%z = Div(%y, %x) {broadcast_dimensions = [0, 1]}", "z", x=x, y=y)
    np.testing.assert_allclose(found, y[:, :, None] / x, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_the_reciprocal_root_of_integers_is_truncated(dtype: str) -> None:
    x = np.asarray([0, 1, 2, 4], dtype)
    (found,) = results("%y = Rsqrt(%x)", "y", x=x)
    np.testing.assert_array_equal(found, [0, 1, 0, 0])


def test_concatenated_targets_of_a_ctc_loss() -> None:
    x = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (4, 2))).astype(np.float32)
    inputs = {"x": x, "n": np.asarray([4, 3]), "k": np.asarray([2, 1])}
    loss = "%y, %a = CTCLoss(%x, %t, %n, %k)"
    (joined,) = results(loss, "y", t=np.asarray([1, 2, 1]), **inputs)
    (matrix,) = results(loss, "y", t=np.asarray([[1, 2], [1, 0]]), **inputs)
    np.testing.assert_allclose(joined, matrix, rtol=1e-5)


def test_sizes_stay_symbolic() -> None:
    given = {
        "x": "tensor<[n]x4xfloat32>",
        "s": "tensor<float32>",
        "i": "tensor<[k]x1xint64>",
        "u": "tensor<[k]x4xfloat32>",
    }
    statements = f"""%a = Reduce(%x, %s) {{dimensions = [1], computation = "L2"}}
    %b = Reduce(%x) {{dimensions = [0], computation = "COUNT"}}
    %c = ScatterND(%x, %i, %u) {{computation = "DIV", {NUMBERS}}}"""
    graph = graph_of(given, "%a, %b, %c", statements)
    assert [str(v.type) for v in graph.outputs] == [
        "tensor<[n]xfloat32>",
        "tensor<4xfloat32>",
        "tensor<[n]x4xfloat32>",
    ]
    x, u = floats(3, 4), floats(2, 4, seed=1)
    inputs = [x, np.asarray(1.5, np.float32), np.asarray([[2], [0]]), u]
    for found in (run(graph, inputs), *run_in_both(graph, inputs)):
        np.testing.assert_allclose(found[0], np.sqrt(2.25 + (x**2).sum(1)), rtol=1e-5)
        np.testing.assert_array_equal(found[1], [3] * 4)
        np.testing.assert_allclose(found[2], np.stack([x[0] / u[1], x[1], x[2] / u[0]]), rtol=1e-5)


def test_operands_by_name() -> None:
    given = {"x": "tensor<3xfloat32>", "a": "tensor<float32>", "b": "tensor<float32>"}
    graph = graph_of(given, "%y", "%y = Clamp(max = %b, min = %a, input = %x)")
    (node,) = graph.nodes
    assert [v and v.name for v in node.operands] == ["x", "a", "b"]
    assert "Clamp(min = %a, input = %x, max = %b)" in print_graph(graph, documented=True)
    for wrong in ("Clamp(%x, min = %a)", "Clamp(input = %x, least = %a)", "Clamp(input = %x, input = %a)"):
        with pytest.raises(TextError, match="operands"):
            graph_of(given, "%y", f"%y = {wrong}")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ('%y = Reduce(%x) {dimensions = [0], computation = "NAND"}', "computation is 'NAND', not one of UPDATE"),
        ('%y = Reduce(%x, %x, %x) {dimensions = [0], computation = "MAX"}', "as many initial values as inputs"),
        ('%y, %z = Reduce(%x, %x, %s, %s) {dimensions = [0], computation = "ADD"}', "add of several inputs"),
        ("%y = Slice(%x) {start_indices = [0], limit_indices = [1]}", "the attribute strides is missing"),
        ("%y = Add(%x, %x) {broadcast_dimensions = [1, 0]}", r"broadcast_dimensions \[1, 0\]"),
        ("%y = Gather(%x, %i) {slice_size = [1]}", "there is no attribute slice_size"),
    ],
)
def test_errors_name_the_attribute(statement: str, said: str) -> None:
    with pytest.raises(InvalidModelError, match=said):
        graph_of({"x": "tensor<2x3xfloat32>", "s": "tensor<float32>", "i": "tensor<1x1xint64>"}, "%y", statement)


def test_a_builder_makes_the_form() -> None:
    graph = Graph()
    b, x = Builder(graph), graph.add_input(tensor("float32", 2, 3))
    (made,) = document.built(b, ops.Slice, x, start_indices=(0, 1), limit_indices=(2, 3), strides=(1, 1))
    assert str(made.type) == "tensor<2x2xfloat32>"


@pytest.mark.parametrize("op", [op for op, form in document.FORMS.items() if form.printed], ids=lambda op: op.name)
def test_what_is_printed_in_the_form_reads_back(op: type[Op]) -> None:
    """On operands drawn from the declaration."""
    for sample in samples(op, 12):
        one = built(op, *sample)
        if one is None:
            continue
        again = parse_graph(print_graph(one.graph, 1 << 16, documented=True))
        for found, wanted in zip(run(again, one.inputs), run(one.graph, one.inputs), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
