"""Determinants of matrices; inverses are in test_microsoft_ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from tests.harness.litert import run_tflite
from tests.unit.lifting import floats, lifted_onnx
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert


@pytest.mark.parametrize("size", [1, 3, 6, 7, 10])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_determinants(size: int, batch: tuple[int, ...]) -> None:
    """By minors, and from 7 rows on by elimination; the rows are in an order that makes a sign."""
    x = floats(*batch, size, size)
    for given in (x, x[..., ::-1, :].copy(), np.roll(x, 1, axis=-2)):
        np.testing.assert_allclose(lifted_onnx("Det", 11, [given]), np.linalg.det(given), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [3, 8])
def test_the_determinant_of_a_singular_matrix_is_0(size: int) -> None:
    x = floats(size, size)
    x[:, 1] = 0
    assert lifted_onnx("Det", 22, [x]) == 0


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_determinant_of_no_elements_is_1(batch: tuple[int, ...]) -> None:
    """As in ONNX Runtime."""
    np.testing.assert_array_equal(lifted_onnx("Det", 11, [np.zeros((*batch, 0, 0), np.float32)]), np.ones(batch))


@pytest.mark.parametrize("op", ["Det", "com.microsoft.Inverse"])
@pytest.mark.parametrize(("sizes", "shape"), [("40, 40", (40, 40)), ("n, n", (5, 5)), ("b, n, n", (2, 36, 36))])
def test_large_matrices_and_open_sizes(op: str, sizes: str, shape: tuple[int, ...]) -> None:
    """A loop over the columns; as accurate as the elimination in float32 of other runtimes."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = parser.parse_model(f"{head} g (float[{sizes}] x) => (float y) {{ y = {op} (x) }}")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exact = np.linalg.det(x.astype(float)) if op == "Det" else np.linalg.inv(x.astype(float))
    for kernels in ("default", "builtin"):
        found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", {"x": x}, kernels=kernels)[0][1]
        assert found.shape == exact.shape
        assert np.abs(found - exact).max() <= 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("size", [2, 8, 40])
def test_the_pivot_is_the_largest_element_however_small_it_is(size: int) -> None:
    """Of elements of 1e-9, the first one was the pivot, and 0 if that is: 1 was added to all."""
    x = 1e-9 * np.roll(np.eye(size), 1, axis=0)
    found = lifted_onnx("Inverse", 1, [x.astype(np.float32)], domain="com.microsoft")
    np.testing.assert_allclose(found, np.linalg.inv(x), rtol=1e-6)


def test_a_diagonal_of_open_matrices() -> None:
    def build(g: TfliteGraph) -> Any:
        return g.op("MATRIX_SET_DIAG", [g.given(SAMPLE, open_axes=(1,)), g.given(SAMPLE[:, :, 0], open_axes=(1,))])

    assert_same_as_litert(build, [(2, 6, 4), (2, 4)], [(2, 2, 4), (2, 2)])
