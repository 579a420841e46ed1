"""Kernels on quantized weights and float activations: how the probe measures them, and what the target accepts."""

from __future__ import annotations

import numpy as np
import pytest
from tools.probe.case import evaluated
from tools.probe.hybrid import hybrid
from tools.probe.judge import judge

from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets.tflite import TfliteTarget

TYPES = {"T": "float32", "W": "float32", "B": "float32"}


def test_results_may_be_off_by_half_a_step_of_the_activations() -> None:
    x, w = np.array([[1.27, -0.5]], np.float32), np.array([[1.0, 1.0], [0.5, -1.0]], np.float32)
    case = evaluated(
        "FULLY_CONNECTED", TYPES, [x, w, None], lambda a, b, _: [a @ b.T], constants=frozenset({1}), extra={}
    )
    made = next(c for c in hybrid([case]) if c.types["W"] == "qint8")
    assert np.array_equal(made.operands[1] if made.operands[1] is not None else [], [[127, 127], [64, -127]])
    (bounds,) = made.bounds
    assert np.allclose(bounds, [[2 * 0.005 * 1.1, 1.504 * 0.005 * 1.1]], rtol=1e-3)
    assert judge(made, "ran", [made.expected[0] + bounds * 0.9]) == "correct"
    assert judge(made, "ran", [made.expected[0] + bounds * 1.1]) == "wrong"


def _accepts(op: str, filter_shape: tuple[int, ...], axis: int | None, runtime: str = "2.14") -> bool:
    count = 1 if axis is None else filter_shape[axis]
    w = constant(np.zeros(filter_shape, np.int8))
    w.type = TensorType(DType.FLOAT32, filter_shape, Quantization("int8", (0.5,) * count, (0,) * count, axis))
    x, bias, y = (Value(tensor("float32", *s)) for s in ((1, 8, 8, 4), (4,), (1, 8, 8, 4)))
    return TfliteTarget(runtime, hybrid=True).refusal(Form(op, (x, w, bias), {}), [y]) is None


@pytest.mark.parametrize(
    ("op", "shape", "axis", "accepted"),
    [
        ("CONV_2D", (4, 3, 3, 4), 0, True),
        ("CONV_2D", (4, 3, 3, 2), 0, True),
        ("CONV_2D", (4, 3, 3, 2), None, False),
        ("DEPTHWISE_CONV_2D", (1, 3, 3, 4), 3, True),
        ("DEPTHWISE_CONV_2D", (1, 3, 3, 4), None, False),
    ],
)
def test_convolutions_want_a_scale_for_each_feature(
    op: str, shape: tuple[int, ...], axis: int | None, accepted: bool
) -> None:
    assert _accepts(op, shape, axis) == accepted
