"""TFLite's ops of the elementwise and reduction families, lifted: what their options and odd forms mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import DType, TensorType, dtype_of
from onnxtfl.rewriting.lift import lift

X = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)


def lifted(op: str, *arrays: Array, result: DType | None = None, constants: int = 0, **options: Any) -> Array:
    """What a node of `op` gives; the last `constants` operands stand in the model."""
    graph = Graph()
    split = len(arrays) - constants
    inputs = [graph.add_input(TensorType(dtype_of(a.dtype), a.shape), f"x{i}") for i, a in enumerate(arrays[:split])]
    operands = [*inputs, *(constant(a) for a in arrays[split:])]
    type_ = TensorType(result or dtype_of(arrays[0].dtype), None)
    graph.outputs = Builder(graph).foreign("tfl", op, operands, [type_], **options)
    lift(graph, lambda node: None)
    (found,) = run(graph, arrays[:split])
    return found


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [
        ("NONE", X + X),
        ("RELU", np.maximum(X + X, 0)),
        ("RELU6", np.clip(X + X, 0, 6)),
        ("RELU_N1_TO_1", np.clip(X + X, -1, 1)),
        ("TANH", np.tanh(X + X)),
    ],
)
def test_fused_activations(activation: str, wanted: Array) -> None:
    np.testing.assert_allclose(lifted("ADD", X, X, fused_activation_function=activation), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "options", "wanted"),
    [
        ("RELU_0_TO_1", {}, np.clip(X, 0, 1)),
        ("SQUARE", {}, X * X),
        ("ZEROS_LIKE", {}, X * 0),
        ("LEAKY_RELU", {"alpha": 0.5}, np.where(X < 0, X / 2, X)),
        ("ROUND", {}, np.rint(X)),
        ("SQUARED_DIFFERENCE", {}, (X - 1) ** 2),
        ("ADD_N", {}, X + 1),
        ("FLOOR_MOD", {}, X - X),
    ],
)
def test_plain_ops(op: str, options: dict[str, Any], wanted: Array) -> None:
    binary = op in ("SQUARED_DIFFERENCE", "ADD_N", "FLOOR_MOD")
    others = [np.ones_like(X)] if binary and op != "FLOOR_MOD" else [X] if binary else []
    np.testing.assert_allclose(lifted(op, X, *others, **options), wanted, rtol=1e-6)


def test_softmax_has_a_beta() -> None:
    powers = np.exp(2 * (X - X.max(-1, keepdims=True)))
    np.testing.assert_allclose(lifted("SOFTMAX", X, beta=2.0), powers / powers.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("axis", [np.asarray([1, 2], np.int32), np.asarray(1, np.int32), np.zeros(0, np.int32)])
@pytest.mark.parametrize("keep", [True, False])
def test_axes_of_reductions(axis: Array, keep: bool) -> None:
    wanted = X.mean(tuple(axis.reshape(-1).tolist()), keepdims=keep) if axis.size else X
    np.testing.assert_allclose(lifted("MEAN", X, axis, constants=1, keep_dims=keep), wanted, rtol=1e-5, atol=1e-6)


def test_places_have_the_type_of_the_result() -> None:
    for dtype in (DType.INT32, DType.INT64):
        found = lifted("ARG_MAX", X, np.asarray(-1, np.int32), constants=1, result=dtype)
        assert found.dtype == dtype.numpy
        np.testing.assert_array_equal(found, X.argmax(-1))


def test_casts_go_to_the_type_of_the_result() -> None:
    np.testing.assert_array_equal(lifted("CAST", X, result=DType.INT32), X.astype(np.int32))
    words = lifted("BITCAST", np.asarray([1 << 40, -1]), result=DType.INT32)
    np.testing.assert_array_equal(words, [[0, 256], [-1, -1]])


def test_a_condition_of_one_axis_chooses_along_the_first() -> None:
    condition = np.asarray([True, False])
    found = lifted("SELECT", condition, X, -X, result=DType.FLOAT32)
    np.testing.assert_array_equal(found, np.where(condition[:, None, None], X, -X))


def test_shift_amounts_are_brought_into_the_range() -> None:
    x, amounts = np.asarray([-8, 8, 1 << 30], np.int32), np.asarray([40, -3, 2], np.int32)
    np.testing.assert_array_equal(lifted("RIGHT_SHIFT", x, amounts), [-1, 8, 1 << 28])


def test_fake_quantization_is_nudged_to_an_exact_zero() -> None:
    x = np.asarray([-1.0, -0.01, 0.0, 0.2999, 5.0], np.float32)
    found = lifted("FAKE_QUANT", x, min=-0.12, max=0.88, num_bits=8, narrow_range=False)
    scale = 1.0 / 255
    zero = round(0.12 / scale)
    wanted = (np.clip(np.round(x / scale + zero), 0, 255) - zero) * scale
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_half_weights_are_dequantized() -> None:
    half = X.astype(np.float16)
    np.testing.assert_array_equal(lifted("DEQUANTIZE", half, result=DType.FLOAT32), half.astype(np.float32))
