"""The ops of the family quantization: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import infer
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.op import Permuted
from onnxtfl.ir.types import DType
from tests.harness.rounds import parsed
from tests.unit.lifting import check_legalized, lifted_tfl

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantizing_and_back(dtype: str, axis: int | None) -> None:
    scale = np.asarray([0.1, 0.5, 2.0], np.float32) if axis else np.asarray(0.25, np.float32)
    zero = (np.arange(3) if axis else np.asarray(3)).astype(dtype)
    attributes = {"axis": 1 if axis else 0}
    operands = [X * 100, constant(scale), constant(zero)]
    check_legalized(ops.QuantizeLinear, operands, attributes={**attributes, "dtype": DType(dtype)})
    stored = (X * 50).astype(dtype)
    check_legalized(ops.DequantizeLinear, [stored, *operands[1:]], attributes=attributes)


def test_blocks_of_scales() -> None:
    x, scale = X.reshape(2, 12) * 100, np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    attributes = {"axis": 1, "block_size": 4}
    check_legalized(ops.QuantizeLinear, [x, constant(scale), None], attributes={**attributes, "dtype": DType.INT8})
    check_legalized(ops.DequantizeLinear, [x.astype(np.int8), constant(scale), None], attributes=attributes)


def test_parameters_of_quantization_follow_their_axis() -> None:
    x = constant(np.zeros((2, 3, 4, 5), np.float32))
    node = Node(ops.QuantizeLinear, [x, constant(np.ones(3, np.float32)), None], {"dtype": DType.INT8, "axis": 1})
    node.add_result(x.type)
    permuted = ops.QuantizeLinear.permuted(node, 0, (0, 2, 3, 1))
    assert permuted == Permuted(((0, 2, 3, 1), None, None), ((0, 2, 3, 1),), {"axis": 3})


def test_fake_quantization_is_nudged_to_an_exact_zero() -> None:
    x = np.asarray([-1.0, -0.01, 0.0, 0.2999, 5.0], np.float32)
    found = lifted_tfl("FAKE_QUANT", x, min=-0.12, max=0.88, num_bits=8, narrow_range=False)
    scale = 1.0 / 255
    zero = round(0.12 / scale)
    wanted = (np.clip(np.round(x / scale + zero), 0, 255) - zero) * scale
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_half_weights_are_dequantized() -> None:
    half = X.astype(np.float16)
    np.testing.assert_array_equal(lifted_tfl("DEQUANTIZE", half, result=DType.FLOAT32), half.astype(np.float32))


def test_as_many_scales_as_the_axis_is_long() -> None:
    """Also along an axis of size 1, which would broadcast."""
    node = Node(ops.DequantizeLinear, [constant(np.ones((2, 1), np.int8)), constant(np.ones(3, np.float32))], {})
    with pytest.raises(InvalidModelError, match="3 scales or zero points for an axis of size 1"):
        infer(node)


def test_the_zero_point_of_floats_of_8_bits_is_not_added() -> None:
    """As in ONNX Runtime."""
    steps = (
        "z = Constant <value_float = 1.0> () e = Cast <to = 17> (z) q = QuantizeLinear (x, s, e) y = Cast <to = 1> (q)"
    )
    model = parsed(f"g (float[5] x) => (float[5] y) <float s = {{2}}> {{ {steps} }}", 21)
    assert onnxtfl.onnx_to_tflite(model, check=True).check.ok  # type: ignore[union-attr]
