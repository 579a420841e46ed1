"""What neutral ops evaluate to, against independent references: onnx.reference for their namesakes, else NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.op import Op
from tests.unit.lifting import lifted_onnx

R = np.random.default_rng(5)
X = R.standard_normal((2, 4, 6)).astype(np.float32)
SPECIAL = np.float32([-np.inf, -3, -1, -0.5, -0.0, 0, 1e-30, 0.5, 1, 2.5, 30, np.inf, np.nan])
IMAGE = R.standard_normal((1, 4, 4, 6)).astype(np.float32)
PER_CHANNEL = np.float32([0.5, -1, 2, 1])
UNARY = (
    *("Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish"),
    *("Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"),
    *("Sqrt", "Tan", "Tanh", "Not", "IsInf", "IsNaN"),
)
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    *((op, [SPECIAL > 0 if op == "Not" else SPECIAL], {}) for op in UNARY),
    *((op, [X, X[0, :1]], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual", "PRelu")),
    *((op, [X > 0, X[0] > 0], {}) for op in ("And", "Or", "Xor")),
    *((op, [X], {"axis": axis}) for op in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin") for axis in (1, -1)),
    ("Pow", [np.abs(X), X[0]], {}),
    ("Where", [X > 0, X, X[0]], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Tile", [X, np.asarray([2, 1, 3])], {}),
    ("Concat", [X, X[:, :1]], {"axis": 1}),
    ("SpaceToDepth", [IMAGE], {"blocksize": 2}),
    *(("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")),
    ("InstanceNormalization", [IMAGE, PER_CHANNEL, PER_CHANNEL], {}),
    ("LayerNormalization", [X, X[0, 0], X[1, 0]], {"axis": -1}),
    ("BatchNormalization", [IMAGE, *(PER_CHANNEL,) * 3, np.abs(PER_CHANNEL)], {}),
    ("Conv", [IMAGE, R.standard_normal((3, 4, 2, 3)).astype(np.float32)], {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", [IMAGE], {}),
    ("Gemm", [X[0], X[1], X[0, :, 0]], {"transB": 1, "alpha": 0.5}),
    ("CumSum", [X, np.asarray(1)], {"exclusive": 1}),
]


@pytest.mark.parametrize(("op", "arrays", "attributes"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_namesake_of_onnx(op: str, arrays: list[Array], attributes: dict[str, Any]) -> None:
    names = [f"x{i}" for i in range(len(arrays))]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, arrays, strict=True)]
    node, result = helper.make_node(op, names, ["y"], **attributes), helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", inputs, [result])
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    with np.errstate(all="ignore"):
        (wanted,) = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        found = lifted_onnx(op, 20, arrays, **attributes)
    same(found, np.asarray(wanted))


def same(found: Array, wanted: Array) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


FORMULAS = [
    (ops.Rsqrt, [np.float32([0, 1e-30, 0.25, 3, np.inf])], np.float64([np.inf, 1e15, 2, 3**-0.5, 0])),
    (ops.Cbrt, [SPECIAL], np.cbrt(SPECIAL)),
    (ops.Log1p, [np.abs(SPECIAL)], np.log1p(np.abs(SPECIAL))),
    (ops.Expm1, [SPECIAL], np.expm1(SPECIAL)),
    (ops.Atan2, [X, X[::-1].copy()], np.arctan2(X, X[::-1])),
    (ops.Erf, [X], np.vectorize(math.erf)(X.astype(np.float64))),
    (ops.IsFinite, [SPECIAL], np.isfinite(SPECIAL)),
    (ops.Complex, [X, -X], X - 1j * X),
    (ops.RoundNearestEven, [SPECIAL], np.rint(SPECIAL)),
]


@pytest.mark.parametrize(("op", "arrays", "wanted"), FORMULAS, ids=[f[0].name for f in FORMULAS])
def test_a_formula_of_numpy(op: type[Op], arrays: list[Array], wanted: Array) -> None:
    with np.errstate(all="ignore"):
        found = op.evaluate({}, *arrays)
    kind = {"f": np.float32, "c": np.complex64, "b": np.bool_}[wanted.dtype.kind]
    same(np.asarray(found), wanted.astype(kind))
