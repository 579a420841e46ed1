"""The source of a converted decoder, which decodes in ONNX Runtime, also in float32 and with rounded activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onnxtfl.checking.models.widened import HALVES, may_round_operands, write_widened
from onnxtfl.checking.settings import Settings
from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType
from onnxtfl.llm.decoders import Decoder
from onnxtfl.llm.entries import Entries
from onnxtfl.runtimes import RunOptions, Worker
from onnxtfl.tracing.parts import temporary_directory

WIDE, ROUNDED = "wide", "rounded"
"""Copies of the source: in float32, and with activations rounded to int8."""
WINDOW, WINDOWED = "local_window_size", "sliding_window_cache"
"""Attributes of attention: places that a token attends to, and whether the cache has these only."""


@dataclass(frozen=True)
class Reference:
    """The source, which decodes freely, or the tokens that it is given."""

    source: Path
    decoder: Decoder
    entries: Entries
    worker: Worker
    settings: Settings
    stack: ExitStack

    def decode(
        self, prompt: Sequence[int], forced: Sequence[int] | None = None, kernels: str = "default", copy: str = ""
    ) -> tuple[list[int], Array]:
        """The tokens and logits after a prompt; `copy`: of the source in float32 (`WIDE`), or with activations rounded
        to int8 (`ROUNDED`). Raises RunError.
        """
        d = self.decoder
        names = {"tokens": d.tokens, "attention": d.attention, "positions": d.positions, "logits": d.logits}
        plan = {"prompt": prompt, "steps": self.entries.steps, "forced": forced, "names": names, "caches": self._caches}
        model = self._copies[copy] if copy else self.source
        self.worker.is_source = copy != ROUNDED
        return self.worker.generate(model, plan, RunOptions(kernels, self.settings.time_limit))

    @cached_property
    def _model(self) -> Model:
        return files.read(self.source)

    @cached_property
    def windows(self) -> list[int]:
        """The windows of attention that the model's ops have as an attribute."""
        found = {node.attributes.get(WINDOW, 0) for node in self._model.main.walk()}
        return sorted(int(n) for n in found if n > 0)

    @cached_property
    def is_rough(self) -> bool:
        """Whether it computes in float16, or rounds operands of products."""
        types = [v.type for node in self._model.main.walk() for v in node.operands if v is not None]
        halves = any(isinstance(t, TensorType) and t.dtype in HALVES for t in types)
        return halves or may_round_operands(self.source)

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        """The paths of copies of the source."""
        folder = temporary_directory(self.stack)
        found = {name: folder / f"{name}.onnx" for name in (WIDE, ROUNDED)}
        for name, path in found.items():
            write_widened(self.source, path, rounding=name == ROUNDED)
        return found

    @cached_property
    def _caches(self) -> list[tuple[str, str, list[int], int]]:
        """The names, the empty shape and the axis of each cache; one that has the places of a window only has that many
        from the start.
        """
        nodes = [node for node in self._model.main.walk() if node.attributes.get(WINDOWED)]
        windowed = {v.name: n.attributes[WINDOW] for n in nodes for v in n.operands if v is not None}
        found = []
        for cache in self.decoder.caches:
            shape = list(self.entries.shapes[cache.name])
            window = windowed.get(cache.past, 0)
            shape[cache.axis] = max(window, self.entries.context) if window else 0
            found.append((cache.past, cache.present, shape, cache.axis))
        return found
