"""The signatures of a converted decoder, and how a prompt is split into pieces of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxtfl.checking.models.widened import HALVES
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model, Signature
from onnxtfl.passes.states.fixed_caches import EMBEDDINGS, MASK, POSITIONS, TOKENS

STEPS = 32
"""Tokens decoded after each prompt."""
DECODE, PREFILL = "decode", "prefill_"
"""The key of the signature for one token, and the prefix of those for more."""
Piece = tuple[str, int, int]
"""A signature, the number of its tokens, and how many of these are in use."""


@dataclass(frozen=True)
class Entries:
    """The signatures of a converted decoder: the sizes of prefill, the places of its caches, the vocabulary, the shapes
    of caches by name, and whether these are rounded to float16.
    """

    prefill: tuple[int, ...]
    context: int
    vocabulary: int
    shapes: Mapping[str, tuple[int, ...]]
    half: bool

    @classmethod
    def of(cls, model: Model) -> Entries | None:
        """Those of a .tflite; None if it is no decoder."""
        decode = next((s for s in model.signatures if s.key == DECODE), None)
        if decode is None:
            return None
        inputs, outputs = _values(decode, "inputs"), _values(decode, "outputs")
        if not {POSITIONS, MASK} <= inputs.keys() or "logits" not in outputs:
            return None
        if not {TOKENS, EMBEDDINGS} & inputs.keys():
            return None
        sizes = [s.key.removeprefix(PREFILL) for s in model.signatures if s.key.startswith(PREFILL)]
        shapes = {name: _shape(value) for name, value in inputs.items() if name in outputs}
        half = any(inputs[name].dtype in HALVES for name in shapes)
        context, vocabulary = _shape(inputs[MASK])[-1], _shape(outputs["logits"])[-1]
        return cls(tuple(sorted(int(n) for n in sizes if n.isdigit())), context, vocabulary, shapes, half)

    def pieces(self, count: int) -> list[Piece]:
        """How a number of tokens is prefilled: in the largest pieces, then in the smallest that has the rest."""
        found, sizes = list[Piece](), self.prefill
        while count and sizes:
            size = next((n for n in sizes if n >= count), sizes[-1])
            found.append((f"{PREFILL}{size}", size, min(size, count)))
            count -= found[-1][2]
        return found

    def small_pieces(self, count: int) -> list[Piece]:
        """Another way: in the smallest pieces, whose rest is decoded."""
        size = self.prefill[0] if self.prefill else 1
        return [(f"{PREFILL}{size}", size, size)] * (count // size if self.prefill else 0)

    @property
    def steps(self) -> int:
        """Tokens decoded after each prompt, for which small caches have no place."""
        return min(STEPS, max(1, self.context - 1))

    def lengths(self, windows: Sequence[int]) -> list[int]:
        """Lengths of prompts, whose last token is decoded: one, around the sizes of prefill and the windows of
        attention, and the longest such that `steps` tokens follow.
        """
        steps = self.steps
        longest = max(1, self.context - steps)
        around = [n + more for n in self.prefill for more in (0, 1, 2)]
        around += [n for window in windows for n in (window - steps // 2, window + 1)]
        return sorted({n for n in (1, *around, longest) if 1 <= n <= longest})


def _values(signature: Signature, side: str) -> dict[str, Value]:
    values = getattr(signature.graph, side)
    return {name: values[index] for name, index in getattr(signature, side)}


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
