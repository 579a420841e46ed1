"""The ops of the family softmax: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.op import Op
from tests.fuzz.tflite_drawing import Scale
from tests.unit.lifting import check_legalized, lifted_onnx, lifted_tfl
from tests.unit.permuting import check_permuted
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("op", [ops.Softmax, ops.LogSoftmax], ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_every_axis(op: type[Op], axis: int) -> None:
    check_legalized(op, [X * 30], 1e-5, attributes={"axis": axis})


@pytest.mark.parametrize("opset", [1, 11])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, 3])
def test_old_softmax_reads_a_matrix(opset: int, axis: int) -> None:
    if axis < 0 and opset == 1:
        return
    flat = X.reshape(int(np.prod(X.shape[: axis % 3 if axis < 0 else axis])), -1)
    for name, op in (("Softmax", ops.Softmax), ("LogSoftmax", ops.LogSoftmax)):
        wanted = op.evaluate({"axis": 1}, flat).reshape(X.shape)
        np.testing.assert_allclose(lifted_onnx(name, opset, [X], axis=axis), wanted, rtol=1e-6)
    found = lifted_onnx("Hardmax", opset, [X], axis=axis)
    np.testing.assert_array_equal(found.reshape(flat.shape).argmax(1), flat.argmax(1))
    assert found.sum() == len(flat)


def test_softmax_has_a_beta() -> None:
    powers = np.exp(2 * (X - X.max(-1, keepdims=True)))
    np.testing.assert_allclose(lifted_tfl("SOFTMAX", X, beta=2.0), powers / powers.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("permutation", [(0, 2, 1), (2, 0, 1)])
def test_permuted_axes(permutation: tuple[int, int, int]) -> None:
    assert check_permuted(ops.Softmax, [X], {"axis": -2}, 0, permutation)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_softmax_of_bytes_over_an_open_axis_of_one_element(dtype: str) -> None:
    """It is 1, for which ONNX Runtime's kernel of uint8 has 0."""

    def build(g: TfliteGraph) -> Any:
        x = g.given([[5], [9]], dtype, open_axes=[1])
        g.quantized[x], g.quantized["v0_0"] = Scale((0.25,)), Scale((1 / 256,), (0 if dtype == "uint8" else -128,))
        return g.op("SOFTMAX", [x], beta=1.0)

    assert_same_as_litert(build)
