"""Write Llama decoders of any size with random weights, as the generator of ONNX Runtime writes them.

    python tools/make_decoders.py OUT/model.onnx                          1.1 billion weights of 4 bits: 690 MB
    python tools/make_decoders.py OUT/model.onnx --sizes small --bits 32   100 million weights of float32

The ops are those of onnxruntime_genai's model builder: MatMulNBits with one matrix for queries, keys and values,
GroupQueryAttention with rotary embeddings, (Skip)SimplifiedLayerNormalization. Weights are external data, written in
pieces. config.json and tokenizer.json are beside the model. Equal arguments give equal bytes.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

_MICROSOFT = "com.microsoft"
_PIECE = 1 << 22
_TYPES = {16: (TensorProto.FLOAT16, "<f2"), 32: (TensorProto.FLOAT, "<f4")}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder; a head has `hidden` / `heads` elements."""

    hidden: int
    layers: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    positions: int = 2048

    @property
    def head(self) -> int:
        """The elements of a head."""
        return self.hidden // self.heads


SIZES = {
    "tiny": Sizes(64, 2, 4, 2, 128, 96, 128),
    "small": Sizes(768, 12, 12, 4, 2048, 16000),
    "large": Sizes(2048, 22, 32, 4, 5632, 32000),
    "half": Sizes(2048, 10, 32, 4, 5632, 32000),
}


@dataclass
class Decoder:
    """A decoder in the making. `bits`: of each weight; 4 and 8 have a scale for each `block` of a row.

    `is_tied`: whether the embeddings are the weights of the logits too. `half`: whether all else is float16.
    """

    sizes: Sizes
    bits: int = 4
    block: int = 32
    is_tied: bool = False
    half: bool = False
    accuracy: int = 4
    nodes: list[NodeProto] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)

    def write(self, path: Path, vocabulary: bool = True) -> None:
        """Write the model, its weights, its configuration and (`vocabulary`) a tokenizer of numbered tokens."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".onnx.data").open("wb") as self._data:
            model = self._model()
        path.write_bytes(model.SerializeToString())
        config = {"bos_token_id": 1, "eos_token_id": 2, "model_type": "llama"}
        config["max_position_embeddings"] = self.sizes.positions
        path.with_name("config.json").write_text(json.dumps(config))
        if vocabulary:
            path.with_name("tokenizer.json").write_text(json.dumps(_tokenizer(self.sizes.vocabulary)))

    _data: BinaryIO = field(init=False)

    def _model(self) -> ModelProto:
        s = self.sizes
        tokens = self._input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        mask = self._input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
        lengths = self._op("ReduceSum", mask, self._constant("one", [1], np.int64), keepdims=0)
        last = self._op("Cast", self._op("Sub", lengths, "one"), to=TensorProto.INT32)
        total = self._op("Gather", self._op("Shape", mask), self._constant("index", 1, np.int64), axis=0)
        total = self._op("Cast", total, to=TensorProto.INT32)
        angles = np.outer(np.arange(s.positions), 10000.0 ** (-np.arange(0, s.head, 2) / s.head))
        for name in ("cos", "sin"):
            self._constant(f"{name}_cache", getattr(np, name)(angles), self._dtype)
        x = self._embedded(tokens)
        self._vector("norm.0")
        y = self._op("SimplifiedLayerNormalization", x, "norm.0", axis=-1, epsilon=1e-5, stash_type=1)
        for layer in range(s.layers):
            added = self._attention(y, f"layers.{layer}.attn", layer, last, total)
            y, x = self._normalized(x, added, f"layers.{layer}.norm")
            gate, up = (self._product(y, f"layers.{layer}.mlp.{n}", s.hidden, s.inner) for n in ("gate", "up"))
            gate = self._op("Mul", gate, self._op("Sigmoid", gate))
            added = self._product(self._op("Mul", gate, up), f"layers.{layer}.mlp.down", s.inner, s.hidden)
            y, x = self._normalized(x, added, f"layers.{layer}.last_norm")
        weights = "embedding" if self.is_tied else "lm_head"
        logits = self._product(y, weights, s.hidden, s.vocabulary)
        self.nodes[-1].output[0] = "logits" if not self.half else logits
        if self.half:
            self.nodes.append(helper.make_node("Cast", [logits], ["logits"], "cast", to=TensorProto.FLOAT))
        self.outputs.insert(0, _info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", s.vocabulary]))
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, self.outputs, self.tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="make_decoders")

    @property
    def _type(self) -> int:
        return int(TensorProto.FLOAT16 if self.half else TensorProto.FLOAT)

    @property
    def _dtype(self) -> Any:
        return np.float16 if self.half else np.float32

    def _op(self, op: str, *operands: str, results: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node. Returns the name of its result, or those of several."""
        name = f"/{op}_{len(self.nodes)}"
        found = [f"{name}/output_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(op, operands, found, name, domain=domain, **attributes))
        return found[0] if results == 1 else found

    def _input(self, name: str, type_: int, shape: list[str | int]) -> str:
        self.inputs.append(_info(name, type_, shape))
        return name

    def _constant(self, name: str, value: Any, dtype: Any) -> str:
        array: np.ndarray[Any, Any] = np.asarray(value, dtype)
        type_ = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.tensors.append(helper.make_tensor(name, type_, array.shape, array.tobytes(), raw=True))
        return name

    def _vector(self, name: str) -> str:
        return self._constant(name, np.ones(self.sizes.hidden), self._dtype)

    def _normalized(self, x: str, added: str, name: str) -> tuple[str, str]:
        """The normalized sum, and the sum."""
        how: dict[str, Any] = {"domain": _MICROSOFT, "epsilon": 1e-5}
        y, _, _, total = self._op("SkipSimplifiedLayerNormalization", x, added, self._vector(name), results=4, **how)
        self.nodes[-1].output[1] = self.nodes[-1].output[2] = ""
        return y, total

    def _attention(self, x: str, name: str, layer: int, last: str, total: str) -> str:
        s = self.sizes
        merged = self._product(x, f"{name}.qkv", s.hidden, s.hidden + 2 * s.groups * s.head)
        caches = []
        for kind in ("key", "value"):
            past = self._input(f"past_key_values.{layer}.{kind}", self._type, self._cache("past"))
            caches.append(past)
            self.outputs.append(_info(f"present.{layer}.{kind}", self._type, self._cache("total")))
        operands = [merged, "", "", *caches, last, total, "cos_cache", "sin_cache"]
        how = {"num_heads": s.heads, "kv_num_heads": s.groups, "scale": s.head**-0.5, "do_rotary": 1}
        y, *_ = self._op("GroupQueryAttention", *operands, results=3, domain=_MICROSOFT, **how)
        self.nodes[-1].output[1:] = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        return self._product(y, f"{name}.o", s.heads * s.head, s.hidden)

    def _cache(self, tokens: str) -> list[str | int]:
        return ["batch_size", self.sizes.groups, f"{tokens}_sequence_length", self.sizes.head]

    def _embedded(self, tokens: str) -> str:
        s = self.sizes
        if self.bits > 8:
            name = self._floats("embedding", (s.vocabulary, s.hidden))
            return str(self._op("Gather", name, tokens))
        how: dict[str, Any] = {"domain": _MICROSOFT, "bits": self.bits, "block_size": self.block}
        how |= {"quantize_axis": 1, "gather_axis": 0}
        weights, scales = self._integers("embedding", s.vocabulary, s.hidden)
        if self.is_tied:
            shape = self._constant("table", [s.vocabulary, s.hidden * self.bits // 8], np.int64)
            weights = self._op("Reshape", weights, shape)
            shape = self._constant("scales", [s.vocabulary, s.hidden // self.block], np.int64)
            scales = self._op("Reshape", scales, shape)
        return str(self._op("GatherBlockQuantized", weights, tokens, scales, **how))

    def _product(self, x: str, name: str, rows: int, columns: int) -> str:
        """The product of the last axis with a matrix [rows, columns]."""
        if self.bits > 8:
            if self.is_tied and name == "embedding":
                return str(self._op("MatMul", x, self._op("Transpose", name, perm=[1, 0])))
            return str(self._op("MatMul", x, self._floats(name, (rows, columns))))
        how = {"K": rows, "N": columns, "bits": self.bits, "block_size": self.block, "accuracy_level": self.accuracy}
        is_known = self.is_tied and name == "embedding"
        operands = (f"{name}.quant", f"{name}.scales") if is_known else self._integers(name, columns, rows)
        return str(self._op("MatMulNBits", x, *operands, domain=_MICROSOFT, **how))

    def _integers(self, name: str, rows: int, columns: int) -> tuple[str, str]:
        """Random integers [rows, blocks, bytes] and scales [rows * blocks] as MatMulNBits has them, or as a table."""
        blocks, size = columns // self.block, self.block * self.bits // 8
        is_table = name == "embedding" and not self.is_tied
        stored = (rows, columns * self.bits // 8) if is_table else (rows, blocks, size)
        self._external(f"{name}.quant", stored, TensorProto.UINT8, None)
        deviation = columns**-0.5 if name != "embedding" else 1.0
        scales = (rows, blocks) if is_table else (rows * blocks,)
        self._external(f"{name}.scales", scales, self._type, 4 * deviation / (1 << self.bits))
        return f"{name}.quant", f"{name}.scales"

    def _floats(self, name: str, shape: tuple[int, int]) -> str:
        self._external(name, shape, self._type, shape[0] ** -0.5 if name != "embedding" else 1.0)
        return name

    def _external(self, name: str, shape: tuple[int, ...], type_: int, scale: float | None) -> None:
        """Random bytes, or elements of about the size `scale`: positive for scales of blocks, else normal."""
        start, count = self._data.tell(), math.prod(shape)
        random = np.random.default_rng(len(self.tensors))
        for first in range(0, count, _PIECE):
            n = min(_PIECE, count - first)
            if scale is None:
                piece: Any = np.frombuffer(random.bytes(n), np.uint8)
            elif name.endswith(".scales"):
                piece = (random.random(n, np.float32) + np.float32(0.5)) * np.float32(scale)
            else:
                piece = random.standard_normal(n, np.float32) * np.float32(scale)
            self._data.write(piece.astype(helper.tensor_dtype_to_np_dtype(type_)).tobytes())
        tensor = TensorProto(name=name, dims=shape, data_type=type_, data_location=TensorProto.EXTERNAL)
        entries = {"location": Path(self._data.name).name, "offset": start, "length": self._data.tell() - start}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)


def _info(name: str, type_: int, shape: list[str | int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


def _tokenizer(count: int) -> dict[str, Any]:
    """A tokenizer.json of `count` tokens that are numbers."""
    vocabulary = {f"t{i}": i for i in range(count)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"}
    names = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    split = {"type": "Whitespace"}
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(names), "pre_tokenizer": split, "model": model}


def main() -> None:
    """Write the decoder that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--sizes", choices=SIZES, default="large")
    parser.add_argument("--bits", type=int, choices=(4, 8, 16, 32), default=4)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--accuracy", type=int, default=4, help="accuracy_level of MatMulNBits")
    parser.add_argument("--tied", action="store_true", help="the embeddings are the weights of the logits")
    parser.add_argument("--half", action="store_true", help="activations, scales and caches of float16")
    options = parser.parse_args()
    half = options.half or options.bits == 16
    given = {"is_tied": options.tied, "half": half, "accuracy": options.accuracy}
    Decoder(SIZES[options.sizes], options.bits, options.block, **given).write(options.path)


if __name__ == "__main__":
    main()
