"""Determinants of matrices; inverses are in test_microsoft_ops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.lifting import floats, lifted_onnx


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
