"""The comparisons that the suites stand on: what they have to catch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.harness.compare import difference, largest_error

_X = np.array([1.0, -2.0, 0.0, 100.0], np.float32)


def test_equal_arrays_pass() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    for array in (_X, special, np.arange(4), np.array([True, False]), np.zeros((0, 3), np.float32)):
        assert difference(array, array, 1e-3, 1e-7) == ""
        assert largest_error(array, array) == 0


def test_float64_is_narrowed_on_the_expected_side_only() -> None:
    assert difference(_X, _X.astype(np.float64), 0, 0) == ""
    assert "dtype" in difference(_X.astype(np.float64), _X, 0, 0)


@pytest.mark.parametrize(
    "actual",
    [
        _X.reshape(2, 2),
        _X.astype(np.float16),
        _X + np.float32(0.5),
        np.array([1, -2, 0, np.nan], np.float32),
        np.array([1, -2, 0, np.inf], np.float32),
        np.zeros_like(_X),
    ],
)
def test_what_differs_is_caught(actual: np.ndarray) -> None:
    assert difference(actual, _X, 1e-3, 1e-7)
    assert largest_error(actual, _X) > 1


@pytest.mark.parametrize("wrong", [np.array([1, 3]), np.array([1, 2], np.int32)])
def test_integers_are_exact(wrong: np.ndarray) -> None:
    assert difference(wrong, np.array([1, 2]), 1, 1)
    assert largest_error(wrong, np.array([1, 2])) == math.inf


def test_a_number_where_nan_or_infinity_is_expected_is_caught() -> None:
    for expected in (np.nan, np.inf, -np.inf):
        wanted = np.array([expected, 1], np.float32)
        assert difference(np.array([5, 1], np.float32), wanted, 1e-3, 1e-7)
        assert largest_error(np.array([5, 1], np.float32), wanted) > 1


def test_the_unit_of_the_largest_error() -> None:
    expected = np.array([10.0, 0.0], np.float32)
    assert largest_error(np.array([10.0, 0.001], np.float32), expected) == pytest.approx(1, rel=1e-4)
    assert largest_error(np.array([10.011, 0.0], np.float32), expected) == pytest.approx(1, rel=1e-3)
