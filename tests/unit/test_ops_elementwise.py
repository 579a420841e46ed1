"""Unary ops and activations: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.op import OPS, Op, Relabeled
from onnxtfl.ir.ops.elementwise import Unary
from onnxtfl.ir.types import DType, tensor
from tests.conformance.cases import Case
from tests.unit.lifting import cases_of, check_legalized, check_lifted, onnx_target

_FAMILY = """
Abs Acos Acosh Asin Asinh Atan Atanh BitCast Cast CastLike Ceil Celu Constant ConstantOfShape Cos Cosh
DequantizeLinear Dropout DynamicQuantizeLinear Elu Erf Exp EyeLike Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN
LeakyRelu Log Mish Neg Not QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign
Sqrt Swish Tan Tanh ThresholdedRelu
"""
_FINE = [0, 1e-20, 1e-7, 1e-4, 0.1, 0.5, 0.9999999, 1, 1.0000001, 1.5, 2.5, 3, 10, 20, 50, 88, 89, 100, 1e4, 1e10, 1e20]
EXTREMES = np.asarray([s * x for x in [*_FINE, 3e38, np.inf] for s in (1, -1)] + [np.nan], np.float32)
NUMBERS = np.concatenate([EXTREMES, np.linspace(-9, 9, 101, dtype=np.float32)])
UNARY = [op for op in OPS.values() if issubclass(op, Unary)]
ON_FLOATS = [op for op in UNARY if DType.FLOAT32 in op.operands[0].dtypes]
# Reads of types that NumPy and the graph hold, but whose rounding ONNX's reference alone defines.
_E8M0 = "e8m0"


@pytest.mark.parametrize("case", [c for c in cases_of(_FAMILY) if _E8M0 not in c.name], ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    if "float64" in case.name and "bitcast" in case.name:
        pytest.skip("float64 is computed in float32, whose bits are others")
    if "training_dropout" in case.name:
        pytest.skip("random numbers are drawn where the ratio is an input")
    check_lifted(case)


@pytest.mark.parametrize("op", ON_FLOATS, ids=lambda op: op.name)
def test_every_unary_op_reaches_tflite(op: type[Op]) -> None:
    check_legalized(op, [NUMBERS])


@pytest.mark.parametrize("op", ON_FLOATS, ids=lambda op: op.name)
@pytest.mark.parametrize("opset", [13, 20, 24])
def test_every_unary_op_reaches_onnx(op: type[Op], opset: int) -> None:
    cancels = op is ops.Gelu  # before opset 20 it is written with 1 + Erf, which ends at the rounding of 1
    check_legalized(op, [NUMBERS], rtol=2e-5, target=onnx_target(opset), atol=2e-7 if cancels else 1e-37)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (ops.Elu, {"alpha": 2.5}),
        (ops.LeakyRelu, {"alpha": -0.5}),
        (ops.Gelu, {"approximate": "tanh"}),
        (ops.Swish, {"alpha": 1.702}),
        (ops.Softplus, {"beta": 2.0}),
        (ops.HardSigmoid, {"slope": 0.1, "offset": 0.6}),
        (ops.IsInf, {"detect_negative": False}),
        (ops.IsInf, {"detect_positive": False}),
        (ops.IsInf, {"detect_positive": False, "detect_negative": False}),
    ],
)
def test_attributes(op: type[Op], attributes: dict[str, object]) -> None:
    check_legalized(op, [NUMBERS], attributes=attributes)


@pytest.mark.parametrize("op", [ops.Glu, ops.GeGlu, ops.Gtu], ids=lambda op: op.name)
def test_gates_split_their_operand(op: type[Op]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    check_legalized(op, [x], attributes={"dim": 1})


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


def test_bits_of_another_width_are_a_new_axis() -> None:
    graph = Graph()
    x = graph.add_input(tensor("int64", "n", 3))
    b = Builder(graph)
    words = b(ops.BitcastConvert, x, dtype=DType.INT32)
    assert str(words.type) == "tensor<[n]x3x2xint32>"
    assert str(b(ops.BitcastConvert, words, dtype=DType.INT64).type) == "tensor<[n]x3xint64>"
    numbers = np.asarray([[1, -1, 1 << 40]])
    halves = ops.BitcastConvert.evaluate({"dtype": DType.INT32}, numbers)
    np.testing.assert_array_equal(halves, [[[1, 0], [-1, -1], [0, 256]]])


def test_sizes_are_followed_through_conversions() -> None:
    graph = Graph()
    b = Builder(graph)
    sizes = b(ops.Shape, graph.add_input(tensor("float32", "n", 8)))
    narrow = b(ops.Convert, sizes, dtype=DType.INT32)
    doubled = b(ops.Mul, narrow, np.asarray([2, 2], np.int32))
    assert [str(d) for d in doubled.known] == ["2*n", "16"]  # type: ignore[union-attr]


def test_parameters_of_quantization_follow_their_axis() -> None:
    x = graph_constant((2, 3, 4, 5))
    node = Node(ops.QuantizeLinear, [x, constant(np.ones(3, np.float32)), None], {"dtype": DType.INT8, "axis": 1})
    relabeled = ops.QuantizeLinear.relabel(node, 0, (0, 2, 3, 1))
    assert relabeled == Relabeled(((0, 2, 3, 1), None, None), ((0, 2, 3, 1),), {"axis": 3})


def graph_constant(shape: tuple[int, ...]) -> object:
    return constant(np.zeros(shape, np.float32))
