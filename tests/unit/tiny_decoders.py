"""A decoder of one layer with caches, its tokenizer of single characters, and its greedy decoding in ONNX Runtime."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
CHARACTERS = (" ." + string.ascii_letters + string.digits)[:60]
TOKENS = [*SPECIAL, *CHARACTERS]
POSITIONS, WIDTH, HEADS = 96, 8, 2
KEY, VALUE = "past_key_values.0.key", "past_key_values.0.value"


def decoder(seed: int = 0) -> onnx.ModelProto:
    """Embeddings of tokens and positions, causal attention with a cache, and the embeddings again for the logits."""
    rng, head = np.random.default_rng(seed), WIDTH // HEADS
    weights = dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    weights |= {"tokens": (len(TOKENS), WIDTH), "positions": (POSITIONS, WIDTH), "back": (WIDTH, len(TOKENS))}
    constants = {name: rng.normal(size=size).astype(np.float32) for name, size in weights.items()}
    constants |= {"split": np.array([1, -1, HEADS, head]), "join": np.array([1, -1, WIDTH]), "two": np.array(2)}
    constants |= {"zero": np.array(0), "one": np.array(1), "column": np.array([1, 1, -1, 1])}
    constants |= {"scale": np.float32(head**-0.5), "hidden": np.float32(-1e9), "visible": np.float32(0)}
    parts = [
        *_heads("q", "wq"),
        *_heads("k", "wk"),
        *_heads("v", "wv"),
        node("Concat", [KEY, "k"], "present.0.key", axis=2),
        node("Concat", [VALUE, "v"], "present.0.value", axis=2),
        node("Shape", ["present.0.key"], "sizes"),
        node("Gather", ["sizes", "two"], "total"),
        node("Range", ["zero", "total", "one"], "places"),
        node("Reshape", ["position_ids", "column"], "at"),
        node("LessOrEqual", ["places", "at"], "before"),
        node("Where", ["before", "visible", "hidden"], "mask"),
        node("Transpose", ["present.0.key"], "keys", perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "keys"], "raw"),
        node("Mul", ["raw", "scale"], "scaled"),
        node("Add", ["scaled", "mask"], "scores"),
        node("Softmax", ["scores"], "shares", axis=-1),
        node("MatMul", ["shares", "present.0.value"], "read"),
        node("Transpose", ["read"], "read_back", perm=[0, 2, 1, 3]),
        node("Reshape", ["read_back", "join"], "joined"),
        node("MatMul", ["joined", "wo"], "attended"),
        node("Add", ["attended", "x"], "y"),
        node("MatMul", ["y", "back"], "logits"),
    ]
    embedded = [node("Gather", ["tokens", "input_ids"], "e"), node("Gather", ["positions", "position_ids"], "p")]
    cache = ["batch", HEADS, "past", head]
    inputs = [("input_ids", ["batch", "new"]), ("position_ids", ["batch", "new"]), (KEY, cache), (VALUE, cache)]
    grown = ["batch", HEADS, "total", head]
    outputs = [("logits", ["batch", "new", len(TOKENS)]), ("present.0.key", grown), ("present.0.value", grown)]
    graph = helper.make_graph(
        [*embedded, node("Add", ["e", "p"], "x"), *parts],
        "decoder",
        [_info(*one) for one in inputs],
        [_info(*one) for one in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=output, **attributes)


def _heads(name: str, weight: str) -> list[onnx.NodeProto]:
    """The product with a weight, split into heads: [1, heads, new, head]."""
    return [
        node("MatMul", ["x", weight], f"{name}_flat"),
        node("Reshape", [f"{name}_flat", "split"], f"{name}_split"),
        node("Transpose", [f"{name}_split"], name, perm=[0, 2, 1, 3]),
    ]


def _info(name: str, sizes: Sequence[int | str]) -> onnx.ValueInfoProto:
    type_ = TensorProto.INT64 if name.endswith("_ids") else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, type_, sizes)


def tokenizer() -> dict[str, Any]:
    """A tokenizer.json with a token for each character."""
    kinds = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []}
    model |= dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    model |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    added = [{"id": number, "content": token, **kinds} for number, token in enumerate(SPECIAL)]
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    return {"version": "1.0", "added_tokens": added, **empty, "decoder": {"type": "Fuse"}, "model": model}


def sentence_piece() -> bytes:
    """A SentencePiece model (ModelProto) with the same tokens: unigrams without a normalizer."""
    types = {"<unk>": 2, **dict.fromkeys(("<pad>", "<s>", "</s>"), 3)}
    pieces = [_piece(token.replace(" ", "\u2581"), types.get(token, 1)) for token in TOKENS]
    trainer, normalizer = _field(3, 1), _text(1, b"identity") + _field(3, 0) + _field(4, 0)
    trainer += _field(40, TOKENS.index("<unk>")) + _field(41, 1) + _field(42, 2) + _field(43, 0)
    return b"".join([*(_text(1, piece) for piece in pieces), _text(2, trainer), _text(3, normalizer)])


def _piece(token: str, type_: int) -> bytes:
    return _text(1, token.encode()) + b"\x15" + np.float32(-1).tobytes() + _field(3, type_)


def _text(number: int, content: bytes) -> bytes:
    return _key(number << 3 | 2) + bytes([len(content)]) + content


def _field(number: int, value: int) -> bytes:
    return _key(number << 3) + bytes([value])


def _key(key: int) -> bytes:
    return bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])


def write_decoder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """Write the decoder, its tokenizer.json and config.json; returns the path of the model."""
    onnx.save(decoder(), folder / "model.onnx")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    default = {"bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": POSITIONS, "model_type": "gpt2"}
    (folder / "config.json").write_text(json.dumps(default if config is None else config))
    return folder / "model.onnx"


def greedy(model: Path, prompt: Sequence[int], steps: int) -> list[int]:
    """The tokens that ONNX Runtime finds most likely after a prompt, up to the first stop token."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    past, new, found = np.zeros((2, 1, HEADS, 0, WIDTH // HEADS), np.float32), list(prompt), list[int]()
    while len(found) < steps:
        start = past.shape[3]
        at = np.arange(start, start + len(new))[None]
        logits, *grown = session.run(
            None, {"input_ids": np.array([new]), "position_ids": at, KEY: past[0], VALUE: past[1]}
        )
        past, new = np.stack(grown), [int(logits[0, -1].argmax())]
        if new[0] == TOKENS.index("</s>"):
            break
        found += new
    return found
