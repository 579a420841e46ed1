"""TFLite's recurrent kernels against the neutral layers they become: one invocation each, states as operands.

Whole models, over several invocations, are in tests/conformance; here are forms that no public model has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array

RNG = np.random.default_rng(7)
X, W, R, B = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 2, 4), (20, 4), (20, 5), (20,)))


def outputs(**attributes: Any) -> Array:
    """The sequence of outputs of an Lstm of 5 cells."""
    return ops.Lstm.evaluate(attributes, X, W, R, B)[0]


def test_states_are_rounded_to_their_grid_in_each_step() -> None:
    scale = 1 / 64
    found = outputs(grids=((scale, 3, 8), None, None))
    steps = found / scale
    np.testing.assert_array_equal(steps, np.round(steps))
    assert np.max(np.abs(found - outputs())) < 4 * scale


def test_a_state_may_be_dequantized_with_other_parameters_than_it_was_quantized_with() -> None:
    same, other = (outputs(grids=((1 / 64, 3, 8, *read), None, None)) for read in ((), (1 / 32, 1)))
    np.testing.assert_array_equal(same[0] * 64 + 2, other[0] * 32)
    assert np.any(same[1] * 64 + 2 != other[1] * 32)


@pytest.mark.parametrize("rows", ["symmetric", "asymmetric"])
def test_hybrid_products_round_rows_of_activations(rows: str) -> None:
    difference = np.max(np.abs(outputs(rows=rows) - outputs()))
    assert 0 < difference < 0.05


def test_a_coupled_layer_of_tflite_is_a_coupled_layer_of_negated_weights() -> None:
    """TFLite's has the input gate 1 - forget."""
    weights = [m.reshape(4, 5, -1).copy() for m in (W, R, B)]
    negated = [np.concatenate([-m[2:3], m[1:]]).reshape(20, *m.shape[2:]) for m in weights]
    w, r, b = (m.reshape(20, -1) for m in negated)
    found = ops.Lstm.evaluate({"coupled": True}, X, w, r, b.reshape(-1))[0]
    np.testing.assert_allclose(found, _coupled_by_forget(), rtol=1e-5, atol=1e-6)


def _coupled_by_forget() -> Array:
    hidden = cell = np.zeros((2, 5), np.float32)
    steps = []
    for x in X:
        _, o, f, g = np.split(x @ W.T + hidden @ R.T + B, 4, axis=1)
        forget = 1 / (1 + np.exp(-f))
        cell = forget * cell + (1 - forget) * np.tanh(g)
        hidden = np.tanh(cell) / (1 + np.exp(-o))
        steps.append(hidden)
    return np.stack(steps)
