"""Attention of one position on buffers that past and present share, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array
from tests.unit.test_microsoft_ops import RNG, compare, made, normal

B, N, SIZE, MOST, PAST, KEYS = 2, 2, 8, 7, 3, 9
WIDTH = N * SIZE
MASKED = "DecoderMaskedMultiHeadAttention"
ORDER = {"MultiHeadAttention": "q,k,v,b,m,a,K,V,n", MASKED: "q,k,v,m,a,K,V,n,,,b"}


def names(op: str, given: dict[str, Array]) -> str:
    return ",".join(name if name in given else "" for name in ORDER[op].split(",")).rstrip(",")


def model(op: str, total: int, x: dict[str, Array], options: str, outputs: int, **attributes: Any) -> bytes:
    """With the operands of `options`: a bias, a mask of keys, what is added to the products; the last are inputs."""
    bias = {"b": normal(3 * WIDTH)} if "b" in options else {}
    if "m" in options:
        x["m"] = RNG.integers(0, 2, (B, total)).astype(np.int32)
        x["m"][:, 0] = 1
    if "a" in options:
        x["a"] = normal(1, N, 1, total)
    return made(op, x, outputs, bias, names(op, x | bias), num_heads=N, **attributes)


@pytest.mark.parametrize("op", ORDER)
@pytest.mark.parametrize("options", ["", "b", "m", "a", "bma"])
def test_a_buffer_that_past_and_present_share(op: str, options: str) -> None:
    x = {"q": normal(B, 1, WIDTH), "k": normal(B, 1, WIDTH), "v": normal(B, 1, WIDTH)}
    x |= {"K": normal(B, N, MOST, SIZE), "V": normal(B, N, MOST, SIZE), "n": np.array([PAST], np.int32)}
    flags = {"past_present_share_buffer": 1, "output_qk": 1} if op == MASKED else {}
    compare(model(op, PAST + 1, x, options, 4, **flags), x)


@pytest.mark.parametrize("op", ORDER)
@pytest.mark.parametrize("options", ["", "b", "m", "bm"])
def test_keys_of_an_encoder(op: str, options: str) -> None:
    x = {"q": normal(B, 1, WIDTH), "k": normal(B, N, KEYS, SIZE), "v": normal(B, N, KEYS, SIZE)}
    compare(model(op, KEYS, x, options, 1), x)


def test_several_positions_in_one_buffer_are_refused() -> None:
    """ONNX Runtime's kernel copies the first of them only."""
    x = {name: normal(B, 2, WIDTH) for name in "qkv"}
    x |= {"K": normal(B, N, MOST, SIZE), "V": normal(B, N, MOST, SIZE), "n": np.array([PAST], np.int32)}
    with pytest.raises(UnsupportedError, match="several query positions at once"):
        onnxtfl.onnx_to_tflite(model("MultiHeadAttention", PAST + 2, x, "", 3), check=False)


@pytest.mark.parametrize(
    ("op", "hint"), [("GreedySearch", "run the search in your application"), ("SparseAttention", "GroupQueryAttention")]
)
def test_ops_around_a_decoder_say_what_to_convert(op: str, hint: str) -> None:
    with pytest.raises(UnsupportedError, match=hint):
        onnxtfl.onnx_to_tflite(made(op, {"x": normal(2, 3)}), check=False)
