"""Optimizers and gradients: what the lifted ops compute. The numbers of one step are in ONNX's op tests."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.lifting import Array

_DOMAIN = "ai.onnx.preview.training"
_F, _I = TensorProto.FLOAT, TensorProto.INT64


def step(op: str, count: int, tensors: list[Array], results: int, **attributes: object) -> list[Array]:
    """One step of `op` at learning rate 0.1, lifted and interpreted."""
    names = ["r", "t", *(f"x{i}" for i in range(len(tensors)))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(results)], domain=_DOMAIN, **attributes)
    infos = [helper.make_tensor_value_info(n, _I if n == "t" else _F, [] if n in "rt" else [2]) for n in names]
    outputs = [helper.make_tensor_value_info(n, _F, [2]) for n in node.output]
    imports = [helper.make_opsetid("", 12), helper.make_opsetid(_DOMAIN, 1)]
    model = helper.make_model(helper.make_graph([node], "g", infos, outputs), opset_imports=imports)
    return run(inspect(model.SerializeToString(), "lifted", Options()), [np.float32(0.1), np.int64(count), *tensors])


def test_momentum_of_two_tensors() -> None:
    """Operands come in groups: both tensors, both gradients, both velocities; beta counts from the second step on."""
    x = [np.asarray([i, i + 1], np.float32) for i in range(6)]
    attributes = {"alpha": 0.5, "beta": 0.25, "norm_coefficient": 0.0, "mode": "standard"}
    for count, beta in ((0, 1.0), (3, 0.25)):
        velocities = [0.5 * x[4 + i] + beta * x[2 + i] for i in (0, 1)]
        wanted = [*(x[i] - 0.1 * velocities[i] for i in (0, 1)), *velocities]
        np.testing.assert_allclose(step("Momentum", count, x, 4, **attributes), wanted, rtol=1e-6)


def test_adam_corrects_for_the_count() -> None:
    x, g, v, h = (np.asarray([i + 1, 2 * i + 1], np.float32) for i in range(4))
    v_new, h_new = 0.9 * v + 0.1 * g, 0.999 * h + 0.001 * g * g
    rate = 0.1 * np.sqrt(1 - 0.999**3) / (1 - 0.9**3)
    wanted = [x - rate * v_new / np.sqrt(h_new), v_new, h_new]
    np.testing.assert_allclose(step("Adam", 3, [x, g, v, h], 3), wanted, rtol=1e-4)


def test_a_tensor_without_its_state_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="lacks a state"):
        step("Adagrad", 0, [np.zeros(2, np.float32)] * 4, 2)


def gradients(nodes: list[object], inputs: dict[str, Array], xs: list[str]) -> list[Array]:
    """The gradients of y by `xs`, where y is computed by `nodes`."""
    node = helper.make_node("Gradient", [*inputs], [f"d{n}" for n in xs], domain=_DOMAIN, y="y", xs=xs)
    zs = [name for name in inputs if name not in xs]
    node.attribute.append(helper.make_attribute("zs", zs)) if zs else None
    infos = [helper.make_tensor_value_info(n, _F, a.shape) for n, a in inputs.items()]
    outputs = [helper.make_tensor_value_info(n, _F, None) for n in node.output]
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(_DOMAIN, 1)]
    model = helper.make_model(helper.make_graph([node, *nodes], "g", infos, outputs), opset_imports=imports)
    return run(inspect(model.SerializeToString(), "lifted", Options()), list(inputs.values()))


_CASES = {
    "Tanh": np.tanh,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "LogSoftmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
    "ReduceMean": lambda x: x.mean(keepdims=True),
}


@pytest.mark.parametrize("op", [*_CASES])
def test_gradient_of_one_op(op: str) -> None:
    """The same as the quotient of small differences; ops without a rule are differentiated by their definition."""
    x, function = np.asarray([[0.5, 1.25, 2.0], [0.75, 3.0, 1.5]], np.float32), _CASES[op]
    weights = np.asarray([[1, 2, 3], [4, 5, 6]], np.float32)
    nodes = [helper.make_node(op, ["x"], ["f"]), helper.make_node("Mul", ["f", "w"], ["y"])]
    (found,) = gradients(nodes, {"x": x, "w": weights}, ["x"])
    wide, wanted = x.astype(float), np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        bump = np.zeros(x.shape)
        bump[i] = 1e-4
        wanted[i] = (weights * (function(wide + bump) - function(wide - bump))).sum() / 2e-4
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_gradient_of_a_linear_layer() -> None:
    """y = relu(x w + c): the gradient by c is summed over the rows."""
    rng = np.random.default_rng(0)
    x, w, c = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3), (3, 4), (4,)))
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    by_w, by_c = gradients(nodes, {"w": w, "c": c, "x": x}, ["w", "c"])
    mask = (x @ w + c > 0).astype(np.float32)
    np.testing.assert_allclose(by_w, x.T @ mask, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_c, mask.sum(0), rtol=1e-6)
