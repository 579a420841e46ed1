"""Continue a text with the small language model: in LiteRT, as a .tflite with the signatures of LiteRT-LM.

    onnx2tfl examples/llm/decoder.onnx -o build/decoder.tflite --llm --prefill 8,32
    python examples/llm/generate.py build/decoder.tflite "the cat"

It shows what a runtime does with the signatures: prefill fills the caches with the text but for its last token, and
decode returns the logits of the next token, one after the other. The caches are inputs and outputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

HERE = Path(__file__).resolve().parent
STEPS = 60
HIDDEN = np.float32(-0.7 * np.finfo(np.float32).max)
"""The mask of places that a token does not attend to."""


class Model:
    """The signatures of a .tflite, the caches, and the number of tokens in them."""

    def __init__(self, path: str) -> None:
        interpreter = Interpreter(path)
        self.runners = {key: interpreter.get_signature_runner(key) for key in interpreter.get_signature_list()}
        self.sizes = sorted(int(key.removeprefix("prefill_")) for key in self.runners if key != "decode")
        details = self.runners["decode"].get_input_details()
        self.places = int(details["mask"]["shape"][-1])
        names = [name for name in details if name.startswith("kv_cache_")]
        self.caches = {name: np.zeros(details[name]["shape"], details[name]["dtype"]) for name in names}
        self.filled = 0

    def prefill(self, tokens: list[int]) -> None:
        """Fill the caches with tokens; unused rows of a signature have no visible place."""
        while tokens:
            size = next((n for n in self.sizes if n >= len(tokens)), self.sizes[-1])
            self._run(f"prefill_{size}", tokens[:size], size)
            tokens = tokens[size:]

    def decode(self, token: int) -> Any:
        """The logits [vocabulary] after one more token."""
        return self._run("decode", [token], 1)["logits"][0, 0]

    def _run(self, key: str, tokens: list[int], size: int) -> dict[str, Any]:
        row, positions = np.zeros((1, size), np.int32), np.zeros(size, np.int32)
        row[0, : len(tokens)] = tokens
        positions[: len(tokens)] = np.arange(self.filled, self.filled + len(tokens))
        mask = np.full((1, 1, size, self.places), HIDDEN)
        for k in range(len(tokens)):
            mask[..., k, : self.filled + k + 1] = 0
        found = self.runners[key](tokens=row, input_pos=positions, mask=mask, **self.caches)
        self.caches = {name: found[name] for name in self.caches}
        self.filled += len(tokens)
        return found


def generate(path: str, text: str, steps: int = STEPS) -> str:
    """The text with the most likely characters after it."""
    ids = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    characters = {number: token for token, number in ids.items()}
    model, tokens = Model(path), [ids["<s>"], *(ids[character] for character in text)]
    model.prefill(tokens[:-1])
    token = tokens[-1]
    for _ in range(min(steps, model.places - len(tokens))):
        token = int(model.decode(token).argmax())
        text += characters[token]
    return text


if __name__ == "__main__":
    print(generate(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "the cat"))
