"""Gates and norms of com.microsoft, computed by ONNX Runtime's own kernels and by the converted models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.harness.litert import Array
from tests.unit.test_microsoft_ops import compare, made, normal


def with_open_batch(model: bytes) -> bytes:
    """The model with an open first size of its first input."""
    opened = onnx.load_from_string(model)
    opened.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    return opened.SerializeToString()


def check(op: str, operands: dict[str, Array], outputs: int = 1, **attributes: Any) -> None:
    """With sizes that are known, and with an open batch; all but the first operand are weights in a third model."""
    compare(made(op, operands, outputs, **attributes), operands)
    compare(with_open_batch(made(op, operands, outputs, **attributes)), operands)
    (name, x), *weights = operands.items()
    compare(made(op, {name: x}, outputs, dict(weights), **attributes), {name: x})


def test_a_gated_sum() -> None:
    check("GatedAdd", {"x": normal(2, 3, 4), "y": normal(2, 3, 4), "gate": normal(2, 3, 1)})


def test_silu_after_scaling() -> None:
    compare(made("ScaledSiLU", {"x": normal(3, 4)}, alpha=1.7), x := {"x": normal(3, 4)})
    check("ScaledSiLU", {**x, "scale": np.array(0.5, np.float32)}, alpha=9.0)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_norm(activation: str) -> None:
    operands = {"x": normal(2, 3, 8), "gate": normal(2, 3, 8)}
    order = {"constants": {"scale": normal(4)}, "operands": "x,scale,gate", "activation": activation}
    compare(made("GatedRMSNorm", operands, **order), operands)
    compare(made("GatedRMSNorm", operands, open_=True, epsilon=0.5, **order), operands)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (8,)])
def test_branchwise_norm(shape: tuple[int, ...]) -> None:
    check("BranchwiseRMSNorm", {"x": normal(3, 8), "scale": normal(*shape)}, num_branches=2)
    check("BranchwiseRMSNorm", {"x": normal(3, 2, 4), "scale": normal(*shape)}, epsilon=0.1)


def test_branchwise_norm_without_a_scale() -> None:
    check("BranchwiseRMSNorm", {"x": normal(2, 3, 6)}, num_branches=3)


def test_gates_of_linear_attention() -> None:
    operands = {"a": normal(2, 3, 4), "bias": normal(4), "scale": -np.exp(normal(4)), "b": normal(2, 3, 4)}
    check("LinearAttentionGate", operands, outputs=2)
    check("LinearAttentionGate", dict(list(operands.items())[:3]))


@pytest.mark.parametrize("gates", [(3, 2), (3, 2, 1), (3, 2, 4), (3, 8)])
def test_streams_before_a_block(gates: tuple[int, ...]) -> None:
    check("HyperConnectionPreMix", {"x": normal(3, 8), "gates": normal(*gates)}, num_branches=2, reduction_scale=0.7)


@pytest.mark.parametrize("gates", [(3, 2), (3, 2, 1), (3, 2, 4)])
def test_streams_after_a_block(gates: tuple[int, ...]) -> None:
    operands = {"x": normal(3, 2, 4), "block": normal(3, 4), "gates": normal(*gates)}
    check("HyperConnectionPostMix", operands)
    check("HyperConnectionPostMix", {**operands, "mix": normal(3, 2, 2)})


def test_the_gate_of_a_memory() -> None:
    operands = {"key": normal(2, 3, 2, 4), "query": normal(2, 3, 2, 4), "value": normal(2, 3, 4)}
    scales = {name: normal(2, 4) for name in ("key_scale", "query_scale", "value_scale")}
    compare(made("EngramGate", operands, 2, scales), operands)
    del scales["value_scale"]
    compare(made("EngramGate", operands, 1, scales, open_=False, epsilon=0.2), operands)
