"""Attention with a state of fixed size, computed by ONNX Runtime's own kernels and by the converted models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array
from tests.unit.test_microsoft_ops import RNG, compare, made, normal

B, T, K, V = 2, 5, 4, 6
RULES = ["linear", "gated", "delta", "gated_delta"]


def with_open_length(model: bytes) -> bytes:
    """The model with open sizes of batch and sequence."""
    opened = onnx.load_from_string(model)
    for value in opened.graph.input:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_param = "b"
        if len(dims) == 3:
            dims[1].dim_param = "t"
    return opened.SerializeToString()


def operands(rule: str, heads: tuple[int, int, int], per_key: bool, shared: bool, past: bool) -> dict[str, Array]:
    """Those of LinearAttention by name, for so many heads of queries, keys and values."""
    queries, keys, values = heads
    x = {"q": normal(B, T, queries * K), "k": normal(B, T, keys * K) / 2, "v": normal(B, T, values * V)}
    if past:
        x["s"] = normal(B, values, K, V)
    if "gated" in rule:
        x["g"] = -np.abs(normal(B, T, values * (K if per_key else 1)))
    if "delta" in rule:
        x["b"] = RNG.random((B, T, 1 if shared else values)).astype(np.float32)
    return x


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("heads", [(2, 2, 2), (4, 1, 2), (2, 1, 4)])
def test_states_that_are_updated_and_read(rule: str, heads: tuple[int, int, int]) -> None:
    for options in ((False, False, False), (True, True, True)):
        x = operands(rule, heads, *options)
        names = ",".join(name if name in x else "" for name in "qkvsgb").rstrip(",")
        counts = {"q_num_heads": heads[0], "kv_num_heads": heads[2]}
        model = made("LinearAttention", x, 2, {}, names, update_rule=rule, **counts)
        compare(model, x)
        compare(with_open_length(model), x)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("gate", "beta"), [("none", "none"), ("softplus", "sigmoid"), ("sigmoid", "none")])
@pytest.mark.parametrize("packed", [False, True])
def test_gated_delta_net(rule: str, gate: str, beta: str, packed: bool) -> None:
    lead, values = ((B * T,) if packed else (B, T)), 4
    x: dict[str, Array] = {"q": normal(*lead, 2, K), "k": normal(*lead, 2, K), "v": normal(*lead, values, V)}
    if "gated" in rule:
        x["g"] = -np.abs(normal(*lead, values))
        x |= {} if gate == "none" else {"a": normal(values), "d": normal(values)}
    if "delta" in rule:
        x["b"] = RNG.random((*lead, values)).astype(np.float32)
    if packed:
        x["s"] = normal(B, values, V, K)
    names = ",".join(name if name in x else "" for name in ["q", "k", "v", "", "g", "b", "s", "a", "d"]).rstrip(",")
    given = {
        "gate_activation": gate if "gated" in rule else "none",
        "beta_activation": beta if "delta" in rule else "none",
    }
    compare(made("GatedDeltaNet", x, 2, {}, names, update_rule=rule, qk_l2_norm=1, **given), x)


def test_state_windows_are_refused() -> None:
    x = operands("linear", (2, 2, 2), False, False, False)
    counts = {"q_num_heads": 2, "kv_num_heads": 2, "state_window": 2}
    with pytest.raises(UnsupportedError, match="state_window"):
        onnxtfl.onnx_to_tflite(made("LinearAttention", x, 2, update_rule="linear", **counts), check=False)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 12])
def test_positions_in_time_rows_and_columns(layout: int, interleaved: int, part: int) -> None:
    heads, size = 2, 16
    half = (part or size) // 2
    angles = {"c": normal(20, half), "s": normal(20, half)}
    x = {"x": normal(B, heads, T, size), "p": RNG.integers(0, 20, (3, B, T))}
    given = {"mrope_section": [half - 2 * (half // 3), half // 3, half // 3], "mrope_layout": layout}
    given |= {"interleaved": interleaved, "scale": 0.5, **({"rotary_embedding_dim": part} if part else {})}
    compare(made("MRotaryEmbedding", x, 1, angles, "x,p,c,s", num_heads=heads, **given), x)
    flat = {"x": normal(B, T, heads * size), "p": x["p"]}
    compare(made("MRotaryEmbedding", flat, 1, angles, "x,p,c,s", num_heads=heads, open_=False, **given), flat)
