"""Attention of the domain com.microsoft, in the forms that are in models, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_microsoft_ops import compare, made, normal

B, S, P, H, N = 2, 4, 3, 16, 2
D = H // N
MASKS = {
    "none": None,
    "lengths": np.asarray([2, 4], np.int32),
    "ends": np.asarray([3, 4, 0, 1], np.int32),
    "keys": np.asarray([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32),
    "negative keys": np.asarray([[1, -3, 0, 2], [-1, 1, 5, 1]], np.int32),
    "pairs": np.tri(S, dtype=np.int32)[None].repeat(B, 0),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("later", [0, 1, 2])
def test_attention(mask: str, later: int) -> None:
    x, given = {"x": normal(B, S, H)}, MASKS[mask]
    constants = {"w": normal(H, 3 * H), "b": normal(3 * H)} | ({} if given is None else {"m": given})
    compare(made("Attention", x, constants=constants, num_heads=N, unidirectional=later), x)


def test_attention_without_a_bias() -> None:
    x = {"x": normal(B, S, H)}
    compare(made("Attention", x, constants={"w": normal(H, 3 * H)}, num_heads=N), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_keys_are_masked_by_the_lowest_number(dtype: type) -> None:
    """It is -infinity as a half, of which 0 times is no number."""
    x = {"x": normal(B, S, H).astype(dtype)}
    constants = {"w": normal(H, 3 * H).astype(dtype), "b": normal(3 * H).astype(dtype), "m": MASKS["keys"]}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    lowest = float(np.finfo(np.float32).min)
    model = made("Attention", x, constants=constants, results=kind, num_heads=N, mask_filter_value=lowest)
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)[0][1]
    np.testing.assert_allclose(found, run_onnx(model, x)["y0"], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mask", ["lengths", "ends"])
def test_attention_with_a_mask_of_open_size(mask: str) -> None:
    """Whether it has starts after the ends is known at run time only."""
    x = {"x": normal(B, S, H), "m": MASKS[mask]}
    model = made("Attention", x, 1, {"w": normal(H, 3 * H), "b": normal(3 * H)}, "x,w,b,m", num_heads=N, open_=True)
    made_ = onnxtfl.onnx_to_tflite(model, input_shapes={"x": (None, S, H), "m": (None,)}, check=False)
    found = run_tflite(made_.data or b"", x)[0][1]
    np.testing.assert_allclose(found, run_onnx(model, x)["y0"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("open_", [False, True])
def test_attention_with_a_past(open_: bool) -> None:
    x = {"x": normal(B, S, H), "past": normal(2, B, N, P, D), "m": np.ones((B, P + S), np.int32)}
    x["m"][0, :2] = 0
    constants = {"w": normal(H, 3 * H), "b": normal(3 * H)}
    operands = "x,w,b,m,past"
    compare(made("Attention", x, 2, constants, operands, num_heads=N, unidirectional=1, open_=False), x)
    if open_:
        model = made("Attention", x, 2, constants, operands, num_heads=N, unidirectional=1, open_=True)
        shapes = {"x": (None, None, H), "past": (2, None, N, None, D)}
        found = onnxtfl.onnx_to_tflite(model, input_shapes=shapes)
        assert found.check is not None
        assert found.check.ok, str(found.check)


def test_attention_with_other_sizes_and_a_bias_of_positions() -> None:
    x = {"x": normal(B, S, H), "more": normal(1, N, S, S)}
    constants = {"w": normal(H, 8 + 8 + 12), "b": normal(28)}
    model = made("Attention", x, 1, constants, "x,w,b,,,more", num_heads=N, qkv_hidden_sizes=[8, 8, 12], scale=0.3)
    compare(model, x)


FORMS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "separate": ("q,k,v", {"q": (B, S, H), "k": (B, 5, H), "v": (B, 5, H)}),
    "with bias": ("q,k,v,b", {"q": (B, S, H), "k": (B, 5, H), "v": (B, 5, H), "b": (3 * H,)}),
    "in heads": ("q,k,v", {"q": (B, S, H), "k": (B, N, 5, D), "v": (B, N, 5, D)}),
    "with a past": (
        "q,k,v,,,,p,r",
        {"q": (B, S, H), "k": (B, S, H), "v": (B, S, H), "p": (B, N, P, D), "r": (B, N, P, D)},
    ),
    "with additions": ("q,k,v,,,a", {"q": (B, S, H), "k": (B, 5, H), "v": (B, 5, H), "a": (1, N, S, 5)}),
}


@pytest.mark.parametrize("form", FORMS)
def test_multi_head_attention(form: str) -> None:
    operands, shapes = FORMS[form]
    x = {name: normal(*shape) for name, shape in shapes.items()}
    compare(made("MultiHeadAttention", x, 3 if "p" in x else 1, None, operands, num_heads=N), x)


def test_packed_operands() -> None:
    """ONNX Runtime's CPU has no kernel for these: compared with the same operands on their own."""
    q, k, v = (normal(B, S, H) for _ in range(3))
    wanted = run_onnx(made("MultiHeadAttention", {"q": q, "k": k, "v": v}, num_heads=N), {"q": q, "k": k, "v": v})["y0"]
    packed = np.stack([a.reshape(B, S, N, D) for a in (q, k, v)], axis=3)
    for x in ({"qkv": packed}, {"q": q, "kv": np.ascontiguousarray(packed[:, :, :, 1:])}):
        found = onnxtfl.onnx_to_tflite(made("MultiHeadAttention", x, num_heads=N), check=False)
        np.testing.assert_allclose(run_tflite(found.data or b"", x)[0][1], wanted, atol=1e-5)


@pytest.mark.parametrize("mask", ["keys", "pairs"])
def test_multi_head_attention_with_a_mask(mask: str) -> None:
    x, given = {name: normal(B, S, H) for name in "qkv"}, MASKS[mask]
    assert given is not None
    compare(made("MultiHeadAttention", x, 1, {"m": given}, "q,k,v,,m", num_heads=N, unidirectional=1), x)


# --- rotary positions and caches -------------------------------------------------------------------------------------

ANGLES = np.random.default_rng(1).uniform(0, 6, (16, D // 2))
TABLES = {"cos": np.cos(ANGLES).astype(np.float32), "sin": np.sin(ANGLES).astype(np.float32)}
WIDE = 16  # the size of a head; ONNX Runtime's GroupQueryAttention wants multiples of that
TURNS = {name: np.concatenate([table] * 2, axis=1) for name, table in TABLES.items()}
KINDS: list[dict[str, Any]] = [
    {},
    {"do_rotary": 1},
    {"softcap": 2.0},
    {"softcap": -2.0},
    {"smooth_softmax": 1},
    {"local_window_size": 2},
]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["hidden", "heads", "offset", "part"])
def test_rotary_positions(interleaved: int, form: str) -> None:
    x = {"x": normal(B, N, S, D) if form == "heads" else normal(B, S, H)}
    ids = np.asarray([2]) if form == "offset" else np.asarray([[0, 1, 2, 3], [4, 6, 5, 7]])
    tables = {n: t[:, :2] for n, t in TABLES.items()} if form == "part" else TABLES
    attributes = {"num_heads": N, "rotary_embedding_dim": 4} if form == "part" else {}
    constants = {"ids": ids, **tables}
    compare(made("RotaryEmbedding", x, 1, constants, interleaved=interleaved, **attributes), x)


def cached(
    past: int, lengths: list[int], groups: int = 1, new: int = S, **attributes: Any
) -> tuple[bytes, dict[str, Array]]:
    """A GroupQueryAttention with 2 heads; `lengths`: positions of each row, with the new ones."""
    batch = len(lengths)
    x = {"q": normal(batch, new, N * WIDE), "k": normal(batch, new, groups * WIDE)}
    x["v"] = normal(batch, new, groups * WIDE)
    if past:
        x |= {"pk": normal(batch, groups, past, WIDE), "pv": normal(batch, groups, past, WIDE)}
    constants: dict[str, Array] = {"n": np.asarray(lengths, np.int32) - 1, "total": np.asarray(max(lengths), np.int32)}
    constants |= TURNS if attributes.get("do_rotary") else {}
    operands = f"q,k,v,{'pk,pv' if past else ','},n,total" + (",cos,sin" if attributes.get("do_rotary") else "")
    model = made("GroupQueryAttention", x, 3, constants, operands, num_heads=N, kv_num_heads=groups, **attributes)
    return model, x


@pytest.mark.parametrize("attributes", KINDS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_attention_to_a_prompt(attributes: dict[str, Any], groups: int) -> None:
    compare(*cached(0, [S, S], groups, **attributes))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        *({"do_rotary": flag} for flag in (1, 2, -1)),
        *({"do_rotary": 1, "rotary_interleaved": flag} for flag in (1, 2, -1)),
    ],
    ids=str,
)
@pytest.mark.parametrize(("past", "lengths", "new"), [(3, [4, 4], 1), (3, [7], 4)], ids=["one more", "several more"])
def test_grouped_attention_to_a_growing_cache(
    past: int, lengths: list[int], new: int, attributes: dict[str, Any]
) -> None:
    compare(*cached(past, lengths, 1, new, **attributes))


def test_grouped_attention_to_a_buffer() -> None:
    """The past has room for 8 positions; 5 are known, one is new. What is in the rest of the buffer has no effect."""
    model, x = cached(8, [6], 1, 1, do_rotary=1)
    x["pk"][:, :, 5:] = x["pv"][:, :, 5:] = 0
    compare(model, x)


@pytest.mark.parametrize("attributes", [{}, {"do_rotary": 1}, {"local_window_size": 3}], ids=str)
@pytest.mark.parametrize(
    ("past", "lengths", "new"),
    [(3, [4, 4], 1), (3, [7], 4), (0, [4], 4), (6, [5], 1), (6, [3, 4], 1)],
    ids=["one more", "several more", "no past", "a buffer", "a buffer of rows of other lengths"],
)
def test_grouped_attention_to_a_cache_of_open_length(
    past: int, lengths: list[int], new: int, attributes: dict[str, Any]
) -> None:
    """As ONNX Runtime's generator exports it: that the cache grows is known at run time only."""
    model, x = cached(max(past, 1), lengths, new=new, **attributes)
    shape = (len(lengths), 1, past, WIDE)
    x |= {"pk": normal(*shape), "pv": normal(*shape), "total": np.asarray(max(lengths), np.int32)}
    for row, length in enumerate(lengths):  # ONNX Runtime clears the rest of a buffer
        x["pk"][row, :, length - new :] = x["pv"][row, :, length - new :] = 0
    proto = onnx.ModelProto.FromString(model)
    kept = [one for one in proto.graph.initializer if one.name != "total"]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    proto.graph.input.append(helper.make_tensor_value_info("total", onnx.TensorProto.INT32, []))
    for given in proto.graph.input:
        if given.name in ("pk", "pv"):
            given.type.tensor_type.shape.dim[2].dim_param = "past"
    compare(proto.SerializeToString(), x)


def test_grouped_attention_in_one_operand() -> None:
    x = {"q": normal(B, S, (N + 2) * WIDE)}
    constants: dict[str, Array] = {"n": np.asarray([S - 1] * B, np.int32), "total": np.asarray(S, np.int32), **TURNS}
    names = "q,,,,,n,total,cos,sin"
    compare(made("GroupQueryAttention", x, 1, constants, names, num_heads=N, kv_num_heads=1, do_rotary=1), x)


def test_a_quantized_cache_is_refused() -> None:
    x = {"q": normal(B, S, H), "k": normal(B, S, D), "v": normal(B, S, D)}
    constants: dict[str, Array] = {"n": np.asarray([S - 1] * B, np.int32), "total": np.asarray(S, np.int32)}
    constants["s"] = np.ones(1, np.float32)
    model = made("GroupQueryAttention", x, 1, constants, "q,k,v,,,n,total,,,,,,s", num_heads=N, kv_num_heads=1)
    with pytest.raises(UnsupportedError, match="quantized cache"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("attributes", [{}, {"softcap": 2.0}, {"local_window_size": 2}], ids=str)
@pytest.mark.parametrize(("past", "lengths"), [(0, [S, S]), (3, [7])], ids=["a prompt", "a past"])
def test_the_products_of_grouped_attention(
    kind: int, attributes: dict[str, Any], past: int, lengths: list[int]
) -> None:
    """Before the softmax, where those with keys that do not count are 0, or after it."""
    model, x = cached(past, lengths, qk_output=kind, **attributes)
    proto = onnx.load_from_string(model)
    proto.graph.node[0].output.append("products")
    proto.graph.output.append(helper.make_tensor_value_info("products", onnx.TensorProto.FLOAT, None))
    compare(proto.SerializeToString(), x)


def test_queries_and_keys_that_are_normalized_first() -> None:
    """ONNX Runtime's CPU kernel does not do it: against the norms as ops of their own."""
    x = {name: normal(B, S, N * WIDE) for name in "qkv"}
    constants: dict[str, Array] = {"n": np.asarray([S - 1] * B, np.int32), "total": np.asarray(S, np.int32), **TURNS}
    given: dict[str, Any] = {"num_heads": N, "kv_num_heads": N, "do_rotary": 1}
    apart = made("GroupQueryAttention", x, 1, constants, "q,k,v,,,n,total,cos,sin", **given)
    weights = {"wq": normal(WIDE), "wk": normal(WIDE)}
    order = "q,k,v,,,n,total,cos,sin,,,,,,wq,wk"
    fused = made("GroupQueryAttention", x, 1, constants | weights, order, qk_norm_epsilon=0.1, **given)

    def normalized(values: Array, weight: Array) -> Array:
        heads = values.reshape(B, S, N, WIDE)
        root = np.sqrt((heads * heads).mean(-1, keepdims=True) + 0.1)
        return np.asarray((heads / root * weight).reshape(values.shape), np.float32)

    first = x | {"q": normalized(x["q"], weights["wq"]), "k": normalized(x["k"], weights["wk"])}
    found = run_tflite(onnxtfl.onnx_to_tflite(fused, check=False).data or b"", x)[0][1]
    np.testing.assert_allclose(found, run_onnx(apart, first)["y0"], atol=1e-4)


def test_queries_of_several_lengths_are_refused() -> None:
    x = {"q": normal(B, S, H), "k": normal(B, S, D), "v": normal(B, S, D)}
    constants: dict[str, Array] = {"n": np.asarray([S - 1] * B, np.int32), "total": np.asarray(S, np.int32)}
    constants["lengths"] = np.asarray([S, 2], np.int32)
    names = "q,k,v,,,n,total,,,,,,,,,,lengths"
    with pytest.raises(UnsupportedError, match="several lengths"):
        onnxtfl.onnx_to_tflite(
            made("GroupQueryAttention", x, 1, constants, names, num_heads=N, kv_num_heads=1), check=False
        )
