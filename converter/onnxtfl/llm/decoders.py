"""What the inputs and outputs of a decoder are: tokens, masks, positions, and caches of keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.dims import SymDim
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import DType, TensorType, shape_of
from onnxtfl.tables import some

_TOKENS = ("input_ids", "tokens", "token_ids", "inputs", "ids")
_EMBEDDINGS = ("inputs_embeds", "input_embeds", "inputs_embeddings", "embeddings")
_ATTENTION = ("attention_mask", "mask")
_POSITIONS = ("position_ids", "cache_position", "positions", "input_pos")
_INTEGERS = (DType.INT32, DType.INT64)
BOTH, STACKED = "kv", 4
"""The kind of a cache with keys and values ([2, batch, heads, places, size]), and the rank of others at most."""


@dataclass(frozen=True)
class Cache:
    """A cache: the names of its input and output, its kind, its layer, and the axis of its places."""

    past: str
    present: str
    kind: str
    layer: int
    axis: int

    @property
    def name(self) -> str:
        """Its name in LiteRT-LM."""
        return f"kv_cache_{self.kind}_{self.layer}"


@dataclass(frozen=True)
class Decoder:
    """The inputs and outputs of a decoder by name; "" for those that it lacks.

    ``tokens``: their ids, or their embeddings (`has_embeddings`).
    """

    tokens: str
    attention: str
    positions: str
    logits: str
    caches: tuple[Cache, ...]
    has_embeddings: bool = False


def decoder_of(graph: Graph, has_encoder: bool = False) -> Decoder:
    """What the inputs and outputs of a file's graph are; `has_encoder`: others come from an encoder.

    Raises UnsupportedError for another model than a decoder with caches, with what was looked for and found.
    """
    inputs = {str(v.name): v for v in graph.inputs}
    names = graph.names_of_outputs
    caches = tuple(_caches(graph, names))
    rest = {name: value for name, value in inputs.items() if name not in {c.past for c in caches}}
    tokens, attention, positions = (_named(rest, known) for known in (_TOKENS, _ATTENTION, _POSITIONS))
    embeddings = "" if tokens else next((name for name, v in rest.items() if _are_embeddings(v)), "")
    tokens = tokens or embeddings
    others = [name for name in rest if name not in (tokens, attention, positions)]
    logits = next((n for n in names if n not in {c.present for c in caches} and "logits" in n.lower()), "")
    if not caches or not tokens or not logits or (others and not has_encoder):
        raise _refusal(graph, names, caches, tokens, logits, others)
    return Decoder(tokens, attention, positions, logits, caches, bool(embeddings))


def _refusal(
    graph: Graph, names: Sequence[str], caches: Sequence[Cache], tokens: str, logits: str, others: Sequence[str]
) -> UnsupportedError:
    """What was looked for and is missing, what was found instead, and how to get a decoder."""
    looked = {
        "pairs of an input and an output with keys and values (past_key_values.0.key and present.0.key)": bool(caches),
        "an input of token ids (input_ids) or of their embeddings (inputs_embeds)": bool(tokens),
        "an output of logits (logits)": bool(logits),
    }
    missing = [what for what, is_there in looked.items() if not is_there]
    by_words = {_words(name) for name in names}
    states = [name for name in others if _words(name) in by_words]
    rest = [name for name in others if name not in states]
    found = [f"looked for {', '.join(missing)}"] if missing else []
    found += [f"it has state that is not keys and values: {some(states)}"] if states else []
    found += [f"it has other inputs: {some(rest)}"] if rest and caches else []
    found.append(f"its inputs are {some([str(v.name) for v in graph.inputs])}, its outputs {some(names)}")
    hint = _hint(states, rest, bool(caches), bool(logits))
    message = f"not a decoder with caches of keys and values: {'; '.join(found)}"
    return UnsupportedError(message, hint=hint, code="E-OP-010")


def _hint(states: Sequence[str], rest: Sequence[str], has_caches: bool, has_logits: bool) -> str:
    if states:
        return "LiteRT-LM keeps keys and values from token to token only: convert it as a model with state"
    if any(word in name for name in rest for word in ("encoder", "cross")):
        return "convert an encoder-decoder from the folder that `optimum-cli export onnx` writes, to a .tflite"
    if has_caches and not has_logits:
        return "export the decoder with its last product (by ONNX Runtime's generator without `exclude_lm_head`)"
    if has_caches and rest:
        return "export the decoder without these inputs: with token ids, where they are embeddings"
    return "export the decoder with its caches (`optimum-cli export onnx --task text-generation-with-past`)"


def _named(values: dict[str, Value], known: Sequence[str]) -> str:
    """The input of integers with one of the known names."""
    names = [name for name in values if name.lower() in known and _dtype(values[name]) in _INTEGERS]
    return names[0] if names else ""


def _are_embeddings(value: Value) -> bool:
    """Whether an input is the embeddings of tokens: [batch, tokens, size]."""
    dtype = _dtype(value)
    return str(value.name).lower() in _EMBEDDINGS and dtype is not None and dtype.is_float and value.rank == 3


def _dtype(value: Value) -> DType | None:
    return value.type.dtype if isinstance(value.type, TensorType) else None


def _caches(graph: Graph, names: Sequence[str]) -> Iterator[Cache]:
    """The caches, paired by kind and layer, or by their order where names do not tell these."""
    floats = [v for v in graph.inputs if (t := _dtype(v)) is not None and t.is_float and not _are_embeddings(v)]
    presents = dict(zip(names, graph.outputs, strict=True))
    listed = [name for name in names if "logits" not in name.lower()]
    by_words = {_words(name): name for name in listed}
    for number, value in enumerate(floats):
        place = _place(str(value.name))
        present = by_words.get(_words(str(value.name))) if place is not None else None
        if place is None and len(listed) == len(floats):
            stacked = value.rank > STACKED
            place, present = (BOTH, number) if stacked else ("kv"[number % 2], number // 2), listed[number]
        axis = None if present is None else _grown_axis(value, presents[present])
        if place is not None and present is not None and axis is not None:
            yield Cache(str(value.name), present, *place, axis)


def cross_name(name: str) -> str | None:
    """The new name of a cache of keys or values of an encoder's states; None for other values."""
    place = _place(name) if {"encoder", "cross"} & set(_words(name)) else None
    return None if place is None else f"cross_kv_cache_{place[0]}_{place[1]}"


def _words(name: str) -> tuple[str, ...]:
    """The words of a cache's name, except those that say whether it is the input or the output."""
    found = re.findall(r"[a-z]+|\d+", re.sub(_BOTH, "", name.lower()))
    return tuple(
        "k" if w in ("key", "keys") else "v" if w in ("value", "values") else w for w in found if w not in _SIDES
    )


_SIDES = ("past", "present", "in", "out", "input", "output", "new", "next", "updated")


def _place(name: str) -> tuple[str, int] | None:
    """The kind and layer in the name of a cache; None if it has none."""
    words = _words(name)
    kinds = [word[0] for word in words if word in _KINDS]
    layers = [int(word) for word in words if word.isdigit()]
    return (kinds[-1], layers[0]) if kinds and len(layers) == 1 else None


_BOTH = r"key_?values?"
"""What names say of all caches."""
_KINDS = ("k", "v")


def _grown_axis(past: Value, present: Value) -> int | None:
    """The axis along which a cache grows: the only one, besides the batch, that differs between input and output."""
    before, after = (shape_of(v.type) for v in (past, present))
    if before is None or after is None or len(before) != len(after) or len(before) < 3:
        return None
    axes = [i for i, (m, n) in enumerate(zip(before, after, strict=True)) if i and isinstance(m, SymDim) and m != n]
    return axes[0] if len(axes) == 1 else None
