"""The ops of the family elementwise: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import FLOATS, INTEGERS, check_legalized, integers, lifted_tfl, onnx_target, unary_ops
from tests.unit.tflite_graphs import assert_same_as_litert
from tests.unit.tflite_ops import model


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [ops.Abs, ops.Neg, ops.Sign])
def test_unary_ops_of_integers(op: type[Op], dtype: str) -> None:
    check_legalized(op, [integers(dtype)])


@pytest.mark.parametrize("op", unary_ops("elementwise"), ids=lambda op: op.name)
def test_every_unary_op_reaches_tflite(op: type[Op]) -> None:
    check_legalized(op, [FLOATS])


@pytest.mark.parametrize("op", unary_ops("elementwise"), ids=lambda op: op.name)
@pytest.mark.parametrize("opset", [13, 20, 24])
def test_every_unary_op_reaches_onnx(op: type[Op], opset: int) -> None:
    check_legalized(op, [FLOATS], rtol=2e-5, target=onnx_target(opset))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (ops.IsInf, {"detect_negative": False}),
        (ops.IsInf, {"detect_positive": False}),
        (ops.IsInf, {"detect_positive": False, "detect_negative": False}),
    ],
)
def test_attributes(op: type[Op], attributes: dict[str, object]) -> None:
    check_legalized(op, [FLOATS], attributes=attributes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_are_computed_in_float32(dtype: str) -> None:
    kind = DType(dtype).numpy
    x = np.asarray([0.1, 3.0, -2.0]).astype(kind)
    result = ops.Tanh.evaluate({}, x)
    np.testing.assert_array_equal(result, np.tanh(x.astype(np.float32)).astype(kind))


def test_halves_round_away_or_to_even() -> None:
    x = np.asarray([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997], np.float32)
    np.testing.assert_array_equal(ops.Round.evaluate({}, x), [1, 2, 3, -1, -3, 0])
    np.testing.assert_array_equal(ops.RoundNearestEven.evaluate({}, x), [0, 2, 2, 0, -2, 0])


def test_tfl_ops() -> None:
    x = np.linspace(-9, 9, 24, dtype=np.float32)
    np.testing.assert_allclose(lifted_tfl("SQUARE", x), x * x, rtol=1e-6)
    np.testing.assert_array_equal(lifted_tfl("ROUND", x), np.rint(x))


def test_the_angle_of_infinities_and_zeros() -> None:
    pairs = [(y, x) for y in (np.inf, -np.inf, 0.0, -0.0, 1.0) for x in (np.inf, -np.inf, 0.0, -0.0, -1.0)]
    y, x = np.asarray(pairs, np.float32).T
    data = model("ATAN2", [y, x], 2, {})
    ((_, wanted),) = run_tflite(data, [y, x])
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data, {"in0": y, "in1": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_signs_of_zeros_in_atan2() -> None:
    y, x = np.meshgrid([-1, -0.0, 0.0, 1], [-1, -0.0, 0.0, 1])
    assert_same_as_litert(lambda g: g.op("ATAN2", [g.given(y), g.given(x)]))


def test_special_elements() -> None:
    """No quotient by 0 in Atanh, which LiteRT clips; Imag of real numbers is 0."""
    check_legalized(ops.Atanh, [np.float32([1, -1, 0.3, -0.34, 1e-6, np.nan, 2])])
    check_legalized(ops.Imag, [np.float32([np.inf, -np.inf, np.nan, 3])])
