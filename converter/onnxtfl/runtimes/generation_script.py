"""Greedy decoding in the child process: part of `worker`, and like it a script.

A plan says what to decode::

    {"prompt": [token], "steps": number, "forced": [token] | null,
     "names": {"tokens", "attention", "positions", "logits"},     of an .onnx model, "" for those that it lacks
     "caches": [[past, present, shape, axis]],                    of an .onnx model, `shape` when empty
     "pieces": [[signature, size, count]],                        of a model with caches of a fixed length
     "files": {role: path},                                       of a model of several .onnx files
     "outputs": {signature: {output: name}},                      of .onnx files that are signatures
     "encoder": {"seed", "count", "inputs": [[name, shape, dtype, limit]],     of an encoder-decoder
                 "places"},                                       to which .onnx files get padded inputs, if any
     "crossed": [[past, present]],                                its caches of the encoder's states
     "embedder": path}                                            a .tflite with the embeddings of tokens

With "forced", the tokens that follow the prompt are these, whatever the logits say. Both functions return the token of
the largest logit and the logits [vocabulary] of each step. A model that wants the embeddings of tokens gets those of
the embedder, else random ones.
"""

# ruff: noqa: B905 (zip has no "strict" on Python 3.9)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CHUNK = 256
"""Tokens of a prompt that an .onnx model gets at once: the scores of attention take memory for each pair."""
MASKED = -0.7 * float(np.finfo(np.float32).max)
"""The mask of a place that is not attended to, as LiteRT-LM has it."""
TYPES = {"float": "float32", "double": "float64"}
Plan = dict[str, Any]
Steps = tuple[list[int], Any]


def decode_onnx(sessions: dict[str, Any], plan: Plan) -> Steps:
    """Decode by ONNX Runtime sessions, by role: one whose caches grow (""), signatures, or those of `EncodedOnnx`."""
    if "encoder" in plan:
        return decoded_from(EncodedOnnx(sessions, plan), plan)
    if "outputs" in plan:
        return decode_tflite(Signatures(sessions, plan["outputs"]), plan)
    state = Growing(sessions[""], plan)
    prompt = plan["prompt"]
    for start in range(0, len(prompt), CHUNK):
        logits = state.feed_all(prompt[start : start + CHUNK])
    return decoded(plan, logits, lambda token: state.feed([token]))


def decode_tflite(interpreter: Any, plan: Plan, embedder: Any = None) -> Steps:
    """Decode by the signatures of an interpreter, whose caches have a fixed length."""
    if "encoder" in plan:
        return decoded_from(Encoded(interpreter, plan), plan)
    state, prompt, first = Fixed(interpreter, embedder), plan["prompt"], 0
    for key, size, count in plan["pieces"]:
        state.feed(key, prompt[first : first + count], size)
        first += count
    for token in prompt[first:]:
        logits = state.feed("decode", [token], 1)
    return decoded(plan, logits, lambda token: state.feed("decode", [token], 1))


def decoded_from(state: Any, plan: Plan) -> Steps:
    """Decode by a model whose first tokens are those of the prompt."""
    return decoded(plan, state.begin(plan["prompt"]), state.feed)


def decoded(plan: Plan, logits: Any, feed: Callable[[int], Any]) -> Steps:
    """Decode the steps of a plan after its prompt, which resulted in `logits`."""
    tokens, rows = [int(logits.argmax())], [logits]
    while len(rows) < plan["steps"]:
        rows.append(feed(tokens[-1] if plan["forced"] is None else plan["forced"][len(rows) - 1]))
        tokens.append(int(rows[-1].argmax()))
    return tokens, np.stack(rows)


class Growing:
    """The state of an .onnx model: its caches, and the number of tokens in them."""

    def __init__(self, session: Any, plan: Plan) -> None:
        self.session, self.names, self.caches, self.filled = session, plan["names"], plan["caches"], 0
        self.slots = {slot.name: slot for slot in session.get_inputs()}
        self.outputs = [slot.name for slot in session.get_outputs()]
        self.past = {past: np.zeros(shape, dtype_of(self.slots[past])) for past, _, shape, _ in self.caches}

    def feed_all(self, tokens: list[int]) -> Any:
        """The logits after the last of more tokens: one by one where a model takes several with empty caches only."""
        try:
            return self.feed(tokens)
        except Exception:
            if not self.filled:
                raise
        return [self.feed([token]) for token in tokens][-1]

    def feed(self, tokens: list[int]) -> Any:
        """The logits after the last of more tokens."""
        end = self.filled + len(tokens)
        slot = self.slots[self.names["tokens"]]
        is_embedded = len(slot.shape) > 2
        given = embedded(tokens, slot.shape[-1], dtype_of(slot)) if is_embedded else self._integers("tokens", [tokens])
        feeds = {**self.past, self.names["tokens"]: given}
        if self.names["attention"]:
            feeds[self.names["attention"]] = self._integers("attention", np.ones((1, end)))
        if self.names["positions"]:
            feeds[self.names["positions"]] = self._integers("positions", [range(self.filled, end)])
        found = dict(zip(self.outputs, self.session.run(None, feeds)))
        self.past, self.filled = {past: found[present] for past, present, _, _ in self.caches}, end
        return found[self.names["logits"]].reshape(-1, found[self.names["logits"]].shape[-1])[-1].astype(np.float32)

    def _integers(self, name: str, rows: Any) -> Any:
        """`rows` [1, N] in the type and rank of an input, repeated along axes before these."""
        slot = self.slots[self.names[name]]
        array = np.asarray([list(row) for row in rows]).astype(slot.type[len("tensor(") : -1])
        if len(slot.shape) > array.ndim:
            return np.broadcast_to(array, (*slot.shape[: -array.ndim], *array.shape)).copy()
        return array.reshape(array.shape[2 - len(slot.shape) :])


class Signatures:
    """Sessions as the signatures of an interpreter; `outputs`: the names of outputs, by those in files."""

    def __init__(self, sessions: dict[str, Any], outputs: dict[str, dict[str, str]]) -> None:
        self.sessions, self.outputs = sessions, outputs

    def get_signature_list(self) -> list[str]:
        return list(self.sessions)

    def get_signature_runner(self, key: str) -> Any:
        return Signature(self.sessions[key], self.outputs[key])


class Signature:
    """A session as a signature."""

    def __init__(self, session: Any, names: dict[str, str]) -> None:
        self.session = session
        self.names = [names.get(slot.name, slot.name) for slot in session.get_outputs()]

    def get_input_details(self) -> dict[str, Any]:
        return {slot.name: {"shape": slot.shape, "dtype": dtype_of(slot)} for slot in self.session.get_inputs()}

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        return dict(zip(self.names, self.session.run(None, inputs)))


class Fixed:
    """The state of a .tflite model: its caches, and the number of tokens in them."""

    def __init__(self, interpreter: Any, embedder: Any = None) -> None:
        self.embedder = embedder
        self.runners = {key: interpreter.get_signature_runner(key) for key in interpreter.get_signature_list()}
        self.inputs = self.runners["decode"].get_input_details()
        self.filled = 0
        caches = self.inputs.keys() - {"tokens", "embeddings", "input_pos", "mask"}
        self.caches = {name: np.zeros(self.inputs[name]["shape"], self.inputs[name]["dtype"]) for name in caches}

    def feed(self, key: str, tokens: list[int], size: int) -> Any:
        """The logits after the last of at most `size` more tokens; None if the signature has none."""
        count = len(tokens)
        row, positions = np.zeros((1, size), np.int32), np.zeros(size, np.int32)
        row[0, :count], positions[:count] = tokens, self.filled + np.arange(count)
        given = {"input_pos": positions, "mask": self._mask(size, count), **self._read(row)}
        found = self.runners[key](**given, **self.caches)
        self.caches = {name: found[name] for name in self.caches}
        self.filled += count
        logits = found.get("logits")
        return None if logits is None else logits.reshape(-1, logits.shape[-1])[count - 1].astype(np.float32)

    def _read(self, row: Any) -> dict[str, Any]:
        """The tokens [1, N] as the model wants them."""
        if "embeddings" not in self.inputs:
            return {"tokens": row}
        slot = self.inputs["embeddings"]
        if self.embedder is None:
            return {"embeddings": embedded(row[0].tolist(), slot["shape"][-1], slot["dtype"])}
        look_up = self.embedder.get_signature_runner()
        found = [look_up(tokens=row[:, k : k + 1])["embeddings"] for k in range(row.shape[1])]
        return {"embeddings": np.concatenate(found, axis=1)}

    def _mask(self, size: int, count: int) -> Any:
        """The places that each new token attends to; none for those without a token."""
        places = self.inputs["mask"]["shape"][-1]
        visible = np.arange(places) <= self.filled + np.arange(size)[:, None]
        visible[count:] = False
        is_bool = self.inputs["mask"]["dtype"] == np.bool_
        return (visible if is_bool else np.where(visible, np.float32(0), np.float32(MASKED)))[None, None]


class Encoded:
    """The state of an encoder-decoder with the signatures encode, prefill and decode."""

    def __init__(self, interpreter: Any, plan: Plan) -> None:
        encode, self.prefill, self.decode = map(interpreter.get_signature_runner, ("encode", "prefill", "decode"))
        self.places = self.decode.get_input_details()["mask"]["shape"][-1]
        slots = encode.get_input_details()
        read = read_by_encoder(plan, {name: slot["shape"] for name, slot in slots.items()})
        given = {name: array.astype(slots[name]["dtype"]) for name, array in read.items() if name in slots}
        others = {name.replace("encoder_", ""): name for name in self.decode.get_input_details()}
        kept = {**read, **{name: read[short] for short, name in others.items() if short in read}}
        self.others = {**kept, **encode(**given)}
        self.filled = 0
        self.caches: dict[str, Any] = {}

    def begin(self, tokens: list[int]) -> Any:
        """The logits after the first tokens."""
        slots, count = self.prefill.get_input_details(), len(tokens)
        self.caches = {n: np.zeros(s["shape"], s["dtype"]) for n, s in slots.items() if n.startswith("kv_cache_")}
        visible = np.arange(self.places) <= np.arange(count)[:, None]
        mask = np.where(visible, np.float32(0), np.float32(MASKED))[None, None]
        given = {"input_pos": np.arange(count, dtype=np.int32), "mask": mask} if "mask" in slots else {}
        found = self._run(self.prefill, {"tokens": np.asarray([tokens], np.int32), **given})
        self.filled = count
        return found

    def feed(self, token: int) -> Any:
        """The logits after one more token."""
        visible = np.arange(self.places) <= self.filled
        mask = np.where(visible, np.float32(0), np.float32(MASKED)).reshape(1, 1, 1, -1)
        at = np.asarray([self.filled], np.int32)
        self.filled += 1
        return self._run(self.decode, {"tokens": np.asarray([[token]], np.int32), "input_pos": at, "mask": mask})

    def _run(self, runner: Any, inputs: dict[str, Any]) -> Any:
        given = {**self.others, **self.caches, **inputs}
        slots = runner.get_input_details()
        found = runner(**{name: given[name].astype(slot["dtype"]) for name, slot in slots.items()})
        self.caches = {**self.caches, **{name: value for name, value in found.items() if name != "logits"}}
        return found["logits"][0, -1].astype(np.float32)


class EncodedOnnx:
    """The state of the files of an encoder-decoder: "encoder", "first" (tokens) and "later"; the latter are the same
    file where both are merged.
    """

    def __init__(self, sessions: dict[str, Any], plan: Plan) -> None:
        encoder, self.first, self.later = (sessions[role] for role in ("encoder", "first", "later"))
        self.names, self.crossed = plan["names"], dict(plan["crossed"])
        self.caches = {**{past: present for past, present, _, _ in plan["caches"]}, **self.crossed}
        slots = {slot.name: slot for slot in encoder.get_inputs()}
        read = read_by_encoder(plan, _padded_sizes(plan["encoder"]))
        given = {name: array.astype(dtype_of(slots[name])) for name, array in read.items() if name in slots}
        found = dict(zip([slot.name for slot in encoder.get_outputs()], encoder.run(None, given)))
        self.axes = {past: axis for past, _, _, axis in plan["caches"]}
        self.of_encoder = {past: found[present] for past, present in self.crossed.items() if present in found}
        others = {slot.name for session in (self.first, self.later) for slot in session.get_inputs()}
        self.given = {"encoder_hidden_states": next(iter(found.values())), **self.of_encoder}
        self.given.update({f"encoder_{name}": array for name, array in read.items() if f"encoder_{name}" in others})
        self.filled = 0
        self.past: dict[str, Any] = {}

    def begin(self, tokens: list[int]) -> Any:
        """The logits after the first tokens."""
        slots = {slot.name: slot for slot in self.first.get_inputs()}
        empty = {
            name: self._empty(slots[name]) for name in self.caches.keys() - self.of_encoder.keys() if name in slots
        }
        return self._run(self.first, tokens, {**empty, "use_cache_branch": np.asarray([False])})

    def feed(self, token: int) -> Any:
        """The logits after one more token."""
        return self._run(self.later, [token], {**self.past, "use_cache_branch": np.asarray([True])})

    def _empty(self, slot: Any) -> Any:
        """A cache of no tokens; of one, which is not read, where a branch for the first tokens is in the same file."""
        sizes = [n if isinstance(n, int) else 1 for n in slot.shape]
        if self.of_encoder:
            sizes[self.axes[slot.name]] = 0
        return np.zeros(sizes, dtype_of(slot))

    def _run(self, session: Any, tokens: list[int], inputs: dict[str, Any]) -> Any:
        end, slots = self.filled + len(tokens), {slot.name: slot for slot in session.get_inputs()}
        rows = {"tokens": [tokens], "attention": np.ones((1, end)), "positions": [list(range(self.filled, end))]}
        given = {**self.given, **inputs, **{self.names[key]: np.asarray(row) for key, row in rows.items()}}
        feeds = {name: given[name].astype(dtype_of(slot)) for name, slot in slots.items()}
        found = dict(zip([slot.name for slot in session.get_outputs()], session.run(None, feeds)))
        is_first, self.filled = not self.filled, end
        kept = self.caches.keys() - (self.of_encoder if is_first else self.crossed).keys()
        self.past = {**self.past, **{past: found[self.caches[past]] for past in kept}}
        return found[self.names["logits"]][0, -1].astype(np.float32)


def _padded_sizes(asked: dict[str, Any]) -> dict[str, Any]:
    """The sizes of padded inputs by name; none where they are not padded."""
    places = asked.get("places")
    if places is None:
        return {}
    return {name: [1, *(places if n is None else n for n in shape[1:])] for name, shape, _, _ in asked["inputs"]}


def read_by_encoder(plan: Plan, sizes: dict[str, Any]) -> dict[str, Any]:
    """The inputs of an encoder, at random: `count` tokens or masks of 1, filled up with 0 to their sizes in the result.

    Inputs of a fixed size are whole.
    """
    asked = plan["encoder"]
    rng, found = np.random.default_rng(asked["seed"]), {}
    for name, shape, dtype, limit in asked["inputs"]:
        whole = [1, *(asked["count"] if n is None else n for n in shape[1:])]
        values = rng.integers(0, limit, whole) if "int" in dtype else rng.standard_normal(whole)
        padding = [(0, m - n) for n, m in zip(whole, sizes.get(name, whole))]
        found[name] = np.pad((values if limit != 1 else np.ones(whole)).astype(dtype), padding)
    return found


def embedded(tokens: list[int], size: int, dtype: Any) -> Any:
    """Embeddings [1, N, size] of tokens, at random, but the same in each process."""
    rows = [np.random.default_rng((size, token)).standard_normal(size) for token in tokens]
    return np.stack(rows).astype(dtype)[None]


def dtype_of(slot: Any) -> Any:
    """The NumPy type of an input of a session."""
    name = slot.type[len("tensor(") : -1]
    return np.dtype(TYPES.get(name, name))
