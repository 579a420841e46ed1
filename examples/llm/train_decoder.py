"""Train a small language model of characters in NumPy, and export it to ONNX with caches of keys and values.

    python examples/llm/train_decoder.py        (takes about half a minute)

Writes decoder.onnx to the directory of this file, with tokenizer.json, config.json, generation_config.json and
tokenizer_config.json beside it, as exporters do. Equal seeds give equal files.

The model has 6,640 parameters in two layers, each with attention (rotary positions, two heads of queries on one of keys
and values) and a gated network. A `Variable` is an array in the computation of the loss, which knows how its gradient
goes on to those from which it was computed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
SENTENCES = (
    "the cat sleeps in the sun.",
    "the dog runs in the park.",
    "a bird sings in the tree.",
    "the fish swims in the sea.",
    "the child reads a book.",
    "the moon is round and white.",
    "a small mouse eats the cheese.",
    "we drink tea and eat bread.",
)
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
TOKENS = (*SPECIAL, *sorted(set(" ".join(SENTENCES))))
WIDTH, HEADS, GROUPS, SIZE, HIDDEN, LAYERS, PLACES = 16, 2, 1, 8, 48, 2, 128
RATES = 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
EPSILON = 1e-5
BATCH, LENGTH, STEPS, RATE = 12, 120, 700, 5e-3


class Variable:
    """An array, and functions from its gradient to those of the variables from which it was computed."""

    def __init__(self, value: Array, *sources: tuple[Variable, Callable[[Array], Array]]) -> None:
        self.value, self.sources = value, sources
        self.gradient = np.zeros(0)

    def backward(self) -> None:
        """Set the gradients of this scalar by all variables on which it depends."""
        order = list(_sorted(self, set()))
        for variable in order:
            variable.gradient = np.zeros_like(variable.value)
        self.gradient = np.ones_like(self.value)
        for variable in reversed(order):
            for source, backward in variable.sources:
                source.gradient = source.gradient + backward(variable.gradient)


def _sorted(variable: Variable, seen: set[Variable]) -> Iterator[Variable]:
    """The variables on which one depends, sources first."""
    if variable not in seen:
        seen.add(variable)
        for source, _ in variable.sources:
            yield from _sorted(source, seen)
        yield variable


def matmul(a: Variable, b: Variable) -> Variable:
    """The product of matrices in the last axes; `b` may have fewer axes."""
    extra = tuple(range(a.value.ndim - b.value.ndim))
    return Variable(
        a.value @ b.value,
        (a, lambda g: g @ np.swapaxes(b.value, -1, -2)),
        (b, lambda g: (np.swapaxes(a.value, -1, -2) @ g).sum(extra)),
    )


def add(a: Variable, b: Variable) -> Variable:
    return Variable(a.value + b.value, (a, lambda g: g), (b, lambda g: g))


def multiply(a: Variable, b: Variable) -> Variable:
    return Variable(a.value * b.value, (a, lambda g: g * b.value), (b, lambda g: g * a.value))


def silu(x: Variable) -> Variable:
    share = 1 / (1 + np.exp(-x.value))
    return Variable(x.value * share, (x, lambda g: g * share * (1 + x.value * (1 - share))))


def moved(x: Variable, there: Callable[[Array], Array], back: Callable[[Array], Array]) -> Variable:
    """Another order or shape of the elements, and the function that restores those of the gradient."""
    return Variable(there(x.value), (x, back))


def embedded(table: Variable, ids: Array) -> Variable:
    def backward(g: Array) -> Array:
        found = np.zeros_like(table.value)
        np.add.at(found, ids, g)
        return found

    return Variable(table.value[ids], (table, backward))


def normalized(x: Variable, weights: Variable) -> Variable:
    """RMS normalization of the last axis."""
    root = 1 / np.sqrt((x.value**2).mean(-1, keepdims=True) + EPSILON)
    y = x.value * root

    def backward(g: Array) -> Array:
        scaled = g * weights.value
        return root * (scaled - y * (scaled * y).mean(-1, keepdims=True))

    return Variable(y * weights.value, (x, backward), (weights, lambda g: (g * y).reshape(-1, WIDTH).sum(0)))


def softmax(scores: Variable, mask: Array) -> Variable:
    shifted = np.where(mask, scores.value, -1e9)
    powers = np.exp(shifted - shifted.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    return Variable(shares, (scores, lambda g: shares * (g - (g * shares).sum(-1, keepdims=True))))


def rotated(x: Variable, angles: Array) -> Variable:
    """Rotary positions: the halves of each head are the coordinates of points, turned by angles."""
    cos, sin = (np.concatenate([f(angles), f(angles)], -1) for f in (np.cos, np.sin))

    def turn(a: Array, sign: int) -> Array:
        low, high = np.split(a, 2, -1)
        return np.concatenate([-sign * high, sign * low], -1)

    return Variable(x.value * cos + turn(x.value, 1) * sin, (x, lambda g: g * cos + turn(g * sin, -1)))


def cross_entropy(logits: Variable, ids: Array) -> Variable:
    """The mean of -log of the share of each token in `ids`."""
    shifted = logits.value - logits.value.max(-1, keepdims=True)
    shares = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    chosen = np.eye(len(TOKENS))[ids]
    loss = -np.log((shares * chosen).sum(-1)).mean()
    return Variable(loss, (logits, lambda g: g * (shares - chosen) / ids.size))


def parameters(rng: np.random.Generator) -> dict[str, Variable]:
    """The parameters by name, at random."""
    shapes = {"embedding": (len(TOKENS), WIDTH), "norm": (WIDTH,)}
    for layer in range(LAYERS):
        inner = {"q": (WIDTH, HEADS * SIZE), "k": (WIDTH, GROUPS * SIZE), "v": (WIDTH, GROUPS * SIZE)}
        inner |= {"o": (HEADS * SIZE, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
        inner |= {"norm_a": (WIDTH,), "norm_b": (WIDTH,)}
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in inner.items()}
    return {
        name: Variable(np.ones(shape) if len(shape) == 1 else rng.normal(size=shape) * shape[0] ** -0.5)
        for name, shape in shapes.items()
    }


def logits_of(weights: dict[str, Variable], ids: Array) -> Variable:
    """The logits [batch, length, tokens] of all positions."""
    length = ids.shape[1]
    mask = np.tril(np.ones((length, length), bool))
    x = embedded(weights["embedding"], ids)
    for layer in range(LAYERS):
        own = {name.rpartition(".")[2]: w for name, w in weights.items() if name.startswith(f"layers.{layer}.")}
        x = add(x, _attention(normalized(x, own["norm_a"]), own, mask))
        y = normalized(x, own["norm_b"])
        gated = multiply(silu(matmul(y, own["gate"])), matmul(y, own["up"]))
        x = add(x, matmul(gated, own["down"]))
    table = weights["embedding"]
    return matmul(normalized(x, weights["norm"]), moved(table, np.transpose, np.transpose))


def _attention(x: Variable, own: dict[str, Variable], mask: Array) -> Variable:
    batch, length = x.value.shape[:2]
    angles = np.arange(length)[:, None] * RATES

    def heads(name: str, count: int) -> Variable:
        shape = batch, length, count, SIZE
        return moved(
            matmul(x, own[name]),
            lambda a: a.reshape(shape).swapaxes(1, 2),
            lambda g: g.swapaxes(1, 2).reshape(batch, length, -1),
        )

    def repeated(y: Variable) -> Variable:
        shape = batch, GROUPS, HEADS // GROUPS, length, SIZE
        return moved(y, lambda a: a.repeat(HEADS // GROUPS, 1), lambda g: g.reshape(shape).sum(2))

    q, k = rotated(heads("q", HEADS), angles), repeated(rotated(heads("k", GROUPS), angles))
    swapped = moved(k, lambda a: a.swapaxes(-1, -2) * SIZE**-0.5, lambda g: g.swapaxes(-1, -2) * SIZE**-0.5)
    read = matmul(softmax(matmul(q, swapped), mask), repeated(heads("v", GROUPS)))
    joined = moved(
        read,
        lambda a: a.swapaxes(1, 2).reshape(batch, length, -1),
        lambda g: g.reshape(batch, length, HEADS, SIZE).swapaxes(1, 2),
    )
    return matmul(joined, own["o"])


def samples(rng: np.random.Generator) -> Array:
    """Token ids [batch, length + 1] of sentences in random order, from the start of a text."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    rows = []
    for _ in range(BATCH):
        text = " ".join(SENTENCES[k] for k in rng.integers(0, len(SENTENCES), LENGTH // 16))
        rows.append([ids["<s>"], *(ids[character] for character in text)][: LENGTH + 1])
    return np.asarray(rows)


def train(steps: int = STEPS, seed: int = 1) -> tuple[dict[str, Variable], list[float]]:
    """The parameters after some steps of Adam, and the loss at each step."""
    rng = np.random.default_rng(seed)
    weights, losses = parameters(rng), list[float]()
    moments = {name: (np.zeros_like(w.value), np.zeros_like(w.value)) for name, w in weights.items()}
    for step in range(1, steps + 1):
        ids = samples(rng)
        loss = cross_entropy(logits_of(weights, ids[:, :-1]), ids[:, 1:])
        loss.backward()
        losses.append(float(loss.value))
        rate = RATE * min(1.0, step / 100, (steps - step + 1) / (steps / 2))
        for name, weight in weights.items():
            first, second = moments[name]
            first += 0.1 * (weight.gradient - first)
            second += 0.01 * (weight.gradient**2 - second)
            size = np.sqrt(second / (1 - 0.99**step)) + 1e-8
            weight.value = weight.value - rate * first / (1 - 0.9**step) / size
        if step % 100 == 0:
            print(f"step {step}: loss {losses[-1]:.3f}", file=sys.stderr)
    return weights, losses


class Export:
    """The graph of the trained model for new tokens after those in caches."""

    def __init__(self, weights: dict[str, Variable]) -> None:
        self.weights = {name: weight.value.astype(np.float32) for name, weight in weights.items()}
        self.nodes: list[onnx.NodeProto] = []
        self.constants = dict(self.weights)
        self.caches: list[tuple[str, str]] = []

    def model(self) -> onnx.ModelProto:
        self._make_masks()
        x = self.op("Gather", "embedding", "input_ids")
        for layer in range(LAYERS):
            x = self.op("Add", x, self._attention(f"layers.{layer}.", self._normalized(x, f"layers.{layer}.norm_a")))
            y = self._normalized(x, f"layers.{layer}.norm_b")
            gate = self.op("MatMul", y, f"layers.{layer}.gate")
            gate = self.op("Mul", gate, self.op("Sigmoid", gate))
            gated = self.op("Mul", gate, self.op("MatMul", y, f"layers.{layer}.up"))
            x = self.op("Add", x, self.op("MatMul", gated, f"layers.{layer}.down"))
        table = self.op("Transpose", "embedding", perm=[1, 0])
        self.op("MatMul", self._normalized(x, "norm"), table, out="logits")
        integers = [("input_ids", "new"), ("attention_mask", "past + new"), ("position_ids", "new")]
        inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", size]) for n, size in integers]
        inputs += [_cache(past, "past") for past, _ in self.caches]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", len(TOKENS)])]
        outputs += [_cache(present, "past + new") for _, present in self.caches]
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def op(self, name: str, *operands: str | Array, out: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        out = out or f"{name.lower()}_{len(self.nodes)}"
        names = [operand if isinstance(operand, str) else self._constant(operand) for operand in operands]
        self.nodes.append(helper.make_node(name, names, [out], **attributes))
        return out

    def _constant(self, value: Array) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def _make_masks(self) -> None:
        """The mask "hidden" of scores, and the tables "cos" and "sin" of the new positions."""
        total = self.op("Gather", self.op("Shape", "attention_mask"), np.asarray(1))
        places = self.op("Range", np.asarray(0), total, np.asarray(1))
        at = self.op("Unsqueeze", "position_ids", np.asarray([2]))
        later = self.op("Unsqueeze", self.op("Greater", places, at), np.asarray([1]))
        self.op("Where", later, np.float32(-1e9), np.float32(0), out="hidden")
        angles = self.op("Mul", self.op("Cast", at, to=TensorProto.FLOAT), RATES.astype(np.float32))
        angles = self.op("Unsqueeze", self.op("Concat", angles, angles, axis=-1), np.asarray([1]))
        self.op("Cos", angles, out="cos")
        self.op("Sin", angles, out="sin")

    def _normalized(self, x: str, weights: str) -> str:
        squares = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", squares, np.float32(EPSILON)))
        return self.op("Mul", self.op("Div", x, root), weights)

    def _attention(self, prefix: str, x: str) -> str:
        q, k, v = (self._heads(x, prefix + n, count) for n, count in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)))
        layer = len(self.caches) // 2
        found = []
        for kind, new in (("key", self._rotated(k)), ("value", v)):
            self.caches.append((f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"))
            self.op("Concat", self.caches[-1][0], new, out=self.caches[-1][1], axis=2)
            found.append(self._repeated(self.caches[-1][1]))
        scaled = self.op("Mul", self._rotated(q), np.float32(SIZE**-0.5))
        scores = self.op("MatMul", scaled, self.op("Transpose", found[0], perm=[0, 1, 3, 2]))
        shares = self.op("Softmax", self.op("Add", scores, "hidden"), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", shares, found[1]), perm=[0, 2, 1, 3])
        return self.op("MatMul", self.op("Reshape", joined, np.asarray([0, 0, HEADS * SIZE])), prefix + "o")

    def _heads(self, x: str, weights: str, count: int) -> str:
        split = self.op("Reshape", self.op("MatMul", x, weights), np.asarray([0, 0, count, SIZE]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def _rotated(self, x: str) -> str:
        halves = [
            self.op("Slice", x, np.asarray([start]), np.asarray([start + SIZE // 2]), np.asarray([3]))
            for start in (0, SIZE // 2)
        ]
        turned = self.op("Concat", self.op("Neg", halves[1]), halves[0], axis=-1)
        return self.op("Add", self.op("Mul", x, "cos"), self.op("Mul", turned, "sin"))

    def _repeated(self, x: str) -> str:
        wide = self.op("Tile", self.op("Unsqueeze", x, np.asarray([2])), np.asarray([1, 1, HEADS // GROUPS, 1, 1]))
        return self.op("Reshape", wide, np.asarray([0, HEADS, -1, SIZE]))


def _cache(name: str, places: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", GROUPS, places, SIZE])


def tokenizer() -> dict[str, Any]:
    """A tokenizer.json with a token for each character; it prepends the token <s> to a text."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": number, "content": token, **flags, "special": True} for number, token in enumerate(SPECIAL)]
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": {t: n for n, t in enumerate(TOKENS)}, "merges": []}
    model |= dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    model |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    start = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<s>": {"id": "<s>", "ids": [SPECIAL.index("<s>")], "tokens": ["<s>"]}}
    processor = {"type": "TemplateProcessing", "single": start, "pair": start, "special_tokens": special}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer"))
    parts = {"post_processor": processor, "decoder": {"type": "Fuse"}, "model": model}
    return {"version": "1.0", "added_tokens": added, **empty, **parts}


def configurations() -> dict[str, dict[str, Any]]:
    """The other files beside the model, by name."""
    ids = {"bos_token_id": SPECIAL.index("<s>"), "eos_token_id": SPECIAL.index("</s>")}
    texts = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    config = {"model_type": "llama", "max_position_embeddings": PLACES, "vocab_size": len(TOKENS), **ids}
    return {
        "config.json": config,
        "generation_config.json": {**ids, "do_sample": False},
        "tokenizer_config.json": {"add_bos_token": True, **texts},
        "tokenizer.json": tokenizer(),
    }


def main(arguments: Sequence[str] = ()) -> None:
    """Train, and write the files to the folder that is given, by default that of this file."""
    folder = Path(arguments[0]) if arguments else HERE
    weights, _ = train()
    onnx.save(Export(weights).model(), folder / "decoder.onnx")
    for name, content in configurations().items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
