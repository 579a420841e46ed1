"""Greedy decoding in the child process: part of `worker`, and like it a script.

A plan says what to decode::

    {"prompt": [token], "steps": number, "forced": [token] | null,
     "names": {"tokens", "attention", "positions", "logits"},     of an .onnx model, "" for those that it lacks
     "caches": [[past, present, shape, axis]],                    of an .onnx model, `shape` when empty
     "pieces": [[signature, size, count]]}                        of a .tflite model

With "forced", the tokens that follow the prompt are these, whatever the logits say. Both functions return the token of
the largest logit and the logits [vocabulary] of each step.
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
TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}
Plan = dict[str, Any]
Steps = tuple[list[int], Any]


def decode_onnx(session: Any, plan: Plan) -> Steps:
    """Decode by an ONNX Runtime session, whose caches grow."""
    state = Growing(session, plan)
    prompt = plan["prompt"]
    for start in range(0, len(prompt), CHUNK):
        logits = state.feed_all(prompt[start : start + CHUNK])
    return decoded(plan, logits, lambda token: state.feed([token]))


def decode_tflite(interpreter: Any, plan: Plan) -> Steps:
    """Decode by the signatures of an interpreter, whose caches have a fixed length."""
    state, prompt, first = Fixed(interpreter), plan["prompt"], 0
    for key, size, count in plan["pieces"]:
        state.feed(key, prompt[first : first + count], size)
        first += count
    for token in prompt[first:]:
        logits = state.feed("decode", [token], 1)
    return decoded(plan, logits, lambda token: state.feed("decode", [token], 1))


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
        self.past = {past: np.zeros(shape, TYPES[self.slots[past].type]) for past, _, shape, _ in self.caches}

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
        feeds = {**self.past, self.names["tokens"]: self._integers("tokens", [tokens])}
        if self.names["attention"]:
            feeds[self.names["attention"]] = self._integers("attention", np.ones((1, end)))
        if self.names["positions"]:
            feeds[self.names["positions"]] = self._integers("positions", [range(self.filled, end)])
        found = dict(zip(self.outputs, self.session.run(None, feeds)))
        self.past, self.filled = {past: found[present] for past, present, _, _ in self.caches}, end
        return found[self.names["logits"]].reshape(-1, found[self.names["logits"]].shape[-1])[-1].astype(np.float32)

    def _integers(self, name: str, rows: Any) -> Any:
        """`rows` [1, N] in the type and rank of an input."""
        slot = self.slots[self.names[name]]
        array = np.asarray([list(row) for row in rows]).astype(slot.type[len("tensor(") : -1])
        return array.reshape(array.shape[2 - len(slot.shape) :])


class Fixed:
    """The state of a .tflite model: its caches, and the number of tokens in them."""

    def __init__(self, interpreter: Any) -> None:
        self.runners = {key: interpreter.get_signature_runner(key) for key in interpreter.get_signature_list()}
        self.inputs = self.runners["decode"].get_input_details()
        self.filled = 0
        caches = self.inputs.keys() - {"tokens", "input_pos", "mask"}
        self.caches = {name: np.zeros(self.inputs[name]["shape"], self.inputs[name]["dtype"]) for name in caches}

    def feed(self, key: str, tokens: list[int], size: int) -> Any:
        """The logits after the last of at most `size` more tokens; None if the signature has none."""
        count = len(tokens)
        row, positions = np.zeros((1, size), np.int32), np.zeros(size, np.int32)
        row[0, :count], positions[:count] = tokens, self.filled + np.arange(count)
        found = self.runners[key](tokens=row, input_pos=positions, mask=self._mask(size, count), **self.caches)
        self.caches = {name: found[name] for name in self.caches}
        self.filled += count
        logits = found.get("logits")
        return None if logits is None else logits.reshape(-1, logits.shape[-1])[count - 1].astype(np.float32)

    def _mask(self, size: int, count: int) -> Any:
        """The places that each new token attends to; none for those without a token."""
        places = self.inputs["mask"]["shape"][-1]
        visible = np.arange(places) <= self.filled + np.arange(size)[:, None]
        visible[count:] = False
        is_bool = self.inputs["mask"]["dtype"] == np.bool_
        return (visible if is_bool else np.where(visible, np.float32(0), np.float32(MASKED)))[None, None]
