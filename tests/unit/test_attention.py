"""Attention and embeddings on quantized operands, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array, run_onnx, run_tflite

B, S, H, HEADS = 2, 6, 32, 4
F, INT = TensorProto.FLOAT, TensorProto.INT32
RNG = np.random.default_rng(0)


Spec = tuple[int, list[int]]


def model(nodes: list[object], inputs: dict[str, Spec], outputs: dict[str, Spec], constants: dict[str, Array]) -> bytes:
    given, results = ([helper.make_tensor_value_info(n, *s) for n, s in side.items()] for side in (inputs, outputs))
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", given, results, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def compare(data: bytes, inputs: dict[str, Array]) -> None:
    wanted = run_onnx(data, inputs)
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(data, check=False).data or b"", inputs))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())


def attention(mask: list[object] | None = None, by_column: bool = False, **attributes: int) -> bytes:
    scale = RNG.uniform(0.001, 0.01, 3 * H).astype(np.float32) if by_column else np.float32(0.01)
    constants: dict[str, Array] = {
        "w": RNG.integers(-127, 127, (H, 3 * H)).astype(np.int8),
        "b": RNG.standard_normal(3 * H).astype(np.float32),
        "xs": np.asarray(0.05, np.float32),
        "ws": np.asarray(scale),
        "xz": np.asarray(120, np.uint8),
        "wz": np.zeros(np.shape(scale), np.int8),
    } | ({} if mask is None else {"m": np.asarray(mask, np.int32)})
    names = ["q", "w", "b", "xs", "ws", "" if mask is None else "m", "xz", "wz"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("QAttention", names, ["y"], domain="com.microsoft", num_heads=HEADS, **attributes),
    ]
    return model(nodes, {"x": (F, [B, S, H])}, {"y": (F, [B, S, H])}, constants)


X = RNG.standard_normal((B, S, H)).astype(np.float32)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("mask", [None, [3, 6], [[1, 1, 1, 0, 0, 0], [1] * 6]], ids=["none", "lengths", "keys"])
def test_attention(by_column: bool, mask: list[object] | None) -> None:
    compare(attention(mask, by_column), {"x": X})


def test_attention_to_earlier_positions() -> None:
    compare(attention(unidirectional=1), {"x": X})


def test_rotary_attention_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="QAttention"):
        onnxtfl.onnx_to_tflite(attention(do_rotary=1), check=False)


@pytest.mark.parametrize("segments", [True, False])
def test_embeddings(segments: bool) -> None:
    shapes = {"word": (50, H), "position": (16, H), "segment": (2, H), "gamma": (H,), "beta": (H,)}
    used = [n if segments or n != "segment" else "" for n in shapes]
    constants: dict[str, Array] = {}
    for name in filter(None, used):
        constants[name] = RNG.integers(0, 255, shapes[name]).astype(np.uint8)
        constants |= {f"{name}_s": np.asarray(0.02, np.float32), f"{name}_z": np.asarray(128, np.uint8)}
    parameters = [f"{n}{end}" if n else "" for end in ("_s", "_z") for n in used]
    names = ["ids", "kinds" if segments else "", *used, "mask", *parameters]
    node = helper.make_node("QEmbedLayerNormalization", names, ["y", "count"], domain="com.microsoft", epsilon=1e-6)
    largest = {"ids": 50, "kinds": 2, "mask": 2}
    inputs = {n: RNG.integers(0, v, (B, S)).astype(np.int32) for n, v in largest.items() if n in names}
    outputs = {"y": (F, [B, S, H]), "count": (INT, [B])}
    compare(model([node], dict.fromkeys(inputs, (INT, [B, S])), outputs, constants), inputs)


def test_a_negative_softcap_is_none() -> None:
    """As in ONNX Runtime's kernel; the function that defines the op has one."""
    x = {name: np.random.default_rng(3).standard_normal((2, 3, 16)).astype(np.float32) * 3 for name in "qkv"}
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 24]>'
        "g (float[2,3,16] q, float[2,3,16] k, float[2,3,16] v) => (float[2,3,16] y)"
        "{ y = Attention <q_num_heads: int = 2, kv_num_heads: int = 2, softcap: float = -2.0> (q, k, v) }"
    )
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)[0][1]
    np.testing.assert_allclose(found, run_onnx(model.SerializeToString(), x)["y"], atol=1e-5)
