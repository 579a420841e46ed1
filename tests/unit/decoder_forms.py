"""Decoders of two layers with random weights, made without the converter, in the forms that exporters write."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtfl.formats import files
from onnxtfl.llm.decoders import decoder_of
from onnxtfl.llm.signatures import decoder_to_tflite
from onnxtfl.options import Options

Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, HEADS, SIZE, LAYERS, PLACES = 40, 64, 4, 16, 2, 96
MICROSOFT, BLOCK = "com.microsoft", 32
LOWEST = float(np.finfo(np.float32).min)


@dataclass
class TinyDecoder:
    """Builds a decoder. ``attention``: "ops" (separate ops), "group-query" (of ONNX Runtime), "attention" (of ONNX).

    ``groups``: heads of keys and values. ``positions``: "rotary", "learned" (in the order of `position_ids`), "flat"
    (learned, without a batch), "sliced" (learned, a part of the table), "counted" (learned, of the sum of the
    attention mask, as OPT has them), "ranged" (learned, from the length of the cache). ``window``: the tokens that a
    token attends to, 0 for all. ``windowed``: the cache has as many places. ``masked``: what hidden scores are.
    ``half``: float16 but for logits. ``accuracy``: weights have 4 bits, and this level of accuracy (4: activations
    are rounded to int8); -1: they do not. ``has_mask``: whether there is an input `attention_mask`. ``names``: of a
    cache and of its new values, with the layer and its kind. ``weights``: of values, from scores: "softmax", "sink
    last" or "sink first" (with one more score), "sum" (a softmax of separate ops), "relu". ``masks_new``: the mask
    hides new tokens only, and is zeros for those before. ``experts``: the number of those of which each token has
    two, 0 for none. ``short``: the most tokens for which the first of two tables of positions is used, as long ropes
    have them; 0 for one table. ``embedded``: the input is `inputs_embeds`; `embedder` makes the model of these.
    """

    attention: str = "ops"
    groups: int = 2
    positions: str = "rotary"
    window: int = 0
    windowed: bool = False
    masked: float = LOWEST
    half: bool = False
    accuracy: int = -1
    has_mask: bool = True
    names: tuple[str, str] = ("past_key_values.{0}.{1}", "present.{0}.{1}")
    weights: str = "softmax"
    masks_new: bool = False
    experts: int = 0
    short: int = 0
    embedded: bool = False
    opset: int = 23
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def model(self) -> onnx.ModelProto:
        tokens = "inputs_embeds" if self.embedded else self._input("input_ids", TensorProto.INT64, ["batch", "new"])
        if self.embedded:
            self._input(tokens, TensorProto.FLOAT, ["batch", "new", WIDTH])
        if self.has_mask:
            self._input("attention_mask", TensorProto.INT64, ["batch", "past + new"])
        if self.attention != "group-query" and self.positions in ("rotary", "learned"):
            self._input("position_ids", TensorProto.INT64, ["batch", "new"])
        elif self.positions == "flat":
            self._input("cache_position", TensorProto.INT64, ["new"])
        self._make_masks()
        table = self._weight(VOCABULARY, WIDTH, scale=1.0)
        x = tokens if self.embedded else self.op("Gather", table, tokens)
        if self.positions == "sliced":
            total = self._total()
            first = self.op("Sub", total, self._size("input_ids", 1))
            rows = self.op("Slice", self._table(), first, total, self.constant([0]))
            x = self.op("Add", x, self.op("Unsqueeze", rows, self.constant([0])))
        elif self.positions != "rotary":
            x = self.op("Add", x, self.op("Gather", self._table(), self._places()))
        for layer in range(LAYERS):
            x = self.op("Add", x, self._attention(layer, self._normalized(x)))
            inner = self._normalized(x)
            x = self.op("Add", x, self._mixture(inner) if self.experts else self._expert(inner))
        logits = self.op("MatMul", self._normalized(x), self.op("Transpose", table, perm=[1, 0]))
        self.op("Cast", logits, to=TensorProto.FLOAT, out="logits")
        self.outputs.insert(0, _info("logits", TensorProto.FLOAT, ["batch", "new", VOCABULARY]))
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, weights)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    def embedder(self) -> onnx.ModelProto:
        """The embeddings of tokens, which are those of the logits."""
        table = next(w for w in self.model().graph.initializer if list(w.dims) == [VOCABULARY, WIDTH])
        node = helper.make_node("Gather", [table.name, "input_ids"], ["inputs_embeds"])
        ids = _info("input_ids", TensorProto.INT64, ["batch", "new"])
        found = _info("inputs_embeds", TensorProto.FLOAT, ["batch", "new", WIDTH])
        graph = helper.make_graph([node], "embedder", [ids], [found], [table])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def op(self, name: str, *operands: str, out: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node and return its result."""
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, operands, [out], domain=domain, **attributes))
        return out

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    @property
    def _real(self) -> int:
        return int(TensorProto.FLOAT16 if self.half else TensorProto.FLOAT)

    @property
    def _dtype(self) -> Any:
        return np.float16 if self.half else np.float32

    def _weight(self, *shape: int, scale: float = 0.0) -> str:
        return self.constant(self.rng.standard_normal(shape) * (scale or 1.5 / shape[0] ** 0.5), self._dtype)

    def _product(self, x: str, rows: int, columns: int) -> str:
        """The product with weights at random."""
        if self.accuracy < 0:
            return self.op("MatMul", x, self._weight(rows, columns))
        blocks = rows // BLOCK
        weights = self.constant(self.rng.integers(0, 256, (columns, blocks, BLOCK // 2)), np.uint8)
        scales = self.constant(self.rng.uniform(0.2, 0.4, columns * blocks) / rows**0.5, np.float32)
        how = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK, "accuracy_level": self.accuracy}
        return self.op("MatMulNBits", x, weights, scales, domain=MICROSOFT, **how)

    def _input(self, name: str, type_: int, shape: Sequence[str | int]) -> str:
        self.inputs.append(_info(name, type_, shape))
        return name

    def _table(self) -> str:
        """Weights of positions."""
        if not self.short:
            return self._weight(PLACES + 2, WIDTH, scale=1.0)
        is_long = self.op("Greater", self.op("Squeeze", self._total()), self.constant(self.short))
        tables = [numpy_helper.from_array(self.rng.standard_normal((PLACES, WIDTH)).astype(np.float32)) for _ in "ab"]
        branches = [
            helper.make_graph(
                [helper.make_node("Constant", [], [name], value=table)],
                name, [], [_info(name, TensorProto.FLOAT, [PLACES, WIDTH])],
            ) for name, table in zip(("long", "short"), tables, strict=True)
        ]  # fmt: skip
        return self.op("If", is_long, then_branch=branches[0], else_branch=branches[1])

    def _expert(self, x: str) -> str:
        hidden = self.op("Relu", self._product(x, WIDTH, 2 * WIDTH))
        return self._product(hidden, 2 * WIDTH, WIDTH)

    def _mixture(self, x: str) -> str:
        """The two best experts of each token, each for the tokens that chose it, as PyTorch's index_add has it."""
        rows = self.op("Reshape", x, self.constant([-1, WIDTH]))
        values, chosen = f"t{len(self.nodes)}", f"i{len(self.nodes)}"
        router = self.op("Softmax", self._product(rows, WIDTH, self.experts), axis=-1)
        self.nodes.append(helper.make_node("TopK", [router, self.constant([2])], [values, chosen]))
        total = self.op("Mul", rows, self.constant(0, self._dtype))
        for expert in range(self.experts):
            places = self.op("NonZero", self.op("Equal", chosen, self.constant(expert)))
            row = self.op("Gather", places, self.constant(0), axis=0)
            weights = self.op("GatherND", values, self.op("Transpose", places, perm=[1, 0]))
            made = self._expert(self.op("Gather", rows, row, axis=0))
            weighted = self.op("Mul", made, self.op("Unsqueeze", weights, self.constant([1])))
            at = self.op("Unsqueeze", row, self.constant([1]))
            total = self.op("ScatterND", total, at, weighted, reduction="add")
        return self.op("Reshape", total, self.op("Shape", x))

    def _normalized(self, x: str) -> str:
        ones = np.ones(WIDTH), np.zeros(WIDTH)
        return self.op("LayerNormalization", x, *(self.constant(one, self._dtype) for one in ones), axis=-1)

    def _size(self, value: str, axis: int) -> str:
        """A size as a number of shape [1]."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def _total(self) -> str:
        """The number of all tokens, of shape [1]."""
        if self.has_mask:
            return self._size("attention_mask", 1)
        return self.op("Add", self._size(self.names[0].format(0, "key"), 2), self._size("input_ids", 1))

    def _places(self) -> str:
        """The positions [1, N] of the new tokens."""
        if self.positions in ("rotary", "learned"):
            return "position_ids"
        if self.positions == "flat":
            return self.op("Unsqueeze", "cache_position", self.constant([0]))
        total, new = self._total(), self._size("input_ids", 1)
        first = self.op("Sub", total, new)
        if self.positions == "counted":
            counted = self.op("CumSum", "attention_mask", self.constant(1))
            rows = self.op("Mul", counted, "attention_mask")
            rows = self.op("Add", self.op("Sub", rows, self.constant([1])), self.constant([2]))
            return self.op("Slice", rows, first, total, self.constant([1]))
        zero = self.constant([0])
        squeezed = [self.op("Squeeze", value, zero) for value in (first, total)]
        return self.op("Unsqueeze", self.op("Range", *squeezed, self.constant(1)), zero)

    def _make_masks(self) -> None:
        """What is common to all layers."""
        if self.attention == "group-query":
            ends = self.op("ReduceSum", "attention_mask", self.constant([1]), keepdims=0)
            self.op("Cast", self.op("Sub", ends, self.constant([1])), to=TensorProto.INT32, out="ends")
            self.op("Cast", self.op("Squeeze", self._total(), self.constant([0])), to=TensorProto.INT32, out="total")
            return
        zero, one = self.constant([0]), self.constant(1)
        total = self._total()
        first = self.op("Sub", total, self._size("inputs_embeds" if self.embedded else "input_ids", 1))
        start, end = (self.op("Squeeze", value, zero) for value in (first, total))
        if self.masks_new:
            start, end = self.constant(0), self.op("Sub", end, start)
        rows = self.op("Unsqueeze", self.op("Range", start, end, one), self.constant([1]))
        columns = self.op("Unsqueeze", self.op("Range", self.constant(0), end, one), zero)
        hidden = self.op("Greater", columns, rows)
        if self.window:
            old = self.op("LessOrEqual", columns, self.op("Sub", rows, self.constant([self.window])))
            hidden = self.op("Or", hidden, old)
        scores = [self.constant(value, self._dtype) for value in (self.masked, 0)]
        if self.masks_new:
            new = self.op("Where", hidden, *scores)
            shape = self.op("Concat", self._size("input_ids", 1), first, axis=0)
            old = self.op("Expand", scores[1], shape)
            self.op("Unsqueeze", self.op("Concat", old, new, axis=1), self.constant([0, 1]), out="mask")
            return
        self.op("Unsqueeze", self.op("Where", hidden, *scores), self.constant([0, 1]), out="mask")

    def _heads(self, x: str, count: int) -> str:
        """[1, count, N, size] of the products of `x` with weights."""
        product = self._product(x, WIDTH, count * SIZE)
        split = self.op("Reshape", product, self.constant([0, 0, count, SIZE]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def _rotated(self, x: str) -> str:
        """Rotary embedding of [1, heads, N, size]."""
        rates = self.constant((0.3 ** np.arange(SIZE // 2)).reshape(1, 1, -1), self._dtype)
        at = self.op("Cast", self.op("Unsqueeze", "position_ids", self.constant([2])), to=self._real)
        angles = self.op("Unsqueeze", self.op("Mul", at, rates), self.constant([1]))
        both = self.op("Concat", angles, angles, axis=-1)
        low, high = (
            self.op("Slice", x, *(self.constant([n]) for n in (start, start + SIZE // 2, 3)))
            for start in (0, SIZE // 2)
        )
        turned = self.op("Concat", self.op("Neg", high), low, axis=-1)
        return self.op("Add", self.op("Mul", x, self.op("Cos", both)), self.op("Mul", turned, self.op("Sin", both)))

    def _attention(self, layer: int, x: str) -> str:
        pasts = [self.names[0].format(layer, kind) for kind in ("key", "value")]
        presents = [self.names[1].format(layer, kind) for kind in ("key", "value")]
        sizes = ("past_sliding", "total_sliding") if self.windowed else ("past", "past + new")
        for past, present in zip(pasts, presents, strict=True):
            self._input(past, self._real, ["batch", self.groups, sizes[0], SIZE])
            self.outputs.append(_info(present, self._real, ["batch", self.groups, sizes[1], SIZE]))
        form = {"ops": self._of_ops, "group-query": self._group_query, "attention": self._of_onnx}[self.attention]
        return self._product(form(x, pasts, presents), WIDTH, WIDTH)

    def _of_ops(self, x: str, pasts: list[str], presents: list[str]) -> str:
        q, k, v = (self._heads(x, count) for count in (HEADS, self.groups, self.groups))
        if self.positions == "rotary":
            q, k = self._rotated(q), self._rotated(k)
        keys, values = (
            self.op("Concat", past, new, axis=2, out=present)
            for past, new, present in zip(pasts, (k, v), presents, strict=True)
        )
        if self.groups != HEADS:
            keys, values = self._repeated(keys), self._repeated(values)
        scaled = self.op("Mul", q, self.constant(SIZE**-0.5, self._dtype))
        scores = self.op("Add", self.op("MatMul", scaled, self.op("Transpose", keys, perm=[0, 1, 3, 2])), "mask")
        return self._joined(self.op("MatMul", self._weights(scores), values))

    def _weights(self, scores: str) -> str:
        """The weights of values."""
        if self.weights == "relu":
            return self.op("Relu", scores)
        if self.weights == "sum":
            last = self.constant([-1])
            raised = self.op("Exp", self.op("Sub", scores, self.op("ReduceMax", scores, last)))
            return self.op("Div", raised, self.op("ReduceSum", raised, last))
        if not self.weights.startswith("sink"):
            return self.op("Softmax", scores, axis=-1)
        sink, end = self.constant(self.rng.standard_normal((1, HEADS, 1, 1)), self._dtype), self.constant([1 << 31])
        shape = self.op("Concat", self.constant([1, HEADS]), self._size(scores, 2), self.constant([1]), axis=0)
        both = [scores, self.op("Expand", sink, shape)]
        is_last = self.weights == "sink last"
        weights = self.op("Softmax", self.op("Concat", *(both if is_last else both[::-1]), axis=-1), axis=-1)
        bounds = (self.constant([0]), self.constant([-1])) if is_last else (self.constant([1]), end)
        return self.op("Slice", weights, *bounds, self.constant([3]))

    def _repeated(self, x: str) -> str:
        """Each head of keys or values for all heads of its group, as transformers has it."""
        repeats = HEADS // self.groups
        total = self._size(x, 2)
        wide = self.op("Unsqueeze", x, self.constant([2]))
        ends = [self.constant([1, self.groups, repeats]), total, self.constant([SIZE])]
        wide = self.op("Expand", wide, self.op("Concat", *ends, axis=0))
        ends = [self.constant([1, HEADS]), total, self.constant([SIZE])]
        return self.op("Reshape", wide, self.op("Concat", *ends, axis=0))

    def _joined(self, x: str) -> str:
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.constant([0, 0, WIDTH]))

    def _group_query(self, x: str, pasts: list[str], presents: list[str]) -> str:
        q, k, v = (self._product(x, WIDTH, count * SIZE) for count in (HEADS, self.groups, self.groups))
        angles = np.arange(PLACES)[:, None] * 0.3 ** np.arange(SIZE // 2)
        rotary = self.positions == "rotary"
        tables = [self.constant(f(angles), self._dtype) for f in (np.cos, np.sin)] if rotary else []
        flags = {"sliding_window_cache": 1} if self.windowed else {}
        out = f"attended{len(self.nodes)}"
        operands, results = [q, k, v, *pasts, "ends", "total", *tables], [out, *presents]
        counts = {"num_heads": HEADS, "kv_num_heads": self.groups, "local_window_size": self.window or -1}
        node = helper.make_node(
            "GroupQueryAttention", operands, results, domain=MICROSOFT, do_rotary=int(rotary), **counts, **flags
        )
        self.nodes.append(node)
        return out

    def _of_onnx(self, x: str, pasts: list[str], presents: list[str]) -> str:
        q, k, v = (self._heads(x, count) for count in (HEADS, self.groups, self.groups))
        if self.positions == "rotary":
            q, k = self._rotated(q), self._rotated(k)
        out = f"attended{len(self.nodes)}"
        self.nodes.append(helper.make_node("Attention", [q, k, v, "mask", *pasts], [out, *presents]))
        return self._joined(out)


def _info(name: str, type_: int, shape: Sequence[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """The path of the model in a file."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def converted(source: Path, prefill: Sequence[int] = (4, 16), context: int = 64, **how: Any) -> Path:
    """The path of the signatures of a decoder."""
    out = io.BytesIO()
    decoder_to_tflite(
        source, decoder_of(files.read(source).main), out, Options(), prefill=prefill, context=context, **how
    )
    path = source.with_suffix(".tflite")
    path.write_bytes(out.getvalue())
    return path
