"""The sizes of a decoder's signatures: the new tokens of each prefill, and the places of its caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxtfl.errors import UsageError
from onnxtfl.llm.model_files import CONFIG, GENAI, ModelFiles

PREFILL = (32, 128, 1024)
"""The default sizes of prefill, as far as they fit into the caches."""
MOST_PLACES, PLACES = 4096, 1024
"""The default places of a cache: those of the model up to the first number, the second where no file names them."""
_POSITIONS = ("max_position_embeddings", "context_length", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx")
"""The keys that name the positions of a model, in genai_config.json and config.json."""


@dataclass(frozen=True)
class Sizes:
    """The new tokens of each prefill signature, ascending, and the places of the caches."""

    prefill: tuple[int, ...]
    context: int


def sizes_of(files: ModelFiles, prefill: Sequence[int] | None, context: int | None) -> Sizes:
    """The sizes that are asked for, else the default ones. Raises UsageError for those that do not fit the model."""
    found = [n for n in files.values(_POSITIONS, GENAI, CONFIG) if isinstance(n, int) and n > 0]
    positions = min(found, default=None)
    if context is not None and positions is not None and context > positions:
        message = f"`context={context}`: the model has {positions} positions, by its {GENAI} or {CONFIG}"
        raise UsageError(message, hint=f"use up to {positions}")
    places = context or min(positions or PLACES, MOST_PLACES)
    if prefill is None:
        return Sizes(tuple(n for n in PREFILL if n <= places) or (places,), places)
    if max(prefill) > places:
        raise UsageError(f"`prefill`: {max(prefill)} tokens do not fit into {places}", hint="use a larger `context`")
    return Sizes(tuple(sorted(set(prefill))), places)
