"""The ops of the family activations: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import tensor
from tests.unit.lifting import (
    FLOATS,
    INTEGERS,
    check_legalized,
    integers,
    lifted_onnx,
    lifted_tfl,
    onnx_target,
    unary_ops,
)
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert


@pytest.mark.parametrize("op", unary_ops("activations"), ids=lambda op: op.name)
def test_every_unary_op_reaches_tflite(op: type[Op]) -> None:
    check_legalized(op, [FLOATS])


@pytest.mark.parametrize("op", unary_ops("activations"), ids=lambda op: op.name)
@pytest.mark.parametrize("opset", [13, 20, 24])
def test_every_unary_op_reaches_onnx(op: type[Op], opset: int) -> None:
    cancels = op is ops.Gelu  # before opset 20 it is written with 1 + Erf, which ends at the rounding of 1
    check_legalized(op, [FLOATS], rtol=2e-5, target=onnx_target(opset), atol=2e-7 if cancels else 1e-37)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (ops.Elu, {"alpha": 2.5}),
        (ops.LeakyRelu, {"alpha": -0.5}),
        (ops.Gelu, {"approximate": "tanh"}),
        (ops.Swish, {"alpha": 1.702}),
        (ops.Softplus, {"beta": 2.0}),
        (ops.HardSigmoid, {"slope": 0.1, "offset": 0.6}),
    ],
)
def test_attributes(op: type[Op], attributes: dict[str, object]) -> None:
    check_legalized(op, [FLOATS], attributes=attributes)


@pytest.mark.parametrize("op", [ops.Glu, ops.GeGlu, ops.Gtu], ids=lambda op: op.name)
def test_gates_split_their_operand(op: type[Op]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    check_legalized(op, [x], attributes={"dim": 1})


@pytest.mark.parametrize("dtype", INTEGERS)
def test_relu_of_integers(dtype: str) -> None:
    check_legalized(ops.Relu, [integers(dtype)])


def test_slopes_broadcast() -> None:
    x = np.asarray([[5, -5, 5.5], [-5.5, 0, -0.0], [1e10, -1e-10, 3], [7, np.inf, 3]], np.float32)
    slopes = np.asarray([[3, 3, -3], [-3, 2, 2], [3, 1e10, np.inf], [-np.inf, 2, 0]], np.float32)
    for slope in (slopes, slopes[0]):
        check_legalized(ops.PRelu, [x, slope])
    check_legalized(ops.PRelu, [x, slopes], target=onnx_target(13))


def test_slopes_and_values_that_one_number_fills() -> None:
    """The values keep their shape: slopes broadcast to it, and it does not to theirs."""

    def build(g: TfliteGraph) -> Any:
        (x,) = g.op("FILL", [g.constant([2, 3], "int32"), g.given(np.asarray(-2, np.float32))])
        return g.op("PRELU", [x, x])

    assert_same_as_litert(build)


@pytest.mark.parametrize("version", [1, 6])
def test_old_slopes_run_along_the_features(version: int) -> None:
    x, slope = np.linspace(-9, 9, 24).reshape(2, 3, 4).astype(np.float32), np.asarray([1, 2, 3], np.float32)
    np.testing.assert_array_equal(lifted_onnx("PRelu", version, [x, slope]), np.where(x < 0, x * slope[:, None], x))


def test_tfl_ops() -> None:
    x = np.linspace(-9, 9, 24, dtype=np.float32)
    np.testing.assert_allclose(lifted_tfl("RELU_0_TO_1", x), np.clip(x, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(lifted_tfl("LEAKY_RELU", x, alpha=0.5), np.where(x < 0, x / 2, x), rtol=1e-6)


@pytest.mark.parametrize("activation", ["TANH", "SIGN_BIT"])
def test_kernels_ignore_a_fused_tanh(activation: str) -> None:
    option = {"fused_activation_function": activation}
    assert_same_as_litert(lambda g: g.op("ADD", [g.given(SAMPLE), g.given(SAMPLE)], **option))
    assert_same_as_litert(
        lambda g: g.op(
            "L2_POOL_2D", [g.given(SAMPLE[None])], filter_height=1, filter_width=2, stride_h=1, stride_w=1, **option
        )
    )


@pytest.mark.parametrize("storage", ["float8e4m3fn", "int4"])
def test_a_relu_that_onnxruntime_drops(storage: str) -> None:
    """ONNX Runtime's optimizer takes a zero point of 0 for the lowest value, also of types with negative ones."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[64] x) => (float[64] y) <float s = {1}> {
      r = Relu (x)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(helper.make_tensor("z", getattr(TensorProto, storage.upper()), [], [0]))
    check = onnxtfl.onnx_to_tflite(model).check
    assert check is not None and check.status == "passed"
    assert any("drop a Relu" in note for note in check.notes)


def test_softplus_is_linear_above_its_threshold() -> None:
    x = np.linspace(-3, 3, 25, dtype=np.float32)
    graph = Graph()
    graph.outputs = [Builder(graph)(ops.Softplus, graph.add_input(tensor("float32", 25)), beta=2.0, threshold=1.0)]
    (found,) = run(graph, [x])
    np.testing.assert_allclose(found, np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2), rtol=1e-6)
