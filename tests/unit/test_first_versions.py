"""Versions of ONNX ops that no op test of a release of ONNX has: the values are those of NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.unit.lifting import Array, floats, lifted_onnx

_X, _Y = floats(2, 3, 4), floats(2, 3, 4, seed=1)
_P = np.abs(_X) + 0.5
_C = floats(3, seed=2)
_UNARY: Mapping[str, tuple[Any, Array]] = {
    "Abs": (np.abs, _X),
    "Ceil": (np.ceil, _X),
    "Exp": (np.exp, _X),
    "Floor": (np.floor, _X),
    "Log": (np.log, _P),
    "Neg": (np.negative, _X),
    "Reciprocal": (np.reciprocal, _P),
    "Relu": (lambda x: np.maximum(x, 0), _X),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), _X),
    "Sqrt": (np.sqrt, _P),
    "Tanh": (np.tanh, _X),
}


def check(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", _UNARY)
def test_unary_1(op: str) -> None:
    """`consumed_inputs`, an optimization of the first version, means nothing."""
    function, x = _UNARY[op]
    check(lifted_onnx(op, 1, [x], consumed_inputs=[0]), function(x))


@pytest.mark.parametrize(
    ("op", "function"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]
)
def test_binary_1(op: str, function: Any) -> None:
    """Broadcast is asked for; the second operand's axes begin at `axis`."""
    check(lifted_onnx(op, 1, [_X, _P]), function(_X, _P))
    other = np.abs(_C) + 0.5
    check(lifted_onnx(op, 1, [_X, other], broadcast=1, axis=1), function(_X, other[:, None]))


@pytest.mark.parametrize(("op", "function"), [("Sum", np.add), ("Max", np.maximum), ("Min", np.minimum)])
def test_variadic_1(op: str, function: Any) -> None:
    check(lifted_onnx(op, 1, [_X, _Y]), function(_X, _Y))


_WITH_ATTRIBUTES = [
    ("Mean", [_X, _Y], {}, (_X + _Y) / 2),
    ("Clip", [_X], {"min": -0.5, "max": 0.25}, np.clip(_X, -0.5, 0.25)),
    ("Elu", [_X], {"alpha": 0.5}, np.where(_X > 0, _X, 0.5 * np.expm1(_X))),
    ("HardSigmoid", [_X], {"alpha": 0.3, "beta": 0.4}, np.clip(0.3 * _X + 0.4, 0, 1)),
    ("LeakyRelu", [_X], {"alpha": 0.1}, np.where(_X > 0, _X, 0.1 * _X)),
    ("Selu", [_X], {"alpha": 1.5, "gamma": 2.0}, 2 * np.where(_X > 0, _X, 1.5 * np.expm1(_X))),
    ("PRelu", [_X, _C], {}, np.where(_X > 0, _X, _C[:, None] * _X)),
    ("Concat", [_X, _Y], {"axis": 2}, np.concatenate([_X, _Y], 2)),
    ("Concat", [_X, _Y], {}, np.concatenate([_X, _Y], 1)),
    ("Reshape", [_X], {"shape": [0, -1]}, _X.reshape(2, 12)),
    ("Dropout", [_X], {"is_test": 1, "ratio": 0.5}, _X),
    (
        "Pad",
        [_X],
        {"paddings": [0, 1, 0, 0, 0, 2], "value": 3.0},
        np.pad(_X, [(0, 0), (1, 0), (0, 2)], constant_values=3),
    ),
    ("LpNormalization", [_X], {"axis": 1, "p": 2}, _X / np.sqrt((_X * _X).sum(1, keepdims=True))),
    ("Cast", [_P], {"to": "INT32"}, _P.astype(np.int32)),
]


@pytest.mark.parametrize(("op", "operands", "attributes", "wanted"), _WITH_ATTRIBUTES)
def test_version_1_with_attributes(op: str, operands: list[Array], attributes: dict[str, Any], wanted: Array) -> None:
    check(lifted_onnx(op, 1, operands, **attributes), wanted)


def test_batch_and_instance_normalization_1() -> None:
    scale, mean, variance = _P[0, :, 0], _C, _P[1, :, 1]
    wanted = (_X - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None] * scale[:, None] + _C[:, None]
    operands = [_X, scale, _C, mean, variance]
    check(lifted_onnx("BatchNormalization", 1, operands, is_test=1, consumed_inputs=[0, 0, 0, 1, 1]), wanted)
    own = (_X - _X.mean(2, keepdims=True)) / np.sqrt(_X.var(2, keepdims=True) + 1e-5)
    check(lifted_onnx("InstanceNormalization", 1, [_X, scale, _C]), own * scale[:, None] + _C[:, None])


def test_gemm_1() -> None:
    """The third operand broadcasts where that is asked for."""
    a, b, c = floats(2, 3), floats(4, 3, seed=1), floats(4, seed=2)
    check(lifted_onnx("Gemm", 1, [a, b, c], transB=1, alpha=0.5, beta=2.0, broadcast=1), 0.5 * a @ b.T + 2 * c)


@pytest.mark.parametrize("version", [1, 2, 11])
def test_lp_pool_and_global_lp_pool(version: int) -> None:
    """The norm of each window; the first version has a float for p."""
    x = floats(1, 2, 4, 4)
    p = 2.0 if version == 1 else 2
    squares = (x * x).reshape(1, 2, 2, 2, 2, 2).sum((3, 5))
    check(lifted_onnx("LpPool", version, [x], kernel_shape=[2, 2], strides=[2, 2], p=p), np.sqrt(squares))
    check(lifted_onnx("GlobalLpPool", version, [x], p=p), np.sqrt((x * x).sum((2, 3), keepdims=True)))


def test_relu_13_reduce_min_12_and_scatter_13() -> None:
    check(lifted_onnx("Relu", 13, [_X]), np.maximum(_X, 0))
    small = np.asarray([[3, -2], [5, 7]], np.int8)
    np.testing.assert_array_equal(lifted_onnx("ReduceMin", 12, [small], axes=[1], keepdims=0), [-2, 5])
    data, indices = np.zeros((3, 2), np.float32), np.asarray([[2], [0]])
    updates = np.asarray([[1, 2], [3, 4]], np.float32)
    check(lifted_onnx("ScatterND", 13, [data, indices, updates]), np.asarray([[3, 4], [0, 0], [1, 2]]))
    wanted = np.asarray([[3, 2], [0, 0], [1, 0]], np.float32)
    check(
        lifted_onnx(
            "ScatterElements", 13, [data, np.asarray([[2, 0], [0, 2]]), np.asarray([[1, 2], [3, 0]], np.float32)]
        ),
        wanted,
    )


NAMED = {
    *((op, 1) for op in (*_UNARY, *(op for op, *_ in _WITH_ATTRIBUTES))),
    *((op, 1) for op in ("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Gemm")),
    *((op, 1) for op in ("BatchNormalization", "InstanceNormalization", "LpPool", "GlobalLpPool")),
    *{("Relu", 13), ("ReduceMin", 12), ("ScatterND", 13), ("ScatterElements", 13)},
}
"""The op versions that have a case here."""
