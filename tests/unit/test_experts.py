"""Mixtures of experts of com.microsoft, computed by ONNX Runtime's own kernels and by the converted models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_gated_layers import with_open_batch
from tests.unit.test_microsoft_ops import RNG, compare, made, normal

TOKENS, HIDDEN, INNER, EXPERTS = 6, 32, 64, 4


def mixture(activation: str, *, bias: bool = True, dense: bool = False, **attributes: Any) -> None:
    """Compare with sizes that are known, and with an open batch."""
    rows = INNER * (2 if activation == "swiglu" else 1)
    x = {"x": normal(2, 3, HIDDEN) if dense else normal(TOKENS, HIDDEN), "r": normal(TOKENS, EXPERTS)}
    weights = {"w1": normal(EXPERTS, rows, HIDDEN), "w2": normal(EXPERTS, HIDDEN, INNER)}
    weights |= {"b1": normal(EXPERTS, rows), "b2": normal(EXPERTS, HIDDEN)} if bias else {}
    order = "x,r,w1,b1,w2,b2" if bias else "x,r,w1,,w2"
    fused = {"swiglu_fusion": 1} if activation == "swiglu" else {}
    model = made("MoE", x, 1, weights, order, activation_type=activation, **fused, **attributes)
    compare(model, x)
    compare(with_open_batch(model), x)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_activations_of_experts(activation: str) -> None:
    mixture(activation, k=2)
    mixture(activation, k=1, bias=False, dense=True, normalize_routing_weights=1)


def test_gates_as_gpt_oss_has_them() -> None:
    limits = {"swiglu_limit": 7.0, "activation_alpha": 1.702, "activation_beta": 1.0}
    mixture("swiglu", k=4, normalize_routing_weights=1, **limits)
    mixture("swiglu", k=2, **limits | {"swiglu_limit": 0.5})


def test_of_equal_scores_the_last_experts_count() -> None:
    x = {"x": normal(TOKENS, HIDDEN), "r": np.zeros((TOKENS, EXPERTS), np.float32)}
    weights = {"w1": normal(EXPERTS, INNER, HIDDEN), "w2": normal(EXPERTS, HIDDEN, INNER)}
    compare(made("MoE", x, 1, weights, "x,r,w1,,w2", k=2), x)
    compare(made("MoE", x | weights, 1, {}, "x,r,w1,,w2", k=2), x | weights)


def quantized(bits: int, block: int, zeros: bool, **attributes: Any) -> tuple[bytes, dict[str, Array]]:
    """A QMoE with random weights of few bits and gates as gpt-oss has them, and inputs for it."""
    per, rows = 8 // bits, 2 * INNER
    x = {"x": normal(TOKENS, HIDDEN) / 2, "r": normal(TOKENS, EXPERTS)}
    names = ["x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "", "", ""]
    weights: dict[str, Array] = {"b1": normal(EXPERTS, rows), "b2": normal(EXPERTS, HIDDEN)}
    for layer, height, width in (("1", rows, HIDDEN), ("2", HIDDEN, INNER)):
        count = width // block if block else 1
        weights["w" + layer] = RNG.integers(0, 256, (EXPERTS, height, width // per)).astype(np.uint8)
        shape = (EXPERTS, height, count) if block else (EXPERTS, height)
        weights["s" + layer] = (RNG.random(shape) / 2**bits).astype(np.float32)
        if zeros:
            packed = (EXPERTS, height, -(-count // per)) if block else (EXPERTS, -(-height // per))
            weights["z" + layer] = RNG.integers(0, 256, packed).astype(np.uint8)
            names.append("z" + layer)
    fused = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
    given = {"k": 2, "expert_weight_bits": bits, **({"block_size": block} if block else {}), **fused}
    return made("QMoE", x, 1, weights, ",".join(names), **given, **attributes), x


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 16), (4, 32), (8, 0), (2, 0), (2, 16)])
def test_experts_of_few_bits(bits: int, block: int, zeros: bool) -> None:
    compare(*quantized(bits, block, zeros))


@pytest.mark.parametrize(("bits", "block", "products"), [(4, 32, 2), (4, 0, 2), (8, 32, 6)])
def test_hybrid_kernels_read_experts_of_few_bits(bits: int, block: int, products: int) -> None:
    """No weights are dequantized in each run; 8 bits are two matrices and their offsets. The bias is a product too."""
    model, x = quantized(bits, block, False)
    done = onnxtfl.onnx_to_tflite(model, check=False, dynamic_quant="hybrid", min_runtime="litert-2.3")
    assert done.report.ops_after["FULLY_CONNECTED"] >= products
    assert not {"CAST", "DEQUANTIZE"} & done.report.ops_after.keys()
    (wanted,) = run_onnx(model, x).values()
    ((_, found),) = run_tflite(done.data or b"", x)
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("normalize", [0, 1])
def test_weights_of_the_router_besides_its_scores(normalize: int) -> None:
    model, x = quantized(4, 16, True, normalize_routing_weights=normalize)
    x["weights"] = np.abs(normal(TOKENS, EXPERTS))
    proto = onnx.load_from_string(model)
    proto.graph.node[0].input.extend(["", "weights"])
    proto.graph.input.append(onnx.helper.make_tensor_value_info("weights", 1, [TOKENS, EXPERTS]))
    compare(proto.SerializeToString(), x)


@pytest.mark.parametrize(("fusion", "text"), [(0, "interleaved"), (2, "interleaved")])
def test_gates_that_cpu_kernels_do_not_have(fusion: int, text: str) -> None:
    x = {"x": normal(TOKENS, HIDDEN), "r": normal(TOKENS, EXPERTS)}
    weights = {"w1": normal(EXPERTS, 2 * INNER, HIDDEN), "w2": normal(EXPERTS, HIDDEN, INNER)}
    model = made("MoE", x, 1, weights, "x,r,w1,,w2", k=2, activation_type="swiglu", swiglu_fusion=fusion)
    with pytest.raises(UnsupportedError, match=text):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(("groups", "of_each", "taken"), [(1, 2, 1), (4, 2, 2), (4, 8, 3)])
@pytest.mark.parametrize("ties", [False, True])
def test_routers_of_groups(groups: int, of_each: int, taken: int, ties: bool) -> None:
    """Of equal scores the first count."""
    count = 16
    x = {"l": np.zeros((TOKENS, count), np.float32) if ties else normal(TOKENS, count)}
    bias = {"b": np.zeros(count, np.float32) if ties else normal(count)}
    limits = {"n_group": groups, "group_topk": of_each, "topk_group": taken, "top_k": 3}
    model = made("MoEGroupRouter", x, 1, bias, "l,b", **limits)
    compare(model, x)
    compare(with_open_batch(model), x)


def test_a_router_that_returns_all_scores() -> None:
    x = {"l": normal(TOKENS, 16)}
    proto = onnx.load_from_string(made("MoEGroupRouter", x, 3, {"b": normal(16)}, "l,b", top_k=2))
    proto.graph.node[0].output[0] = ""
    del proto.graph.output[0]
    compare(proto.SerializeToString(), x)
